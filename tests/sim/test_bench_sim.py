import pytest

from gantry_sim.benchmarks.sim import PARTS, bench_sim, format_bench


def test_our_backend_alone():
    result = bench_sim([4, 8], 0.05, 2, with_warp=False)
    assert [entry["num_envs"] for entry in result["results"]] == [4, 8]
    for entry in result["results"]:
        rates = entry["env_steps_per_s"]["gantry"]
        assert len(rates["all"]) == 2
        assert 0 < rates["min"] <= rates["median"] <= rates["max"]
        assert "ratio" not in entry
        parts = entry["breakdown_ms"]
        assert set(parts) == {*PARTS, "other", "all"}
        assert parts["physics"] > 0
        assert parts["forward"] > 0
        # Every millisecond is counted once.
        assert sum(parts[part] for part in (*PARTS, "other")) == pytest.approx(parts["all"], rel=0.05)


@pytest.mark.slow
def test_pairs_of_both_backends():
    result = bench_sim([2], 0.01, 3)
    entry = result["results"][0]
    ours, theirs = (entry["env_steps_per_s"][name]["all"] for name in ("gantry", "mjlab"))
    assert entry["ratio"]["all"] == [a / b for a, b in zip(ours, theirs, strict=True)]
    assert entry["ratio"]["min"] <= entry["ratio"]["median"] <= entry["ratio"]["max"]
    text = format_bench(result)
    assert "2 environments" in text
    assert "mjlab" in text


@pytest.mark.parametrize("arguments", [([], 1.0, 3), ([0], 1.0, 3), ([4], 0.0, 3), ([4], 1.0, 0)])
def test_nothing_to_measure(arguments):
    with pytest.raises(ValueError, match="Nothing to measure"):
        bench_sim(*arguments)

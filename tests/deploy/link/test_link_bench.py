"""The benchmark measures, on real processes."""

from gantry_deploy.benchmarks.link_rate import measure_link


def test_two_actors_are_measured():
    result = measure_link(steps=60, image_px=8, actors=(2,))
    (row,) = result["rows"]
    assert row["actors"] == 2
    assert row["steps_per_s"] > 1.0
    assert 0.0 < row["p50_s"] <= row["p99_s"]
    assert result["step_bytes"] < row["journal_bytes_per_step"] < 2 * result["step_bytes"] + 100

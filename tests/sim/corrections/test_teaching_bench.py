"""The comparison in one process: same beginnings for all methods, nothing done twice, a page at the end."""

import json

import pytest

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.benchmarks.corrections import teaching
from gantry_sim.benchmarks.corrections.teaching import TeachingBenchCfg, record, run_teaching_bench
from gantry_sim.benchmarks.corrections.teaching_page import page, summary, table
from gantry_sim.tasks.registry import find_task

pytestmark = pytest.mark.usefixtures("one_thread")

CFG = TeachingBenchCfg("yam-lift", steps=210, every=210, episodes=2, demos=2, suboptimality=0.0, budgets=(1.0,))


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Fewer environments, and fewer updates of a clone."""
    monkeypatch.setattr(teaching, "EVALUATION_ENVS", 2)
    monkeypatch.setattr(teaching, "DEMOS_ENVS", 2)


def test_demonstrations_are_successes_with_their_last_frame():
    shown = record(find_task("yam-lift"), 2, 0.0, 5)
    assert len(shown.demos) == 2
    for demo in shown.demos:
        assert demo.reward.sum() == demo.reward[-1] == 1.0
        assert len(demo.obs["state"]) == len(demo.action) + 1
    assert shown.person_s == pytest.approx(0.05 * sum(len(demo.action) for demo in shown.demos), abs=2.0)


def test_a_method_is_trained_once_and_shown(tmp_path):
    said = []
    found = run_teaching_bench(CFG, ("hil-serl-gripper",), (1,), tmp_path / "out", said.append)
    (trial,) = found["trials"]
    assert [point["steps"] for point in trial["curve"]] == [0, 210]
    assert trial["curve"][0]["person_s"] == trial["demos_s"] > 0.0
    assert json.loads((tmp_path / "out" / "hil-serl-gripper-s1.json").read_text()) == trial
    count = len(said)
    assert run_teaching_bench(CFG, ("hil-serl-gripper",), (1,), tmp_path / "out", said.append) == found
    assert len(said) == count, "nothing is done twice"
    assert table(found)[1][0] == "hil-serl-gripper"
    assert summary(found)[1][:2] == ["hil-serl-gripper", "1"]
    assert page([found]).write(tmp_path / "report.html").is_file()


def test_a_comparison_of_something_else_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="hil-serl"):
        run_teaching_bench(CFG, ("hil-serrl",), (1,), tmp_path / "out", print)
    run_teaching_bench(CFG, (), (1,), tmp_path / "out", print)
    other = TeachingBenchCfg("yam-lift", steps=50)
    with pytest.raises(GantryError, match="name another folder"):
        run_teaching_bench(other, (), (1,), tmp_path / "out", print)


def trial(method, seed, *points):
    keys = ("steps", "success", "person_s", "intervention_rate")
    return {"method": method, "seed": seed, "curve": [dict(zip(keys, point, strict=True)) for point in points]}


def test_means_over_seeds_and_the_share_of_the_persons_time(tmp_path):
    cfg = {"task": "t", "wrong": 0.0, "every": 10, "demos": 1, "suboptimality": 0.0, "episodes": 4}
    trials = [
        trial("hil-serl", 1, (0, 0.0, 5.0, 0.0), (10, 0.9, 50.0, 0.5), (20, 1.0, 60.0, 0.1)),
        trial("hil-serl", 2, (0, 0.0, 5.0, 0.0), (10, 0.5, 40.0, 0.5), (20, 0.95, 70.0, 0.1)),
        trial("dagger", 1, (0, 0.5, 5.0, 0.0), (10, 0.95, 30.0, 0.5)),
        trial("clone", 1, (1, 0.5, 5.0, 0.0)),
    ]
    found = {"cfg": cfg, "trials": trials}
    assert summary(found)[1:] == [
        ["hil-serl", "2", "97.5%", "95.0%", "2 of 2", "60", "1.00"],
        ["dagger", "1", "95.0%", "95.0%", "1 of 1", "30", "0.50"],
        ["clone", "1", "50.0%", "50.0%", "0 of 1", "-", "-"],
    ]
    assert page([found]).write(tmp_path / "report.html").is_file()

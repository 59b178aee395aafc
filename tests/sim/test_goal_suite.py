"""``gantry eval --suite ame2``: parts, trials and the table."""

import json
from dataclasses import replace

import pytest
import torch

from gantry_deploy.cli.main import main
from gantry_sim.tasks.goal.evaluation import suite_table
from gantry_sim.tasks.registry import find_task, from_flat
from gantry_sim.terrains.catalogue import TESTS
from gantry_sim.training.policies import Source


def part(success, episodes, labels, name):
    score = {"episodes": episodes, "success_rate": {"mean": success, "low": success - 0.1, "high": success + 0.1}}
    return score | {name: dict.fromkeys(labels, score)}


def test_the_table_shows_every_group_and_leaves_a_dash_where_nothing_was_tried():
    ground = part(0.5, 12, ("dense", "climb"), "group")
    result = {"easier_half": ground, "all_levels": ground, "held_out": part(0.25, 8, TESTS[:3], "kind")}
    lines = suite_table(result)
    assert [line.split()[0] for line in lines[1:5]] == ["dense", "climb", "sparse", "all"]
    assert "50 % [40, 60] of 12" in lines[1]
    assert lines[3].split() == ["sparse", "-", "-"]
    assert "25 % [15, 35] of 8" in lines[6]
    assert lines[9].split() == [TESTS[3], "-"]


def test_a_suite_that_does_not_exist_is_answered_with_the_near_miss(tmp_path, capsys, monkeypatch):
    task = find_task("ame2-go2")
    source = Source(
        task, task.preset("cpu").env, make_policy=from_flat(lambda observations: observations), trained_seed=1
    )
    monkeypatch.setattr("gantry_sim.training.policies.open_source", lambda path: source)
    (tmp_path / "config.json").write_text('{"task": "ame2-go2"}')
    assert main(["eval", str(tmp_path), "--suite", "ame"]) == 2
    assert "Did you mean 'ame2'?" in capsys.readouterr().err


@pytest.mark.soak
def test_every_part_counts_its_trials_and_a_robot_that_stays_reaches_nothing():
    task = find_task("ame2-go2")
    preset = task.preset("cpu").env
    cfg = replace(preset, episode_s=1.0, ground=replace(preset.ground, levels=2, columns=12))
    size = task.contract(cfg).action_size
    result = task.suites["ame2"].run(
        task,
        cfg,
        from_flat(lambda observations: torch.zeros(len(observations), size)),
        episodes=12,
        device="cpu",
        seed=3,
        on_progress=lambda share: None,
    )
    json.dumps(result)
    for name in ("easier_half", "all_levels", "held_out"):
        assert result[name]["episodes"] == 12
        assert result[name]["success_rate"]["mean"] == 0.0
    assert sum(scores["episodes"] for scores in result["easier_half"]["group"].values()) == 12
    assert set(result["easier_half"]["level"]) == {"0"}
    assert set(result["held_out"]["kind"]) == set(TESTS)
    assert len(task.suites["ame2"].lines(result)) == 11

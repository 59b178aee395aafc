"""Sweeps: what is planned, what is refused, what comes out of hand-made runs, and a real one that goes on."""

import json
import math

import pytest

from gantry_deploy.cli.main import main
from gantry_hardware.errors import GantryError
from gantry_hardware.training.log import METRICS_FILE
from gantry_sim.benchmarks.comparison import SCORED, TRAINED, hold_plan
from gantry_sim.benchmarks.sweep import SweepCfg, collect, planned_runs, scores_of, sweep_lines, sweep_page

TWO = SweepCfg("ame2-go2", (("learner.network", ("ame2", "mlp")), ("learner.gamma", ("0.9", "0.99"))), (1, 2), ("a=b",))


def test_every_combination_runs_with_every_seed_and_the_seeds_come_one_after_the_other(tmp_path):
    runs = planned_runs(TWO, tmp_path)
    assert [run.seed for run in runs] == [1] * 4 + [2] * 4
    assert [run.variant for run in runs[:4]] == ["ame2, 0.9", "ame2, 0.99", "mlp, 0.9", "mlp, 0.99"]
    assert runs[1].train == (
        *("ame2-go2", "--set", "a=b", "--set", "learner.network=ame2"),
        *("--set", "learner.gamma=0.99"),
    )
    assert len({run.folder for run in runs}) == 8


def test_a_folder_holds_one_sweep_to_which_only_seeds_may_be_added(tmp_path):
    hold_plan(TWO, tmp_path / "s")
    hold_plan(SweepCfg(TWO.task, TWO.vary, (1, 2, 3), TWO.changes), tmp_path / "s")
    with pytest.raises(GantryError, match="changes"):
        hold_plan(SweepCfg(TWO.task, TWO.vary, (1,), ("a=c",)), tmp_path / "s")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(GantryError, match="in use already"):
        hold_plan(TWO, tmp_path / "other")


def _score(mean):
    return {"mean": mean, "low": 0.0, "high": 1.0}


def _scored(rate, episodes):
    part = {"success_rate": _score(rate), "episodes": episodes}
    return {"easier_half": part | {"group": {"sparse": part}}, "held_out": part | {"kind": {"t1": part}}, "seed": 7}


def test_labels_name_groups_of_training_terrain_and_kinds_of_held_out_terrain():
    assert set(scores_of(_scored(0.5, 10))) == {"easier_half", "easier_half sparse", "held_out", "held_out t1"}
    velocity = {
        "training_model": {"model": "training", "fall_rate": _score(0.1), "standing": {"drift_m_s": _score(0.0)}}
    }
    assert scores_of(velocity) == {"training_model fall_rate": (0.1, 0)}


def test_seeds_are_pooled_by_their_episodes(tmp_path):
    cfg = SweepCfg("ame2-go2", (("learner.network", ("ame2",)),), (1, 2), suite="ame2")
    for run, rate in zip(planned_runs(cfg, tmp_path), (0.2, 0.6), strict=True):
        run.folder.mkdir()
        (run.folder / TRAINED).write_text(json.dumps({"env_steps": 1000, "train_wall_s": 2.0}))
        (run.folder / SCORED).write_text(json.dumps(_scored(rate, 10)))
        rows = [{"kind": "train", "env_steps": 1000 * i, "success": rate * i} for i in range(1, 100)]
        (run.folder / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = collect(cfg, tmp_path)
    score = found["variants"]["ame2"]["scores"]["easier_half sparse"]
    assert (score["mean"], score["trials"], score["by_seed"]) == (0.4, 20, [0.2, 0.6])
    # Wilson's interval of 8 of 20 by hand: centre (0.4 + z2 / 40) / (1 + z2 / 20) with z = 1.96.
    z2 = 1.959964**2
    center = (0.4 + z2 / 40) / (1 + z2 / 20)
    assert math.isclose(0.5 * (score["low"] + score["high"]), center, abs_tol=1e-6)
    assert any("40 % [" in line and "(20/60)" in line for line in sweep_lines(found))
    page = sweep_page(cfg, tmp_path, found).html()
    assert "Running success" in page
    assert "(20/60)" in page


@pytest.mark.soak
@pytest.mark.slow
def test_a_real_sweep_trains_scores_and_does_nothing_twice(tmp_path, capfd):
    words = ["sweep", "velocity-flat-go2", "--vary", "learner.gamma=0.9", "--seeds", "1", "--episodes", "4"]
    words += ["--set", "learner.total_steps=400", "--set", "env.num_envs=16", "--set", "env.episode_s=1.0"]
    words += ["--output", str(tmp_path / "s")]
    assert main(words) == 0
    assert capfd.readouterr().out.count(": training") == 1
    assert main(words) == 0
    again = capfd.readouterr().out
    assert ": training" not in again
    assert ": scoring" not in again
    result = json.loads((tmp_path / "s" / "result.json").read_text())
    assert set(result["variants"]) == {"0.9"}
    assert (tmp_path / "s" / "report.html").stat().st_size > 1000


def test_a_typo_is_refused_before_anything_runs(tmp_path, capsys):
    output = tmp_path / "s"
    base = ["sweep", "velocity-flat-go2", "--output", str(output)]
    assert main([*base, "--vary", "learner.gama=0.9,0.97"]) == 2
    assert "Did you mean" in capsys.readouterr().err
    assert main([*base, "--vary", "learner.gamma"]) == 2
    assert main([*base, "--seeds", "1,x"]) == 2
    capsys.readouterr()
    assert main([*base, "--seeds", "1,-1"]) == 2
    assert "Seed -1 is out of range" in capsys.readouterr().err
    assert main([*base, "--suite", "ame2"]) == 2
    assert not output.exists()

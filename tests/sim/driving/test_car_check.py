"""The gate for cars: episodes on simulated roads through the runtime's own loop, and what they are worth."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import Acceptance
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.driving import RoadScenario, car_scores
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import Episode, RolloutConfig
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_fixtures.drive import drive_bundle, drive_contract_for, pursuit_weight
from gantry_hardware.errors import RobotError
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.cfg import DriveCfg

BMW = robot_spec("bmw_320i")
CONTRACT = replace(drive_contract_for(BMW), acceptance=Acceptance(min_success_rate=0.9))
SHORT = {"route_m": 50.0, "map_count": 1}


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Cars are stepped with one."""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """``good`` follows its route; ``bad`` does so steering to the left all the time."""
    folder = tmp_path_factory.mktemp("cars")
    drive_bundle(folder / "good", CONTRACT)
    drive_bundle(folder / "bad", CONTRACT, weight=pursuit_weight(CONTRACT), bias=np.array([1.0, 0.0]))
    return folder


def episode(**changes):
    usual = {"completion": 1.0, "driven_m": 200.0, "lateral_rmse_m": 0.1, "off_route_share": 0.0}
    scores = {**usual, "finished": False, "ended": "", **changes}
    return Episode(seconds=30.0, failed=scores.pop("failed", False), scores=scores)


def test_scores_of_hand_made_episodes():
    """Finished; half way and into a car (0.6); a quarter, past a red light (0.7); out of time, a tenth off its lane."""
    scores = car_scores(
        [
            episode(finished=True, ended="finished"),
            episode(completion=0.5, failed=True, ended="vehicle"),
            episode(completion=0.25, failed=True, ended="red_light", driven_m=50.0),
            episode(completion=0.8, off_route_share=0.1, lateral_rmse_m=0.5),
        ]
    )
    assert scores.success_rate.mean == 0.25
    assert scores.early_end_rate.mean == 0.5
    assert scores.collided.mean == 0.25
    assert scores.completion.mean == pytest.approx(25.0 * (1.0 + 0.5 + 0.25 + 0.8))
    assert scores.driving_score.mean == pytest.approx(25.0 * (1.0 + 0.5 * 0.6 + 0.25 * 0.7 + 0.8 * 0.9))
    assert scores.lateral_rmse_m.mean == pytest.approx(0.2)
    assert scores.km == pytest.approx(0.65)
    (verdict,) = scores.verdicts(Acceptance(min_success_rate=0.2))
    assert verdict.passed
    assert not scores.verdicts(Acceptance(min_success_rate=0.3))[0].passed
    assert scores.verdicts(Acceptance()) == []


def test_a_policy_that_follows_its_route_finishes_and_equal_seeds_are_equal(bundles):
    runner = PolicyRunner(load_bundle(bundles / "good"), BMW)
    config = RolloutConfig("road", episodes=2, seconds=60.0, options=SHORT, seed=3)
    told = []
    result = run_episodes(runner, config, lambda index, episode: told.append(index))
    assert told == [0, 1]
    for found in result.episodes:
        ride = found.scores
        assert (ride["finished"], ride["completion"], ride["ended"], found.reason) == (True, 1.0, "finished", "")
        assert 40.0 < ride["driven_m"] <= 50.0, "it starts somewhere in the first metres"
        # From standstill, at no more than 16.7 m/s.
        assert ride["driven_m"] / 16.7 < found.seconds < 20.0
    assert result.episodes[0] != result.episodes[1]
    assert run_episodes(runner, config) == result
    assert run_episodes(runner, replace(config, seed=4)) != result


def test_the_first_episode_is_the_same_however_many_follow(bundles):
    runner = PolicyRunner(load_bundle(bundles / "good"), BMW)
    config = RolloutConfig("road", episodes=1, seconds=1.0, options={"route_m": 50.0}, seed=3)
    alone, among = run_episodes(runner, config), run_episodes(runner, replace(config, episodes=3))
    assert among.episodes[0] == alone.episodes[0]


def test_who_leaves_the_road_has_failed(bundles):
    runner = PolicyRunner(load_bundle(bundles / "bad"), BMW)
    result = run_episodes(runner, RolloutConfig("road", episodes=1, seconds=60.0, options=SHORT))
    (found,) = result.episodes
    assert found.failed
    assert not found.scores["finished"]
    assert (found.scores["ended"], found.reason, found.fault) == ("off_road", "off road", "")
    assert found.scores["completion"] < 1.0
    assert result.scores.early_end_rate.mean == 1.0
    assert result.faults == {}


def test_time_that_runs_out_is_neither(bundles):
    runner = PolicyRunner(load_bundle(bundles / "good"), BMW)
    result = run_episodes(runner, RolloutConfig("road", episodes=1, seconds=1.0, options=SHORT))
    (found,) = result.episodes
    assert (found.scores["finished"], found.failed, found.scores["ended"]) == (False, False, "")
    assert found.seconds == pytest.approx(1.0)
    assert 0.0 < found.scores["completion"] < 0.5
    assert result.short_of_s == DriveCfg().episode_s


def test_the_gate_passes_the_one_and_fails_the_other(bundles, tmp_path, capsys):
    given = ["--episodes", "1", "--option", "route_m=50", "--option", "map_count=1", "--json", str(tmp_path / "s.json")]
    given += ["--perturbations", "late"]
    assert main(["check", str(bundles / "good"), *given]) == 0
    out = capsys.readouterr().out
    assert "on 'road'" in out
    assert "the runtime repeats 2 recorded episodes" in out
    assert "1/1  100 % in" in out
    assert "pass  success rate" in out
    card = load_bundle(bundles / "good").card["check"]
    assert card["verdict"] == "passed"
    assert card["scores"]["completion"]["mean"] == 100.0
    assert json.loads((tmp_path / "s.json").read_text())["scores"] == card["scores"]
    assert main(["check", str(bundles / "bad"), *given, "--no-card"]) == 1
    out = capsys.readouterr().out
    assert "m off  after" in out
    assert "s: off road" in out
    assert "FAIL  success rate" in out
    assert main(["check", str(bundles / "good"), *given, "--seconds", "1"]) == 1
    out = capsys.readouterr().out
    assert "0.000, 95 % interval 0.000 to 0.793, asked for 0.9" in out
    assert "card not written: episodes of 1 s are too short" in out
    assert load_bundle(bundles / "good").card["check"] == card
    assert main(["check", str(bundles / "good"), "--backend", "mock"]) == 2
    assert "Available: road." in capsys.readouterr().err


def test_other_robots_are_refused(bundles, tmp_path):
    walks = PolicyRunner(tiny_bundle(tmp_path / "walks", contract_for(robot_spec("go2"))), robot_spec("go2"))
    with pytest.raises(RobotError, match="'go2' is of embodiment 'legs' and has no CarSpec"):
        RoadScenario(walks, RolloutConfig("road"))
    drives = PolicyRunner(load_bundle(bundles / "good"), BMW)
    with pytest.raises(ContractError, match="'mujoco' tells of no road"):
        run_episodes(drives, RolloutConfig("mujoco"))

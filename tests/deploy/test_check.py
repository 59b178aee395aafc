"""The sim-to-sim gate: what it refuses, what it fails, what it writes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle, write_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import Acceptance
from gantry_deploy.errors import BundleError, PolicyError
from gantry_deploy.evaluation.gate import check_static
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import RolloutConfig
from gantry_deploy.evaluation.walking import draw_commands
from gantry_deploy.policy.golden import DifferenceError, golden_arrays, observation_labels, recorded_state
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, golden_data, linear_model, tiny_bundle, with_actions
from gantry_fixtures.training import needs
from gantry_hardware.robots import robot_spec

SPEC = robot_spec("go2")
CONTRACT = contract_for(SPEC)
STILL = replace(CONTRACT, gait=replace(CONTRACT.gait, amplitude_rad=0.0))
"""A policy of zeros then stands; whatever it is asked for, it does not fall."""
ANYTHING = Acceptance(max_lin_vel_error_m_s=9.0, max_yaw_rate_error_rad_s=9.0, max_fall_rate=0.0)
SHORT = ("--episodes", "1", "--seconds", "0.5", "--perturbations", "none")


def zeros(contract):
    return np.zeros((contract.observation_size, contract.action_size))


def golden_bundle(folder, contract=CONTRACT, **changes):
    """A bundle whose golden arrays were changed after they were computed; None takes one away."""
    model = linear_model(contract)
    golden = with_actions(contract, model, golden_data(contract))
    for name, change in changes.items():
        if change is None:
            del golden[name]
        else:
            golden[name] = change(golden.get(name))
    return write_bundle(folder, contract=contract, model_bytes=model, golden=golden)


def refusal(folder, error=PolicyError):
    """The names of the stages that passed, and the error of the one that did not."""
    stages = []
    with pytest.raises(error) as caught:
        check_static(lambda: load_bundle(folder), stages.append)
    assert [stage.passed for stage in stages] == [True] * (len(stages) - 1) + [False]
    return [stage.name for stage in stages], caught.value


def nudged(row, column, by):
    def change(values):
        values = values.copy()
        values[row, column] += by
        return values

    return change


def test_a_sound_bundle_passes_every_static_stage(tmp_path):
    stages = []
    folder = tiny_bundle(tmp_path / "bundle", CONTRACT, hidden=(8,)).path
    bundle, runner = check_static(lambda: load_bundle(folder), stages.append)
    names = ["manifest", "contract", "network", "observation", "joint targets", "memory"]
    assert [stage.name for stage in stages] == names
    assert all(stage.passed for stage in stages)
    assert all(stage.value <= stage.limit == 1e-5 for stage in stages[2:5])
    assert [stage.skipped for stage in stages] == [False] * 5 + [True]
    assert "has no 'episode_start'" in stages[-1].text
    assert runner.contract == bundle.contract


def test_a_flipped_byte_ends_at_the_manifest(tmp_path):
    folder = tiny_bundle(tmp_path / "bundle", CONTRACT).path
    data = bytearray((folder / "policy.onnx").read_bytes())
    data[100] ^= 1
    (folder / "policy.onnx").write_bytes(data)
    names, error = refusal(folder, BundleError)
    assert names == ["manifest"]
    assert "policy.onnx" in str(error)


@pytest.mark.parametrize(("array", "stage"), [("action", "network"), ("joint_target_rad", "joint targets")])
def test_a_wrong_golden_number_is_refused_and_named(tmp_path, array, stage):
    folder = golden_bundle(tmp_path / "bundle", **{array: nudged(3, 2, 1e-3)})
    names, error = refusal(folder, DifferenceError)
    assert names[-1] == stage
    assert error.difference == pytest.approx(1e-3, rel=1e-2)
    assert f"row 3, {SPEC.joint_names[2]}" in str(error)


def test_a_state_that_does_not_lead_to_its_observation_is_refused(tmp_path):
    folder = golden_bundle(tmp_path / "bundle", joint_vel_rad_s=nudged(7, 4, 0.01))
    names, error = refusal(folder, DifferenceError)
    assert names[-1] == "observation"
    assert f"joint_vel[{SPEC.joint_names[4]}]" in str(error)
    assert error.difference == pytest.approx(0.05 * 0.01, rel=1e-2)


def test_differences_within_the_tolerance_pass(tmp_path):
    folder = golden_bundle(tmp_path / "bundle", action=nudged(0, 0, 5e-6))
    stages = []
    check_static(lambda: load_bundle(folder), stages.append)
    assert stages[2].value == pytest.approx(5e-6, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"action": None}, "lacks action"),
        ({"command": lambda values: values[:, :2]}, "(20, 2), expected (20, 3)"),
        ({"time_s": lambda values: values * math.nan}, "'time_s' holds something else"),
        ({"episode_start": lambda _: np.zeros(20, bool)}, "false in the first row"),
    ],
)
def test_golden_data_of_another_shape_is_refused(tmp_path, changes, words):
    folder = golden_bundle(tmp_path / "bundle", **changes)
    with pytest.raises(PolicyError) as caught:
        golden_arrays(load_bundle(folder))
    assert words in str(caught.value)


def history_contract():
    terms = tuple(replace(term, history=3 if term.name == "joint_pos" else 1) for term in CONTRACT.observations)
    return replace(CONTRACT, observations=terms)


def test_stacked_frames_need_to_know_where_episodes_start(tmp_path):
    names, error = refusal(golden_bundle(tmp_path / "bundle", history_contract()))
    assert names[-1] == "observation"
    assert "episode_start" in str(error)


def recorded_episodes(contract, model, folder):
    """Golden data of two episodes of ten steps on the runtime itself, which carries history and last action along."""
    states = golden_data(replace(contract, observations=CONTRACT.observations))
    runner = PolicyRunner(tiny_bundle(folder, contract), SPEC)
    rows = {name: [] for name in ("time_s", "command", "last_action", "observation", "action", "joint_target_rad")}
    for i in range(20):
        if i % 10 == 0:
            runner.reset()
            last = np.zeros(contract.action_size, np.float32)
        rows["time_s"].append(np.float32(runner.time_s))
        rows["last_action"].append(last)
        step = runner.step(recorded_state(states, i), states["command"][i])
        last = np.clip(step.action, -contract.action.clip, contract.action.clip)
        rows["command"].append(step.command)
        rows["observation"].append(step.observation)
        rows["action"].append(step.action)
        rows["joint_target_rad"].append(step.target.pos_rad.astype(np.float32))
    starts = {"episode_start": np.arange(20) % 10 == 0}
    return {**states, **{name: np.stack(values) for name, values in rows.items()}, **starts}


def test_trajectories_through_stacked_frames_and_memory(tmp_path):
    contract = history_contract()
    model = linear_model(contract)
    golden = recorded_episodes(contract, model, tmp_path / "seed")
    folder = write_bundle(tmp_path / "bundle", contract=contract, model_bytes=model, golden=golden)
    stages = []
    check_static(lambda: load_bundle(folder), stages.append)
    assert (stages[-1].name, stages[-1].skipped) == ("memory", False)
    assert "18 steps" in stages[-1].text

    # A jump by a whole period of the gait clock shows nowhere else.
    period_s = np.float32(1.0 / contract.gait.frequency_hz)
    golden["time_s"] = golden["time_s"] + (np.arange(20) >= 15) * period_s
    write_bundle(folder, contract=contract, model_bytes=model, golden=golden)
    names, error = refusal(folder)
    assert names[-1] == "memory"
    assert error.difference == pytest.approx(period_s)


def test_observation_labels_follow_the_layout():
    labels = observation_labels(history_contract())
    start = labels.index(f"joint_pos[{SPEC.joint_names[0]}], 2 steps ago")
    assert labels[start + 12] == f"joint_pos[{SPEC.joint_names[0]}], 1 steps ago"
    assert labels[start + 24] == f"joint_pos[{SPEC.joint_names[0]}]"
    assert len(labels) == history_contract().observation_size


def test_commands_stay_in_range_and_last_four_to_six_seconds():
    schedule = draw_commands(CONTRACT.command, np.random.default_rng(0), 200.0, (4.0, 6.0))
    times = np.array([time_s for time_s, _ in schedule])
    values = np.array([command for _, command in schedule])
    assert times[0] == 0.0
    assert np.all((np.diff(times) >= 4.0) & (np.diff(times) <= 6.0))
    assert np.all((values >= CONTRACT.command.lower) & (values <= CONTRACT.command.upper))
    assert np.all(values.min(axis=0) < 0.0)
    assert np.all(values.max(axis=0) > 0.0)


def check(capsys, *arguments):
    """Exit code, text, errors and JSON of ``gantry check``."""
    code = main(["check", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_passing_is_0_and_writes_the_card(tmp_path, capsys):
    pytest.importorskip("mujoco")
    contract = replace(STILL, acceptance=ANYTHING)
    folder = tiny_bundle(tmp_path / "bundle", contract, weight=zeros(contract)).path
    code, out, _ = check(capsys, folder, *SHORT, "--json", tmp_path / "scores.json")
    assert code == 0
    assert "PASSED" in out
    assert "skip  memory" in out
    report = json.loads((tmp_path / "scores.json").read_text())
    card = load_bundle(folder).card["check"]
    assert report["verdict"] == card["verdict"] == "passed"
    assert card["scores"] == report["scores"]
    assert card["scores"]["fall_rate"]["mean"] == 0.0
    assert card["conditions"]["episodes"] == 1
    assert set(card["largest_differences"]) == {"network", "observation", "joint targets"}
    assert report["episodes"][0]["seconds"] == pytest.approx(0.5)


def test_below_the_threshold_is_1_and_keeps_the_rest_of_the_card(tmp_path, capsys):
    pytest.importorskip("mujoco")
    contract = replace(STILL, acceptance=Acceptance(max_lin_vel_error_m_s=0.0))
    model = linear_model(contract, weight=zeros(contract))
    golden = with_actions(contract, model, golden_data(contract))
    card = {"training": {"hours": 1}}
    folder = write_bundle(tmp_path / "bundle", contract=contract, model_bytes=model, golden=golden, card=card)
    code, out, _ = check(capsys, folder, *SHORT)
    assert code == 1
    assert "FAIL  mean planar velocity error" in out
    card = load_bundle(folder).card
    assert card["training"] == {"hours": 1}
    assert card["check"]["verdict"] == "failed"


@needs("mujoco")
def test_wrong_golden_numbers_are_2_and_nothing_moves(tmp_path, capsys):
    folder = golden_bundle(tmp_path / "bundle", action=nudged(0, 0, 0.1))
    code, out, err = check(capsys, folder, "--json", tmp_path / "scores.json")
    assert code == 2
    assert "REFUSED" in out
    assert "episodes of" not in out
    assert err.count("Error:") == 1
    report = json.loads((tmp_path / "scores.json").read_text())
    assert report["verdict"] == "refused"
    assert report["stages"][-1]["name"] == "network"
    assert report["stages"][-1]["value"] == pytest.approx(0.1, rel=1e-3)
    assert load_bundle(folder).card is None


def test_a_backend_without_ground_truth_is_refused(tmp_path, capsys):
    folder = tiny_bundle(tmp_path / "bundle", CONTRACT).path
    pytest.importorskip("mujoco")
    code, out, err = check(capsys, folder, *SHORT, "--backend", "mock")
    assert (code, out) == (2, "")
    assert "'mock' has no noise, friction, added_mass_kg, seed. Available: mujoco" in err
    code, out, err = check(capsys, folder, *SHORT, "--option", "friction=abc")
    assert (code, out) == (2, "")
    assert "Option 'friction' of backend 'mujoco' is 'abc', expected a number." in err
    code, _, err = check(capsys, folder, *SHORT, "--backend", "mujco")
    assert code == 2
    assert "Did you mean 'mujoco'?" in err


def runner_with(folder, bias):
    return PolicyRunner(tiny_bundle(folder, STILL, weight=zeros(STILL), bias=bias), SPEC)


def test_a_fall_ends_the_episode_and_is_counted(tmp_path):
    pytest.importorskip("mujoco")
    # Both left legs are pulled in and swung aside: the robot tips over.
    left = np.array([name.startswith(("FL", "RL")) for name in SPEC.joint_names])
    bias = np.where(left, np.tile([-4.0, 4.0, -4.0], 4), 0.0)
    result = run_episodes(runner_with(tmp_path / "bundle", bias), RolloutConfig(episodes=2, seconds=5.0))
    assert result.scores.fall_rate.mean == 1.0
    for episode in result.episodes:
        assert episode.failed
        assert episode.reason
        assert 0.0 < episode.seconds < 5.0
        assert math.isfinite(episode.scores["lin_vel_error_m_s"])


def test_standing_still_errs_by_what_is_asked(tmp_path):
    pytest.importorskip("mujoco")
    config = RolloutConfig(episodes=2, seconds=2.0, noise=0.0)
    runner = runner_with(tmp_path / "bundle", None)
    result = run_episodes(runner, config)
    for index, episode in enumerate(result.episodes):
        rng = np.random.default_rng((0, index))
        rng.uniform(), rng.uniform(), rng.integers(2)
        asked = draw_commands(STILL.command, rng, 2.0, config.resample_s)[0][1]
        assert episode.scores["lin_vel_error_m_s"] == pytest.approx(np.hypot(*asked[:2]), abs=0.02)
        assert episode.scores["yaw_rate_error_rad_s"] == pytest.approx(abs(asked[2]), abs=0.02)
    assert result.faults == {}
    assert run_episodes(runner, config) == result

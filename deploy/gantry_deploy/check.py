"""The sim-to-sim gate: is a bundle intact, does it fit, does it compute what it computed in training, does it walk?

The first stages compare and refuse; the last one runs episodes in a simulator that the policy was not trained in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions import ActionDecoder, decoder_inputs
from gantry_deploy.bundle import GOLDEN, Bundle
from gantry_deploy.contract import BODY_POSE, PolicyContract
from gantry_deploy.errors import PolicyError
from gantry_deploy.goal_rollout import GoalRolloutResult, run_goal_episodes
from gantry_deploy.observations import ObservationBuilder
from gantry_deploy.onnx_policy import OnnxPolicy
from gantry_deploy.rollout import RolloutConfig, RolloutResult, run_episodes
from gantry_deploy.runner import PolicyRunner, signals_of
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_hardware.state import RobotState

MAX_DIFFERENCE = 1e-5
"""Largest absolute difference between what training recorded and what this machine computes."""
CARD_KEY = "check"
"""Where the gate's scores stand in a bundle's card; what else the card holds is left alone."""
VELOCITY_ARRAY, MAP_ARRAY = "lin_vel_base_in_base_m_s", "elevation_map"
"""Recorded signals that only some policies see."""

Arrays = Mapping[str, NDArray[Any]]
Report = Mapping[str, Any]
AnyResult = RolloutResult | GoalRolloutResult


@dataclass(frozen=True)
class Stage:
    """One thing that was checked."""

    name: str
    """For programs."""
    passed: bool
    """Whether it held."""
    text: str
    """What was found, for people."""
    value: float | None = None
    """The number that decided, if it was a number."""
    limit: float | None = None
    """Largest value that passes."""
    skipped: bool = False
    """Whether it could not be checked; ``text`` says why. It then counts as passed, and is shown as skipped."""


OnStage = Callable[[Stage], None]


def check_static(load: Callable[[], Bundle], on_stage: OnStage) -> tuple[Bundle, PolicyRunner]:
    """Everything that can be checked without moving.

    Args:
        load: Reads and verifies the bundle.
        on_stage: Told of each stage as it ends, of the one that fails too.

    Returns:
        The bundle, and its policy ready to run.

    Raises:
        GantryError: Where a stage fails; the reason for refusing the bundle.
    """

    def stage(name: str, work: Callable[[], tuple[Any, str, float | None]]) -> Any:
        try:
            result, text, value = work()
        except GantryError as error:
            on_stage(Stage(name, False, str(error), getattr(error, "difference", None)))
            raise
        on_stage(Stage(name, True, text, value, None if value is None else MAX_DIFFERENCE))
        return result

    bundle = stage("manifest", lambda: _manifest(load()))
    runner = stage("contract", lambda: _contract(bundle))
    stage("network", lambda: _network(bundle))
    stage("observation", lambda: _observation(bundle))
    stage("joint targets", lambda: _joint_targets(bundle))
    if "episode_start" in bundle.golden:
        stage("memory", lambda: _memory(bundle))
    else:
        why = f"{GOLDEN} has no 'episode_start', so no step is known to follow another"
        on_stage(Stage("memory", True, why, skipped=True))
    return bundle, runner


def run_rollout(
    runner: PolicyRunner, config: RolloutConfig, on_episode: Callable[[int, Any], None] | None = None
) -> AnyResult:
    """The episodes that suit the policy: velocities to follow, or goals to reach."""
    run = run_goal_episodes if runner.contract.command.kind == BODY_POSE else run_episodes
    return run(runner, config, on_episode)


def judge_rollout(contract: PolicyContract, result: AnyResult) -> list[Stage]:
    """The thresholds of the contract against the scores of the episodes."""
    verdicts = result.scores.verdicts(contract.acceptance)
    if not verdicts:
        return [Stage("success rate", True, "the contract's acceptance asks for none", skipped=True)]
    return [
        Stage(verdict.name, verdict.passed, verdict.text, verdict.score.mean, verdict.limit) for verdict in verdicts
    ]


def make_report(contract: PolicyContract, stages: list[Stage], config: RolloutConfig, result: AnyResult) -> Report:
    """The whole outcome of a check that was not refused; plain data and dataclasses."""
    return {
        "verdict": "passed" if all(stage.passed for stage in stages) else "failed",
        "stages": stages,
        "scores": result.scores,
        "acceptance": contract.acceptance,
        "faults": result.faults,
        "conditions": config,
        "episodes": result.episodes,
    }


def make_card(old: Report | None, report: Report) -> dict[str, Any]:
    """A bundle's card with a report's essence in it; other entries of the old card stay."""
    essence = {name: report[name] for name in ("verdict", "scores", "acceptance", "faults", "conditions")}
    differences = {stage.name: stage.value for stage in report["stages"] if stage.limit == MAX_DIFFERENCE}
    checked_utc = datetime.now(UTC).isoformat(timespec="seconds")
    return {**(old or {}), CARD_KEY: {"checked_utc": checked_utc, **essence, "largest_differences": differences}}


class DifferenceError(PolicyError):
    """Recorded and computed numbers differ; ``difference`` is by how much."""

    def __init__(self, text: str, difference: float) -> None:
        super().__init__(text)
        self.difference = difference


def _manifest(bundle: Bundle) -> tuple[Bundle, str, None]:
    return bundle, f"{len(bundle.manifest['files'])} files, every SHA-256 verified; {bundle.signature_text}", None


def _contract(bundle: Bundle) -> tuple[PolicyRunner, str, None]:
    spec = robot_spec(bundle.contract.robot)
    runner = PolicyRunner(bundle, spec)
    text = f"fits robot '{spec.name}': {spec.num_joints} joints in order, targets within its limits"
    return runner, text, None


def _network(bundle: Bundle) -> tuple[None, str, float]:
    """What onnxruntime answers to recorded observations, one at a time as on the robot."""
    golden, contract = golden_arrays(bundle), bundle.contract
    policy = OnnxPolicy(bundle.model_bytes, contract)
    found = np.concatenate([policy(row[None]) for row in golden["observation"].astype(np.float32)])
    difference = _compare("action", found, golden["action"], list(contract.joint_names))
    return None, f"onnxruntime repeats {len(found)} recorded actions to within {difference:.1e}", difference


def _observation(bundle: Bundle) -> tuple[None, str, float]:
    """What the runtime makes of the recorded states, one at a time as on the robot."""
    golden, contract = golden_arrays(bundle), bundle.contract
    starts = golden.get("episode_start")
    depth = max((term.history for term in contract.observations), default=1)
    if depth > 1 and starts is None:
        raise PolicyError(f"{GOLDEN} lacks 'episode_start', and the observation stacks {depth} frames.")
    builder = ObservationBuilder(contract, np.zeros((1, 1), np.float32))
    rows = []
    for i in range(len(golden["observation"])):
        if starts is None or starts[i]:
            builder.reset()
        state = recorded_state(golden, i)
        command = golden["command"][i : i + 1].astype(np.float32)
        last_action = golden["last_action"][i : i + 1].astype(np.float32)
        window = golden[MAP_ARRAY][i] if MAP_ARRAY in golden else None
        rows.append(builder(signals_of(state, command, last_action, float(golden["time_s"][i]), window)))
    difference = _compare("observation", np.concatenate(rows), golden["observation"], observation_labels(contract))
    return None, f"this runtime repeats {len(rows)} recorded observations to within {difference:.1e}", difference


def _joint_targets(bundle: Bundle) -> tuple[None, str, float]:
    golden, contract = golden_arrays(bundle), bundle.contract
    decoder = ActionDecoder(contract, np.zeros((1, 1), np.float32))
    inputs = [golden[name].astype(np.float32) for name in ("action", *decoder_inputs(contract))]
    rows = [decoder(*(values[i : i + 1] for values in inputs)) for i in range(len(inputs[0]))]
    expected = golden["joint_target_rad"]
    difference = _compare("joint target", np.concatenate(rows), expected, list(contract.joint_names))
    return None, f"this runtime repeats {len(rows)} recorded joint targets to within {difference:.1e} rad", difference


def _memory(bundle: Bundle) -> tuple[None, str, float]:
    """What a policy remembers from one step to the next: its last action and its time."""
    golden, contract = golden_arrays(bundle), bundle.contract
    decoder = ActionDecoder(contract, np.zeros((1, 1), np.float32))
    follows = ~golden["episode_start"][1:].astype(bool)
    carried = decoder.clip(golden["action"].astype(np.float32))[:-1][follows]
    time_s = golden["time_s"].astype(np.float64)
    late_s = np.abs(np.diff(time_s) - contract.dt_s)[follows]
    labels = list(contract.joint_names)
    difference = _compare("last action", carried, golden["last_action"][1:][follows], labels)
    if late_s.size and not late_s.max() <= MAX_DIFFERENCE:
        raise DifferenceError(
            f"Two recorded steps are {contract.dt_s + late_s.max():.6f} s apart or less than they should be, expected "
            f"{contract.dt_s:g} s.",
            float(late_s.max()),
        )
    return None, f"last action and time follow over {int(follows.sum())} steps to within {difference:.1e}", difference


def golden_arrays(bundle: Bundle) -> Arrays:
    """A bundle's golden arrays, after their shapes have been checked; M rows.

    Raises:
        PolicyError: If an array is missing, has another shape or is not finite.
    """
    contract, golden = bundle.contract, bundle.golden
    n, size, c = contract.action_size, contract.observation_size, len(contract.command.names)
    widths: dict[str, tuple[int, ...]] = {
        "joint_pos_rad": (n,),
        "joint_vel_rad_s": (n,),
        "quat_base_to_world_wxyz": (4,),
        "ang_vel_base_in_base_rad_s": (3,),
        "command": (c,),
        "last_action": (n,),
        "time_s": (),
        "observation": (size,),
        "action": (n,),
        "joint_target_rad": (n,),
    }
    if any(term.name == "base_lin_vel" for term in contract.observations):
        widths[VELOCITY_ARRAY] = (3,)
    if contract.map_window is not None:
        window = contract.map_window
        widths[MAP_ARRAY] = (window.rows, window.cols, len(window.channels))
    missing = [name for name in widths if name not in golden]
    if missing:
        raise PolicyError(f"{GOLDEN} lacks {', '.join(missing)}; it holds: {', '.join(sorted(golden)) or '(nothing)'}.")
    rows = len(np.atleast_1d(golden["time_s"]))
    if rows == 0:
        raise PolicyError(f"{GOLDEN} holds no recorded step.")
    if "episode_start" in golden:
        widths["episode_start"] = ()
    for name, width in widths.items():
        if golden[name].shape != (rows, *width):
            raise PolicyError(f"{GOLDEN}: '{name}' has shape {golden[name].shape}, expected {(rows, *width)}.")
        if golden[name].dtype.kind not in "fiub" or not np.isfinite(golden[name]).all():
            raise PolicyError(f"{GOLDEN}: '{name}' holds something else than finite numbers.")
    if "episode_start" in golden and not golden["episode_start"][0]:
        raise PolicyError(f"{GOLDEN}: 'episode_start' is false in the first row, so its past is unknown.")
    return golden


def observation_labels(contract: PolicyContract) -> list[str]:
    """A name for each number of the observation, for example ``joint_pos[3]`` or ``joint_pos[3], 2 steps ago``."""
    return [
        f"{term.name}[{i}]" + (f", {age} steps ago" if age else "")
        for term in contract.observations
        for age in reversed(range(term.history))
        for i in range(term.size)
    ]


def recorded_state(golden: Arrays, row: int) -> RobotState:
    """A recorded row as a robot would have reported it."""
    joints = golden["joint_pos_rad"][row].astype(np.float64)
    return RobotState(
        stamp_s=float(golden["time_s"][row]),
        joint_pos_rad=joints,
        joint_vel_rad_s=golden["joint_vel_rad_s"][row].astype(np.float64),
        joint_effort_nm=np.zeros_like(joints),
        quat_base_to_world_wxyz=golden["quat_base_to_world_wxyz"][row].astype(np.float64),
        ang_vel_base_in_base_rad_s=golden["ang_vel_base_in_base_rad_s"][row].astype(np.float64),
        lin_acc_base_in_base_m_s2=np.zeros(3),
        lin_vel_base_in_base_m_s=golden[VELOCITY_ARRAY][row].astype(np.float64) if VELOCITY_ARRAY in golden else None,
    )


def _compare(what: str, found: NDArray[Any], expected: NDArray[Any], labels: list[str]) -> float:
    """Largest absolute difference of two tables (M, k).

    Raises:
        DifferenceError: If it is too large, naming the worst entry.
    """
    if not found.size:
        return 0.0
    error = np.abs(found.astype(np.float64) - expected)
    row, column = np.unravel_index(int(np.argmax(error)), error.shape)
    worst = float(error[row, column])
    # "not <=", so that NaN does not pass.
    if not worst <= MAX_DIFFERENCE:
        raise DifferenceError(
            f"Recorded and computed {what} differ by {worst:.3g}, allowed are {MAX_DIFFERENCE:g}; worst in row {row}, "
            f"{labels[column]}: recorded {expected[row, column]:.7g}, computed {found[row, column]:.7g}.",
            worst,
        )
    return worst

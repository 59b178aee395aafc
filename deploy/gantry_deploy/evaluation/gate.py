"""The sim-to-sim gate: is a bundle intact, does it fit, does it compute what it computed in training, does it walk?

The first stages compare and refuse; the last one runs episodes in a simulator that the policy was not trained in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from gantry_deploy.actions.decoder import MAX_DIFFERENCE
from gantry_deploy.bundle.bundle import GOLDEN, Bundle
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import PolicyError
from gantry_deploy.evaluation.scenario import RolloutConfig, RolloutResult
from gantry_deploy.observations.builder import ObservationBuilder
from gantry_deploy.policy.golden import (
    MAP_ARRAY,
    MAX_EPISODE_DIFFERENCE,
    TARGET_ARRAY,
    TARGET_EFFORT_ARRAY,
    TARGET_VELOCITY_ARRAY,
    DifferenceError,
    action_labels,
    compare,
    golden_arrays,
    has_whole_episodes,
    network_tolerance,
    observation_labels,
    recorded_images,
    recorded_signals,
    recorded_state,
    recorded_surroundings,
)
from gantry_deploy.policy.live_policy import WEIGHTS_SHA256
from gantry_deploy.policy.onnx_policy import BASE_ACTION
from gantry_deploy.policy.policy import open_policy
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.compat import UTC
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_mapping.errors import MappingError
from gantry_mapping.mapper import OnnxMapper

CARD_KEY = "check"
"""Key of the gate's scores in a bundle's card; what else the card holds is left alone."""

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """One thing that was checked."""

    name: str
    """For programs."""
    passed: bool
    """Whether it held."""
    text: str
    """Result in words, for people."""
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

    def stage(name: str, work: Callable[[], tuple[Any, str, float | None]], allowed: float = MAX_DIFFERENCE) -> Any:
        try:
            result, text, value = work()
        except GantryError as error:
            on_stage(Stage(name, False, str(error), getattr(error, "difference", None)))
            raise
        on_stage(Stage(name, True, text, value, None if value is None else allowed))
        return result

    bundle = stage("manifest", lambda: _manifest(load()))
    runner = stage("contract", lambda: _contract(bundle))
    stage("network", lambda: _network(bundle), network_tolerance(bundle.contract))
    stage("observation", lambda: _observation(bundle))
    kind = embodiment_of(bundle.contract).action_kind(bundle.contract.action.kind)
    stage("joint targets", lambda: _joint_targets(bundle, kind.tolerance_rad), kind.tolerance_rad)
    if has_whole_episodes(bundle.contract):
        stage("episodes", lambda: _episodes(bundle, runner), MAX_EPISODE_DIFFERENCE)
    elif "episode_start" in bundle.golden:
        stage("memory", lambda: _memory(bundle))
    else:
        why = f"{GOLDEN} has no 'episode_start', so no step is known to follow another"
        on_stage(Stage("memory", True, why, skipped=True))
    return bundle, runner


def judge_rollout(contract: PolicyContract, result: RolloutResult) -> list[Stage]:
    """The thresholds of the contract against the scores of the episodes."""
    verdicts = result.scores.verdicts(contract.acceptance)
    if not verdicts:
        return [Stage("success rate", True, "the contract's acceptance asks for none", skipped=True)]
    return [
        Stage(verdict.name, verdict.passed, verdict.text, verdict.score.mean, verdict.limit) for verdict in verdicts
    ]


def make_report(
    bundle: Bundle,
    stages: list[Stage],
    config: RolloutConfig,
    result: RolloutResult,
    perturbed: Mapping[str, Any] | None = None,
) -> Report:
    """The whole outcome of a check that was not refused; plain data and dataclasses.

    Args:
        bundle: The bundle.
        stages: Everything that was checked.
        config: Conditions of the episodes.
        result: The episodes.
        perturbed: Table of :func:`gantry_deploy.evaluation.perturbations.suite.table`; empty without perturbations.
    """
    return {
        "verdict": "passed" if all(stage.passed for stage in stages) else "failed",
        "weights_sha256": str((bundle.card or {}).get(WEIGHTS_SHA256, "")),
        "stages": stages,
        "scores": result.scores,
        "acceptance": bundle.contract.acceptance,
        "faults": result.faults,
        "conditions": {name: value for name, value in vars(config).items() if name != "perturbation"},
        "episodes": result.episodes,
        "perturbed": dict(perturbed or {}),
    }


def make_card(old: Report | None, report: Report) -> dict[str, Any]:
    """A bundle's card with a report's essence in it; other entries of the old card stay."""
    names = ("verdict", "scores", "acceptance", "faults", "conditions", "perturbed")
    essence = {name: report[name] for name in names if name != "perturbed" or report.get(name)}
    differences = {
        stage.name: stage.value for stage in report["stages"] if stage.limit in (MAX_DIFFERENCE, MAX_EPISODE_DIFFERENCE)
    }
    checked_utc = datetime.now(UTC).isoformat(timespec="seconds")
    return {**(old or {}), CARD_KEY: {"checked_utc": checked_utc, **essence, "largest_differences": differences}}


def _manifest(bundle: Bundle) -> tuple[Bundle, str, None]:
    return bundle, f"{len(bundle.manifest['files'])} files, every SHA-256 verified; {bundle.signature_text}", None


def _contract(bundle: Bundle) -> tuple[PolicyRunner, str, None]:
    spec = robot_spec(bundle.contract.robot)
    runner = PolicyRunner(bundle, spec)
    text = f"fits robot '{spec.name}': {spec.num_joints} joints in order, targets within its limits"
    return runner, text, None


def _network(bundle: Bundle) -> tuple[None, str, float]:
    """Compare onnxruntime with recorded actions, one at a time as on the robot, with the queue of a plan."""
    golden, contract = golden_arrays(bundle), bundle.contract
    _require_mapper(bundle)
    rows, labels = golden["observation"].astype(np.float32), action_labels(contract)
    policy, steps = open_policy(bundle), []
    for i, row in enumerate(rows):
        if "episode_start" in golden and golden["episode_start"][i]:
            policy.reset()
        steps.append(policy(row[None], recorded_images(golden, i)))
    actions, allowed = np.concatenate([step.action for step in steps]), network_tolerance(contract)
    difference, text = compare("action", actions, golden["action"], labels, allowed), ""
    base = [step.base_action for step in steps if step.base_action is not None]
    if base:
        found = compare("base action", np.concatenate(base), golden[BASE_ACTION], labels, allowed)
        difference, text = max(difference, found), " and those of their base"
    return None, f"onnxruntime repeats {len(rows)} recorded actions{text} to within {difference:.1e}", difference


def _require_mapper(bundle: Bundle) -> None:
    """Refuse a mapping network that does not answer as one, or sees another grid than the policy learned with.

    Raises:
        MappingError: With what it answers.
    """
    if bundle.mapper_bytes is None:
        return
    mapper, window = OnnxMapper(bundle.mapper_bytes), bundle.contract.map_window
    trained = None if window is None else window.mapping
    if trained is not None and mapper.info.local_grid != trained.local_grid:
        raise MappingError(f"The mapper sees {mapper.info.local_grid}, the policy learned with {trained.local_grid}.")


def _observation(bundle: Bundle) -> tuple[None, str, float]:
    """Compare the runtime's observations of the recorded states, one at a time as on the robot."""
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
        rows.append(builder(recorded_signals(contract, golden, i)))
    difference = compare("observation", np.concatenate(rows), golden["observation"], observation_labels(contract))
    return None, f"this runtime repeats {len(rows)} recorded observations to within {difference:.1e}", difference


def _joint_targets(bundle: Bundle, allowed_rad: float) -> tuple[None, str, float]:
    """Compare the runtime's joint targets of the recorded actions, each after the targets recorded before it."""
    golden, contract = golden_arrays(bundle), bundle.contract
    decoder, rows = embodiment_of(contract).make_decoder(contract, np.zeros((1, 1), np.float32)), []
    action = golden["action"].astype(np.float32)
    for i in range(len(action)):
        signals = recorded_signals(contract, golden, i)
        if signals.joint_target_rad is not None:
            decoder.reset(signals.joint_target_rad)
        rows.append(decoder(action[i : i + 1], signals))
    found = (
        [row.pos_rad for row in rows],
        [row.vel_rad_s for row in rows if row.vel_rad_s is not None],
        [row.effort_nm for row in rows if row.effort_nm is not None],
    )
    names = TARGET_ARRAY, TARGET_VELOCITY_ARRAY, TARGET_EFFORT_ARRAY
    difference = max(
        compare("joint target", np.concatenate(values), golden[name], list(contract.joint_names), allowed_rad)
        for name, values in zip(names, found, strict=True)
        if values
    )
    unit = "N m" if TARGET_EFFORT_ARRAY in golden else "rad"
    return (
        None,
        f"this runtime repeats {len(rows)} recorded joint targets to within {difference:.1e} {unit}",
        difference,
    )


def _episodes(bundle: Bundle, runner: PolicyRunner) -> tuple[None, str, float]:
    """Whole episodes through the runner that drives the robot: with its queue, last targets, last action and time."""
    golden, contract, steps = golden_arrays(bundle), bundle.contract, []
    for i in range(len(golden["observation"])):
        if golden["episode_start"][i]:
            runner.reset()
        window = golden[MAP_ARRAY][i] if MAP_ARRAY in golden else None
        images = recorded_images(golden, i)
        around = recorded_surroundings(contract, golden, i)
        steps.append(runner.step(recorded_state(golden, i), golden["command"][i], window, images, around))
        runner.follow(golden[TARGET_ARRAY][i])
    runner.reset()
    joints = list(contract.joint_names)
    tables = [
        ("observation", [step.observation for step in steps], observation_labels(contract)),
        ("action", [step.action for step in steps], action_labels(contract)),
        (TARGET_ARRAY, [step.target.pos_rad for step in steps], joints),
    ]
    if TARGET_VELOCITY_ARRAY in golden:
        tables.append((TARGET_VELOCITY_ARRAY, [step.target.vel_rad_s for step in steps], joints))
    if TARGET_EFFORT_ARRAY in golden:
        tables.append((TARGET_EFFORT_ARRAY, [step.target.effort_nm for step in steps], joints))
    if BASE_ACTION in golden:
        tables.append((BASE_ACTION, [step.base_action for step in steps], action_labels(contract)))
    words: dict[str, str] = dict.fromkeys((TARGET_ARRAY, TARGET_VELOCITY_ARRAY, TARGET_EFFORT_ARRAY), "joint target")
    words[BASE_ACTION] = "base action"
    difference = max(
        compare(words.get(name, name), np.array(rows), golden[name], labels, MAX_EPISODE_DIFFERENCE)
        for name, rows, labels in tables
    )
    episodes = int(np.count_nonzero(golden["episode_start"]))
    return (
        None,
        f"the runtime repeats {episodes} recorded episodes of {len(steps)} steps to {difference:.1e}",
        difference,
    )


def _memory(bundle: Bundle) -> tuple[None, str, float]:
    """Compare a policy's memory from one step to the next: its last action and its time."""
    golden, contract = golden_arrays(bundle), bundle.contract
    decoder = embodiment_of(contract).make_decoder(contract, np.zeros((1, 1), np.float32))
    follows = ~golden["episode_start"][1:].astype(bool)
    carried = decoder.clip(golden["action"].astype(np.float32))[:-1][follows]
    time_s = golden["time_s"].astype(np.float64)
    late_s = np.abs(np.diff(time_s) - contract.dt_s)[follows]
    difference = compare("last action", carried, golden["last_action"][1:][follows], action_labels(contract))
    if late_s.size and not late_s.max() <= MAX_DIFFERENCE:
        raise DifferenceError(
            f"Two recorded steps are {contract.dt_s + late_s.max():.6f} s apart or less than they should be, expected "
            f"{contract.dt_s:g} s.",
            float(late_s.max()),
        )
    return None, f"last action and time follow over {int(follows.sum())} steps to within {difference:.1e}", difference

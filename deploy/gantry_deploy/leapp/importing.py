"""A LEAPP bundle as one of this runtime: its contract, the unchanged network, and steps that show what it computes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import FORMAT, Bundle
from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.parts import BODY_VELOCITY, BODY_VELOCITY_NAMES, ActionSpec, CommandSpec, Provenance
from gantry_deploy.contract.policy_contract import METADATA_KEY, PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import LeappError
from gantry_deploy.leapp.drawn import DRAWN, answers, drawn_states, golden_of
from gantry_deploy.leapp.facts import LeappFacts, read_facts
from gantry_deploy.leapp.folder import LeappFolder, read_leapp
from gantry_deploy.leapp.settings import LeappSettings
from gantry_deploy.leapp.wiring import KD, KP, Wiring, wire
from gantry_deploy.policy.golden import recorded_signals
from gantry_deploy.policy.policy import GraphPolicy
from gantry_hardware.files.text import names_text, path_text
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_mapping.onnx.metadata import with_metadata
from gantry_mapping.onnx.network import Network

CARD_KEY = "leapp"
"""Key in the card of what the bundle was made of."""
MAX_DIFFERENCE_RAD = 1e-5
"""Largest difference between targets of the graph by itself and by way of the runtime."""
MAX_GAIN_CHANGE = 1e-4
"""Gains that change by more than this share from step to step are no gains of a contract."""
COMMAND_LIMIT = 1.0
"""Largest command in m/s and rad/s where nothing says what the policy was trained for."""

FloatArray = NDArray[np.floating]


@dataclass(frozen=True)
class Imported:
    """A LEAPP bundle in this runtime's form, not yet written anywhere."""

    bundle: Bundle
    """Its path is the LEAPP folder."""
    difference_rad: float
    """Largest difference between targets of the graph by itself and by way of the runtime, over the drawn steps."""


def import_leapp(path: str | Path, settings: LeappSettings) -> Imported:
    """Read a LEAPP bundle and make it one of this runtime.

    Args:
        path: The folder.
        settings: What the bundle leaves open.

    Raises:
        LeappError: If it cannot be run: see :mod:`gantry_deploy.leapp.folder` and :mod:`gantry_deploy.leapp.wiring`;
            if the robot is not known, gains are zero, missing or change, or the runtime computes something else.
        ContractError: If the numbers do not fit the robot.
    """
    folder = read_leapp(path)
    network = Network(folder.model_bytes, f"{folder.name}.onnx", LeappError)
    facts = read_facts(network.metadata)
    spec = _robot(folder, facts, settings)
    wiring = wire(folder, spec.joint_names)
    if missing := {item.name for item in network.inputs} ^ {item.name for item in folder.inputs}:
        raise LeappError(
            f"Description and network of {path_text(folder.path)} differ in the inputs {names_text(missing)}."
        )
    states = drawn_states(spec, _default_pose(spec, facts, settings), _command_limits(facts, settings), folder.rate_hz)
    told = answers(network, folder, wiring, states)
    contract = _contract(folder, spec, wiring, facts, settings, told)
    contract.check_robot(spec)
    model = with_metadata(folder.model_bytes, METADATA_KEY, contract.to_json())
    golden = golden_of(contract, states, told[wiring.graph.output])
    card = {CARD_KEY: {"name": folder.name, "files": folder.files, "written_by": folder.system, "golden": DRAWN}}
    manifest = {"format": FORMAT, "files": folder.files}
    bundle = Bundle(folder.path, contract, model, golden, card, manifest)
    return Imported(bundle, _difference(bundle, told[wiring.graph.output]))


def _robot(folder: LeappFolder, facts: LeappFacts | None, settings: LeappSettings) -> RobotSpec:
    name = settings.robot or (facts.robot if facts is not None else None)
    if name is None:
        raise LeappError(
            f"{path_text(folder.path)} is a LEAPP bundle, which does not say its robot: name it, --robot go2."
        )
    return robot_spec(name)


def _default_pose(spec: RobotSpec, facts: LeappFacts | None, settings: LeappSettings) -> tuple[float, ...]:
    """Pose in which the policy starts, rad, in the robot's order."""
    if settings.default_pos_rad is not None:
        return _per_joint("--default-pose", settings.default_pos_rad, spec)
    if facts is not None:
        told = facts.by_joint("default_pos_rad")
        if set(told) == set(spec.joint_names):
            return tuple(told[name] for name in spec.joint_names)
    return tuple(spec.array("default_rad").tolist())


def _command_limits(facts: LeappFacts | None, settings: LeappSettings) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Smallest and largest command, m/s and rad/s."""
    size = len(BODY_VELOCITY_NAMES)
    if (given := settings.command_limits) is not None:
        if len(given) != size or not min(given) >= 0.0:
            raise LeappError(f"--command-limits are {given}, expected {size} numbers from 0: m/s, m/s and rad/s.")
        return tuple(-item for item in given), given
    if facts is not None and len(facts.command_lower) == len(facts.command_upper) == size:
        return facts.command_lower, facts.command_upper
    return (-COMMAND_LIMIT,) * size, (COMMAND_LIMIT,) * size


def _per_joint(option: str, given: Sequence[float], spec: RobotSpec) -> tuple[float, ...]:
    """One number for all joints, or one per joint in the robot's order."""
    if len(given) not in (1, spec.num_joints):
        raise LeappError(
            f"{option} has {len(given)} numbers, expected 1 or {spec.num_joints}: {names_text(spec.joint_names)}."
        )
    return tuple(float(item) for item in given) * (spec.num_joints if len(given) == 1 else 1)


def _gains(kind: str, spec: RobotSpec, wiring: Wiring, told: Mapping[str, FloatArray], given: Any) -> tuple[float, ...]:
    """Gains of every joint in the robot's order, those given or those of the outputs."""
    option = "--stiffness" if kind == KP else "--damping"
    if given is not None:
        return _per_joint(option, given, spec)
    if kind not in wiring.gains:
        raise LeappError(f"The bundle has no output of kind '{kind}': give the gains it was trained with, {option}.")
    name, places = wiring.gains[kind]
    rows = told[name][:, list(places)]
    if not np.abs(rows - rows[0]).max() <= MAX_GAIN_CHANGE * max(1.0, float(np.abs(rows[0]).max())):
        raise LeappError(f"The gains of '{name}' change from step to step, which this runtime does not follow.")
    if zero := [joint for joint, gain in zip(spec.joint_names, rows[0], strict=True) if not gain > 0.0]:
        raise LeappError(
            f"'{name}', the bundle's {kind}, is not above 0 for {names_text(zero)}: Isaac Lab 3.0.0 writes zeros where "
            f"Newton runs the actuators, and the robot would fall. Give the gains it was trained with, {option}, or "
            "export it again with sim.use_newton_actuators=False."
        )
    return tuple(float(gain) for gain in rows[0])


def _contract(
    folder: LeappFolder,
    spec: RobotSpec,
    wiring: Wiring,
    facts: LeappFacts | None,
    settings: LeappSettings,
    told: Mapping[str, FloatArray],
) -> PolicyContract:
    lower, upper = spec.array("lower_rad"), spec.array("upper_rad")
    default = np.array(_default_pose(spec, facts, settings))
    # One unit of action is 1 rad, or all of a joint's range where that is smaller; the clip lets every target through.
    scale = np.minimum(1.0, upper - lower)
    least, most = _command_limits(facts, settings)
    names = BODY_VELOCITY_NAMES if wiring.has_command else ()
    size = len(names)
    return PolicyContract(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=folder.rate_hz,
        joint_names=spec.joint_names,
        joint_lower_rad=tuple(lower.tolist()),
        joint_upper_rad=tuple(upper.tolist()),
        default_pos_rad=tuple(default.tolist()),
        stiffness_nm_rad=_gains(KP, spec, wiring, told, settings.stiffness_nm_rad),
        damping_nm_s_rad=_gains(KD, spec, wiring, told, settings.damping_nm_s_rad),
        effort_limit_nm=tuple(spec.array("effort_limit_nm").tolist()),
        observations=wiring.observations,
        action=ActionSpec(
            JOINT_TARGET, tuple(scale.tolist()), tuple(default.tolist()), float(((upper - lower) / scale).max())
        ),
        command=CommandSpec(
            BODY_VELOCITY if wiring.has_command else "", names, least[:size], most[:size], (0.0,) * size
        ),
        recurrent=tuple(state.name for state in wiring.graph.states),
        graph=wiring.graph,
        provenance=Provenance(task=folder.name, created_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())),
    )


def _difference(bundle: Bundle, targets: FloatArray) -> float:
    """Largest difference between the runtime's targets and the graph's, rad, both within the joints' limits.

    Raises:
        LeappError: If it is too large.
    """
    contract, graph = bundle.contract, bundle.contract.graph
    assert graph is not None
    policy, worst = GraphPolicy(bundle, graph), 0.0
    decoder = embodiment_of(contract).make_decoder(contract, np.zeros((1, 1), np.float32))
    known = np.clip(targets[:, list(graph.order)], contract.joint_lower_rad, contract.joint_upper_rad)
    for row, observation in enumerate(bundle.golden["observation"]):
        if bundle.golden["episode_start"][row]:
            policy.reset()
        action = policy(observation[None]).action
        found = decoder(action, recorded_signals(contract, bundle.golden, row)).pos_rad[0]
        worst = max(worst, float(np.abs(found - known[row]).max()))
    if not worst <= MAX_DIFFERENCE_RAD:
        raise LeappError(
            f"The runtime's joint targets differ from the graph's own by {worst:.2e} rad, allowed are "
            f"{MAX_DIFFERENCE_RAD:g}."
        )
    return worst

"""Drawn states of a robot and the answers of a LEAPP graph to them, where no recording of the training came along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.leapp.folder import LeappFolder
from gantry_deploy.leapp.wiring import Wiring
from gantry_deploy.observations.builder import ObservationBuilder, needed_signals
from gantry_deploy.policy.golden import VELOCITY_ARRAY, recorded_signals
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.onnx.network import Network

DRAWN = "drawn states, and what the graph by itself answers to them; not recorded in training"
"""Origin of the golden data of such a bundle."""
STEPS, EPISODES = 100, 2
"""Steps that are drawn, half of them in each episode."""
SEED = 0
"""Of the states, so that every import draws the same ones."""

FloatArray = NDArray[np.floating]
Arrays = dict[str, NDArray[Any]]


def drawn_states(
    spec: RobotSpec, default_rad: tuple[float, ...], limits: tuple[tuple[float, ...], ...], rate_hz: float
) -> Arrays:
    """States around a pose, as golden data name them, (100, k) each in SI units: joints, attitude, velocities in
    the base's frame, commands, times.

    Args:
        spec: The robot; joints stay within its limits.
        default_rad: Pose (n,) in the middle.
        limits: Smallest and largest command, 3 numbers each, m/s and rad/s.
        rate_hz: Of the steps.
    """
    rng = np.random.default_rng(SEED)
    joints = np.clip(
        np.array(default_rad) + rng.uniform(-0.3, 0.3, (STEPS, spec.num_joints)),
        spec.array("lower_rad"),
        spec.array("upper_rad"),
    )
    quat = np.concatenate((np.ones((STEPS, 1)), rng.uniform(-0.3, 0.3, (STEPS, 3))), axis=1)
    drawn = {
        "joint_pos_rad": joints,
        "joint_vel_rad_s": rng.uniform(-2.0, 2.0, joints.shape),
        "quat_base_to_world_wxyz": quat / np.linalg.norm(quat, axis=1, keepdims=True),
        "ang_vel_base_in_base_rad_s": rng.uniform(-0.5, 0.5, (STEPS, 3)),
        VELOCITY_ARRAY: rng.uniform(-0.5, 0.5, (STEPS, 3)),
        "command": rng.uniform(limits[0], limits[1], (STEPS, 3)),
        "time_s": np.arange(STEPS) % (STEPS // EPISODES) / rate_hz,
    }
    arrays: Arrays = {name: values.astype(np.float32) for name, values in drawn.items()}
    arrays["episode_start"] = np.arange(STEPS) % (STEPS // EPISODES) == 0
    return arrays


def answers(network: Network, folder: LeappFolder, wiring: Wiring, states: Arrays) -> dict[str, FloatArray]:
    """Outputs of the graph by itself, (100, k) each, targets in rad, for drawn states; what flows back begins anew in
    each episode.

    Args:
        network: The graph.
        folder: Its description, with the names that it is fed by.
        wiring: Which signal each input takes.
        states: Of :func:`drawn_states`.
    """
    arrays = {
        "joint_pos_absolute": "joint_pos_rad",
        "joint_vel": "joint_vel_rad_s",
        "base_rotation": "quat_base_to_world_wxyz",
        "base_ang_vel": "ang_vel_base_in_base_rad_s",
        "base_lin_vel": VELOCITY_ARRAY,
        "velocity_command": "command",
    }
    given = {term: states[name] for term, name in arrays.items()}
    w, x, y, z = states["quat_base_to_world_wxyz"].T
    given["projected_gravity"] = np.stack((2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1), axis=1)
    wanted = [wiring.graph.output, *(name for name, _ in wiring.gains.values())]
    flows = {state.output: state.name for state in wiring.graph.states}
    first = {state.name: np.zeros(state.shape, state.dtype) for state in wiring.graph.states}
    first |= {name: values.astype(first[name].dtype) for name, values in folder.initial.items() if name in first}
    kept, rows = first, []
    for row in range(STEPS):
        kept = first if states["episode_start"][row] else kept
        feeds = {item.name: given[item.term][row : row + 1, list(item.order)] for item in wiring.graph.inputs}
        values = network.run([*wanted, *flows], {**feeds, **kept})
        rows.append(values[: len(wanted)])
        kept = dict(zip(flows.values(), values[len(wanted) :], strict=True))
    return {name: np.concatenate([row[i] for row in rows]) for i, name in enumerate(wanted)}


def golden_of(contract: PolicyContract, states: Mapping[str, NDArray[Any]], targets: FloatArray) -> Arrays:
    """Golden data of drawn states and the graph's targets (100, n), rad, in the graph's own order."""
    graph, size = contract.graph, len(contract.command.names)
    assert graph is not None
    golden = dict(states) | {"command": states["command"][:, :size]}
    if VELOCITY_ARRAY not in needed_signals(contract):
        del golden[VELOCITY_ARRAY]
    offset, scale = np.array(contract.action.offset_rad), np.array(contract.action.scale)
    golden["action"] = ((targets[:, list(graph.order)] - offset) / scale).astype(np.float32)
    like = np.zeros((1, 1), np.float32)
    decoder, builder = embodiment_of(contract).make_decoder(contract, like), ObservationBuilder(contract, like)
    before = np.roll(decoder.clip(golden["action"]), 1, axis=0)
    golden["last_action"] = np.where(golden["episode_start"][:, None], 0.0, before).astype(np.float32)
    signals = [
        recorded_signals(contract, golden | {"joint_target_rad": golden["joint_pos_rad"]}, i) for i in range(STEPS)
    ]
    golden["observation"] = np.concatenate([builder(item) for item in signals])
    golden["joint_target_rad"] = np.concatenate(
        [decoder(golden["action"][i : i + 1], item).pos_rad for i, item in enumerate(signals)]
    )
    return golden

"""Small robots, contracts and bundles for tests of whatever runs policies; shipped, so that drivers can use them.

Building a network needs the ``onnx`` package, which the runtime itself does not.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import device

from gantry_deploy.bundle.bundle import Bundle, load_bundle, write_bundle
from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.contract.policy_contract import (
    BODY_POSE,
    BODY_POSE_NAMES,
    INSTRUCTION_TERM,
    METADATA_KEY,
    ActionSpec,
    CommandSpec,
    GaitSpec,
    GoalVelocitySpec,
    MapWindow,
    PolicyContract,
)
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.builder import ObservationBuilder, Signals, make_term
from gantry_deploy.policy.golden import EXTRA_PREFIX
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_hardware.model.spec import JointSpec, RobotSpec
from gantry_mapping.elevation.ops import namespace


def tiny_robot() -> RobotSpec:
    """Two legs of two joints each, with round numbers."""
    joints = tuple(
        JointSpec(
            name=f"{leg}_{part}_joint",
            lower_rad=-1.0,
            upper_rad=2.0,
            velocity_limit_rad_s=10.0,
            effort_limit_nm=20.0,
            default_rad=default,
            stiffness_nm_rad=30.0,
            damping_nm_s_rad=1.0,
            armature_kg_m2=0.01,
        )
        for leg in ("left", "right")
        for part, default in (("hip", 0.25), ("knee", 0.5))
    )
    return RobotSpec("tiny", "legs", joints, ("left", "right"), 0.3, 0.1, 5.0, "made up for tests")


def contract_for(spec: RobotSpec, **changes: Any) -> PolicyContract:
    """A contract with every kind of observation term for any robot.

    Args:
        spec: The robot.
        changes: Fields of the contract to replace.
    """
    n = spec.num_joints
    feet = max(1, len(spec.feet))
    gait = GaitSpec(
        frequency_hz=2.0,
        duty=0.5,
        foot_offset=tuple(i / feet for i in range(feet)),
        amplitude_rad=0.2,
        lead_s=0.0,
        joint_foot=tuple(min(i * feet // n, feet - 1) for i in range(n)),
        joint_gain=tuple(float(i % 2) for i in range(n)),
        stand_below=0.1,
    )
    usual: dict[str, Any] = dict(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=50.0,
        joint_names=spec.joint_names,
        joint_lower_rad=tuple(spec.array("lower_rad").tolist()),
        joint_upper_rad=tuple(spec.array("upper_rad").tolist()),
        default_pos_rad=tuple(spec.array("default_rad").tolist()),
        stiffness_nm_rad=tuple(spec.array("stiffness_nm_rad").tolist()),
        damping_nm_s_rad=tuple(spec.array("damping_nm_s_rad").tolist()),
        effort_limit_nm=tuple(spec.array("effort_limit_nm").tolist()),
        observations=(
            make_term("base_ang_vel", 3, scale=0.25),
            make_term("projected_gravity", 3),
            make_term("joint_pos", n),
            make_term("joint_vel", n, scale=0.05, clip=20.0),
            make_term("last_action", n),
            make_term("velocity_command", 3),
            make_term("gait_clock", 2),
        ),
        action=ActionSpec("target/joint/position", (0.25,) * n, tuple(spec.array("default_rad").tolist()), 4.0),
        command=CommandSpec(
            kind="command/body/velocity",
            names=("lin_vel_x_base_m_s", "lin_vel_y_base_m_s", "ang_vel_z_base_rad_s"),
            lower=(-1.0, -0.5, -1.0),
            upper=(1.0, 0.5, 1.0),
            max_rate=(0.0, 0.0, 0.0),
        ),
        gait=gait,
    )
    return PolicyContract(**{**usual, **changes})


def map_contract_for(spec: RobotSpec, **changes: Any) -> PolicyContract:
    """A contract of a policy that walks to goals and looks at 14 x 8 cells of elevation and uncertainty.

    Args:
        spec: The robot.
        changes: Fields of the contract to replace.
    """
    window = MapWindow(14, 8, 0.14, 0.6, 0.0, ("elevation", "uncertainty"), spec.base_height_m)
    n, cells = spec.num_joints, window.rows * window.cols * len(window.channels)
    far = (99.0, 99.0, 1.0, 1.0)
    return contract_for(
        spec,
        **{
            "observations": (
                make_term("projected_gravity", 3),
                make_term("joint_pos", n),
                make_term("joint_vel", n, scale=0.05, clip=20.0),
                make_term("last_action", n),
                make_term("goal_command", 4),
                make_term("elevation_map", cells),
            ),
            "command": CommandSpec(
                BODY_POSE, BODY_POSE_NAMES, tuple(-value for value in far), far, (0.0,) * 4, GoalVelocitySpec()
            ),
            "gait": None,
            "map_window": window,
            **changes,
        },
    )


def linear_model(
    contract: PolicyContract,
    *,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    hidden: tuple[int, ...] = (),
    seed: int = 0,
) -> bytes:
    """An ONNX network that carries ``contract``: action = observation @ weight + bias, or a random one with ELUs.

    Args:
        contract: Sizes and metadata.
        weight: Shape (obs, n); small random numbers if not given.
        bias: Shape (n,); zeros if not given.
        hidden: Widths of hidden layers before the last; with them ``weight`` must not be given.
        seed: Of the random weights.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    sizes = (contract.observation_size, *hidden, contract.action_size)
    nodes, constants, last = [], [], "observation"
    for layer, (rows, cols) in enumerate(pairwise(sizes)):
        final = layer == len(sizes) - 2
        matrix = rng.normal(0.0, 0.3 / np.sqrt(rows), (rows, cols)) if weight is None else weight
        vector = np.zeros(cols) if bias is None or not final else bias
        constants.append(numpy_helper.from_array(np.asarray(matrix, np.float32), f"weight{layer}"))
        constants.append(numpy_helper.from_array(np.asarray(vector, np.float32), f"bias{layer}"))
        output = "action" if final else f"linear{layer}"
        nodes.append(helper.make_node("Gemm", [last, f"weight{layer}", f"bias{layer}"], [output]))
        last = output
        if not final:
            last = f"elu{layer}"
            nodes.append(helper.make_node("Elu", [output], [last]))
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", sizes[0]])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", sizes[-1]])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {METADATA_KEY: contract.to_json()})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def overflowing_model(contract: PolicyContract) -> bytes:
    """A network that passes every check at rest, and whose first action is infinite while the first command is 1."""
    weight = np.zeros((contract.observation_size, contract.action_size))
    weight[_command_index(contract), 0] = 3e38
    # Single precision ends at 3.4e38.
    return linear_model(contract, weight=weight, bias=np.eye(contract.action_size)[0] * 1e38)


def _command_index(contract: PolicyContract) -> int:
    """Index of the newest first command in the observation."""
    start = 0
    for term in contract.observations:
        if term.name == "velocity_command":
            return start + (term.history - 1) * term.size
        start += term.history * term.size
    raise ContractError("The contract has no 'velocity_command' among its observations.")


def golden_data(contract: PolicyContract, steps: int = 20, seed: int = 0) -> dict[str, np.ndarray]:
    """Random signals of one robot and the observations that follow from them, in the layout of an export."""
    rng = np.random.default_rng(seed)
    n = contract.action_size
    quats = rng.normal(size=(steps, 4)) * 0.1 + np.array([1.0, 0.0, 0.0, 0.0])
    arrays = {
        "joint_pos_rad": np.array(contract.default_pos_rad) + rng.normal(0.0, 0.1, (steps, n)),
        "joint_vel_rad_s": rng.normal(0.0, 1.0, (steps, n)),
        "quat_base_to_world_wxyz": quats / np.linalg.norm(quats, axis=1, keepdims=True),
        "ang_vel_base_in_base_rad_s": rng.normal(0.0, 0.5, (steps, 3)),
        "command": np.tile([0.5, 0.0, 0.1, 1.0][: len(contract.command.names)], (steps, 1)),
        "last_action": rng.normal(0.0, 1.0, (steps, n)),
        "time_s": np.arange(steps) * contract.dt_s,
    }
    if any(term.name == "base_lin_vel" for term in contract.observations):
        arrays["lin_vel_base_in_base_m_s"] = rng.normal(0.0, 0.5, (steps, 3))
    if contract.map_window is not None:
        window = contract.map_window
        arrays["elevation_map"] = rng.normal(0.0, 0.2, (steps, window.rows, window.cols, len(window.channels)))
    arrays = {name: values.astype(np.float32) for name, values in arrays.items()}
    extra: dict[str, np.ndarray] = {}
    if contract.instruction is not None:
        tokens = rng.integers(0, len(contract.instruction.vocabulary), (steps, MAX_WORDS))
        extra[INSTRUCTION_TERM] = tokens.astype(np.float32)
    builder = ObservationBuilder(contract, arrays["joint_pos_rad"][:1])
    rows = []
    for i in range(steps):
        fields_of_row: dict[str, Any] = {name: values[i : i + 1] for name, values in arrays.items()}
        more = {name: values[i : i + 1] for name, values in extra.items()}
        rows.append(builder(Signals(**fields_of_row, extra=more)))
    others = {EXTRA_PREFIX + name: values for name, values in extra.items()}
    return {**arrays, **others, "observation": np.concatenate(rows)}


def tiny_bundle(folder: str | Path, contract: PolicyContract | None = None, **model: Any) -> Bundle:
    """Write, seal and load a bundle around :func:`linear_model`.

    Args:
        folder: Where to write it.
        contract: That of the tiny robot if not given.
        model: Arguments of :func:`linear_model`.
    """
    contract = contract or contract_for(tiny_robot())
    model_bytes = linear_model(contract, **model)
    golden = with_actions(contract, model_bytes, golden_data(contract))
    write_bundle(folder, contract=contract, model_bytes=model_bytes, golden=golden)
    return load_bundle(folder)


def with_actions(contract: PolicyContract, model_bytes: bytes, golden: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Golden data with the network's actions (M, a) and the joint targets (M, n), rad, that follow from them."""
    policy = OnnxPolicy(model_bytes, contract)
    action = np.concatenate([policy(row[None]) for row in golden["observation"]])
    decoder = embodiment_of(contract).make_decoder(contract, action)
    names = {item.name for item in fields(Signals)}
    given: dict[str, Any] = {name: values for name, values in golden.items() if name in names}
    return {**golden, "action": action, "joint_target_rad": decoder(action, Signals(**given)).pos_rad}


def signals_for(contract: PolicyContract, like: Any, rows: int = 1, **changes: Any) -> Signals:
    """Signals of robots that stand still in the contract's default pose, as arrays of N rows.

    Args:
        contract: Sizes and pose.
        like: Any floating array of the namespace, dtype and device of the signals.
        rows: N.
        changes: Fields of the signals, arrays.
    """
    xp = namespace(like)
    n = len(contract.joint_names)

    def row(values: list[float]) -> Any:
        return xp.asarray([values] * rows, dtype=like.dtype, device=device(like))

    still = {
        "joint_pos_rad": row(list(contract.default_pos_rad)),
        "joint_vel_rad_s": row([0.0] * n),
        "quat_base_to_world_wxyz": row([1.0, 0.0, 0.0, 0.0]),
        "ang_vel_base_in_base_rad_s": row([0.0] * 3),
        "command": row([0.0] * len(contract.command.names)),
        "last_action": row([0.0] * contract.action_size),
        "time_s": row([0.0])[:, 0],
    }
    return Signals(**{**still, **changes})

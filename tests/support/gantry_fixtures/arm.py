"""Small arm policies for tests of whatever runs them: one action per step, a plan of several, or a residual on a plan.

Building a network needs the ``onnx`` package, which the runtime itself does not.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.actions.arm import ArmDecoder
from gantry_deploy.bundle.bundle import Bundle, load_bundle, write_bundle
from gantry_deploy.contract.arm_spec import BODY_TARGET, ArmSpec
from gantry_deploy.contract.parts import MAX_WORDS, CameraInput, InstructionSpec
from gantry_deploy.contract.policy_contract import (
    INSTRUCTION_TERM,
    METADATA_KEY,
    ActionSpec,
    ChunkSpec,
    CommandSpec,
    PolicyContract,
)
from gantry_deploy.observations.builder import ObservationBuilder, Signals, make_term, needed_signals
from gantry_deploy.observations.scene import THINGS_SIZE
from gantry_deploy.policy.golden import EXTRA_PREFIX, OBJECT_ARRAY
from gantry_deploy.policy.onnx_policy import BASE_ACTION, IMAGE_PREFIX, OBSERVATION, OnnxBase, OnnxPolicy
from gantry_deploy.testing.legs import contract_for, signals_for
from gantry_hardware.model.chain import Chain
from gantry_hardware.model.spec import RobotSpec

STEP_M = 0.02
"""Largest step of the end effector per unit of action."""


def arm_contract_for(spec: RobotSpec, **changes: Any) -> PolicyContract:
    """A contract that moves an arm's end effector and last joint, the gripper, at 20 Hz, and sees joints and targets.

    Args:
        spec: The arm; its last joint is the gripper.
        changes: Fields of the contract to replace.

    Raises:
        RobotError: If the robot is no arm.
    """
    n, gripper = spec.num_joints, spec.joints[-1]
    middle, half = 0.5 * (gripper.upper_rad + gripper.lower_rad), 0.5 * (gripper.upper_rad - gripper.lower_rad)
    arm = ArmSpec(
        chain=spec.body_as(Chain),
        lower_ee_in_base_m=(0.2, -0.2, 0.015),
        upper_ee_in_base_m=(0.45, 0.2, 0.25),
        quat_ee_to_base_wxyz=(0.3420201, 0.0, 0.9396926, 0.0),
        gripper_joint=gripper.name,
        gripper_closed_m=gripper.lower_rad,
        gripper_open_m=gripper.upper_rad,
    )
    return contract_for(
        spec,
        **{
            "rate_hz": 20.0,
            "observations": (make_term("joint_pos", n), make_term("joint_lead", n), make_term("last_action", 4)),
            "action": ActionSpec(BODY_TARGET, (STEP_M,) * 3 + (half,), (0.0, 0.0, 0.0, middle), clip=1.0),
            "command": CommandSpec("", (), (), (), ()),
            "gait": None,
            "body": arm,
            **changes,
        },
    )


def with_cameras(contract: PolicyContract, *names: str, size_px: int = 4) -> PolicyContract:
    """The same contract with square pictures of these cameras."""
    return replace(contract, cameras=tuple(CameraInput(name, size_px, size_px) for name in names))


def arm_model(
    contract: PolicyContract,
    *,
    base: bool = False,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    image_gain: float = 1.0,
    seed: int = 0,
) -> bytes:
    """An ONNX network with all inputs of a contract: observation @ weight + bias, plus the mean of all pixels.

    A plan is that many actions at once. A residual policy adds ``base_action`` and limits the sum to [-1, 1].

    Args:
        contract: Sizes, and metadata of a policy.
        base: Make ``base.onnx``, which plans and carries no contract.
        weight: Shape (obs, k) with k numbers of an action or of all actions of a plan; small random ones if not given.
        bias: Shape (k,); zeros if not given.
        image_gain: Of the mean of each camera's pixels, 0 to 255, over 255; added to every number.
        seed: Of the random weights.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    chunk, n = contract.chunk, contract.action_size
    plan = chunk is not None and (base or not chunk.residual)
    count = n * chunk.steps if plan and chunk is not None else n
    rows = contract.observation_size
    rng = np.random.default_rng(seed)
    matrix = rng.normal(0.0, 0.5 / np.sqrt(rows), (rows, count)) if weight is None else weight
    constants = {"weight": matrix, "bias": np.zeros(count) if bias is None else bias, "gain": image_gain / 255.0}
    inputs = [helper.make_tensor_value_info(OBSERVATION, TensorProto.FLOAT, [1, rows])]
    nodes = [helper.make_node("Gemm", [OBSERVATION, "weight", "bias"], ["linear"])]
    pictures, more, last = _picture_nodes(contract, "linear")
    inputs, nodes = inputs + pictures, nodes + more
    tensors = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()]
    shape = [1, n]
    if plan and chunk is not None:
        shape = [1, chunk.steps, n]
        tensors.append(numpy_helper.from_array(np.array(shape, np.int64), "shape"))
        nodes.append(helper.make_node("Reshape", [last, "shape"], ["action"]))
    elif chunk is not None:
        tensors += [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in (("low", -1.0), ("high", 1.0))]
        inputs.append(helper.make_tensor_value_info(BASE_ACTION, TensorProto.FLOAT, [1, n]))
        nodes.append(helper.make_node("Add", [last, BASE_ACTION], ["sum"]))
        nodes.append(helper.make_node("Clip", ["sum", "low", "high"], ["action"]))
    else:
        nodes.append(helper.make_node("Identity", [last], ["action"]))
    output = helper.make_tensor_value_info("action", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "policy", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if not base:
        helper.set_model_props(model, {METADATA_KEY: contract.to_json()})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _picture_nodes(contract: PolicyContract, last: str) -> tuple[list[Any], list[Any], str]:
    """Inputs and nodes that add the mean of each camera's pixels to the tensor ``last``, and the sum's name."""
    from onnx import TensorProto, helper

    inputs, nodes = [], []
    for camera in contract.cameras:
        name, shape = IMAGE_PREFIX + camera.name, [1, 3, camera.height, camera.width]
        inputs.append(helper.make_tensor_value_info(name, TensorProto.UINT8, shape))
        nodes += [
            helper.make_node("Cast", [name], [f"{name}/float"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", [f"{name}/float"], [f"{name}/mean"], keepdims=0),
            helper.make_node("Mul", [f"{name}/mean", "gain"], [f"{name}/scaled"]),
            helper.make_node("Add", [last, f"{name}/scaled"], [f"{name}/added"]),
        ]
        last = f"{name}/added"
    return inputs, nodes, last


def arm_bundle(
    folder: str | Path,
    contract: PolicyContract,
    base: dict[str, Any] | None = None,
    steps: int = 25,
    **model: Any,
) -> Bundle:
    """Write, seal and load a bundle around :func:`arm_model`, with two recorded episodes.

    Args:
        folder: Where to write it.
        contract: Of the policy; with a residual chunk its base's hash is filled in.
        base: Arguments of :func:`arm_model` for the base.
        steps: Recorded in each episode.
        model: Arguments of :func:`arm_model` for the policy.
    """
    base_bytes = None
    if contract.chunk is not None and contract.chunk.residual:
        base_bytes = arm_model(contract, base=True, **(base or {}))
        chunk = replace(contract.chunk, base_sha256=hashlib.sha256(base_bytes).hexdigest())
        contract = replace(contract, chunk=chunk)
    model_bytes = arm_model(contract, **model)
    golden = arm_golden(contract, model_bytes, base_bytes, steps)
    write_bundle(folder, contract=contract, model_bytes=model_bytes, golden=golden, base_bytes=base_bytes)
    return load_bundle(folder)


def arm_golden(
    contract: PolicyContract, model_bytes: bytes, base_bytes: bytes | None = None, steps: int = 25, seed: int = 0
) -> dict[str, np.ndarray]:
    """Two recorded episodes of an arm whose joints follow their targets half way in a step, as an export records them.

    The plan is kept in a plain list here, so that a runtime's queue is compared with something else than itself; an
    ensemble of plans is not made.
    """
    rng = np.random.default_rng(seed)
    policy = OnnxPolicy(model_bytes, contract)
    planner = policy if base_bytes is None else OnnxBase(base_bytes, contract)
    like = np.zeros((1, 1), np.float32)
    builder, decoder = ObservationBuilder(contract, like), ArmDecoder(contract, like)
    rows: dict[str, list[np.ndarray]] = {}
    joints, action, plan = like, like, []
    for i in range(2 * steps):
        if i % steps == 0:
            joints = np.array([contract.default_pos_rad]) + rng.uniform(-0.05, 0.05, (1, len(contract.joint_names)))
            joints = np.clip(joints, contract.joint_lower_rad, contract.joint_upper_rad).astype(np.float32)
            action, plan = np.zeros((1, contract.action_size), np.float32), []
            decoder.reset(joints)
            builder.reset()
        signals = _signals(contract, joints, action, i % steps * contract.dt_s, rng)
        signals.joint_target_rad = decoder.targets
        images = {c.name: rng.integers(0, 256, (3, c.height, c.width), dtype=np.uint8) for c in contract.cameras}
        row: dict[str, np.ndarray] = {IMAGE_PREFIX + name: picture[None] for name, picture in images.items()}
        row["observation"] = builder(signals)
        if contract.chunk is None:
            row["action"] = policy(row["observation"], images)
        else:
            plan = plan or list(planner(row["observation"], images)[0][: contract.chunk.execute])
            row["action"] = plan.pop(0)[None]
        if contract.chunk is not None and contract.chunk.residual:
            row[BASE_ACTION] = row["action"]
            row["action"] = policy(row["observation"], images, row[BASE_ACTION])
        row["joint_target_rad"], action = decoder.follow(row["action"], joints), decoder.clip(row["action"])
        row["episode_start"] = np.array([i % steps == 0])
        names = ("joint_pos_rad", "joint_vel_rad_s", "command", "last_action", "time_s", OBJECT_ARRAY)
        for name, values in {**{name: getattr(signals, name) for name in names}, **row}.items():
            rows.setdefault(name, []).append(values)
        for name, values in signals.extra.items():
            rows.setdefault(EXTRA_PREFIX + name, []).append(values)
        joints = (joints + 0.5 * (row["joint_target_rad"] - joints)).astype(np.float32)
    return {name: np.concatenate(values) for name, values in rows.items()}


def _signals(
    contract: PolicyContract, joints: np.ndarray, last_action: np.ndarray, time_s: float, rng: np.random.Generator
) -> Signals:
    command = rng.uniform(contract.command.lower, contract.command.upper)
    place = np.concatenate((rng.uniform(0.2, 0.4, 3), (1.0, 0.0, 0.0, 0.0)))
    return signals_for(
        contract,
        joints,
        joint_pos_rad=joints,
        joint_vel_rad_s=rng.normal(0.0, 0.1, joints.shape).astype(np.float32),
        command=np.asarray(command, np.float32)[None],
        last_action=last_action,
        time_s=np.array([time_s], np.float32),
        object_pose_in_base=place.astype(np.float32)[None],
        extra={
            name: rng.integers(0, 5, (1, size)).astype(np.float32)
            for name, size in needed_signals(contract).items()
            if name != OBJECT_ARRAY
        },
    )


PHASES = {"across": 10, "down": 12, "close": 10, "up": 20}
"""Steps of each part of :func:`grasping_plan`."""


def grasping_contract(spec: RobotSpec, **changes: Any) -> PolicyContract:
    """A contract of a policy that sees where the object is from its end effector, and plans a whole grasp at once."""
    steps = sum(PHASES.values())
    seen = (make_term("object_from_ee", 3),)
    return arm_contract_for(spec, **{"observations": seen, "chunk": ChunkSpec(steps, steps), **changes})


def told_contract(spec: RobotSpec, instruction: InstructionSpec, **changes: Any) -> PolicyContract:
    """A contract as :func:`grasping_contract`, of a policy that sees three things and reads an instruction."""
    seen = (make_term("things_from_ee", THINGS_SIZE), make_term(INSTRUCTION_TERM, MAX_WORDS))
    return grasping_contract(spec, **{"observations": seen, "instruction": instruction, **changes})


def told_plan() -> tuple[np.ndarray, np.ndarray]:
    """Weight (25, k) and bias (k,) of :func:`grasping_plan` for the first thing, whatever is said."""
    weight, bias = grasping_plan()
    return np.concatenate((weight, np.zeros((THINGS_SIZE - 3 + MAX_WORDS, weight.shape[1])))), bias


def grasping_plan(steps_m: float = STEP_M) -> tuple[np.ndarray, np.ndarray]:
    """Weight (3, k) and bias (k,) of a plan that grasps and lifts: over the object, down to it, close, up.

    It is made blindly from the first look, so it is linear in where the object is.

    Args:
        steps_m: Largest step of the end effector per unit of action.
    """
    total = sum(PHASES.values())
    weight, bias = np.zeros((3, total, 4)), np.zeros((total, 4))
    across, down, close = np.cumsum(list(PHASES.values()))[:3]
    for axis in (0, 1):
        weight[axis, :across, axis] = 1.0 / (PHASES["across"] * steps_m)
    weight[2, across:down, 2] = 1.0 / (PHASES["down"] * steps_m)
    bias[:down, 3], bias[down:, 3] = 1.0, -1.0
    bias[close:, 2] = 0.5
    return weight.reshape(3, -1), bias.ravel()

"""LEAPP folders for tests: made with onnx.helper as Isaac Lab 3.0.0 writes them for its Go2, and steps that Isaac Lab
recorded.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import yaml
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.state import RobotState

NODE = "Test-Velocity-Flat-Go2"
LEGS, PARTS = ("FL", "FR", "RL", "RR"), ("hip", "thigh", "calf")
JOINTS = tuple(f"{leg}_{part}_joint" for leg in LEGS for part in PARTS)
"""Newton's order, leg by leg; this runtime has FR first."""
PHYSX_JOINTS = tuple(f"{leg}_{part}_joint" for part in PARTS for leg in LEGS)
"""PhysX's order, all hips, then all thighs, then all calves."""
POSE = np.array([0.1, 0.8, -1.5, -0.1, 0.8, -1.5, 0.1, 1.0, -1.5, -0.1, 1.0, -1.5], np.float32)
SCALE = 0.25
KP, KD = 25.0, 0.5
SIZES = {"ang": 3, "quat": 4, "command": 3, "pos": 12, "vel": 12, "last_action_in": 12}
QUAT = ["qx", "qy", "qz", "qw"]


def weights(seed: int = 3) -> dict[str, NDArray[np.float32]]:
    """Small matrices (k, 12) from each input to the action, which depends on every number of every input."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0.0, 0.1, (size, 12)).astype(np.float32) for name, size in SIZES.items()}


def targets_by_hand(signals: dict[str, NDArray[Any]], state: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Targets (12,) in the folder's joint order, and the next state, in double precision and without the graph.

    ``signals`` are by the names of the graph's inputs and in its orders.
    """
    parts = {**signals, "pos": signals["pos"] - POSE, "last_action_in": state}
    action = np.tanh(sum(np.asarray(parts[name], float) @ matrix for name, matrix in weights().items()))
    return POSE + SCALE * action, action


def graph(kp: float, kd: float, gains: bool = True) -> onnx.ModelProto:
    """``joint_pos = POSE + 0.25 tanh(sum of input @ matrix)``, with feedback and constant gains."""
    nodes, constants = [], []

    def constant(name: str, value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    nodes.append(helper.make_node("Sub", ["pos", constant("pose", POSE[None])], ["pos_rel"]))
    total = ""
    for name, matrix in weights().items():
        nodes.append(
            helper.make_node(
                "MatMul", ["pos_rel" if name == "pos" else name, constant(f"w_{name}", matrix)], [f"m_{name}"]
            )
        )
        if total:
            nodes.append(helper.make_node("Add", [total, f"m_{name}"], [f"s_{name}"]))
        total = f"s_{name}" if total else f"m_{name}"
    nodes += [
        helper.make_node("Tanh", [total], ["last_action_out"]),
        helper.make_node("Mul", ["last_action_out", constant("scale", SCALE)], ["scaled"]),
        helper.make_node("Add", ["scaled", "pose"], ["joint_pos"]),
    ]
    outputs = ["joint_pos", "last_action_out"]
    if gains:
        for name, gain in (("kp_gains", kp), ("kd_gains", kd)):
            nodes.append(helper.make_node("Identity", [constant(f"c_{name}", np.full((1, 12), gain))], [name]))
            outputs.append(name)
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, size)) for name, size in group.items()]
        for group in (SIZES, dict.fromkeys(outputs, 12))
    ]
    made = helper.make_graph(nodes, "policy", *ends, initializer=constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def description(data: bytes, gains: bool = True) -> dict[str, Any]:
    """The YAML of the graph, as plain data."""

    def tensor(name: str, kind: str = "", elements: Any = None, connection: str = "") -> dict[str, Any]:
        told = {"name": name, "dtype": "float32", "shape": [1, SIZES.get(name, 12)], "type": "tensor"}
        more = {"kind": kind, "element_names": elements and [list(elements)], "isaaclab_connection": connection}
        return told | {key: value for key, value in more.items() if value}

    outputs = [
        tensor("joint_pos", "target/joint/position", JOINTS, "write:robot:set_joint_position_target_index"),
        tensor("last_action_out"),
    ]
    if gains:
        outputs += [tensor("kp_gains", "kp", JOINTS), tensor("kd_gains", "kd", JOINTS)]
    parameters = {
        "model_path": f"{NODE}.onnx",
        "md5sum": hashlib.md5(data).hexdigest(),
        "sha256sum": hashlib.sha256(data).hexdigest(),
        "backend": "onnx",
        "opset_version": 20,
        "warp_segments": [],
    }
    inputs = [
        tensor("ang", "state/body/angular_velocity", "xyz", "state:robot:root_ang_vel_b"),
        tensor("quat", "state/body/rotation", QUAT, "state:robot:root_quat_w"),
        tensor("command", "command/body/velocity", ["lin_vel_x", "lin_vel_y", "ang_vel_z"], "command:base_velocity"),
        tensor("pos", "state/joint/position", JOINTS, "state:robot:joint_pos"),
        tensor("vel", "state/joint/velocity", JOINTS, "state:robot:joint_vel"),
        tensor("last_action_in"),
    ]
    return {
        "models": {NODE: {"inputs": inputs, "outputs": outputs, "parameters": parameters}},
        "pipeline": {
            "configs": {"frequency": 50.0},
            "data_flow": {},
            "feedback_flow": {f"{NODE}/last_action_out": [f"{NODE}/last_action_in"]},
            "initial_values": f"{NODE}_initial_values.safetensors",
            "inputs": {NODE: [item["name"] for item in inputs[:-1]]},
            "outputs": {NODE: [item["name"] for item in outputs if item["name"] != "last_action_out"]},
        },
        "system information": {"leapp_version": "0.7.2"},
    }


def write_leapp(
    folder: Path, *, kp: float = KP, kd: float = KD, gains: bool = True, initial: float = 0.0, change: Any = None
) -> Path:
    """Write a folder.

    Args:
        folder: Made if it is missing.
        kp: Of every joint.
        kd: Likewise.
        gains: Whether there are outputs for them.
        initial: Every number of the first state.
        change: Called with the description, which it may change, before it is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = graph(kp, kd, gains).SerializeToString()
    told = description(data, gains)
    if change is not None:
        change(told)
    (folder / f"{NODE}.onnx").write_bytes(data)
    save_file(
        {f"{NODE}/last_action_in": np.full((1, 12), initial, np.float32)}, folder / f"{NODE}_initial_values.safetensors"
    )
    (folder / f"{NODE}.yaml").write_text(yaml.safe_dump(told, sort_keys=False))
    return folder


def difference_to_isaaclab_rad(
    runner: PolicyRunner, steps: dict[str, NDArray[Any]], joints: tuple[str, ...] = PHYSX_JOINTS
) -> float:
    """Largest difference between the runtime's joint targets and those that Isaac Lab followed.

    Args:
        runner: Of the imported bundle.
        steps: As ``tests/sim/isaaclab/leapp_program.py`` records them.
        joints: Order of joints in them.
    """
    spec = runner.spec
    place = [joints.index(name) for name in spec.joint_names]
    worst = 0.0
    for row in range(len(steps["reset"])):
        if steps["reset"][row]:
            runner.reset()
        state = RobotState(
            stamp_s=0.02 * row,
            joint_pos_rad=steps["robot_joint_pos"][row, place].astype(float),
            joint_vel_rad_s=steps["robot_joint_vel"][row, place].astype(float),
            joint_effort_nm=np.zeros(12),
            quat_base_to_world_wxyz=steps["robot_root_quat_w"][row, [3, 0, 1, 2]].astype(float),
            ang_vel_base_in_base_rad_s=steps["robot_root_ang_vel_b"][row].astype(float),
            lin_acc_base_in_base_m_s2=np.zeros(3),
            lin_vel_base_in_base_m_s=steps["robot_root_lin_vel_b"][row].astype(float),
        )
        found = runner.step(state, steps["base_velocity"][row].astype(float)).target.pos_rad
        expected = np.clip(steps["joint_pos_target"][row, place], spec.array("lower_rad"), spec.array("upper_rad"))
        worst = max(worst, float(np.abs(found - expected).max()))
    return worst

"""A file that says where what moves was when each image was taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.actions.kinematics import ArmKinematics
from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.calibration.boards import CalibrationError
from gantry_deploy.calibration.poses import Pose, pose_of_rpy
from gantry_hardware.errors import unknown_name_text
from gantry_hardware.files.text import plain_text
from gantry_hardware.files.yaml_file import YamlFileError, read_yaml
from gantry_hardware.model.chain import Chain
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.sensing.frames import rotation_matrix

EXAMPLE = "images: {a.png: {pose: [x, y, z, roll, pitch, yaw]}, b.png: {joints: [...]}}"
"""Form of the file, for messages."""
KEYS = ("pose", "quat_pose", "joints")
"""Ways of saying a pose: x y z roll pitch yaw; x y z and quaternion w x y z; joint angles of an arm."""


def read_poses(path: Path, spec: RobotSpec | None = None) -> dict[str, Pose]:
    """The pose of what moves by the image's name.

    Args:
        path: Of a YAML file like :data:`EXAMPLE`; lengths in m, angles in rad.
        spec: Arm whose joint names are recorded; None without an arm.

    Raises:
        CalibrationError: If it cannot be read, or an entry is no pose.
    """
    if not path.is_file():
        raise CalibrationError(f"There is no file of poses {path}.{near_miss(path)}")
    try:
        data = read_yaml(path)
    except YamlFileError as error:
        raise CalibrationError(f"Cannot read the poses {error}") from error
    entries = data.get("images") if isinstance(data, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise CalibrationError(f"{path} holds no poses; expected {EXAMPLE}.")
    return {str(name): _pose(f"{path.name}: {name}", entry, spec) for name, entry in entries.items()}


def _pose(where: str, entry: Any, spec: RobotSpec | None) -> Pose:
    if not isinstance(entry, dict) or len(entry) != 1:
        raise CalibrationError(f"{where} is {plain_text(entry)}, expected one of {', '.join(KEYS)} with its numbers.")
    key, numbers = next(iter(entry.items()))
    if key not in KEYS:
        raise CalibrationError(f"{where}: {unknown_name_text('way of saying a pose', str(key), KEYS)}")
    sizes = {"pose": 6, "quat_pose": 7}
    chain = None if spec is None else spec.body
    if isinstance(chain, Chain):
        sizes["joints"] = len(chain.joint_names)
    elif key == "joints":
        raise CalibrationError(f"{where} holds joints; --robot says of which arm.")
    good = isinstance(numbers, list) and len(numbers) == sizes[key]
    if not good or not all(isinstance(item, int | float) and not isinstance(item, bool) for item in numbers):
        raise CalibrationError(f"{where} has {key} {plain_text(numbers)}, expected {sizes[key]} numbers.")
    values = np.array(numbers, dtype=np.float64)
    if key == "pose":
        return pose_of_rpy(values.tolist())
    if key == "quat_pose":
        norm = float(np.linalg.norm(values[3:]))
        if abs(norm - 1.0) > 0.01:
            raise CalibrationError(f"{where}: the quaternion has length {norm:.3g}, expected 1.")
        return Pose(rotation_matrix(values[None, 3:] / norm)[0], values[:3])
    assert isinstance(chain, Chain)
    pos, rotation = ArmKinematics(chain, values).forward(values[None])
    return Pose(np.asarray(rotation)[0], np.asarray(pos)[0])

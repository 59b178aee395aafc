"""Readings and commands of a robot over time as arrays, from a recording or from the robot itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.recording.explained import rows_at
from gantry_deploy.recording.reader import Recording
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import RobotState
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class StateLog:
    """T readings; n joints in the canonical order of the robot's spec. What is not known is NaN."""

    spec: RobotSpec
    """Robot that it should be."""
    time_s: FloatArray
    """Shape (T,), when it was read, on the robot's clock."""
    stamp_s: FloatArray
    """Shape (T,), when it was measured, on the same clock."""
    joint_pos_rad: FloatArray
    """Shape (T, n)."""
    joint_vel_rad_s: FloatArray
    """Shape (T, n)."""
    joint_effort_nm: FloatArray
    """Shape (T, n)."""
    quat_base_to_world_wxyz: FloatArray
    """Shape (T, 4)."""
    ang_vel_base_in_base_rad_s: FloatArray
    """Shape (T, 3)."""
    lin_acc_base_in_base_m_s2: FloatArray
    """Shape (T, 3)."""
    pos_base_in_world_m: FloatArray
    """Shape (T, 3), odometry."""
    lin_vel_base_in_base_m_s: FloatArray
    """Shape (T, 3), odometry."""
    sent: FloatArray
    """Shape (T, 5, n), command that was sent after the reading: position, velocity, torque, stiffness, damping."""
    upright: NDArray[np.bool_]
    """Shape (T,), whether the robot should be upright by its mode: it stands, or a policy runs."""

    @property
    def dt_s(self) -> float:
        """Usual time between two readings."""
        return float(np.median(np.diff(self.time_s))) if len(self.time_s) > 1 else float("nan")

    @property
    def repeated(self) -> NDArray[np.bool_]:
        """Shape (T,), readings with exactly the numbers of the one before."""
        numbers = np.concatenate((self.joint_pos_rad, self.joint_vel_rad_s, self.ang_vel_base_in_base_rad_s), axis=1)
        return np.concatenate((np.zeros(1, np.bool_), np.all(numbers[1:] == numbers[:-1], axis=1, keepdims=False)))

    def rows(self, which: NDArray[np.bool_]) -> StateLog:
        """The log of some of its readings, a mask (T,)."""
        arrays = {item.name: getattr(self, item.name)[which] for item in fields(self) if item.name != "spec"}
        return StateLog(self.spec, **arrays)


def log_of_recording(recording: Recording, spec: RobotSpec) -> StateLog:
    """Readings of a whole recording.

    Raises:
        RecordingError: If no state was recorded.
    """
    joints = recording["/joint_states"]
    times = joints["time_s"]

    def column(topic: str, name: str, width: int) -> FloatArray:
        if topic not in recording.topics:
            return np.full((len(times), width), np.nan)
        table = recording[topic]
        rows = rows_at(times, table["time_s"])
        values = np.asarray(table[name], dtype=np.float64)[np.maximum(rows, 0)]
        return np.where((rows >= 0)[:, None], values, np.nan)

    n = spec.num_joints
    sent = [column("/joint_command", name, n) for name in _COMMAND]
    mode = recording["/gantry/status"]["mode"][np.maximum(rows_at(times, recording["/gantry/status"]["time_s"]), 0)]
    return StateLog(
        spec=spec,
        time_s=times,
        stamp_s=joints["stamp_s"],
        joint_pos_rad=np.asarray(joints["joint_pos_rad"], dtype=np.float64),
        joint_vel_rad_s=np.asarray(joints["joint_vel_rad_s"], dtype=np.float64),
        joint_effort_nm=np.asarray(joints["joint_effort_nm"], dtype=np.float64),
        quat_base_to_world_wxyz=column("/imu/data", "quat_base_to_world_wxyz", 4),
        ang_vel_base_in_base_rad_s=column("/imu/data", "ang_vel_base_in_base_rad_s", 3),
        lin_acc_base_in_base_m_s2=column("/imu/data", "lin_acc_base_in_base_m_s2", 3),
        pos_base_in_world_m=column("/odom", "pos_base_in_world_m", 3),
        lin_vel_base_in_base_m_s=column("/odom", "lin_vel_base_in_base_m_s", 3),
        sent=np.stack(sent, axis=1),
        upright=np.isin(mode, ("STAND", "POLICY")),
    )


_COMMAND = ("pos_rad", "vel_rad_s", "effort_nm", "stiffness_nm_rad", "damping_nm_s_rad")


def log_of_robot(
    robot: Robot, seconds: float, rate_hz: float, on_reading: Callable[[float], None] | None = None
) -> StateLog:
    """Read a connected robot for a while and command nothing.

    Args:
        robot: Connected.
        seconds: On its clock.
        rate_hz: Rate of reading.
        on_reading: Told of the time that has passed, s.

    Raises:
        RobotError: If it never reported a state.
    """
    begin_s, dt_s = robot.now_s(), 1.0 / rate_hz
    rows: list[tuple[float, RobotState]] = []
    while (now_s := robot.now_s()) - begin_s < seconds:
        rows.append((now_s, robot.read()))
        if on_reading is not None:
            on_reading(now_s - begin_s)
        robot.sleep_until(begin_s + len(rows) * dt_s)
    spec, n = robot.spec, robot.spec.num_joints

    def column(name: str, width: int) -> FloatArray:
        values = [getattr(state, name) for _, state in rows]
        return np.array([np.full(width, np.nan) if value is None else value for value in values], dtype=np.float64)

    return StateLog(
        spec=spec,
        time_s=np.array([now_s for now_s, _ in rows]),
        stamp_s=np.array([state.stamp_s for _, state in rows]),
        **{name: column(name, n) for name in ("joint_pos_rad", "joint_vel_rad_s", "joint_effort_nm")},
        quat_base_to_world_wxyz=column("quat_base_to_world_wxyz", 4),
        **{name: column(name, 3) for name in _VECTORS},
        sent=np.full((len(rows), len(_COMMAND), n), np.nan),
        upright=np.zeros(len(rows), dtype=np.bool_),
    )


_VECTORS = (
    "ang_vel_base_in_base_rad_s",
    "lin_acc_base_in_base_m_s2",
    "pos_base_in_world_m",
    "lin_vel_base_in_base_m_s",
)

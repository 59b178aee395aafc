"""A walk read back from its recording, and scored as every other episode is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.control.safety import Mode
from gantry_deploy.evaluation.metrics import EpisodeScores
from gantry_deploy.recording.reader import Recording, read_recording
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_hardware.spec import RobotSpec

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class MeasuredWalk:
    """The ticks under the policy; T of them, n joints."""

    spec: RobotSpec
    """The robot."""
    rate_hz: float
    """Rate of the loop as the policy's contract has it."""
    time_s: FloatArray
    """Shape (T,), since the policy's first tick."""
    command: FloatArray
    """Shape (T, 3), what was asked for: forward and lateral m/s, yaw rad/s, base frame."""
    velocity: FloatArray
    """Shape (T, 3), what the robot did, likewise."""
    pos_base_in_world_m: FloatArray
    """Shape (T, 3)."""
    quat_base_to_world_wxyz: FloatArray
    """Shape (T, 4)."""
    joint_pos_rad: FloatArray
    """Shape (T, n)."""
    target_rad: FloatArray
    """Shape (T, n), what the joints were told."""
    contact: NDArray[np.bool_] | None
    """Shape (T, feet), which feet were on the ground; None if the robot does not say."""
    period_s: FloatArray
    """Shape (T - 1,), time between ticks."""
    infer_s: FloatArray
    """Shape (T,), time inside the network."""
    lin_vel_error_m_s: float
    """Mean planar velocity error."""
    yaw_rate_error_rad_s: float
    """Mean yaw-rate error."""
    fell: bool
    """Whether it fell."""
    fault: str
    """Fault that damped the robot out of the policy; empty if none did."""

    @property
    def distance_m(self) -> float:
        """Length of the base's path over the ground."""
        return float(np.linalg.norm(np.diff(self.pos_base_in_world_m[:, :2], axis=0), axis=1).sum())


def measure(path: Path) -> MeasuredWalk:
    """Read and score a recording of a walk.

    Args:
        path: The MCAP file.

    Raises:
        GantryError: If there is none, or the policy never ran in it, or its robot told no odometry.
    """
    recording = read_recording(path)
    contract = recording.contract
    status = recording.topics.get("/gantry/status")
    if contract is None or status is None:
        raise GantryError(f"{path}: no policy ran in this recording.")
    rows = _rows_under_policy(recording)
    odom, joints = recording["/odom"], recording["/joint_states"]
    in_status = rows["/gantry/status"]
    spec = robot_spec(recording.robot)
    lin_vel, ang_vel = odom["lin_vel_base_in_base_m_s"], odom["ang_vel_base_in_base_rad_s"]
    velocity = np.column_stack([lin_vel[:, :2], ang_vel[:, 2]])[rows["/odom"]]
    command = recording["/cmd_vel"]["command"][rows["/cmd_vel"]]
    pos = odom["pos_base_in_world_m"][rows["/odom"]]
    quat = odom["quat_base_to_world_wxyz"][rows["/odom"]]
    scores = _score(command, velocity, pos, quat, spec)
    contacts = recording.topics.get("/foot_contacts")
    times = status["time_s"][in_status]
    return MeasuredWalk(
        spec=spec,
        rate_hz=contract.rate_hz,
        time_s=times - times[0],
        command=command,
        velocity=velocity,
        pos_base_in_world_m=pos,
        quat_base_to_world_wxyz=quat,
        joint_pos_rad=joints["joint_pos_rad"][rows["/joint_states"]],
        target_rad=recording["/joint_command"]["pos_rad"][rows["/joint_command"]],
        contact=None if contacts is None else contacts["data"][rows["/foot_contacts"]] > 0.5,
        period_s=status["period_s"][in_status][1:],
        infer_s=status["infer_s"][in_status],
        lin_vel_error_m_s=float(scores.lin_vel_error_m_s[0]),
        yaw_rate_error_rad_s=float(scores.yaw_rate_error_rad_s[0]),
        fell=bool(scores.fallen[0]),
        fault=fault_that_ended(status),
    )


def fault_that_ended(status: dict[str, NDArray[Any]]) -> str:
    """Fault that damped the robot out of the policy; empty if the policy was stopped, whatever happened afterwards."""
    after = int(np.flatnonzero(status["mode"] == Mode.POLICY.value)[-1]) + 1
    damped = after < len(status["mode"]) and status["mode"][after] == Mode.DAMP.value
    return str(status["fault"][after]) if damped else ""


def _rows_under_policy(recording: Recording) -> dict[str, NDArray[np.int64]]:
    """For every topic, the rows of those ticks under the policy that all topics have."""
    status = recording["/gantry/status"]
    ticks = status["time_s"][status["mode"] == Mode.POLICY.value]
    needed = ["/gantry/status", "/odom", "/cmd_vel", "/joint_states", "/joint_command"]
    if "/foot_contacts" in recording.topics:
        needed.append("/foot_contacts")
    for topic in needed:
        ticks = np.intersect1d(ticks, recording[topic]["time_s"])
    if ticks.size < 2:
        raise GantryError(f"{recording.path}: the policy never ran in this recording.")
    return {topic: np.searchsorted(recording[topic]["time_s"], ticks) for topic in needed}


def _score(
    command: FloatArray, velocity: FloatArray, pos: FloatArray, quat: FloatArray, spec: RobotSpec
) -> EpisodeScores:
    """Compare where each tick led, which the next one reads, with what it was asked for."""
    scores = EpisodeScores(np.zeros((1, 1)), spec.fall_height_m)
    zero = np.zeros(1)
    for i in range(1, len(command)):
        lin_vel = np.concatenate([velocity[i, :2], zero])[None]
        ang_vel = np.array([[0.0, 0.0, velocity[i, 2]]])
        scores.update(lin_vel, ang_vel, quat[i][None], pos[i, 2:3], command[i - 1][None])
    return scores

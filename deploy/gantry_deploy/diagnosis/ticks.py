"""Ticks of a recording in which a policy ran: robot states, commands, actions and observations, aligned by time."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import RecordingError
from gantry_deploy.recording.explained import rows_at
from gantry_deploy.recording.reader import Recording
from gantry_deploy.teleop.operator import TeleopEvent
from gantry_hardware.backends.state import RobotState

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class PolicyTicks:
    """T ticks under a policy; n joints. Rows of what was not recorded in a tick are NaN."""

    time_s: FloatArray
    """Shape (T,), the robot's clock."""
    segment: NDArray[np.intp]
    """Shape (T,), number of the uninterrupted run under the policy."""
    observation: FloatArray
    """Shape (T, obs), the network's input as it was recorded."""
    action: FloatArray
    """Shape (T, a), what was executed, before the clip."""
    own_action: FloatArray
    """Shape (T, a), what the network answered, where a person's action was executed."""
    command: FloatArray
    """Shape (T, c), after shaping."""
    sent_pos: FloatArray
    """Shape (T, n), rad: targets that were sent."""
    sent_effort: FloatArray
    """Shape (T, n), N m: efforts that were sent beside those of the gains."""
    sent_stiffness: FloatArray
    """Shape (T, n), N m/rad."""
    sent_damping: FloatArray
    """Shape (T, n), N m s/rad."""
    states: tuple[RobotState, ...]
    """T readings."""


def policy_ticks(recording: Recording, contract: PolicyContract) -> PolicyTicks:
    """The ticks of a recording in which its policy was asked and a state was there.

    Raises:
        RecordingError: If there are none.
    """
    for topic in ("/policy/observation", "/policy/action", "/policy/command", "/joint_states", "/imu/data"):
        if topic not in recording.topics:
            raise RecordingError(f"{recording.path}: no policy ran in this recording (it has no {topic}).")
    seen = recording["/policy/observation"]
    times = seen["time_s"][rows_at(seen["time_s"], recording["/joint_states"]["time_s"]) >= 0]
    if not len(times):
        raise RecordingError(f"{recording.path}: no tick under the policy has a state of the robot.")
    action = _column(recording, "/policy/action", "data", times)
    return PolicyTicks(
        time_s=times,
        segment=np.cumsum(_begins(recording, times), dtype=np.intp),
        observation=_column(recording, "/policy/observation", "data", times),
        action=action,
        own_action=_own(recording, times, action),
        command=_column(recording, "/policy/command", "data", times, size=len(contract.command.names)),
        sent_pos=_column(recording, "/joint_command", "pos_rad", times, size=len(contract.joint_names)),
        sent_effort=_column(recording, "/joint_command", "effort_nm", times, size=len(contract.joint_names)),
        sent_stiffness=_column(recording, "/joint_command", "stiffness_nm_rad", times, size=len(contract.joint_names)),
        sent_damping=_column(recording, "/joint_command", "damping_nm_s_rad", times, size=len(contract.joint_names)),
        states=_states(recording, times),
    )


def _begins(recording: Recording, times: FloatArray) -> NDArray[np.bool_]:
    """Ticks in which a policy began anew: the one before had another mode or source, or a session's attempt begins."""
    status, events = recording["/gantry/status"], recording.topics.get("/gantry/event")
    rows = rows_at(times, status["time_s"])
    previous = np.maximum(rows - 1, 0)
    anew = (status["mode"][previous] != status["mode"][rows]) | (status["source"][previous] != status["source"][rows])
    if events is not None:
        starts = events["time_s"][events["data"] == TeleopEvent.START.value]
        anew |= rows_at(times, starts) >= 0
    anew[0] = True
    return anew


def _own(recording: Recording, times: FloatArray, action: FloatArray) -> FloatArray:
    if "/policy/own_action" not in recording.topics:
        return action
    own = _column(recording, "/policy/own_action", "data", times, size=action.shape[1])
    return np.where(np.isnan(own), action, own)


def _column(recording: Recording, topic: str, name: str, times: FloatArray, size: int | None = None) -> FloatArray:
    """Rows of a topic at these times, NaN where there is none; (T, size)."""
    if topic not in recording.topics:
        return np.full((len(times), size or 0), np.nan)
    values = np.asarray(recording[topic][name], dtype=np.float64)
    rows = rows_at(times, recording[topic]["time_s"])
    return np.where((rows >= 0)[:, None], values[np.maximum(rows, 0)], np.nan)


def _states(recording: Recording, times: FloatArray) -> tuple[RobotState, ...]:
    joints, imu = recording["/joint_states"], recording["/imu/data"]
    joint_rows, imu_rows = rows_at(times, joints["time_s"]), rows_at(times, imu["time_s"])
    further = {
        "pos_base_in_world_m": ("/odom", "pos_base_in_world_m"),
        "lin_vel_base_in_base_m_s": ("/odom", "lin_vel_base_in_base_m_s"),
        "object_pose_in_base": ("/object_pose", "data"),
        "foot_contact": ("/foot_contacts", "data"),
    }
    columns = {
        name: _column(recording, topic, field, times)
        for name, (topic, field) in further.items()
        if topic in recording.topics
    }
    states = []
    for i, (joint, inertial) in enumerate(zip(joint_rows, imu_rows, strict=True)):
        values = {name: rows[i] for name, rows in columns.items() if np.isfinite(rows[i]).all()}
        states.append(
            RobotState(
                stamp_s=float(joints["stamp_s"][joint]),
                **{name: np.asarray(joints[name][joint], dtype=np.float64) for name in _JOINTS},
                **{name: np.asarray(imu[name][inertial], dtype=np.float64) for name in _IMU},
                **values,
            )
        )
    return tuple(states)


_NAMES = [item.name for item in fields(RobotState)]
_JOINTS = [name for name in _NAMES if name.startswith("joint_")]
_IMU = ("quat_base_to_world_wxyz", "ang_vel_base_in_base_rad_s", "lin_acc_base_in_base_m_s2")

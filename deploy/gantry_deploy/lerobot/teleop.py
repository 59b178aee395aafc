"""Teleoperators of ``lerobot`` and its plugins as devices of a correction session.

Two kinds exist. A leader arm gives positions of joints, and becomes the leader of a
:class:`gantry_deploy.teleop.leader.LeaderDevice`, whose dead-man switch is a second device. A gamepad or the like gives
steps of the end effector, and tells by its own events when the person intervenes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.errors import TeleopError
from gantry_deploy.lerobot.joints import POS, LerobotJoints, arm_cfg
from gantry_deploy.lerobot.plugins import (
    TELEOPERATOR,
    connect_device,
    device_settings,
    device_text,
    disconnect_device,
    make_device,
)
from gantry_deploy.teleop.leader import LeaderCfg, LeaderDevice
from gantry_deploy.teleop.operator import Axis, OperatorInput, TeleopDevice, TeleopEvent
from gantry_deploy.teleop.registry import make_device as make_other_device
from gantry_hardware.backends.state import JointCommand, RobotState, fixed_base_state
from gantry_hardware.errors import RobotError
from gantry_hardware.files.bounds import finite
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec

STEPS = {"delta_x": Axis.X, "delta_y": Axis.Y, "delta_z": Axis.Z}
"""LeRobot's keys of a step of the end effector, each in [-1, 1]."""
GRIPPER_KEY, GRIPPER_STAYS = "gripper", 1.0
"""LeRobot's key of a gripper: 0 closes, 1 leaves it, 2 opens."""
EVENTS = {
    "success": TeleopEvent.SUCCESS,
    "failure": TeleopEvent.FAILURE,
    "rerecord_episode": TeleopEvent.RERECORD,
    "terminate_episode": TeleopEvent.TERMINATE,
}
"""LeRobot's events that are given once, when they begin. Of two at once the first one here counts: LeRobot tells the
end of an episode beside its reason."""
INTERVENES = "is_intervention"
"""LeRobot's event that lasts while the person acts."""
JOIN_S = 5.0
"""Longest wait for the thread's end."""


class LerobotLeader:
    """A leader arm of LeRobot's as a robot that is only read.

    Args:
        spec: The follower, whose joints it has after the map.
        device: LeRobot's teleoperator.
        joints: Its names and units.
        what: Noun for it in messages.
    """

    simulated = True
    """Moves no robot of metal."""

    def __init__(self, spec: RobotSpec, device: Any, joints: LerobotJoints, what: str) -> None:
        self.spec = spec
        self._device, self._joints, self._what = device, joints, what
        joints.require(device.action_features, what)

    def connect(self) -> None:
        """See :meth:`gantry_hardware.backends.backend.Robot.connect`."""
        connect_device(self._device, self._what)

    def now_s(self) -> float:
        """Local monotonic time."""
        return time.monotonic()

    def sleep_until(self, time_s: float) -> None:
        """Wait for a local monotonic time."""
        time.sleep(max(0.0, time_s - time.monotonic()))

    def read(self) -> RobotState:
        """Ask the leader for its joints; waits for its bus.

        Raises:
            RobotError: If it gives none.
        """
        asked_s = time.monotonic()
        try:
            action = self._device.get_action()
        except Exception as problem:
            raise RobotError(f"{self._what} gives no action: {problem}") from problem
        pos = self._joints.pos(action, self._what)
        return fixed_base_state(asked_s, pos, np.zeros(len(pos)), np.zeros(len(pos)))

    def write(self, command: JointCommand) -> JointCommand | None:
        """Nothing: a leader is moved by the person."""
        del command

    def close(self) -> None:
        """Disconnect."""
        disconnect_device(self._device)


class LerobotSteps:
    """A device of LeRobot's that gives steps of the end effector, with events of its own.

    Args:
        contract: Of the policy that is corrected; for an arm.
        device: LeRobot's teleoperator, with ``get_teleop_events``.
        what: Noun for it in messages.
        rate_hz: Rate at which it is read.
        timeout_s: Age of a reading from which it counts as lost.

    Raises:
        TeleopError: If it gives no steps or no events, the robot is no arm, or an option is out of range.
    """

    name = "lerobot-teleop"

    def __init__(
        self, contract: PolicyContract, device: Any, what: str, rate_hz: float = 60.0, timeout_s: float = 0.3
    ) -> None:
        if Axis.Z not in make_operator_map(contract).axes:
            raise TeleopError(f"{what} gives steps of an arm's end effector, and '{contract.robot}' is no arm.")
        features = device.action_features
        names = list(features.get("names", features))
        if not set(STEPS) <= set(names) or not hasattr(device, "get_teleop_events"):
            raise TeleopError(
                f"{what} gives {', '.join(map(str, names))}; expected positions of joints (NAME{POS}), or "
                f"{', '.join(STEPS)} and get_teleop_events()."
            )
        self._device, self._what = device, what
        self._period_s = 1.0 / finite("rate_hz", rate_hz, 1.0, 1000.0, TeleopError)
        self._timeout_s = finite("timeout_s", timeout_s, 0.01, 60.0, TeleopError)
        self._lock = threading.Lock()
        self._newest: tuple[dict[Axis, float], bool, float] | None = None
        self._events: list[TeleopEvent] = []
        self._on: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def connect(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.connect`."""
        if self._thread is not None:
            return
        connect_device(self._device, self._what, TeleopError)
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="lerobot teleop", daemon=True)
        self._thread.start()

    def read(self, now_s: float) -> OperatorInput:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.read`."""
        with self._lock:
            newest, events, self._events = self._newest, tuple(self._events), []
        if newest is None:
            return OperatorInput(now_s - self._timeout_s, events=events)
        axes, intervenes, stamp_s = newest
        age_s = time.monotonic() - stamp_s
        engaged = intervenes and age_s <= self._timeout_s
        return OperatorInput(now_s - age_s, engaged, axes if engaged else {}, events=events)

    def describe(self) -> list[str]:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.describe`."""
        return [f"{self._what}: steps of the end effector; dead-man switch and events are its own"]

    def close(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.close`."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop.set()
        thread.join(JOIN_S)
        self._newest = None
        if not thread.is_alive():
            disconnect_device(self._device)

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            asked_s = time.monotonic()
            try:
                action = self._device.get_action()
                events = {getattr(key, "value", key): bool(on) for key, on in self._device.get_teleop_events().items()}
                axes = _axes(action)
            except Exception:  # It grows old, and counts as lost.
                continue
            with self._lock:
                self._newest = (axes, events.get(INTERVENES, False), asked_s)
                on = {name for name in EVENTS if events.get(name, False)}
                if fresh := [EVENTS[name] for name in EVENTS if name in on - self._on]:
                    self._events.append(fresh[0])
                self._on = on


def _axes(action: Mapping[str, Any]) -> dict[Axis, float]:
    axes = {axis: float(np.clip(float(action[key]), -1.0, 1.0)) for key, axis in STEPS.items()}
    if GRIPPER_KEY in action:
        axes[Axis.GRIPPER] = float(np.clip(float(action[GRIPPER_KEY]) - GRIPPER_STAYS, -1.0, 1.0))
    if not all(np.isfinite(value) for value in axes.values()):
        raise ValueError("a step is not finite")
    return axes


def make_lerobot_teleop(
    contract: PolicyContract,
    type: str = "",
    config: str = "",
    port: str = "",
    id: str = "",
    map: str = "",
    unit: str = "",
    clutch: str = "keyboard",
    rate_hz: float = 60.0,
    timeout_s: float = 0.3,
) -> TeleopDevice:
    """Device ``lerobot-teleop``.

    Args:
        contract: Of the policy that is corrected.
        type: LeRobot's type, for example ``so101_leader``, or ``module:Class`` of a plugin.
        config: YAML file with the fields of its configuration class.
        port: That field of it.
        id: That field of it: the name under which it was calibrated.
        map: YAML file with a :class:`gantry_deploy.lerobot.joints.LerobotArmCfg`, for a leader arm: follower's joint ->
            what LeRobot calls the leader's.
        unit: Unit of joints without a file; empty for degrees.
        clutch: Name of the second device, with a leader arm's dead-man switch and events.
        rate_hz: Rate at which the device is read.
        timeout_s: Age of a reading from which it counts as lost.

    Raises:
        GantryError: If the package is not installed, there is no such type, or an option or file does not fit.
    """
    settings = device_settings(config, port=port, id=id)
    what = device_text(TELEOPERATOR, type, settings)
    device = make_device(TELEOPERATOR, type, settings, TeleopError)
    if not any(str(key).endswith(POS) for key in device.action_features):
        return LerobotSteps(contract, device, what, rate_hz, timeout_s)
    spec = robot_spec(contract.robot)
    leader = LerobotLeader(spec, device, LerobotJoints(spec, arm_cfg(map, unit)), what)
    other = make_other_device(clutch, contract)
    return LeaderDevice(contract, leader, LeaderCfg(type, "lerobot-teleop"), other, rate_hz, timeout_s)

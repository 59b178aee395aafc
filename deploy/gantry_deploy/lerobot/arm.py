"""An arm of ``lerobot`` or one of its plugins, as a backend of the control loop."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.lerobot.joints import LerobotJoints, arm_cfg
from gantry_deploy.lerobot.plugins import (
    ROBOT,
    connect_device,
    device_settings,
    device_text,
    disconnect_device,
    make_device,
)
from gantry_deploy.perception.images import Picture
from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.start_ramp import StartRamp
from gantry_hardware.backends.state import JointCommand, RobotState, fixed_base_state
from gantry_hardware.errors import RobotError
from gantry_hardware.files.bounds import finite
from gantry_hardware.model.spec import RobotSpec

FloatArray = NDArray[np.float64]

VELOCITY_S = 0.05
"""Time constant of the low-pass over velocities, which are differences of positions."""
MOST_FAILURES = 5
"""Exchanges in a row that may fail before the device counts as lost."""
JOIN_S = 5.0
"""Longest wait for the thread's end: a plugin's call may wait for its bus."""


class LerobotArm:
    """Implements :class:`gantry_hardware.backends.backend.Robot` for a robot of LeRobot's that takes joint positions.

    A thread owns the device, whose calls wait for its bus: it sends the newest command and reads the next observation,
    at most ``rate_hz`` times per second. Positions alone are sent, so that limp and damping commands are withheld, and
    the device's own gains count. The first command is the measured pose, from which the arm moves at most at
    ``start_speed_rad_s`` until it has caught up. If no command has come for ``command_timeout_s`` the arm is told to
    stay where it is, its gripper as it was told.

    Args:
        spec: The arm.
        type: LeRobot's type, for example ``so101_follower``, or ``module:Class`` of a plugin.
        config: YAML file with the fields of its configuration class, cameras too.
        port: That field of it.
        id: That field of it: the name under which it was calibrated.
        map: YAML file with a :class:`gantry_deploy.lerobot.joints.LerobotArmCfg`: names and units of the joints.
        unit: Unit of joints without a file, one of :data:`gantry_deploy.lerobot.joints.UNITS`; empty for degrees.
        rate_hz: Largest rate of the exchange.
        command_timeout_s: Age of the newest command from which the arm is held.
        start_speed_rad_s: Largest speed when commands begin, of sliding joints m/s.
        device: A device that is made already, instead of ``type``.

    Raises:
        GantryError: If the package is not installed, there is no such type, or an option or file does not fit.
    """

    def __init__(
        self,
        spec: RobotSpec,
        *,
        type: str = "",
        config: str = "",
        port: str = "",
        id: str = "",
        map: str = "",
        unit: str = "",
        rate_hz: float = 60.0,
        command_timeout_s: float = 0.3,
        start_speed_rad_s: float = 0.5,
        device: Any = None,
    ) -> None:
        self.spec = spec
        self._joints = LerobotJoints(spec, arm_cfg(map, unit))
        settings = device_settings(config, port=port, id=id)
        self._what = device_text(ROBOT, type or getattr(device, "name", ""), settings)
        self._device = make_device(ROBOT, type, settings) if device is None else device
        self._joints.require(self._device.observation_features, f"the observations of {self._what}")
        self._joints.require(self._device.action_features, f"the actions of {self._what}", alone=True)
        self.cameras = tuple(
            key
            for key, value in self._device.observation_features.items()
            if isinstance(value, tuple) and value[-1] == 3
        )
        """Names of its cameras."""
        self._period_s = 1.0 / finite("rate_hz", rate_hz, 1.0, 1000.0, RobotError)
        self._command_timeout_s = finite("command_timeout_s", command_timeout_s, 0.02, 10.0, RobotError)
        self._limiter, self._ramp = CommandLimiter(spec), StartRamp(start_speed_rad_s, command_timeout_s)
        self._gripper = np.array([name in spec.gripper_joints for name in spec.joint_names])
        self._lock = threading.Lock()
        self._state: RobotState | None = None
        self._pictures: dict[str, Picture] = {}
        self._command: tuple[FloatArray, float] | None = None
        self._failure = ""
        self._failures = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.holds = 0
        """Times that the arm was held because commands had stopped."""

    def connect(self) -> None:
        """Connect the device, which must be calibrated, and read a first observation; nothing is commanded.

        Raises:
            RobotError: If it does not connect, is not calibrated, or gives no position of a joint.
        """
        if self._thread is not None:
            return
        connect_device(self._device, self._what)
        self._state, self._command, self._failure, self._failures = None, None, "", 0
        self._ramp.restart()
        try:
            self._observe()
        except RobotError:
            disconnect_device(self._device)
            raise
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="lerobot", daemon=True)
        self._thread.start()

    def now_s(self) -> float:
        """Local monotonic time."""
        return time.monotonic()

    def sleep_until(self, time_s: float) -> None:
        """Wait for a local monotonic time."""
        time.sleep(max(0.0, time_s - time.monotonic()))

    def read(self) -> RobotState:
        """The newest state, stamped with the time at which its observation was asked for.

        Raises:
            RobotError: If not connected, or if the device has failed several times in a row.
        """
        state = self._state
        if self._thread is None or state is None:
            raise RobotError(f"{self._what} is not connected; call connect() first.")
        if self._failure:
            raise RobotError(self._failure)
        return state

    def read_pictures(self) -> dict[str, Picture]:
        """The newest picture of each camera; see :class:`gantry_hardware.model.capabilities.HasImages`."""
        return dict(self._pictures)

    def write(self, command: JointCommand) -> JointCommand | None:
        """Take the positions of a command for the next exchange and return them, within the limits of the joints.

        None for a command that does not hold every joint, which positions cannot express. The device may shorten a
        step further by limits of its own (``max_relative_target``).

        Raises:
            RobotError: If not connected, if shapes or numbers are wrong, if the device is lost, or if the newest
                observation is too old to begin from.
        """
        limited, _ = self._limiter.clamp(command)
        state = self.read()
        if not np.all(limited.stiffness_nm_rad > 0.0):
            return None
        now_s = time.monotonic()
        if self._ramp.starts_anew(now_s) and now_s - state.stamp_s > self._command_timeout_s:
            raise RobotError(
                f"The newest observation of {self._what} is {now_s - state.stamp_s:.2f} s old; the arm begins only "
                f"from one younger than {self._command_timeout_s:g} s."
            )
        limited = limited.with_pos(self._ramp.limit(limited.pos_rad, state.joint_pos_rad, now_s))
        with self._lock:
            self._command = (limited.pos_rad, now_s)
        return limited

    def close(self) -> None:
        """Tell the arm to stay where it is and disconnect; may be called twice.

        Many plugins switch their motors off then (``disable_torque_on_disconnect``), and the arm sinks.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop.set()
        thread.join(JOIN_S)
        if not thread.is_alive():  # One that hangs in the plugin still owns the device.
            disconnect_device(self._device)

    def statistics(self) -> dict[str, int]:
        """Holds and failed exchanges in a row so far."""
        return {"holds": self.holds, "failed exchanges in a row": self._failures}

    def _run(self) -> None:
        held: FloatArray | None = None
        next_s = time.monotonic()
        while not self._stop.is_set():
            next_s = max(next_s + self._period_s, time.monotonic())
            with self._lock:
                command = self._command
            late = command is not None and time.monotonic() - command[1] > self._command_timeout_s
            if command is not None and late and held is None:
                self.holds += 1
                held = self._held(command[0])
            held = held if late else None
            try:
                if command is not None:
                    self._send(command[0] if held is None else held)
                self._observe()
                self._failures = 0
            except RobotError as error:
                self._failures += 1
                if self._failures >= MOST_FAILURES:
                    self._failure = str(error)
            self._stop.wait(max(0.0, next_s - time.monotonic()))
        if self._command is not None and not self._failure:
            try:
                self._send(self._held(self._command[0]) if held is None else held)
            except RobotError as error:
                self._failure = str(error)

    def _held(self, last: FloatArray) -> FloatArray:
        """Positions (n,) of now, a gripper's as told last."""
        return last if self._state is None else np.where(self._gripper, last, self._state.joint_pos_rad)

    def _send(self, pos: FloatArray) -> None:
        try:
            self._device.send_action(self._joints.action(pos))
        except Exception as problem:
            raise RobotError(f"{self._what} takes no action: {problem}") from problem

    def _observe(self) -> None:
        asked_s = time.monotonic()
        try:
            observation = self._device.get_observation()
        except Exception as problem:
            raise RobotError(f"{self._what} gives no observation: {problem}") from problem
        pos, before = self._joints.pos(observation, self._what), self._state
        vel = np.zeros(len(pos))
        if before is not None and asked_s > before.stamp_s:
            dt_s = asked_s - before.stamp_s
            share = dt_s / (dt_s + VELOCITY_S)
            vel = before.joint_vel_rad_s + share * ((pos - before.joint_pos_rad) / dt_s - before.joint_vel_rad_s)
        for name in self.cameras:
            if name in observation:
                self._pictures[name] = Picture(asked_s, _picture(observation[name], name, self._what))
        self._state = fixed_base_state(asked_s, pos, vel, np.zeros(len(pos)))


def _picture(pixels: Any, name: str, what: str) -> NDArray[np.uint8]:
    """LeRobot's (height, width, 3) as (3, height, width)."""
    image = np.asarray(pixels)
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise RobotError(
            f"Camera '{name}' of {what} gives {image.dtype} {image.shape}, expected uint8 (height, width, 3)."
        )
    return np.ascontiguousarray(image.transpose(2, 0, 1))

"""A plugin as LeRobot's documentation asks for it, without LeRobot: a follower, a leader and a pad made of software.

They have the methods and properties of LeRobot's ``Robot`` and ``Teleoperator`` (0.6) and are strict where real plugins
are: calls before ``connect`` raise, actions with other keys raise, and one call at a time is allowed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

JOINTS = ("joint1", "joint2", "joint3", "joint4", "joint5", "joint6", "left_finger")
MADE = []
"""Every device that was made, newest last."""


@dataclass(kw_only=True)
class TinyConfig:
    id: str | None = None
    calibration_dir: Path | None = None
    port: str = "/dev/null"
    names: str = ",".join(JOINTS)
    start_deg: float = 10.0
    calibrated: bool = True
    camera: bool = False


class Device:
    config_class = TinyConfig

    def __init__(self, config):
        self.config, self.is_connected, self.calibrated = config, False, config.calibrated
        self.calibration_fpath = f"/nowhere/{config.id}.json"
        self.names = config.names.split(",")
        self.values = {f"{name}.pos": config.start_deg for name in self.names}
        self.fault = ""
        self.busy = threading.Lock()
        self.log = []
        MADE.append(self)

    @property
    def is_calibrated(self):
        return self.calibrated

    def connect(self, calibrate=True):
        if calibrate:
            raise RuntimeError("input() is asked for during calibration")
        if self.config.port == "/dev/absent":
            raise ConnectionError("could not open port /dev/absent")
        self.is_connected = True

    def disconnect(self):
        self.is_connected = False

    @contextlib.contextmanager
    def use(self):
        if not self.busy.acquire(blocking=False):
            raise AssertionError("two threads use the bus at once")
        try:
            if not self.is_connected:
                raise RuntimeError(f"{self.name} is not connected.")
            if self.fault == "hang":
                time.sleep(0.5)
            elif self.fault:
                raise ConnectionError(self.fault)
            yield
        finally:
            self.busy.release()


class TinyFollower(Device):
    """Servos that turn 120 degrees, or shares of the gripper's range, per second."""

    name = "tiny_follower"

    def __init__(self, config):
        super().__init__(config)
        self.goal, self.moved_s = dict(self.values), time.monotonic()

    @property
    def observation_features(self):
        return {**dict.fromkeys(self.values, float), **({"wrist": (4, 6, 3)} if self.config.camera else {})}

    @property
    def action_features(self):
        return dict.fromkeys(self.values, float)

    def _move(self):
        now_s = time.monotonic()
        reach, self.moved_s = 120.0 * (now_s - self.moved_s), now_s
        for key, goal in self.goal.items():
            self.values[key] += float(np.clip(goal - self.values[key], -reach, reach))

    def get_observation(self):
        with self.use():
            self._move()
            pictures = {"wrist": np.full((4, 6, 3), 7, np.uint8)} if self.config.camera else {}
            return {**self.values, **pictures}

    def send_action(self, action):
        with self.use():
            if set(action) != set(self.values):
                raise KeyError(f"{sorted(action)}, expected {sorted(self.values)}")
            self._move()
            self.goal = dict(action)
            self.log.append(dict(action))
            return action


class TinyLeader(Device):
    name = "tiny_leader"

    @property
    def action_features(self):
        return dict.fromkeys(self.values, float)

    def get_action(self):
        with self.use():
            return dict(self.values)


class TeleopEvents(Enum):
    SUCCESS = "success"
    FAILURE = "failure"
    RERECORD_EPISODE = "rerecord_episode"
    IS_INTERVENTION = "is_intervention"
    TERMINATE_EPISODE = "terminate_episode"


class TinyPad(Device):
    """Like LeRobot's gamepad: ``connect`` takes no argument, ``is_calibrated`` is a method."""

    name = "tiny_pad"

    def __init__(self, config):
        super().__init__(config)
        self.step = {"delta_x": 0.0, "delta_y": 0.0, "delta_z": 0.0, "gripper": 1}
        self.events = dict.fromkeys(TeleopEvents, False)

    @property
    def action_features(self):
        return {"dtype": "float32", "shape": (4,), "names": {name: i for i, name in enumerate(self.step)}}

    def is_calibrated(self):  # type: ignore[override]
        return True

    def connect(self):  # type: ignore[override]
        self.is_connected = True

    def get_action(self):
        with self.use():
            return dict(self.step)

    def get_teleop_events(self):
        with self.use():
            return dict(self.events)


class TinyOther(TinyLeader):
    """A leader of another arm."""

    def __init__(self, config):
        super().__init__(config)
        self.values = {"elbow.pos": 0.0}

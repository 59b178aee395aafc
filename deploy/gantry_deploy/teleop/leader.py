"""Another arm in the person's hand: the follower moves as the leader does, joint by joint.

The leader is any backend of Gantry. Its driver lets it be moved by hand; nothing is commanded here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.errors import TeleopError
from gantry_deploy.teleop.operator import Axis, OperatorInput, TeleopDevice, TogglingDevice
from gantry_deploy.teleop.registry import make_device
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.files.bounds import finite
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.yaml_file import read_yaml
from gantry_hardware.robots import robot_spec

JOIN_S = 5.0
"""Longest wait for the reader thread, s."""
MOST = 100.0
"""Positions and offsets are below this, rad or m."""


@dataclass(frozen=True)
class JointLink:
    """Joint of the follower as a function of one of the leader: a sign and an offset, or two ranges."""

    leader: str
    """Name of the leader's joint."""
    sign: float = 1.0
    """1, or -1 where the leader's turns the other way."""
    offset: float = 0.0
    """Follower's position where the leader's is zero, rad and of a sliding joint m."""
    leader_range: tuple[float, ...] = ()
    """Two positions of the leader's joint, for example gripper closed and open, rad or m; empty without ranges."""
    follower_range: tuple[float, ...] = ()
    """The follower's positions at these, rad or m."""

    def __post_init__(self) -> None:
        if abs(self.sign) != 1.0:
            raise TeleopError(f"The sign of leader's joint '{self.leader}' is {self.sign}, expected 1 or -1.")
        numbers = (self.offset, *self.leader_range, *self.follower_range)
        if not all(abs(value) < MOST for value in numbers):
            raise TeleopError(f"The numbers of leader's joint '{self.leader}' are {numbers}, expected below {MOST:g}.")
        ranges = (self.leader_range, self.follower_range)
        if any(ranges) and (any(len(pair) != 2 or pair[0] == pair[1] for pair in ranges)):
            raise TeleopError(
                f"The ranges of leader's joint '{self.leader}' are {[list(pair) for pair in ranges]}, expected two "
                "different positions in leader_range and in follower_range."
            )

    @property
    def line(self) -> tuple[float, float]:
        """Factor and offset of the follower's position over the leader's."""
        if not self.leader_range:
            return self.sign, self.offset
        (here, there), (start, end) = self.leader_range, self.follower_range
        factor = (end - start) / (there - here)
        return factor, start - factor * here


@dataclass(frozen=True)
class LeaderCfg:
    """Leader arm and its joints."""

    robot: str
    """Name of the leader in the registry gantry.robots."""
    backend: str
    """Name of its driver in the registry gantry.backends."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the driver."""
    joints: Mapping[str, JointLink] = field(default_factory=dict)
    """Follower's joint -> link; joints that are left out have equal names."""


class JointMap:
    """Joints of the follower from those of the leader, by name.

    Args:
        contract: Of the follower's policy.
        leader: Names of the leader's joints, in its order.
        cfg: Links.

    Raises:
        UnknownNameError: If a link names a joint that one of the arms does not have.
        TeleopError: If a joint of the follower has no leader.
    """

    def __init__(self, contract: PolicyContract, leader: tuple[str, ...], cfg: LeaderCfg) -> None:
        for name in cfg.joints:
            if name not in contract.joint_names:
                raise UnknownNameError("joint of the follower", name, contract.joint_names)
        links = {name: cfg.joints.get(name, JointLink(name)) for name in contract.joint_names}
        for name, link in links.items():
            if link.leader not in leader and name in cfg.joints:
                raise UnknownNameError("joint of the leader", link.leader, leader)
        if lacking := [name for name, link in links.items() if link.leader not in leader]:
            raise TeleopError(
                f"The leader has no joints named {', '.join(lacking)}, only {', '.join(leader)}; "
                "map them under 'joints'."
            )
        self._index = np.array([leader.index(link.leader) for link in links.values()])
        self._factor, self._offset = np.array([link.line for link in links.values()]).T

    def __call__(self, leader: NDArray[np.float64]) -> NDArray[np.float64]:
        """Follower's joints (n,) of the leader's (k,), rad and of sliding joints m."""
        return self._factor * leader[self._index] + self._offset


class LeaderDevice:
    """Leader arm. Dead-man switch and verdicts are those of a second device in the other hand.

    Taking over moves nothing, wherever the leader is: the follower's map keeps the difference between the two arms.

    Args:
        contract: Of the follower's policy.
        leader: Its driver.
        cfg: Its joints.
        clutch: The second device.
        rate_hz: Rate at which the leader is read, Hz.
        timeout_s: Age of a reading from which the leader counts as lost, s.

    Raises:
        GantryError: If the joints do not fit, or the follower is no arm.
    """

    name = "leader"

    def __init__(
        self,
        contract: PolicyContract,
        leader: Robot,
        cfg: LeaderCfg,
        clutch: TeleopDevice,
        rate_hz: float = 100.0,
        timeout_s: float = 0.3,
    ) -> None:
        if Axis.Z not in make_operator_map(contract).axes:
            raise TeleopError(f"A leader arm moves arms alone, and '{contract.robot}' is none.")
        self._map, self._leader, self._clutch = JointMap(contract, tuple(leader.spec.joint_names), cfg), leader, clutch
        self._period_s = 1.0 / finite("rate_hz", rate_hz, 1.0, 10_000.0, TeleopError)
        self._timeout_s = finite("timeout_s", timeout_s, 0.01, 60.0, TeleopError)
        self._title = (
            f"leader arm '{cfg.robot}' on backend '{cfg.backend}': while taken over, the robot moves as it does"
        )
        self._newest: tuple[NDArray[np.float64], float] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def connect(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.connect`."""
        if self._thread is not None:
            return
        try:
            self._leader.connect()
        except RobotError as error:
            raise TeleopError(f"The leader arm does not answer: {error}") from error
        try:
            self._clutch.connect()
        except BaseException:
            self._leader.close()
            raise
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)
        self._thread.start()

    def read(self, now_s: float) -> OperatorInput:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.read`."""
        hand, newest = self._clutch.read(now_s), self._newest
        if newest is None:
            return OperatorInput(now_s - self._timeout_s, events=hand.events)
        joints, stamp_s = newest
        age_s = time.monotonic() - stamp_s
        engaged = hand.engaged and age_s <= self._timeout_s
        return OperatorInput(now_s - age_s, engaged, joint_pos_rad=joints if engaged else None, events=hand.events)

    def release(self) -> None:
        """See :class:`gantry_deploy.teleop.operator.TogglingDevice`."""
        if isinstance(self._clutch, TogglingDevice):
            self._clutch.release()

    def describe(self) -> list[str]:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.describe`."""
        return [self._title, f"dead-man switch and events: {self._clutch.name}", *self._clutch.describe()]

    def close(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.close`."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join(JOIN_S)
        self._thread, self._newest = None, None
        self._clutch.close()
        self._leader.close()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                state = self._leader.read()
                joints, age_s = self._map(state.joint_pos_rad), max(0.0, self._leader.now_s() - state.stamp_s)
            except RobotError:
                continue  # It grows old, and counts as lost.
            if np.isfinite(joints).all():
                self._newest = (joints, time.monotonic() - age_s)


def make_leader(
    contract: PolicyContract,
    map: str = "",
    robot: str = "",
    backend: str = "",
    clutch: str = "keyboard",
    rate_hz: float = 100.0,
    timeout_s: float = 0.3,
) -> LeaderDevice:
    """Device ``leader``.

    Args:
        contract: Of the follower's policy.
        map: File with a :class:`LeaderCfg`; empty to name robot and backend here.
        robot: Name of the leader; empty for the follower's.
        backend: Name of its driver.
        clutch: Name of the second device.
        rate_hz: See :class:`LeaderDevice`, as the next.
        timeout_s: The same.

    Raises:
        GantryError: If there is no such robot, driver or device, or the joints do not fit.
    """
    if bool(map) == bool(backend):
        raise TeleopError("A leader arm needs its driver: backend=NAME, or map=FILE with robot, backend and joints.")
    cfg = (
        from_plain(LeaderCfg, read_yaml(map), map, TeleopError) if map else LeaderCfg(robot or contract.robot, backend)
    )
    leader = make_backend(cfg.backend, robot_spec(cfg.robot), **cfg.options)
    return LeaderDevice(contract, leader, cfg, make_device(clutch, contract), rate_hz, timeout_s)

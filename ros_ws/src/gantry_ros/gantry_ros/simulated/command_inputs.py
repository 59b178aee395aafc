"""Command inputs of a simulated robot: the joint command with gains, and of an arm what its controllers would take.

A robot that hears nothing any more damps by itself, as a driver does; an arm stays at its last target, as a position
controller does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from gantry_hardware.backends.state import JointCommand
from gantry_hardware.model.spec import RobotSpec
from gantry_ros.convert import arm as convert_arm
from gantry_ros.convert import robot as convert
from gantry_ros.nodes.sim_node import Inputs
from gantry_ros.robots import arm_commands
from gantry_ros.runtime import topics

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class _Received:
    """A joint command and when it came, on the local monotonic clock."""

    command: JointCommand
    time_s: float


class Follower:
    """Targets of an arm's controllers for its joints: along paths, straight from point to point, then at their ends.

    Args:
        pos_rad: Shape (n,), where they are at the start.
    """

    def __init__(self, pos_rad: FloatArray) -> None:
        self._times = [np.zeros(1) for _ in pos_rad]
        self._places = [np.array([value]) for value in pos_rad]

    def at(self, now_s: float) -> FloatArray:
        """The targets (n,) at a time, rad and, of a gripper, m."""
        parts = zip(self._times, self._places, strict=True)
        return np.array([np.interp(now_s, times, places) for times, places in parts])

    def follow(self, path: convert_arm.Path, now_s: float) -> None:
        """Leave what was followed for a path that begins now; joints that it does not name go on."""
        here = self.at(now_s)
        for column, joint in enumerate(path.joints):
            self._times[joint] = np.concatenate(([now_s], now_s + path.times_s))
            self._places[joint] = np.concatenate(([here[joint]], path.pos_rad[:, column]))


class CommandInputs(Inputs):
    """The newest command of a simulated robot.

    Args:
        node: To listen with.
        spec: The robot.
        watchdog_s: A command that is older counts no more.
        refuse_two: Whether two commanders are refused.
    """

    def __init__(self, node: Node, spec: RobotSpec, watchdog_s: float, refuse_two: bool = True) -> None:
        self._is_held = arm_commands.takes_positions(spec)
        super().__init__(node, watchdog_s, "joint command", "holding" if self._is_held else "damping", refuse_two)
        self._spec = spec
        self._codec = convert.CommandCodec(spec)
        self._damping = JointCommand.damping(spec)
        self._received: _Received | None = None
        self._follower: Follower | None = None
        self._pos_rad = spec.array("default_rad")
        self._listen(JointState, topics.JOINT_COMMAND, self._take_command, "joints with gains")
        if self._is_held:
            self._listen_to_controllers()

    def choose(self, now_s: float, pos_rad: FloatArray | None) -> JointCommand | None:
        """Command for now; None before the first command, when the backend does what it does at its start.

        Args:
            now_s: Local monotonic time.
            pos_rad: Shape (n,), where the joints are; from there an arm's first path begins.
        """
        with self._lock:
            if pos_rad is not None:
                self._pos_rad = pos_rad
            received = self._received
            if received is None:
                return None
            lost, torn = now_s - received.time_s > self._watchdog_s, self.torn(now_s)
            held = self._is_held
            farewell = "damp" if convert.is_braking(received.command) and not held else ""
            news = self._note(lost=lost, farewell=farewell, torn=torn)
            if torn and held and news:
                self._follower = Follower(self._pos_rad.copy())  # Whatever path it was on.
            elif torn and not held:
                return self._damping
            if lost and self._follower is None and held:
                self._follower = Follower(self._held(received.command))
            if self._follower is not None:
                return JointCommand.position(self._spec, self._follower.at(now_s))
            return self._damping if lost else received.command

    def _forget(self) -> None:
        self._received = self._follower = None

    def _held(self, command: JointCommand) -> FloatArray:
        """Position at which an arm is held that obeyed a command: at its targets; a joint without stiffness has none
        but itself.
        """
        return np.where(command.stiffness_nm_rad > 0.0, command.pos_rad, self._pos_rad)

    def _take_command(self, message: JointState) -> None:
        command = self._codec.command(message)
        with self._lock:
            self._received, self._follower = _Received(command, time.monotonic()), None

    def _take_path(self, path: convert_arm.Path) -> None:
        now_s = time.monotonic()
        with self._lock:
            if self._follower is None:
                received = self._received
                self._follower = Follower(self._pos_rad if received is None else self._held(received.command))
            self._follower.follow(path, now_s)
            self._received = _Received(JointCommand.position(self._spec, self._follower.at(now_s)), now_s)

    def _listen_to_controllers(self) -> None:
        spec, everything = self._spec, list(range(self._spec.num_joints))
        gripper = arm_commands.gripper_joints(spec)
        alone = [i for i in everything if i not in gripper]

        def trajectory(message: JointTrajectory) -> None:
            self._take_path(convert_arm.path_of_trajectory(message, spec))

        def positions(message: Float64MultiArray) -> None:
            # With or without the gripper, which may have a controller of its own.
            joints = alone if len(message.data) == len(alone) else everything
            self._take_path(convert_arm.path_of_positions(message, joints, spec))

        def gripper_positions(message: Float64MultiArray) -> None:
            self._take_path(convert_arm.path_of_positions(message, gripper, spec))

        self._listen(JointTrajectory, topics.ARM_TRAJECTORY, trajectory, "controllers")
        self._listen(JointTrajectory, topics.GRIPPER_TRAJECTORY, trajectory, "controllers")
        self._listen(Float64MultiArray, topics.ARM_POSITIONS, positions, "controllers")
        self._listen(Float64MultiArray, topics.GRIPPER_POSITIONS, gripper_positions, "controllers")

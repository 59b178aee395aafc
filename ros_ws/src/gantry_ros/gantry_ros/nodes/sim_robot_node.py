"""A robot on ROS 2 topics: any backend by name, stepped in real time, MuJoCo unless asked otherwise.

It publishes what a robot's driver publishes and obeys ``joint_command``, an arm also what its controllers would take.
Without a command for the watchdog's time it damps by itself; an arm stays where it is. A robot that has a task tells
where the object is. The parameter ``fault`` injects faults on purpose, for tests and for drills.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from nav_msgs.msg import Odometry
from rclpy.publisher import Publisher
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float32MultiArray

from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_deploy.perception.images import Picture
from gantry_deploy.perception.maps import DepthFrame
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.backends.state import RobotState
from gantry_hardware.robots import robot_spec
from gantry_ros.convert import robot as convert
from gantry_ros.nodes.sim_node import (
    SHARED_PARAMETERS,
    SimNode,
    backend_options,
    fault_parameter,
    require_node,
    run_node,
)
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter, positive
from gantry_ros.simulated.command_inputs import CommandInputs
from gantry_ros.simulated.depth_publisher import depth_publisher
from gantry_ros.simulated.scene_publisher import scene_publisher
from gantry_ros.simulated.second_commander import SecondCommanderLog

NAME = "sim_robot_node"

FAULTS = {
    "": "none",
    "silent": "publishes nothing any more, while the process lives",
    "frozen": "repeats the last reading with its old stamp",
    "nan": "the first joint's position is not a number",
    "wrong_name": "the first joint has another name",
    "wrong_order": "the joints come in reverse order",
    "no_imu": "publishes no IMU any more",
    "no_depth": "publishes no depth images any more",
    "covered": "the depth images hold no measurement, as with a covered lens",
    "no_odom": "publishes no odometry any more",
    "no_object": "publishes no pose of the object any more",
}
"""Values of the parameter ``fault``."""

PARAMETERS = (
    Parameter("robot", "go2", "Robot's name in the registry gantry.robots."),
    Parameter("backend", "mujoco", "Backend's name in the registry gantry.backends."),
    Parameter("options", "{}", 'Options of the backend as a JSON object, for example {"delay_s": 0.004}.'),
    Parameter("rate_hz", 200.0, "Rate of the published state, Hz; the backend is stepped at it, in real time."),
    Parameter("watchdog_s", 0.1, "The robot damps, or holds an arm, when its newest command is older, s."),
    Parameter("picture_rate_hz", 20.0, "Rate of the pictures of a robot that takes some, Hz."),
    *SHARED_PARAMETERS,
    Parameter("statistics", "", "Path of a JSON file at the end, simulated against real time; empty for none."),
    fault_parameter(FAULTS),
)
"""Every parameter of this node."""


class SimRobotNode(SimNode):
    """Steps a backend and speaks for it.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.

    Raises:
        GantryError: If the robot, the backend or its options do not exist, or the robot is a car.
    """

    noun, after_reset, faults = "Robot", "back at its start", FAULTS

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        spec, node = robot_spec(values["robot"]), host.node
        require_node(spec, NAME)
        robot = make_backend(values["backend"], spec, **backend_options(values["options"]))
        self._commands = CommandInputs(node, spec, positive(values, "watchdog_s"), values["refuse_two_commanders"])
        self._second = SecondCommanderLog()
        super().__init__(host, values, robot, self._commands)
        self._scene = scene_publisher(node, robot, positive(values, "picture_rate_hz"))
        self._pictures: dict[str, Picture] = {}
        self._eyes = depth_publisher(node, robot)
        self._frames: list[tuple[DepthFrame, float]] = []
        self._imu: Publisher | None = None
        if embodiment_of_robot(spec).base_moves:
            self._imu = node.create_publisher(Imu, topics.IMU, topics.WRITER_QOS)
            self._odom = node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
            self._contacts = node.create_publisher(Float32MultiArray, topics.FOOT_CONTACTS, topics.WRITER_QOS)
        self._set_fault(values["fault"])

    def _obey(self, state: RobotState | None) -> None:
        now_s, inputs, activity = time.monotonic(), self._commands, self._commands.activity
        command = inputs.choose(now_s, None if state is None else state.joint_pos_rad)
        second_s, torn = inputs.commanders.second_s, inputs.torn(now_s)
        self._second.note(self._robot.now_s(), state, command, second_s=second_s, two=torn, activity=activity)
        if command is not None:
            self._robot.write(command)

    def _look(self, now_s: float) -> None:
        self._frames = [] if self._eyes is None else self._eyes.collect(now_s)
        self._pictures = {} if self._scene is None else self._scene.pictures(now_s)

    def _speak(self, state: RobotState, now_s: float) -> None:
        if self._scene is not None and self._fault not in ("silent", "frozen"):
            self._scene.publish(state, now_s, self._pictures, silent=self._fault == "no_object")
        super()._speak(state, now_s)
        if self._eyes is not None and self._fault not in ("silent", "frozen", "no_depth"):
            for frame, age_s in self._frames:
                self._eyes.publish(frame, age_s, covered=self._fault == "covered")

    def _publish(self, state: RobotState, stamp: Time) -> list[tuple[Publisher, Any]]:
        fault = self._fault
        if fault == "nan":
            state = replace(state, joint_pos_rad=np.concatenate(([np.nan], state.joint_pos_rad[1:])))
        joints = _relabel(convert.joint_state_message(self._robot.spec, state, stamp), fault)
        repeated: list[tuple[Publisher, Any]] = [(self._joints, joints)]
        if self._imu is not None:
            repeated.append((self._imu, self._publish_base(self._imu, state, stamp)))
        if self._body is not None:
            self._body.publish(state, stamp, odometry=fault != "no_odom")
        # Last, so that a reader that waits for joints finds the rest of the same reading already there.
        self._joints.publish(joints)
        return repeated

    def _publish_base(self, imu: Publisher, state: RobotState, stamp: Time) -> Imu:
        """Publish the readings of a robot whose base moves; returns the IMU's reading."""
        odometry = convert.odometry_message(state, stamp)
        if odometry is not None and self._fault != "no_odom":
            self._odom.publish(odometry)
        contacts = convert.foot_contact_message(self._robot.spec, state)
        if contacts is not None:
            self._contacts.publish(contacts)
        reading = convert.imu_message(state, stamp)
        if self._fault != "no_imu":
            imu.publish(reading)
        return reading

    def statistics(self) -> dict[str, Any]:
        """Duration of the loop, and effects of second commanders, on the robot's clock; plain data for JSON."""
        return {**super().statistics(), "second_commanders": self._second.report()}

    def _values(self) -> dict[str, object]:
        return {} if self._scene is None else self._scene.values()


main = partial(run_node, NAME, PARAMETERS, SimRobotNode)
"""Run the node until it is stopped."""


def _relabel(message: JointState, fault: str) -> JointState:
    if fault == "wrong_name":
        first, *others = message.name
        message.name = [f"{first}_renamed", *others]
    elif fault == "wrong_order":
        for field in ("name", "position", "velocity", "effort"):
            setattr(message, field, list(getattr(message, field))[::-1])
    return message

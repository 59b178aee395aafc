"""Speaks for what a simulated arm works on: where things are and belong, what is asked for, what the cameras show."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import PoseArray, PoseStamped
from rclpy.node import Node
from sensor_msgs.msg import Image
from std_msgs.msg import String

from gantry_deploy.language.instructions import MAX_CHARACTERS
from gantry_deploy.perception.images import Picture
from gantry_deploy.recording.ros_messages import BASE_FRAME
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import RobotState
from gantry_hardware.files.text import LINE_LIMIT, plain_text
from gantry_hardware.model.capabilities import HasImages, HasTask, capability
from gantry_ros.convert import arm as convert_arm
from gantry_ros.convert import robot as convert
from gantry_ros.robots.senses import SCENE_TOPICS
from gantry_ros.runtime import topics

OBJECT_PERIOD_S = 0.02
"""Time between two poses of the object; one that tracks markers is about as fast."""
GOAL_PERIOD_S = 0.5
"""Time between two goals, which are repeated for late subscribers."""


class ScenePublisher:
    """Poses and pictures of one robot's surroundings.

    Args:
        node: To publish with.
        robot: With a task.
        picture_rate_hz: Of its cameras, if it has some.
    """

    def __init__(self, node: Node, robot: HasTask, picture_rate_hz: float) -> None:
        self._node, self._robot = node, robot
        self._picture_period_s = 1.0 / picture_rate_hz
        self._object = node.create_publisher(PoseStamped, topics.OBJECT_POSE, topics.WRITER_QOS)
        self._goal = node.create_publisher(PoseStamped, topics.OBJECT_GOAL, topics.WRITER_QOS)
        self._places = {
            name: node.create_publisher(PoseArray, topic, topics.WRITER_QOS) for name, topic in SCENE_TOPICS.items()
        }
        self._asked = node.create_publisher(String, topics.TASK_INSTRUCTION, topics.WRITER_QOS)
        node.create_subscription(String, topics.INSTRUCTION, self._on_instruction, topics.OPERATOR_QOS)
        self._pictures: dict[str, object] = {}
        self._next_s: dict[str, float] = {}

    def pictures(self, now_s: float) -> dict[str, Picture]:
        """Pictures that are due at a time of the robot's clock; takes them while nothing else moves the robot."""
        seeing = capability(self._robot, HasImages)
        if seeing is None or not self._due("pictures", now_s, self._picture_period_s):
            return {}
        return dict(seeing.read_pictures())

    def publish(self, state: RobotState, now_s: float, pictures: dict[str, Picture], *, silent: bool) -> None:
        """Send what is due.

        Args:
            state: A reading that holds the object's pose, or the places of several things and zones.
            now_s: Of the robot's clock.
            pictures: From :meth:`pictures`.
            silent: No node reports the object any more.
        """
        stamp = self._node.get_clock().now().to_msg()
        pose, goal = state.object_pose_in_base, self._robot.goal_in_base_m
        if not silent and self._due("object", now_s, OBJECT_PERIOD_S):
            if pose is not None:
                self._object.publish(convert_arm.pose_message(pose, stamp, BASE_FRAME))
            for name, publisher in self._places.items():
                if name in state.extra:
                    publisher.publish(convert_arm.places_message(state.extra[name].reshape(-1, 3), stamp, BASE_FRAME))
        if self._robot.instruction and self._due("instruction", now_s, GOAL_PERIOD_S):
            self._asked.publish(String(data=self._robot.instruction))
        if goal is not None and self._due("goal", now_s, GOAL_PERIOD_S):
            upright = np.concatenate((goal, (1.0, 0.0, 0.0, 0.0)))
            self._goal.publish(convert_arm.pose_message(upright, stamp, BASE_FRAME))
        for name, picture in pictures.items():
            if name not in self._pictures:
                topic = topics.PICTURE.format(name=name)
                self._pictures[name] = self._node.create_publisher(Image, topic, topics.WRITER_QOS)
            taken = convert.stamp_of_age(self._node.get_clock(), now_s - picture.stamp_s)
            image = convert_arm.picture_message(picture.pixels, taken, f"{name}_optical_frame")
            self._pictures[name].publish(image)  # type: ignore[attr-defined]

    def values(self) -> dict[str, object]:
        """For diagnostics: whether the task is done, and what it asks for in words."""
        asked = {"task instruction": self._robot.instruction} if self._robot.instruction else {}
        return {"task done": self._robot.task_done, **asked}

    def _on_instruction(self, message: String) -> None:
        """Judge by what an operator asks the policy for, where it says one thing in the scene."""
        text = message.data[: MAX_CHARACTERS + 1]
        if text != self._robot.instruction and self._robot.ask(text):
            self._node.get_logger().info(f"The task is now: {plain_text(text, LINE_LIMIT)}.")

    def _due(self, what: str, now_s: float, period_s: float) -> bool:
        if now_s < self._next_s.get(what, 0.0) - 1e-9:
            return False
        self._next_s[what] = now_s + period_s
        return True


def scene_publisher(node: Node, robot: Robot, picture_rate_hz: float) -> ScenePublisher | None:
    """A publisher for a robot's task; None for a robot without."""
    working = capability(robot, HasTask)
    return None if working is None else ScenePublisher(node, working, picture_rate_hz)

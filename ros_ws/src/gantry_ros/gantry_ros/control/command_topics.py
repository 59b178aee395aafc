"""Topics on which an operator tells a control loop what to do: velocities, goals, words, and the heartbeat."""

from __future__ import annotations

from geometry_msgs.msg import PoseStamped, Twist, TwistStamped
from std_msgs.msg import Empty, String

from gantry_deploy.contract.policy_contract import BODY_POSE, OBJECT_GOAL
from gantry_deploy.control.loop import Controller
from gantry_deploy.language.instructions import unknown_words
from gantry_deploy.recording.ros_messages import BASE_FRAME, ODOM_FRAME
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import LINE_LIMIT, plain_text, printable
from gantry_ros.convert import arm as convert_arm
from gantry_ros.convert import map as convert_map
from gantry_ros.convert import robot as convert
from gantry_ros.robots.senses import TopicSenses
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter

PARAMETERS = (
    Parameter("cmd_vel_stamped", False, "Whether cmd_vel is a TwistStamped instead of a Twist."),
    Parameter(
        "instruction",
        "",
        "First instruction of a policy that is told in words; empty: it waits for one on the topic instruction.",
    ),
)
"""Of every node with a control loop."""


class CommandTopics:
    """Listens to what a policy is to do, as its contract says.

    Args:
        host: Node to use.
        controller: With a policy.
        robot: The controller's, if other nodes report of it; names of frames are then its own. None for any other.
        stamped: Whether ``cmd_vel`` is a TwistStamped.
        instruction: First one; empty for none.

    Raises:
        InstructionError: If the policy cannot follow it.
    """

    def __init__(
        self,
        host: NodeHost,
        controller: Controller,
        robot: TopicSenses | None,
        *,
        stamped: bool,
        instruction: str = "",
    ) -> None:
        self._host, self._controller, self._ros = host, controller, robot
        self.unheard = ""
        """Topic of a velocity command that has never come; empty for none."""
        self._read_twist: convert.TwistReader | None = None
        if instruction:
            self._tell(instruction)
        self._open(stamped)
        host.network.hints[topics.CMD_VEL] = f"Set cmd_vel_stamped:={'false' if stamped else 'true'}."
        host.node.create_subscription(
            Empty, topics.HEARTBEAT, lambda _: controller.heartbeat(controller.robot.now_s()), topics.OPERATOR_QOS
        )

    def _open(self, stamped: bool) -> None:
        node, runner = self._host.node, self._controller.runner
        assert runner is not None
        if runner.contract.instruction is not None:
            node.create_subscription(String, topics.INSTRUCTION, self._on_instruction, topics.OPERATOR_QOS)
        if runner.contract.command.kind == BODY_POSE:
            node.create_subscription(PoseStamped, topics.GOAL_POSE, self._on_goal, topics.OPERATOR_QOS)
            return
        if runner.contract.command.kind == OBJECT_GOAL:
            node.create_subscription(PoseStamped, topics.OBJECT_GOAL, self._on_object_goal, topics.OPERATOR_QOS)
            return
        if not runner.contract.command.names:
            return
        self._read_twist = convert.TwistReader(runner.contract.command.names)
        self.unheard = node.resolve_topic_name(topics.CMD_VEL)
        node.create_subscription(
            TwistStamped if stamped else Twist, topics.CMD_VEL, self._on_twist, topics.OPERATOR_QOS
        )

    def _on_instruction(self, message: String) -> None:
        runner = self._controller.runner
        if runner is None or message.data == runner.instruction:
            return  # Senders repeat it, and a plan that goes on is not to be dropped.
        try:
            self._tell(message.data)
        except GantryError as error:
            text = printable(str(error), LINE_LIMIT)
            self._host.node.get_logger().error(f"Instruction refused: {text}", throttle_duration_sec=1.0)

    def _tell(self, text: str) -> None:
        """Tell the policy, and log what was heard and which of its words no training read."""
        self._controller.instruct(text)
        log, runner = self._host.node.get_logger(), self._controller.runner
        log.info(f"Instruction: {plain_text(text, LINE_LIMIT)}.")
        spec = None if runner is None else runner.contract.instruction
        if spec is not None and (unknown := unknown_words(spec, text)):
            log.warning(f"The policy was not trained on {', '.join(unknown)}.")

    def _on_twist(self, message: Twist | TwistStamped) -> None:
        self.unheard = ""
        if self._read_twist is not None:
            self._controller.set_command(self._read_twist(message), self._controller.robot.now_s())

    def _on_goal(self, message: PoseStamped) -> None:
        robot, named = self._ros, message.header.frame_id
        frame = ODOM_FRAME if robot is None else robot.frames.told(named, robot.odom_frame)
        try:
            goal, before = convert_map.goal(message, frame), self._controller.goal
            self._controller.set_goal(goal)
        except GantryError as error:
            self._host.node.get_logger().error(f"Goal refused: {error}", throttle_duration_sec=1.0)
            return
        if goal == before:
            return  # Senders repeat it, as one message alone may get lost.
        place = f"x {goal.x_in_world_m:.2f} m, y {goal.y_in_world_m:.2f} m, yaw {goal.yaw_in_world_rad:.2f} rad"
        self._host.node.get_logger().info(f"Goal: {place}.", throttle_duration_sec=1.0)

    def _on_object_goal(self, message: PoseStamped) -> None:
        try:
            robot, frame = self._ros, BASE_FRAME
            if robot is not None:
                frame = robot.frames.told(message.header.frame_id, BASE_FRAME)
            place = convert_arm.place(message, frame)
        except GantryError as error:
            self._host.node.get_logger().error(f"Goal refused: {error}", throttle_duration_sec=1.0)
            return
        self._controller.set_command(place, self._controller.robot.now_s())

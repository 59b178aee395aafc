"""Topics of a robot's own driver, as arguments."""

from __future__ import annotations

from collections.abc import Mapping

from gantry_bringup.parts import Argument

ROBOT_TOPIC_ARGUMENTS = (
    Argument("joint_states", "", "the driver's topic of joint states, if it is not joint_states"),
    Argument("imu", "", "the driver's topic of the IMU, if it is not imu/data"),
    Argument("odom", "", "the driver's topic of the odometry, if it is not odom"),
    Argument("joint_command", "", "the driver's topic of joint commands, if it is not joint_command"),
    Argument("cmd_vel", "", "the operator's topic, if it is not cmd_vel"),
    Argument("command_message", "", "how commands leave: joint_command, or of an arm joint_trajectory or positions"),
    Argument("gripper_message", "", "an arm's gripper: with_arm, joint_trajectory, positions or gripper_command"),
    Argument(
        "arm_command", "", "topic of the arm's controller, if it is not arm_controller/joint_trajectory or /commands"
    ),
    Argument("gripper_command", "", "topic of the gripper's controller, if it has one, under gripper_controller"),
    Argument("object_pose", "", "topic of the object's pose in the arm's base frame, if it is not object_pose"),
    Argument("object_goal", "", "topic of where the object belongs, if it is not object_goal"),
    Argument("drive", "", "topic of a car's drive commands, if it is not drive (Ackermann) or drive_twist"),
    Argument("scan", "", "topic of a car's scanner, if it is not scan"),
    Argument("route", "", "topic of a car's route, if it is not route (a path) or route_lanes"),
    Argument("objects", "", "topic of the objects around a car, if it is not objects"),
    Argument("stop_line", "", "topic of the next stop line, if it is not stop_line"),
    Argument("road_map", "", "topic of a car's road map, if it is not road_map"),
    Argument("goal_pose", "", "topic of where to go or to park, if it is not goal_pose"),
)
"""Names of a driver's topics where they differ from ours, and how commands leave."""

_ROBOT_TOPICS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("joint_states", "odom", "joint_command", "cmd_vel", "object_pose", "object_goal")},
    **{name: (name,) for name in ("scan", "objects", "stop_line", "road_map", "goal_pose")},
    "imu": ("imu/data",),
    "drive": ("drive", "drive_twist"),
    "route": ("route", "route_lanes"),
    # Whichever message is chosen, it is the controller of that name that takes it.
    "arm_command": ("arm_controller/joint_trajectory", "arm_controller/commands"),
    "gripper_command": tuple(
        f"gripper_controller/{name}" for name in ("joint_trajectory", "commands", "gripper_command")
    ),
}
"""Our names of the topics that the arguments of ``robot`` rename."""


def robot_remappings(args: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Our names of topics and the driver's, where they differ."""
    return tuple((topic, args[name]) for name, ours in _ROBOT_TOPICS.items() if args.get(name) for topic in ours)

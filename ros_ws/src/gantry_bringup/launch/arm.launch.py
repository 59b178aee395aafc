"""``ros2 launch gantry_bringup arm.launch.py bundle:=PATH``; ``-s`` shows every argument."""

from gantry_bringup.ros_launch import launch_description
from launch import LaunchDescription  # type: ignore[attr-defined]


def generate_launch_description() -> LaunchDescription:
    """Entry point of ``ros2 launch``."""
    return launch_description("arm")

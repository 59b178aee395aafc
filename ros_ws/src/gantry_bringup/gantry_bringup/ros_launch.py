"""Launch descriptions as actions of ROS 2's own ``launch``; only imported by the launch files.

``launch`` and ``launch_ros`` come with a ROS 2 installation (the package of that name on the Python index is another
one), so nothing else in Gantry imports this module.
"""

from __future__ import annotations

from typing import Any

from launch.actions import DeclareLaunchArgument, OpaqueFunction, Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from gantry_bringup.description import Launch, NodeSpec, find_launch
from gantry_bringup.loopback import require_loopback
from launch import LaunchContext, LaunchDescription  # type: ignore[attr-defined]


def launch_description(name: str) -> LaunchDescription:
    """The description of that name for ``ros2 launch``; everything ends when one node does."""
    launch = find_launch(name)
    declared = [
        DeclareLaunchArgument(argument.name, default_value=argument.default, description=argument.text)
        for argument in launch.arguments
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=_actions, args=[launch])])


def _actions(context: LaunchContext, launch: Launch) -> list[Node]:
    given = {argument.name: LaunchConfiguration(argument.name).perform(context) for argument in launch.arguments}
    specs = launch.nodes(given)
    require_loopback(specs)
    return [_action(spec) for spec in specs]


def _action(spec: NodeSpec) -> Node:
    parameters: list[Any] = [spec.config] if spec.config else []
    if spec.parameters:
        parameters.append(dict(spec.parameters))
    return Node(
        package=spec.package,
        executable=spec.executable,
        name=spec.name,
        namespace=spec.namespace,
        parameters=parameters,
        remappings=list(spec.remappings),
        additional_env=dict(spec.environment),
        output="screen",
        on_exit=Shutdown(),
    )

"""Launch descriptions as actions of ROS 2's own ``launch``; only imported by the launch files.

``launch`` and ``launch_ros`` come with a ROS 2 installation (the package of that name on the Python index is another
one), so nothing else in Gantry imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction, RegisterEventHandler, Shutdown
from launch.event_handler import BaseEventHandler
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from gantry_bringup.description import Launch, NodeSpec, find_launch
from gantry_bringup.loopback import require_loopback
from gantry_bringup.parts import require_parameters
from gantry_hardware.errors import GantryError
from launch import Event, LaunchContext, LaunchDescription, LaunchDescriptionEntity  # type: ignore[attr-defined]


class NodeFailed(Event):
    """A node has ended with another exit code than 0.

    Args:
        name: Of the node's process.
        code: Its exit code, negative for a signal.
    """

    name = "gantry_bringup.NodeFailed"

    def __init__(self, name: str, code: int) -> None:
        super().__init__()
        self.text = f"{name} ended with exit code {code}."


def launch_description(name: str) -> LaunchDescription:
    """The description of that name for ``ros2 launch``; everything ends when one node does, with 1 if one failed."""
    launch = find_launch(name)
    declared = [
        DeclareLaunchArgument(argument.name, default_value=argument.default, description=argument.text)
        for argument in launch.arguments
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=_actions, args=[launch])])


def actions_of(specs: Sequence[NodeSpec]) -> list[LaunchDescriptionEntity]:
    """Actions that start nodes and keep them together, as :class:`gantry_bringup.processes.NodeGroup` does."""
    return [RegisterEventHandler(_Refusal()), *(_action(spec) for spec in specs)]


class _Refusal(BaseEventHandler):
    """Raises when a node has failed: for nothing else the launch service returns another code than 0."""

    def __init__(self) -> None:
        super().__init__(matcher=lambda event: isinstance(event, NodeFailed))

    def handle(self, event: Event, context: LaunchContext) -> None:
        """Take the event.

        Raises:
            GantryError: Always.
        """
        super().handle(event, context)
        raise GantryError(event.text)  # type: ignore[attr-defined]


def _actions(context: LaunchContext, launch: Launch) -> list[LaunchDescriptionEntity]:
    given = {argument.name: LaunchConfiguration(argument.name).perform(context) for argument in launch.arguments}
    specs = launch.nodes(given)
    require_parameters(specs)
    require_loopback(specs)
    return actions_of(specs)


def _ended(event: ProcessExited, context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """What follows the end of a node, which may itself follow another's."""
    actions: list[LaunchDescriptionEntity] = [] if context.is_shutdown else [Shutdown(reason="a node has ended")]
    if event.returncode != 0:
        # An event of its own: raised here, it would keep others from hearing of this node's end.
        actions.append(EmitEvent(event=NodeFailed(event.process_name, event.returncode)))
    return actions


def _action(spec: NodeSpec) -> Node:
    parameters: list[Any] = list(spec.configs)
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
        on_exit=_ended,
    )

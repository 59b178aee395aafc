"""Backend for a robot behind topics, and the parameters that its nodes have for it."""

from __future__ import annotations

from typing import Any

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.plugins import load_named
from gantry_ros.robots import BACKEND_OPTIONS, arm_commands, car_commands
from gantry_ros.robots.ros_robot import RosRobot
from gantry_ros.robots.sensed_robot import driven_robot
from gantry_ros.runtime import frames
from gantry_ros.runtime.command_guard import DISCOVERY_S
from gantry_ros.runtime.host import NodeHost, Parameter

PARAMETERS = (
    Parameter("joint_order", "strict", "'strict' refuses joint states in another order, 'by_name' sorts them."),
    Parameter(
        "command_message",
        "",
        f"How commands leave: {', '.join(arm_commands.COMMAND_MESSAGES)}; empty: the first, for an arm the second. "
        f"To a car: {', '.join(car_commands.CAR_MESSAGES)}; empty: the first where it is installed, else the second.",
    ),
    Parameter(
        "gripper_message", arm_commands.WITH_ARM, f"An arm's gripper: {', '.join(arm_commands.GRIPPER_MESSAGES)}."
    ),
    *frames.PARAMETERS,
    Parameter(
        "map_max_latency_s",
        0.0,
        "A map whose newest frame is older than this by its stamp is refused, s; 0 where clocks are not synchronised.",
    ),
    Parameter("connect_timeout_s", 10.0, "How long to wait for the robot's first state, s."),
    Parameter("discovery_s", DISCOVERY_S, "How long to look for other commanders of the robot before starting, s."),
)
"""Of a node that talks to a robot."""


def make_robot(spec: RobotSpec, host: NodeHost, values: dict[str, Any], contract: PolicyContract) -> Robot:
    """The robot of a node: behind topics, or driven by the node itself; not connected yet.

    Args:
        spec: The robot.
        host: Node to use.
        values: Of :data:`PARAMETERS`, of :data:`gantry_ros.robots.sensed_robot.PARAMETERS`, and ``depth_source``.
        contract: The policy's.

    Raises:
        GantryError: If a value does not fit the robot.
    """
    if values["backend"]:
        return driven_robot(spec, host, values, contract)
    for name in (BACKEND_OPTIONS, "depth_source", "mapping"):
        if values.get(name):
            raise GantryError(f"Parameter '{name.rstrip('.')}' is for a robot that this node drives: set backend, too.")
    return ros_robot(spec, host, values, contract.dt_s)


def ros_robot(spec: RobotSpec, host: NodeHost, values: dict[str, Any], command_period_s: float) -> RosRobot:
    """The backend for a robot, as its embodiment needs it; not connected yet.

    Args:
        spec: The robot.
        host: Node to use.
        values: Of :data:`PARAMETERS`, and for a car of :data:`gantry_ros.robots.ros_road.PARAMETERS`.
        command_period_s: Time between two commands.

    Raises:
        GantryError: If a value does not fit the robot.
    """
    return load_named(embodiment_of_robot(spec).ros_robot).from_parameters(spec, host, values, command_period_s)

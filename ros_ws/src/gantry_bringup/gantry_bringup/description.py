"""What is started together: plain data, read by ``gantry launch`` and by the launch files of a ROS 2 installation.

An argument that is not given leaves the matter to the ``config`` file and then to the node's own default.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry_bringup.driven import DRIVEN
from gantry_bringup.parts import (
    COMMON_ARGUMENTS,
    DISCOVERY_RANGE,
    MANAGED,
    OF_EVERY_NODE,
    Argument,
    Launch,
    NodeSpec,
    given,
    make_node,
    managed,
    policy_parameters,
)
from gantry_bringup.robot_topics import ROBOT_TOPIC_ARGUMENTS, robot_remappings
from gantry_bringup.sessions import SESSION_ARGUMENTS, SIM_SESSION_ARGUMENTS, build_session, build_sim_session
from gantry_bringup.simulations import (
    SIM_ARM_ARGUMENTS,
    SIM_DRIVE_ARGUMENTS,
    SIM_MAP_WALK_ARGUMENTS,
    SIM_WALK_ARGUMENTS,
    SPLITS,
    build_sim_arm,
    build_sim_drive,
    build_sim_map_walk,
    build_sim_walk,
)
from gantry_hardware.errors import UnknownNameError

__all__ = ["LAUNCHES", "SPLITS", "Argument", "Launch", "NodeSpec", "find_launch"]

MAPPING_ARGUMENTS = (
    *(argument for argument in COMMON_ARGUMENTS if argument.name in OF_EVERY_NODE),
    Argument("bundle", "", "policy bundle whose mapping network is used; none: without a network"),
    Argument("public_key", "", "64 hex digits; bundles that this key did not sign are refused"),
    Argument("mapping", "", "mapping setup as YAML, see configs/mapping/go2.yaml"),
    Argument(
        "depth_source", "", "depth camera that the node opens itself, as realsense,site=front.yaml; docs/depth.md"
    ),
    Argument("input", "", "depth (images) or points (clouds)"),
    Argument("depth", "", "topic of depth images, if it is not camera/depth/image_rect_raw"),
    Argument("camera_info", "", "topic of their calibration, if it is not camera/depth/camera_info"),
    Argument("points", "", "topic of point clouds, if it is not points"),
    Argument("odom", "", "topic of the odometry, if it is not odom"),
    MANAGED,
    DISCOVERY_RANGE,
)
"""Of ``mapping``; runs beside ``robot`` for a policy that looks at a map."""

ROBOT_ARGUMENTS = (
    *COMMON_ARGUMENTS,
    *ROBOT_TOPIC_ARGUMENTS,
    Argument("steering", "", "a car's steering angle: commanded, or joint_states where it is measured"),
    Argument("route_message", "", "a car's route: path, or lanes, which has widths and speed limits"),
    Argument("joint_order", "", "strict refuses joint states in another order, by_name sorts them"),
    MANAGED,
    # On by itself, not only in a configuration that somebody may leave out: a robot that moves has an operator.
    Argument("require_heartbeat", "true", "damp when the operator's heartbeat is lost; empty leaves it to the config"),
    DISCOVERY_RANGE,
)
"""Of ``robot``; a real robot never starts by itself, so there is no ``auto_start``, and needs a living operator."""


def build_mapping(args: Mapping[str, str]) -> list[NodeSpec]:
    """Mapping for a robot whose camera and odometry run already.

    Raises:
        GantryError: If a value does not fit.
    """
    ours = {"depth": "camera/depth/image_rect_raw", "camera_info": "camera/depth/camera_info"}
    ours |= {"points": "points", "odom": "odom"}
    remappings = tuple((topic, args[name]) for name, topic in ours.items() if args[name])
    parameters = given(args, "bundle", "public_key", "mapping", "input", "depth_source")
    return [make_node("mapping_node", args, {**parameters, **managed(args)}, remappings)]


def build_robot(args: Mapping[str, str]) -> list[NodeSpec]:
    """A policy for a robot whose driver runs already.

    Raises:
        GantryError: If no bundle is named, or a value does not fit.
    """
    parameters = {**policy_parameters(args), **given(args, "joint_order", "command_message", "gripper_message")}
    parameters |= {**given(args, "steering", "route_message"), **managed(args)}
    return [make_node("policy_node", args, parameters, robot_remappings(args))]


LAUNCHES = {
    launch.name: launch
    for launch in (
        Launch("sim_walk", "a simulated robot and a policy that walks it", SIM_WALK_ARGUMENTS, build_sim_walk),
        Launch(
            "sim_map_walk",
            "a simulated robot with a depth camera on terrain, mapping, and a policy that walks it",
            SIM_MAP_WALK_ARGUMENTS,
            build_sim_map_walk,
        ),
        Launch(
            "sim_arm", "a simulated arm at its workbench and a policy that moves it", SIM_ARM_ARGUMENTS, build_sim_arm
        ),
        Launch(
            "sim_drive", "a simulated car on roads and a policy that drives it", SIM_DRIVE_ARGUMENTS, build_sim_drive
        ),
        Launch(
            "sim_session",
            "a simulated robot and a session in which a person corrects its policy",
            SIM_SESSION_ARGUMENTS,
            build_sim_session,
        ),
        Launch(
            "session",
            "a session in which a person corrects the policy of a robot whose ROS 2 driver runs already",
            SESSION_ARGUMENTS,
            build_session,
        ),
        *(
            Launch(name, text, *DRIVEN[name])
            for name, text in (
                (
                    "quadruped",
                    "a policy that drives a robot with four legs by itself, a Unitree Go2 if not told otherwise",
                ),
                (
                    "humanoid",
                    "a policy that drives a robot with two legs by itself, a Unitree G1 if not told otherwise",
                ),
                ("arm", "a policy that drives an arm by itself, one on a CAN bus if not told otherwise"),
                ("car", "a policy that drives a car by itself, one with a VESC if not told otherwise"),
            )
        ),
        Launch("mapping", "the elevation map of a robot whose camera runs already", MAPPING_ARGUMENTS, build_mapping),
        Launch("robot", "a policy for a robot whose ROS 2 driver runs already", ROBOT_ARGUMENTS, build_robot),
    )
}
"""Every launch description by name."""


def find_launch(name: str) -> Launch:
    """Look a description up.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in LAUNCHES:
        raise UnknownNameError("launch description", name, LAUNCHES)
    return LAUNCHES[name]

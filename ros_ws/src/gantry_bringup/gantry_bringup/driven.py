"""Robots that the policy node drives itself: quadruped, humanoid, arm and car, set up by a robot and a site file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gantry_bringup.config_file import node_parameters
from gantry_bringup.parts import (
    COMMON_ARGUMENTS,
    DISCOVERY_RANGE,
    MANAGED,
    Argument,
    NodeSpec,
    ParameterValue,
    bundle_of,
    contract_of,
    existing_file,
    flag,
    given,
    json_object,
    make_node,
    managed,
    policy_parameters,
)
from gantry_bringup.robot_topics import ROBOT_TOPIC_ARGUMENTS, robot_remappings
from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_hardware.backends.registry import backend_names, check_options
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_ros.robots import BACKEND_OPTIONS

BACKENDS = {"quadruped": "unitree", "humanoid": "unitree", "arm": "dm-motors", "car": "vesc"}
"""Launch description -> backend, unless a file or an argument says otherwise."""
HEARTBEAT = "safety.require_heartbeat"
_DRIVERS = ("joint_states", "imu", "joint_command", "arm_command", "gripper_command", "drive")
_DRIVERS += ("command_message", "gripper_message")


def driven_arguments(name: str) -> tuple[Argument, ...]:
    """Arguments of one of :data:`BACKENDS`."""
    topics = (item for item in ROBOT_TOPIC_ARGUMENTS if item.name not in _DRIVERS)
    return (
        *COMMON_ARGUMENTS,
        Argument("site", "", "a second parameter file, of the place: network interface, cameras; wins over config"),
        Argument("backend", "", f"the robot's driver: a robot backend; {BACKENDS[name]} if no file says otherwise"),
        Argument("options", "", 'its options as JSON, for example {"interface": "eth0"}; win over those of files'),
        Argument("depth_source", "", "depth camera that the node opens, as realsense,site=front.yaml; docs/depth.md"),
        Argument("mapping", "", "mapping setup as YAML, see configs/mapping/go2.yaml"),
        Argument("mapping_node", "false", "start a mapping node for images and odometry that come over topics"),
        Argument("odometry", "", "where the pose comes from: robot, or topic for a localisation that knows better"),
        *topics,
        Argument("route_message", "", "a car's route: path, or lanes, which has widths and speed limits"),
        Argument("require_heartbeat", "", "damp when the operator's heartbeat is lost; true if no file says otherwise"),
        MANAGED,
        DISCOVERY_RANGE,
    )


def build_driven(name: str, args: Mapping[str, str]) -> list[NodeSpec]:
    """A policy that drives the robot, and on request a mapping node.

    Args:
        name: One of :data:`BACKENDS`.
        args: Of :func:`driven_arguments`.

    Raises:
        GantryError: If the bundle is for another kind of robot, or a value or a file does not fit.
    """
    robot = args["robot"] or contract_of(bundle_of(args)).robot
    embodiment = embodiment_of_robot(robot_spec(robot))
    if name not in embodiment.driver_launches:
        others = " or ".join(embodiment.driver_launches) or "'robot', beside a driver of its own"
        raise GantryError(f"Robot '{robot}' is {embodiment.noun}; start {others}.")
    options = json_object(args, "options")
    parameters = {
        **policy_parameters(args),
        **managed(args),
        **given(args, "depth_source", "odometry", "route_message"),
    }
    if not flag(args, "mapping_node"):
        parameters |= given(args, "mapping")
    parameters |= {f"{BACKEND_OPTIONS}{key}": value for key, value in options.items()}
    policy = _with_site(make_node("policy_node", args, parameters, robot_remappings(args)), args)
    told = node_parameters(policy.configs, policy.full_name)
    _require_robot(robot, told)
    if HEARTBEAT not in {**told, **parameters}:
        policy = replace(policy, parameters={**policy.parameters, HEARTBEAT: True})
    backend = args["backend"] or str(told.get("backend", "") or BACKENDS[name])
    _check_backend(backend, {**told, **parameters})
    nodes = [replace(policy, parameters={**policy.parameters, "backend": backend})]
    if flag(args, "mapping_node"):
        mapping = {"bundle": bundle_of(args), **given(args, "public_key", "mapping"), **managed(args)}
        remapped = (("odom", args["odom"]),) if args["odom"] else ()
        nodes.append(_with_site(make_node("mapping_node", args, mapping, remapped), args))
    return nodes


def _require_robot(robot: str, told: Mapping[str, ParameterValue]) -> None:
    """Refuse files of another robot than the one that is started."""
    if told.get("robot", robot) != robot:
        raise GantryError(
            f"The parameter files are those of robot '{told['robot']}', and the bundle is for '{robot}': copy the file "
            "of that robot, or change its line 'robot'."
        )


def _check_backend(backend: str, parameters: Mapping[str, ParameterValue]) -> None:
    """Refuse what the node would refuse once it runs."""
    if backend not in backend_names():
        raise UnknownNameError("robot backend", backend, backend_names())
    options = {
        key.removeprefix(BACKEND_OPTIONS): value for key, value in parameters.items() if key.startswith(BACKEND_OPTIONS)
    }
    check_options(backend, options)


def _with_site(node: NodeSpec, args: Mapping[str, str]) -> NodeSpec:
    site = existing_file(args, "site")
    return replace(node, configs=(*node.configs, site)) if site else node


DRIVEN = {name: (driven_arguments(name), partial(build_driven, name)) for name in BACKENDS}
"""Launch description -> arguments and builder."""

"""What is started together: plain data, read by ``gantry launch`` and by the launch files of a ROS 2 installation.

An argument that is not given leaves the matter to the ``config`` file and then to the node's own default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gantry_deploy.bundle import load_bundle
from gantry_deploy.cli.command import output_trouble
from gantry_deploy.locate import WHERE, find_bundle, named_path
from gantry_hardware.backends import check_options
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_ros.profile import parse_goal, parse_profile

SIMULATOR = "mujoco"
"""Backend of simulated robots, unless asked otherwise."""

ParameterValue = bool | int | float | str


@dataclass(frozen=True)
class NodeSpec:
    """One node to start."""

    package: str
    """ROS package, and Python package with a ``__main__`` that takes the executable's name."""
    executable: str
    """Name of the executable."""
    name: str
    """Node name."""
    namespace: str = ""
    """Namespace, empty for the root."""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    """Parameters that win over the ones in ``config``."""
    config: str = ""
    """Path of a ROS parameter file, empty for none."""
    remappings: tuple[tuple[str, str], ...] = ()
    """Pairs of topic name and the name to use instead."""
    arguments: tuple[str, ...] = ()
    """Further command line arguments."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables to set."""


@dataclass(frozen=True)
class Argument:
    """One argument of a launch description; all values are text, as in ROS."""

    name: str
    """Name on the command line, ``name:=value``."""
    default: str
    """Value when it is not given; empty for "not given"."""
    text: str
    """What it does."""


@dataclass(frozen=True)
class Launch:
    """One launch description."""

    name: str
    """Name on the command line and of the launch file."""
    text: str
    """What it starts, in one line."""
    arguments: tuple[Argument, ...]
    """What may be given."""
    build: Callable[[Mapping[str, str]], list[NodeSpec]]
    """From complete arguments to nodes, in the order of their start."""

    def nodes(self, given: Mapping[str, str]) -> list[NodeSpec]:
        """The nodes for some arguments.

        Raises:
            UnknownNameError: If there is no such argument.
            GantryError: If a value does not fit.
        """
        defaults = {argument.name: argument.default for argument in self.arguments}
        for name in given:
            if name not in defaults:
                raise UnknownNameError(f"argument of '{self.name}'", name, defaults)
        return self.build({**defaults, **given})


COMMON_ARGUMENTS = (
    Argument("bundle", "", f"policy bundle (required): {WHERE}"),
    Argument("robot", "", "robot in the registry; the one in the bundle's contract if not given"),
    Argument("namespace", "", "namespace of every node, for several robots in one network"),
    Argument("config", "", "ROS parameter file, for example configs/ros/sim_walk.yaml"),
    Argument("record", "", "MCAP file to record to; its folder exists"),
    Argument("statistics", "", "JSON file for the control loop's statistics at the end"),
    Argument("public_key", "", "64 hex digits; bundles that this key did not sign are refused"),
    Argument("realtime_priority", "", "SCHED_FIFO priority of the loops, 1 to 99"),
    Argument("dds_profile", "", "Fast DDS profile, for example configs/ros/fastdds-shm.xml"),
)
"""Of every description with a policy."""

_OF_EVERY_NODE = ("namespace", "config", "dds_profile")

SIM_WALK_ARGUMENTS = (
    *COMMON_ARGUMENTS,
    Argument("backend", "", "simulated robot's backend: mujoco or mock"),
    Argument("options", "", 'backend options as JSON, for example {"delay_s": 0.004}'),
    Argument("auto_start", "true", "stand up and start the policy without being asked"),
    Argument("drive", "false", "drive a profile on cmd_vel, then end everything"),
    Argument("profile", "", "profile to drive, 'seconds:vx,vy,yaw_rate; ...'"),
    Argument("require_heartbeat", "", "true: damp when the operator's heartbeat is lost"),
    # A simulated robot must never answer, or be answered by, a real one on the same network.
    Argument("discovery_range", "LOCALHOST", "who may be heard: LOCALHOST, SUBNET, or as in the environment if empty"),
)
"""Of ``sim_walk``."""

SIM_MAP_WALK_ARGUMENTS = (
    *(argument for argument in SIM_WALK_ARGUMENTS if argument.name not in ("profile", "backend")),
    Argument("terrain", "t1", "terrain to walk on, for example stones or t3; empty for a flat floor"),
    Argument("terrain_difficulty", "0.5", "0 to 1"),
    Argument("camera_noise", "1.0", "depth noise in units of the usual one"),
    Argument("mapping", "", "mapping setup as YAML, see configs/mapping/go2.yaml"),
    Argument("mapping_statistics", "", "JSON file for the times of the mapping's frames at the end"),
    Argument("robot_statistics", "", "JSON file for simulated against real time at the end"),
    Argument("goal", "6,0,0", "where to walk with drive:=true, x,y,yaw from the start, m and rad"),
    Argument("goal_timeout", "", "how long that may take, s"),
    Argument("goal_hold", "false", "stay under the policy until that time is over instead of ending at the goal"),
)
"""Of ``sim_map_walk``."""

MAPPING_ARGUMENTS = (
    *(argument for argument in COMMON_ARGUMENTS if argument.name in _OF_EVERY_NODE),
    Argument("bundle", "", "policy bundle whose mapping network is used; none: without a network"),
    Argument("public_key", "", "64 hex digits; bundles that this key did not sign are refused"),
    Argument("mapping", "", "mapping setup as YAML, see configs/mapping/go2.yaml"),
    Argument("input", "", "depth (images) or points (clouds)"),
    Argument("depth", "", "topic of depth images, if it is not camera/depth/image_rect_raw"),
    Argument("camera_info", "", "topic of their calibration, if it is not camera/depth/camera_info"),
    Argument("points", "", "topic of point clouds, if it is not points"),
    Argument("odom", "", "topic of the odometry, if it is not odom"),
    Argument("discovery_range", "", "who may be heard: LOCALHOST, SUBNET, or as in the environment if empty"),
)
"""Of ``mapping``; runs beside ``robot`` for a policy that looks at a map."""

ROBOT_ARGUMENTS = (
    *COMMON_ARGUMENTS,
    Argument("joint_states", "", "the driver's topic of joint states, if it is not joint_states"),
    Argument("imu", "", "the driver's topic of the IMU, if it is not imu/data"),
    Argument("odom", "", "the driver's topic of the odometry, if it is not odom"),
    Argument("joint_command", "", "the driver's topic of joint commands, if it is not joint_command"),
    Argument("cmd_vel", "", "the operator's topic, if it is not cmd_vel"),
    Argument("joint_order", "", "strict refuses joint states in another order, by_name sorts them"),
    # On by itself, not only in a configuration that somebody may leave out: a robot that moves has an operator.
    Argument("require_heartbeat", "true", "damp when the operator's heartbeat is lost; empty leaves it to the config"),
    Argument("discovery_range", "", "who may be heard: LOCALHOST, SUBNET, or as in the environment if empty"),
)
"""Of ``robot``; a real robot never starts by itself, so there is no ``auto_start``, and needs a living operator."""


def build_sim_walk(args: Mapping[str, str]) -> list[NodeSpec]:
    """A simulated robot, a policy, and on request a scripted operator.

    Raises:
        GantryError: If the bundle is missing or not intact, or a value does not fit.
    """
    robot = args["robot"] or _robot_of(_bundle(args))
    if args["options"]:
        check_options(args["backend"] or SIMULATOR, _json_object(args, "options"))
    if args["profile"]:
        parse_profile(args["profile"])  # What the operator's node would refuse while the rest is running.
    nodes = [
        _node("sim_robot_node", args, {"robot": robot, **_given(args, "backend", "options"), **_schedule(args)}),
        _node("policy_node", args, {**_policy_parameters(args), "auto_start": _flag(args, "auto_start")}),
    ]
    if _flag(args, "drive"):
        nodes.append(_node("drive_node", args, _given(args, "profile")))
    return nodes


def build_sim_map_walk(args: Mapping[str, str]) -> list[NodeSpec]:
    """A simulated robot with a depth camera on terrain, mapping, a policy that looks at the map, on request a goal.

    Raises:
        GantryError: If the bundle is missing or not intact, or a value does not fit.
    """
    robot = args["robot"] or _robot_of(_bundle(args))
    options = _json_object(args, "options")
    check_options(SIMULATOR, options)
    world: dict[str, ParameterValue] = {"camera": True, "camera_noise": _number(args, "camera_noise")}
    if args["terrain"]:
        world |= {"terrain": args["terrain"], "terrain_difficulty": _number(args, "terrain_difficulty")}
    simulated: dict[str, ParameterValue] = {"robot": robot, "backend": SIMULATOR}
    simulated["options"] = json.dumps({**world, **options})
    simulated |= _schedule(args)
    mapping: dict[str, ParameterValue] = {"bundle": _bundle(args), **_given(args, "public_key", "mapping")}
    for name, parameters in (("robot_statistics", simulated), ("mapping_statistics", mapping)):
        if args[name]:
            parameters["statistics"] = args[name]
    nodes = [
        _node("sim_robot_node", args, simulated),
        _node("mapping_node", args, mapping),
        _node("policy_node", args, {**_policy_parameters(args), "auto_start": _flag(args, "auto_start")}),
    ]
    if _flag(args, "drive"):
        nodes.append(_node("drive_node", args, _goal(args)))
    return nodes


def build_mapping(args: Mapping[str, str]) -> list[NodeSpec]:
    """Mapping for a robot whose camera and odometry run already.

    Raises:
        GantryError: If a value does not fit.
    """
    ours = {"depth": "camera/depth/image_rect_raw", "camera_info": "camera/depth/camera_info"}
    ours |= {"points": "points", "odom": "odom"}
    remappings = tuple((topic, args[name]) for name, topic in ours.items() if args[name])
    return [_node("mapping_node", args, _given(args, "bundle", "public_key", "mapping", "input"), remappings)]


def build_robot(args: Mapping[str, str]) -> list[NodeSpec]:
    """A policy for a robot whose driver runs already.

    Raises:
        GantryError: If no bundle is named, or a value does not fit.
    """
    parameters = {**_policy_parameters(args), **_given(args, "joint_order")}
    ours = {"joint_states": "joint_states", "imu": "imu/data", "odom": "odom", "joint_command": "joint_command"}
    ours["cmd_vel"] = "cmd_vel"
    remappings = tuple((topic, args[name]) for name, topic in ours.items() if args[name])
    return [_node("policy_node", args, parameters, remappings)]


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


def _node(
    executable: str,
    args: Mapping[str, str],
    parameters: Mapping[str, ParameterValue],
    remappings: tuple[tuple[str, str], ...] = (),
) -> NodeSpec:
    return NodeSpec(
        package="gantry_ros",
        executable=executable,
        name=executable,
        namespace=args["namespace"],
        parameters=dict(parameters),
        config=_existing(args, "config"),
        remappings=remappings,
        environment=_environment(args),
    )


def _policy_parameters(args: Mapping[str, str]) -> dict[str, ParameterValue]:
    for name, suffix in (("record", ".mcap"), ("statistics", ".json")):
        if args[name] and (trouble := output_trouble(args[name], suffix)):
            raise GantryError(f"Argument '{name}': {trouble}.")
    parameters: dict[str, ParameterValue] = {"bundle": _bundle(args)}
    parameters.update(_given(args, "robot", "record", "statistics", "public_key"))
    parameters.update(_schedule(args))
    if args["require_heartbeat"]:
        parameters["safety.require_heartbeat"] = _flag(args, "require_heartbeat")
    return parameters


def _goal(args: Mapping[str, str]) -> dict[str, ParameterValue]:
    parameters = _given(args, "goal")
    if args["goal"]:
        parse_goal(args["goal"])
    if args["goal_timeout"]:
        parameters["goal_timeout_s"] = _number(args, "goal_timeout")
    if _flag(args, "goal_hold"):
        parameters["goal_hold"] = True
    return parameters


def _schedule(args: Mapping[str, str]) -> dict[str, ParameterValue]:
    return {"realtime_priority": _integer(args, "realtime_priority")} if args["realtime_priority"] else {}


def _environment(args: Mapping[str, str]) -> dict[str, str]:
    environment: dict[str, str] = {}
    if args["dds_profile"]:
        environment["FASTRTPS_DEFAULT_PROFILES_FILE"] = str(Path(_existing(args, "dds_profile")).resolve())
    if args["discovery_range"]:
        environment["ROS_AUTOMATIC_DISCOVERY_RANGE"] = args["discovery_range"]
    return environment


def _given(args: Mapping[str, str], *names: str) -> dict[str, ParameterValue]:
    return {name: args[name] for name in names if args[name]}


def _bundle(args: Mapping[str, str]) -> str:
    if not args["bundle"]:
        raise GantryError(f"Argument 'bundle' is missing: bundle:=PATH, a {WHERE}.")
    return str(named_path(args["bundle"]))


def _robot_of(bundle: str) -> str:
    return load_bundle(find_bundle(bundle)).contract.robot


def _existing(args: Mapping[str, str], name: str) -> str:
    if args[name] and not Path(args[name]).is_file():
        raise GantryError(f"Argument '{name}': there is no file {args[name]}.")
    return args[name]


def _flag(args: Mapping[str, str], name: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if args[name].lower() not in values:
        raise GantryError(f"Argument '{name}' is '{args[name]}', expected true or false.")
    return values[args[name].lower()]


def _number(args: Mapping[str, str], name: str) -> float:
    try:
        return float(args[name])
    except ValueError as error:
        raise GantryError(f"Argument '{name}' is '{args[name]}', expected a number.") from error


def _json_object(args: Mapping[str, str], name: str) -> dict[str, ParameterValue]:
    try:
        value = json.loads(args[name] or "{}")
    except ValueError as error:
        raise GantryError(f"Argument '{name}' is no JSON: {error}. It is: {args[name]}") from error
    if not isinstance(value, dict):
        raise GantryError(f"Argument '{name}' is {args[name]}, expected a JSON object.")
    return value


def _integer(args: Mapping[str, str], name: str) -> int:
    try:
        return int(args[name])
    except ValueError as error:
        raise GantryError(f"Argument '{name}' is '{args[name]}', expected an integer.") from error

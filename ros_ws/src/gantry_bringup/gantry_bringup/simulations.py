"""Simulated robots that are started together with a policy, by kind."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gantry_bringup.parts import (
    COMMON_ARGUMENTS,
    SIM_DISCOVERY_RANGE,
    Argument,
    NodeSpec,
    ParameterValue,
    bundle_of,
    check_output,
    contract_of,
    flag,
    given,
    integer,
    json_object,
    make_node,
    number,
    policy_parameters,
    schedule,
)
from gantry_deploy.contract.drive_spec import DriveSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.embodiment import Embodiment
from gantry_deploy.embodiments.registry import embodiment_of_robot
from gantry_deploy.perception.road import needs
from gantry_hardware.backends.registry import check_options
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_ros.nodes.profile import parse_goal, parse_profile
from gantry_ros.simulated.car_faults import FAULT_NAMES, LOST_INPUTS, require_fault

SIMULATOR = "mujoco"
"""Backend of simulated robots, unless asked otherwise."""

SPLITS = ("train", "validation", "test")
"""Of the generated maps that cars drive on."""

SIM_WALK_ARGUMENTS = (
    *COMMON_ARGUMENTS,
    Argument("backend", "", "simulated robot's backend: mujoco or mock"),
    Argument("options", "", 'backend options as JSON, for example {"delay_s": 0.004}'),
    Argument("auto_start", "true", "stand up and start the policy without being asked"),
    Argument("drive", "false", "drive a profile on cmd_vel, then end everything"),
    Argument("profile", "", "profile to drive, 'seconds:vx,vy,yaw_rate; ...'"),
    Argument("require_heartbeat", "", "true: damp when the operator's heartbeat is lost"),
    SIM_DISCOVERY_RANGE,
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

SIM_ARM_ARGUMENTS = (
    *(argument for argument in SIM_WALK_ARGUMENTS if argument.name not in ("profile", "backend", "drive")),
    Argument(
        "task", "", "manipulation task, for example yam-lift; the one that the bundle was trained on if not given"
    ),
    Argument("seed", "", "where the first episode lays its things; the service reset lays out the next one"),
    Argument("robot_statistics", "", "JSON file for simulated against real time at the end"),
    Argument("command_message", "", "joint_trajectory, positions or joint_command; the first if not given"),
    Argument("instruction", "", "first instruction of a policy that is told in words; others on the topic instruction"),
    Argument("gripper_message", "", "with_arm, joint_trajectory or positions; the first if not given"),
    Argument("episodes", "", "run so many, the object laid anew in each, then end everything; needs auto_start:=false"),
    Argument("episode_seconds", "", "longest time under the policy in each, s"),
    Argument(
        "instructions", "", "said to a policy that is told in words, one an episode, in turn, separated by semicolons"
    ),
    Argument("episode_results", "", "JSON file for what came of them"),
)
"""Of ``sim_arm``."""

SIM_DRIVE_ARGUMENTS = (
    *(argument for argument in SIM_WALK_ARGUMENTS if argument.name not in ("profile", "backend", "drive")),
    Argument("task", "", "driving task, for example drive-lane; the one that the bundle was trained on if not given"),
    Argument("split", "test", f"maps of that split: {', '.join(SPLITS)}"),
    Argument("seed", "", "of route and traffic; the service reset begins the next episode"),
    Argument("model", "", "dynamics: kinematic, single-track-grip, drift; the task's if not given"),
    Argument("traffic", "", "true or false; as in the task if not given"),
    Argument("robot_statistics", "", "JSON file for what really happened at the end"),
    Argument("command_message", "", "ackermann (where ackermann_msgs is installed), twist or twist_stamped"),
    Argument("route_end", "end", "at the route's end: end everything, stop the car, or ignore it"),
    Argument("route_end_m", "", "how far before the end of the route that is, m"),
    Argument(
        "fault", "", f"drill: what goes wrong on the way ({', '.join(FAULT_NAMES)}); the car must brake, then all ends"
    ),
    Argument("fault_after_s", "6", "how long the car has been on its way then, s"),
)
"""Of ``sim_drive``."""


def build_sim_walk(args: Mapping[str, str]) -> list[NodeSpec]:
    """A simulated robot, a policy, and on request a scripted operator.

    Raises:
        GantryError: If the bundle is missing, not intact or a car's, or a value does not fit.
    """
    robot = _walker(args)
    if args["options"]:
        check_options(args["backend"] or SIMULATOR, json_object(args, "options"))
    if args["profile"]:
        parse_profile(args["profile"])  # What the operator's node would refuse while the rest is running.
    nodes = [
        make_node("sim_robot_node", args, {"robot": robot, **given(args, "backend", "options"), **schedule(args)}),
        _policy(args),
    ]
    if flag(args, "drive"):
        nodes.append(make_node("operator_node", args, given(args, "profile")))
    return nodes


def build_sim_map_walk(args: Mapping[str, str]) -> list[NodeSpec]:
    """A simulated robot with a depth camera on terrain, mapping, a policy that looks at the map, on request a goal.

    Raises:
        GantryError: If the bundle is missing, not intact or a car's, or a value does not fit.
    """
    robot = _walker(args)
    world: dict[str, ParameterValue] = {"camera": True, "camera_noise": number(args, "camera_noise")}
    if args["terrain"]:
        world |= {"terrain": args["terrain"], "terrain_difficulty": number(args, "terrain_difficulty")}
    check_output(args, "mapping_statistics")
    mapping = {"bundle": bundle_of(args), **given(args, "public_key", "mapping", statistics="mapping_statistics")}
    nodes = [
        make_node("sim_robot_node", args, _simulated(args, robot, SIMULATOR, world)),
        make_node("mapping_node", args, mapping),
        _policy(args),
    ]
    if flag(args, "drive"):
        nodes.append(make_node("operator_node", args, _goal(args)))
    return nodes


def build_sim_arm(args: Mapping[str, str]) -> list[NodeSpec]:
    """A simulated arm at the workbench of a manipulation task, and a policy.

    Raises:
        GantryError: If the bundle is missing, not intact or no arm's, its task is not known, or a value does not fit.
    """
    contract = contract_of(bundle_of(args))
    embodiment = _launched_by("sim_arm", contract.robot)
    world: dict[str, ParameterValue] = {**embodiment.simulated_options(contract), **given(args, "task")}
    if "task" not in world:
        raise GantryError(
            "The bundle does not say what it was trained on; name it with task:=..., for example yam-lift."
        )
    nodes = [
        make_node("sim_robot_node", args, _simulated(args, contract.robot, embodiment.simulated_backend, world)),
        _policy(args, given(args, "command_message", "gripper_message", "instruction")),
    ]
    if args["episodes"]:
        nodes.append(make_node("episode_node", args, _episodes(args)))
    return nodes


def build_sim_drive(args: Mapping[str, str]) -> list[NodeSpec]:
    """A simulated car on the roads of a driving task, and a policy.

    Raises:
        GantryError: If the bundle is missing, not intact or no car's, its task is not known, or a value does not fit.
    """
    contract = contract_of(bundle_of(args))
    embodiment = _launched_by("sim_drive", contract.robot)
    if args["split"] and args["split"] not in SPLITS:
        raise UnknownNameError("split", args["split"], SPLITS)
    world: dict[str, ParameterValue] = embodiment.simulated_options(contract)
    world |= given(args, "task", "split", "model")
    if args["traffic"]:
        world["traffic"] = flag(args, "traffic")
    simulated = _simulated(args, contract.robot, embodiment.simulated_backend, world)
    lidar = contract.body_as(DriveSpec).lidar
    if lidar is not None:
        simulated["scan_range_m"] = lidar.range_max_m
    policy = {**given(args, "command_message", "route_end"), "route_message": "lanes", "steering": "joint_states"}
    if args["route_end_m"]:
        policy["route_end_m"] = number(args, "route_end_m")
    if "road" in needs(contract):
        policy["road_markings"] = True
    if args["fault"]:
        simulated |= _drill(args, contract)
    if args["command_message"] == "twist_stamped":
        simulated["drive_message"] = "twist_stamped"
    return [make_node("sim_car_node", args, simulated), _policy(args, policy)]


def _walker(args: Mapping[str, str]) -> str:
    """The robot that is asked for, or the bundle's; see :func:`_launched_by`."""
    robot = args["robot"] or contract_of(bundle_of(args)).robot
    _launched_by("sim_walk", robot)
    return robot


def _launched_by(launch: str, robot: str) -> Embodiment:
    """The embodiment of a robot; refused if another launch description simulates it."""
    embodiment = embodiment_of_robot(robot_spec(robot))
    if embodiment.launch != launch:
        raise GantryError(f"Robot '{robot}' is {embodiment.noun}; start {embodiment.launch}.")
    return embodiment


def _simulated(
    args: Mapping[str, str], robot: str, backend: str, world: dict[str, ParameterValue]
) -> dict[str, ParameterValue]:
    """Parameters of a simulated robot's node; of its world, what the argument ``options`` says wins."""
    check_output(args, "robot_statistics")
    seed: dict[str, ParameterValue] = {"seed": integer(args, "seed")} if args.get("seed") else {}
    options = {**world, **seed, **json_object(args, "options")}
    check_options(backend, options)
    simulated: dict[str, ParameterValue] = {"robot": args["robot"] or robot, "backend": backend}
    simulated["options"] = json.dumps(options)
    return {**simulated, **schedule(args), **given(args, statistics="robot_statistics")}


def _policy(args: Mapping[str, str], more: Mapping[str, ParameterValue] | None = None) -> NodeSpec:
    parameters = {**policy_parameters(args), **(more or {}), "auto_start": flag(args, "auto_start")}
    return make_node("policy_node", args, parameters)


def _episodes(args: Mapping[str, str]) -> dict[str, ParameterValue]:
    if flag(args, "auto_start"):
        raise GantryError("With 'episodes' an operator starts the policy; give auto_start:=false as well.")
    check_output(args, "episode_results")
    parameters = {"episodes": integer(args, "episodes"), **given(args, "instructions", results="episode_results")}
    if args["episode_seconds"]:
        parameters["seconds"] = number(args, "episode_seconds")
    return parameters


def _drill(args: Mapping[str, str], contract: PolicyContract) -> dict[str, ParameterValue]:
    """A fault that begins on the way."""
    lost, seen = LOST_INPUTS.get(require_fault(args["fault"])), needs(contract)
    if lost is not None and lost not in seen:
        raise GantryError(
            f"Argument 'fault': the policy does without the {lost.replace('_', ' ')}, so that nothing would happen; it "
            f"sees {', '.join(seen) or 'its own motion'}."
        )
    after_s = number(args, "fault_after_s")
    if not after_s > 0.0:
        raise GantryError(f"Argument 'fault_after_s' is {after_s:g}, expected more than 0.")
    return {"fault": args["fault"], "fault_after_s": after_s}


def _goal(args: Mapping[str, str]) -> dict[str, ParameterValue]:
    parameters = given(args, "goal")
    if args["goal"]:
        parse_goal(args["goal"])
    if args["goal_timeout"]:
        parameters["goal_timeout_s"] = number(args, "goal_timeout")
    if flag(args, "goal_hold"):
        parameters["goal_hold"] = True
    return parameters

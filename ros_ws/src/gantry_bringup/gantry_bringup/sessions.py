"""Correction sessions: a person corrects the policy of a simulated or a real robot."""

from __future__ import annotations

from collections.abc import Mapping

from gantry_bringup.parts import (
    COMMON_ARGUMENTS,
    DISCOVERY_RANGE,
    SIM_DISCOVERY_RANGE,
    Argument,
    NodeSpec,
    ParameterValue,
    bundle_of,
    check_output,
    contract_of,
    given,
    integer,
    make_node,
    number,
)
from gantry_bringup.robot_topics import ROBOT_TOPIC_ARGUMENTS, robot_remappings
from gantry_bringup.simulations import SIM_ARM_ARGUMENTS, SIM_WALK_ARGUMENTS, build_sim_arm, build_sim_walk
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_hardware.errors import GantryError

SCENE_RESET = "reset"
"""Service of a simulated robot's node that lays out the scene anew."""
_SHARED = ("namespace", "config", "record", "dds_profile")
_OWN = (
    Argument("bundle", "", "policy bundle; with a learner its run's session-bundle, for robot and axes alone"),
    *(argument for argument in COMMON_ARGUMENTS if argument.name in _SHARED),
    Argument("learner", "", "HOST:PORT of the learner, see gantry train --listen"),
    Argument("identity", "", "name of this actor at the learner (robot)"),
    Argument("certificates", "", "folder of certificates; needed off loopback"),
    Argument("spool", "", "folder of steps that are not sent yet"),
    Argument(
        "device", "ros", "operator's devices: ros (joystick's topic, or a teleop_node), page; with commas between"
    ),
    Argument("device_options", "", "their options, 'map=xbox'; of one of several 'ros.map=xbox'"),
    Argument("teleop", "", "device of this machine that a teleop_node publishes, for example gamepad; needs a bundle"),
    Argument("teleop_options", "", "its options, 'path=/dev/input/js1, map=xbox'"),
    Argument("page", "0", "port of the page on this machine, 0 for a free one, -1 for no page"),
    Argument("dataset", "", "folder of a LeRobot v3 dataset for every attempt"),
    Argument("results", "", "JSON file for the session's counts at the end"),
    Argument("attempts", "", "end after so many"),
    Argument("episode_seconds", "", "length of an attempt, s"),
    Argument("classifier", "", "ONNX file of a reward classifier, which judges success"),
    Argument("command", "", "what to ask of a policy that walks, 'x,y,yaw'"),
)
"""Of both descriptions."""

SIM_SESSION_ARGUMENTS = (
    *_OWN,
    Argument("task", "", "task at which the robot is simulated; the one that the bundle was trained on if not given"),
    Argument("seed", "", "where the first attempt lays its things"),
    Argument("options", "", 'backend options as JSON, for example {"delay_s": 0.004}'),
    SIM_DISCOVERY_RANGE,
)
"""Of ``sim_session``."""

SESSION_ARGUMENTS = (
    *_OWN,
    *ROBOT_TOPIC_ARGUMENTS,
    Argument("scene_reset", "", "Trigger service that lays out the scene between attempts; a person does if not given"),
    Argument("joint_order", "", "strict refuses joint states in another order, by_name sorts them"),
    DISCOVERY_RANGE,
)
"""Of ``session``; a real robot stands up when the session's service ``~/stand`` is called."""

_SIMULATIONS = {
    "sim_arm": (SIM_ARM_ARGUMENTS, build_sim_arm, SCENE_RESET),
    "sim_walk": (SIM_WALK_ARGUMENTS, build_sim_walk, ""),
}
"""Launch description of an embodiment -> arguments and nodes that simulate its robots, and the service that lays out
their scene."""


def build_sim_session(args: Mapping[str, str]) -> list[NodeSpec]:
    """A simulated robot, a session that starts by itself, and on request a device of this machine.

    Raises:
        GantryError: If the bundle is missing, not intact or of a robot without such a session, or a value does not fit.
    """
    embodiment = embodiment_of(contract_of(bundle_of(args)))
    if embodiment.launch not in _SIMULATIONS:
        raise GantryError(
            f"There is no simulated session over ROS 2 for {embodiment.noun}; 'gantry session start' has one."
        )
    arguments, build, scene_reset = _SIMULATIONS[embodiment.launch]
    known = {argument.name: argument.default for argument in arguments}
    passed = {name: value for name, value in args.items() if name in known and name not in ("record", "command")}
    if args["task"] and "task" not in known:
        raise GantryError(f"Argument 'task': {embodiment.noun} is simulated without one; leave it out.")
    simulated, *_ = build({**known, **passed})
    return [simulated, *_session(args, {"auto_start": True, "scene_reset": scene_reset})]


def build_session(args: Mapping[str, str]) -> list[NodeSpec]:
    """A session on a robot whose driver runs already, and on request a device of this machine.

    Raises:
        GantryError: If there is neither bundle nor learner, or a value does not fit.
    """
    own = given(args, "scene_reset", "joint_order", "command_message", "gripper_message")
    return _session(args, own, robot_remappings(args))


def _session(
    args: Mapping[str, str], own: Mapping[str, ParameterValue], remappings: tuple[tuple[str, str], ...] = ()
) -> list[NodeSpec]:
    for name, suffix in (("record", ".mcap"), ("results", ".json")):
        check_output(args, name, suffix)
    texts = ("learner", "identity", "certificates", "spool", "device", "device_options", "dataset", "record", "results")
    parameters: dict[str, ParameterValue] = {**given(args, *texts, "classifier", "command"), **own}
    parameters["page"] = integer(args, "page")
    if not args["learner"]:
        parameters["bundle"] = bundle_of(args)
    if args["attempts"]:
        parameters["attempts"] = integer(args, "attempts")
    if args["episode_seconds"]:
        parameters["episode_s"] = number(args, "episode_seconds")
    nodes = [make_node("session_node", args, parameters, remappings)]
    if args["teleop"]:
        device: dict[str, ParameterValue] = {"bundle": bundle_of(args), "session": "session_node"}
        device |= given(args, device="teleop", device_options="teleop_options")
        nodes.append(make_node("teleop_node", args, device))
    return nodes

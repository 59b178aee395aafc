"""What launch descriptions are made of: nodes, arguments, and how the text of an argument becomes a parameter."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gantry_bringup.config_file import check_config, check_parameters
from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import WHERE, find_bundle, named_path
from gantry_deploy.cli.command import output_trouble
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.process.transports import PROFILE_VARIABLE, RANGE_VARIABLE
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.json_file import parse_json_object

PRIORITIES = range(1, 100)
"""Of SCHED_FIFO in Linux."""
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
DISCOVERY_RANGES = ("LOCALHOST", "OFF", "SUBNET", "SYSTEM_DEFAULT")
"""Values of ROS_AUTOMATIC_DISCOVERY_RANGE; ROS 2 takes any other one for LOCALHOST."""

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
    """Parameters that win over the ones in ``configs``."""
    configs: tuple[str, ...] = ()
    """Paths of ROS parameter files; a later one wins over an earlier one."""
    remappings: tuple[tuple[str, str], ...] = ()
    """Pairs of topic name and the name to use instead."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables to set."""

    @property
    def full_name(self) -> str:
        """Node name with its namespace, for example ``/left/policy_node``."""
        return "/".join(("", *(part for part in self.namespace.split("/") if part), self.name))


@dataclass(frozen=True)
class Argument:
    """One argument of a launch description; all values are text, as in ROS."""

    name: str
    """Name on the command line, ``name:=value``."""
    default: str
    """Value when it is not given; empty for "not given"."""
    text: str
    """What it does."""


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

MANAGED = Argument("managed", "", "true: wait for the transitions of a lifecycle manager")
"""Of descriptions of managed nodes."""
DISCOVERY_RANGE = Argument(
    "discovery_range", "", "discovery range of ROS 2: LOCALHOST, SUBNET; as in the environment if empty"
)
"""Of descriptions for real robots."""
# A simulated robot must never answer, or be answered by, a real one on the same network.
SIM_DISCOVERY_RANGE = replace(DISCOVERY_RANGE, default="LOCALHOST")
"""Of descriptions for simulated robots."""
OF_EVERY_NODE = ("namespace", "config", "dds_profile")
"""Names of those of every node."""


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
            GantryError: If a value, or the parameter file, does not fit.
        """
        defaults = {argument.name: argument.default for argument in self.arguments}
        for name in given:
            if name not in defaults:
                raise UnknownNameError(f"argument of '{self.name}'", name, defaults)
        nodes = self.build({**defaults, **given})
        for path in dict.fromkeys(path for node in nodes for path in node.configs):
            check_config(path, [node.full_name for node in nodes])
        return nodes


def require_parameters(specs: Sequence[NodeSpec]) -> None:
    """Refuse parameter files that the nodes would refuse one by one, some of them long after they have started.

    Raises:
        GantryError: With file, line and name; ROS 2 must be installed.
    """
    for path in dict.fromkeys(path for spec in specs for path in spec.configs):
        check_parameters(path, {spec.full_name: spec.executable for spec in specs if path in spec.configs})


def make_node(
    executable: str,
    args: Mapping[str, str],
    parameters: Mapping[str, ParameterValue],
    remappings: tuple[tuple[str, str], ...] = (),
) -> NodeSpec:
    """A node of ``gantry_ros`` with what every description says of its nodes.

    Raises:
        GantryError: If a file that an argument names does not exist.
    """
    config = existing_file(args, "config")
    return NodeSpec(
        package="gantry_ros",
        executable=executable,
        name=executable,
        namespace=_namespace(args),
        parameters=dict(parameters),
        configs=(config,) if config else (),
        remappings=remappings,
        environment=_environment(args),
    )


def policy_parameters(args: Mapping[str, str]) -> dict[str, ParameterValue]:
    """What every description says of its policy node.

    Raises:
        GantryError: If there is no bundle, a file cannot be written, or a value does not fit.
    """
    for name, suffix in (("record", ".mcap"), ("statistics", ".json")):
        check_output(args, name, suffix)
    parameters: dict[str, ParameterValue] = {"bundle": bundle_of(args)}
    parameters.update(given(args, "robot", "record", "statistics", "public_key"))
    parameters.update(schedule(args))
    if args["require_heartbeat"]:
        parameters["safety.require_heartbeat"] = flag(args, "require_heartbeat")
    return parameters


def schedule(args: Mapping[str, str]) -> dict[str, ParameterValue]:
    """The priority of a loop, where one is given.

    Raises:
        GantryError: If it is none of SCHED_FIFO.
    """
    if not args["realtime_priority"]:
        return {}
    priority = integer(args, "realtime_priority")
    if priority not in PRIORITIES:
        low, high = PRIORITIES.start, PRIORITIES.stop - 1
        raise GantryError(f"Argument 'realtime_priority' is {priority}, expected {low} to {high}.")
    return {"realtime_priority": priority}


def managed(args: Mapping[str, str]) -> dict[str, ParameterValue]:
    """Whether nodes are managed, where it is said.

    Raises:
        GantryError: If the argument is neither true nor false.
    """
    return {"managed": flag(args, "managed")} if args["managed"] else {}


def _environment(args: Mapping[str, str]) -> dict[str, str]:
    environment: dict[str, str] = {}
    if args["dds_profile"]:
        environment[PROFILE_VARIABLE] = str(Path(existing_file(args, "dds_profile")).resolve())
    if args["discovery_range"]:
        if args["discovery_range"] not in DISCOVERY_RANGES:
            raise UnknownNameError("discovery_range", args["discovery_range"], DISCOVERY_RANGES)
        environment[RANGE_VARIABLE] = args["discovery_range"]
    return environment


def given(args: Mapping[str, str], *names: str, **others: str) -> dict[str, ParameterValue]:
    """The named arguments that are given, as parameters of the same names; ``others`` are parameters of other names."""
    same = {name: name for name in names}
    return {name: args[argument] for name, argument in {**same, **others}.items() if args[argument]}


def check_output(args: Mapping[str, str], name: str, suffix: str = ".json") -> None:
    """Refuse an argument that names a file which cannot be written, before all runs for nothing.

    Raises:
        GantryError: With what is wrong with it.
    """
    if args[name] and (trouble := output_trouble(args[name], suffix)):
        raise GantryError(f"Argument '{name}': {trouble}.")


def bundle_of(args: Mapping[str, str]) -> str:
    """Path of the bundle.

    Raises:
        GantryError: If none is named.
    """
    if not args["bundle"]:
        raise GantryError(f"Argument 'bundle' is missing: bundle:=PATH, a {WHERE}.")
    return str(named_path(args["bundle"]))


def contract_of(bundle: str) -> PolicyContract:
    """The contract of a bundle, which is verified.

    Raises:
        GantryError: If there is no intact bundle.
    """
    return load_bundle(find_bundle(bundle)).contract


def _namespace(args: Mapping[str, str]) -> str:
    name = args["namespace"]
    if name.strip("/") and not all(_NAME.fullmatch(part) and "__" not in part for part in name.strip("/").split("/")):
        raise GantryError(
            f"Argument 'namespace' is '{name}', expected parts of letters, digits and single underscores, with slashes "
            "between them; none begins with a digit."
        )
    return name


def existing_file(args: Mapping[str, str], name: str) -> str:
    """An argument that names a file; empty if it is not given.

    Raises:
        GantryError: If there is no such file.
    """
    if args[name] and not Path(args[name]).is_file():
        raise GantryError(f"Argument '{name}': there is no file {args[name]}.")
    return args[name]


def flag(args: Mapping[str, str], name: str) -> bool:
    """An argument that is true or false.

    Raises:
        GantryError: If it is neither.
    """
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if args[name].lower() not in values:
        raise GantryError(f"Argument '{name}' is '{args[name]}', expected true or false.")
    return values[args[name].lower()]


def number(args: Mapping[str, str], name: str) -> float:
    """An argument that is a number.

    Raises:
        GantryError: If it is none.
    """
    try:
        return float(args[name])
    except ValueError as error:
        raise GantryError(f"Argument '{name}' is '{args[name]}', expected a number.") from error


def integer(args: Mapping[str, str], name: str) -> int:
    """An argument that is a whole number.

    Raises:
        GantryError: If it is none.
    """
    try:
        return int(args[name])
    except ValueError as error:
        raise GantryError(f"Argument '{name}' is '{args[name]}', expected an integer.") from error


def json_object(args: Mapping[str, str], name: str) -> dict[str, ParameterValue]:
    """An argument that is a JSON object; an empty one if it is not given.

    Raises:
        GantryError: If it is none.
    """
    return parse_json_object(args[name] or "{}", f"Argument '{name}'", error=GantryError)

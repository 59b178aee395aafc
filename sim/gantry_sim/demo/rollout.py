"""One recorded rollout of a policy: its plan, its run in this process, and how it went."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import FaultCode, Mode, SafetyConfig, SafetyMachine
from gantry_deploy.control.supervised_run import CommandProfile, WalkSession
from gantry_deploy.errors import SafetyError
from gantry_deploy.perception.maps import make_map_source, map_values
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.reader import read_recording
from gantry_deploy.recording.recorder import Recorder
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import read_json_object
from gantry_hardware.files.whole_files import write_whole_json
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec

RECORDING, LOG, PARAMETERS = "walk.mcap", "nodes.log", "nodes.yaml"
"""Files of a rollout in its folder."""
LOOP, ROBOT, MAPPING, TRIALS = "loop.json", "robot.json", "mapping.json", "trials.json"
"""Statistics of loop, simulated robot and mapping beside them, and the results of episodes."""
ATTEMPTS = 2
"""Number of times that a rollout is begun; a small machine that does other things as well can be too busy for the
safety limits."""
MAX_STATISTICS_BYTES = 2**26
"""Largest file of statistics that is read."""
BUSY = (FaultCode.NO_STATE.value, FaultCode.STALE_STATE.value, FaultCode.MISSED_DEADLINES.value)
"""Faults of the clock, which on a simulated robot tell of a busy machine and nothing of the policy."""
PATIENCE = {"policy_node": {"connect_timeout_s": 90.0}, "operator_node": {"wait_s": 90.0}}
"""Parameters of nodes that wait for one another while all of them load; no limit of the robot is among them."""

Say = Callable[[str], None]
"""Takes a line for people."""


@dataclass(frozen=True)
class Plan:
    """One rollout to record."""

    bundle: Path
    """The policy."""
    folder: Path
    """Folder that gets recording, log and statistics."""
    launch: str
    """Name of the launch description for ROS 2."""
    arguments: Mapping[str, Any]
    """Its arguments beside the bundle and the files that every description can write."""
    done: str
    """Message of the operator's node at its end."""
    seconds: float
    """Longest time from the first command to the end."""
    make_robot: Callable[[RobotSpec, bool], Robot]
    """Make the simulated robot for a rollout in this process, given whether it follows the clock."""
    operate: Callable[[Controller, Robot, Say], bool]
    """Play the operator in this process; true if all was completed."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Further arguments that name files in the folder."""
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: PATIENCE)
    """Parameters by node name, beside the defaults."""
    safety: SafetyConfig = field(default_factory=SafetyConfig)
    """Limits of the loop in this process."""
    routine: tuple[str, ...] = ()
    """Ends of messages that are for the log alone."""
    paced: bool = True
    """Whether a rollout in this process follows the clock at first."""


@dataclass(frozen=True)
class Rollout:
    """Outcome of a rollout, beside what its recording shows."""

    over_ros: bool
    """Whether robot and policy were ROS 2 nodes in processes of their own."""
    recording: Path
    """MCAP file; missing if the policy never ran."""
    completed: bool
    """Whether all of it was done."""
    trouble: str = ""
    """Reason for which it was not; empty if it was."""
    domain: str = ""
    """DDS domain; empty without ROS."""
    earlier: tuple[str, ...] = ()
    """Reasons for which earlier attempts ended; empty if this was the first."""
    late: bool = False
    """Whether only the clock may be at fault: the nodes were still at it when their time was over, or robot or policy
    was refused its start, as they are too when states come late."""
    paced: bool = True
    """Whether the loop followed the clock; its times between turns mean nothing where it did not."""

    @property
    def where(self) -> str:
        """Over what it was recorded, in words."""
        return "over ROS 2" if self.over_ros else "in one process"


def in_process(plan: Plan, say: Say, *, realtime: bool = True) -> Rollout:
    """Run the robot's own loop on the simulated robot, without ROS.

    Args:
        plan: What to record.
        say: Takes lines for people.
        realtime: Follow the clock, so that the loop's timing means something; else run as fast as possible, as every
            attempt after the first does: a machine that is too busy for the clock has shown it.
    """
    loaded = load_bundle(plan.bundle)
    contract, spec = loaded.contract, robot_spec(loaded.contract.robot)

    def attempt(number: int) -> Rollout:
        clear(plan)
        paced = realtime and plan.paced and number == 0
        completed, refusal, path = False, "", plan.folder / RECORDING
        with contextlib.ExitStack() as stack:
            runner = PolicyRunner(loaded, spec)
            robot = plan.make_robot(spec, paced)
            stack.callback(robot.close)
            maps = make_map_source(contract, robot, runner.mapper_model)
            recorder = Recorder(path, contract, spec, lossless=not paced, map_source=maps)
            stack.callback(recorder.close)
            robot.connect()
            controller = Controller(robot, runner, SafetyMachine(spec, plan.safety), recorder, map_source=maps)
            try:
                completed = plan.operate(controller, robot, lambda text: say(f"  {text}"))
            except SafetyError as error:
                refusal = str(error)
        mapping = {} if maps is None else {"map": map_values(maps)}
        write_whole_json(plan.folder / LOOP, controller.statistics() | mapping)
        fault = controller.safety.fault
        trouble = "" if completed else refusal or (fault.text if fault is not None else "the policy stopped")
        trouble = trouble or recorder.failure or ""
        return Rollout(False, path, not trouble, trouble, paced=paced, late=bool(refusal))

    return repeated(attempt, say)


def session(controller: Controller, command: CommandProfile | None, seconds: float, say: Say) -> bool:
    """Stand up, run the policy, stand and damp; true if the whole time was completed.

    Args:
        controller: With a policy and a connected robot.
        command: From the time under the policy in s to a command (c,); None leaves that to the controller's goal.
        seconds: Time under the policy.
        say: Takes lines for people.

    Raises:
        SafetyError: If the robot may not stand up, or the policy not start.
    """
    run = WalkSession(controller, command, seconds, say)
    run.run()
    return run.completed


def clear(plan: Plan) -> None:
    """Remove what an earlier attempt left."""
    for name in (RECORDING, LOOP, ROBOT, MAPPING, TRIALS):
        (plan.folder / name).unlink(missing_ok=True)


def repeated(attempt: Callable[[int], Rollout], say: Say) -> Rollout:
    """Begin once more while only the clock was at fault.

    Args:
        attempt: One rollout, given how many came before it.
        say: Takes lines for people.
    """
    earlier: list[str] = []
    while True:
        found = attempt(len(earlier))
        busy = found.paced and (found.late or _fault_code(found.recording) in BUSY)
        if found.completed or len(earlier) + 1 == ATTEMPTS or not busy:
            return replace(found, earlier=tuple(earlier))
        earlier.append(found.trouble)
        say(f"  {found.trouble} This machine is busy: attempt {len(earlier) + 1} of {ATTEMPTS}.")


def kept_from_time(rollout: Rollout) -> bool:
    """Whether the machine was too busy for the robot's clock: an attempt ended by it, or turns of the loop were missed.

    Such a rollout tells of the machine. What it tells of the policy is found by one more without the clock.
    """
    if not rollout.over_ros:
        return False
    if rollout.earlier or rollout.late or _fault_code(rollout.recording) in BUSY:
        return True
    loop = read_statistics(rollout.recording.parent / LOOP) or {}
    return loop.get("missed_deadlines", 0) > 0


def read_statistics(path: Path) -> dict[str, Any] | None:
    """Numbers that a node or the loop left; None if there are none."""
    try:
        return read_json_object(path, max_bytes=MAX_STATISTICS_BYTES, allow_nan=True)
    except (OSError, ValueError):
        return None


def _fault_code(recording: Path) -> str:
    """Code of the fault that damped the robot; empty if none did, or if there is no recording."""
    try:
        status = read_recording(recording).topics["/gantry/status"]
    except (GantryError, KeyError):
        return ""
    return next((str(code) for code in status["fault_code"][status["mode"] == Mode.DAMP.value]), "")

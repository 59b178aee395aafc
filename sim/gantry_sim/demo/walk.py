"""The walk that a demo records: over ROS 2 as processes of their own, or in this process where there is no ROS 2."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.session import WalkSession
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import FaultCode, Mode, SafetyMachine
from gantry_deploy.errors import SafetyError
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.process.domains import free_domain
from gantry_deploy.process.interrupts import starting_uninterrupted
from gantry_deploy.process.with_parent import ending_with_this
from gantry_deploy.recording.reader import read_recording
from gantry_deploy.recording.recorder import LOST_RECORDING, Recorder
from gantry_hardware.errors import GantryError
from gantry_hardware.json_file import read_json_object
from gantry_hardware.robots import robot_spec
from gantry_hardware.whole_files import write_whole_json
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.demo.profile import Profile, as_text, command_at, total_s

RECORDING, LOG, STATISTICS, SETUP = "walk.mcap", "nodes.log", "loop.json", "nodes.yaml"
"""Files of a walk in its folder."""
ATTEMPTS = 2
"""Number of times that a walk is begun; a small machine that does other things as well can be too busy for the safety
limits.
"""
PATIENCE = {"policy_node": {"connect_timeout_s": 90.0}, "operator_node": {"wait_s": 90.0}}
"""Parameters of nodes that wait for one another while all of them load; no limit of the robot is among them."""
BUSY = (FaultCode.NO_STATE.value, FaultCode.STALE_STATE.value, FaultCode.MISSED_DEADLINES.value)
"""Faults of the clock, which on a simulated robot tell of a busy machine and nothing of the policy."""
START_TIMEOUT_S = 240.0
"""Time that the nodes may take beside the profile itself."""
STOP_TIMEOUT_S = 25.0
"""Time that the nodes may take to end once they are asked to."""
DAMPED, DONE = "Mode DAMP", "Profile done."
"""Messages of the nodes when the policy gives up, and when the operator is through."""
LAST_WORDS = "stopping the rest"
"""End of the line of ``gantry launch`` about a node that has ended; why it did is in the line before."""
NOBODY = "(0 publishers)"
"""In what the policy's node says when it has found no robot."""
ALONE = (
    " Nodes on one machine find each other over its loopback interface, by multicast: a container, a sandbox or a "
    "firewall may forbid that."
)
"""Advice for this case."""
WITHOUT = " The demo goes without ROS 2 with --no-ros."
"""Advice for a demo of velocities."""
UNPACED = " This one did not wait for the clock, so the times between its turns are not those of a robot."

_ROS_STAMP = re.compile(r"\[(INFO|WARN|ERROR|FATAL)\] \[[\d.]+\] \[[\w./]+\]: ")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Walk:
    """Outcome of a walk, beside what its recording shows."""

    over_ros: bool
    """Whether robot and policy were ROS 2 nodes in processes of their own."""
    recording: Path
    """MCAP file; missing if the policy never ran."""
    completed: bool
    """Whether the whole profile was driven."""
    trouble: str = ""
    """Reason for which it was not; empty if it was."""
    domain: str = ""
    """DDS domain; empty without ROS."""
    earlier: tuple[str, ...] = ()
    """Reasons for which earlier attempts ended; empty if this was the first."""
    timed_out: bool = False
    """Whether the nodes were still at it when their time was over."""
    paced: bool = True
    """Whether the loop followed the clock; its times between turns mean nothing where it did not."""
    refused: bool = False
    """Whether robot or policy was refused its start, as they are too when states come late."""


def ros_trouble() -> str:
    """Reason for which the walk cannot be over ROS 2 here; empty if it can."""
    if importlib.util.find_spec("rclpy") is None:
        return "ROS 2 is not installed in this Python (no rclpy; the extra 'ros' brings it)"
    if importlib.util.find_spec("gantry_bringup") is None:
        return "gantry_bringup is not installed"
    return ""


def walk_over_ros(bundle: Path, profile: Profile, folder: Path, say: Say) -> Walk:
    """Robot, policy and scripted operator as processes, from the same description as ``gantry launch sim_walk``.

    Args:
        bundle: The policy.
        profile: What the operator drives.
        folder: Gets recording, log and loop statistics.
        say: Takes lines for people.

    Returns:
        How it went. Every process that this started is gone, also when an exception leaves this function.
    """
    write_setup(folder / SETUP, PATIENCE)
    arguments = {
        "bundle": bundle.resolve(),
        "record": (folder / RECORDING).resolve(),
        "statistics": (folder / STATISTICS).resolve(),
        "config": (folder / SETUP).resolve(),
        "drive": "true",
        "profile": as_text(profile),
    }
    return launched("sim_walk", lambda attempt: arguments, folder, say, START_TIMEOUT_S + total_s(profile), DONE)


def launched(
    name: str, arguments: Callable[[int], Mapping[str, Any]], folder: Path, say: Say, limit_s: float, done: str
) -> Walk:
    """Processes of ``gantry launch``, until the operator is through, the policy ends, or time is over.

    Args:
        name: Of the launch description.
        arguments: Its arguments for each attempt, counted from 0; ``record`` is :data:`RECORDING` in ``folder``.
        folder: Gets the log.
        say: Takes lines for people.
        limit_s: How long it may take.
        done: What the operator says when it is through.

    Returns:
        How it went. Every process that this started is gone, also when an exception leaves this function.
    """
    domain = os.environ.get("ROS_DOMAIN_ID") or str(free_domain())

    def attempt(number: int) -> Walk:
        command = [sys.executable, "-m", "gantry_deploy.cli.entry", "launch", name]
        command += [f"{key}:={value}" for key, value in arguments(number).items()]
        heard = _Heard(done)
        with (folder / LOG).open("w", encoding="utf-8") as log, _nodes(command, domain) as lines:
            heard.listen(lines, log, say, limit_s)
        hint = (ALONE + WITHOUT * (done == DONE)) if NOBODY in heard.trouble else ""
        return Walk(True, folder / RECORDING, heard.completed, heard.trouble + hint, domain, timed_out=heard.timed_out)

    return repeated(attempt, say)


def write_setup(path: Path, nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a ROS parameter file: parameters by node name."""
    setup = {f"/**/{name}": {"ros__parameters": values} for name, values in nodes.items()}
    write_whole_json(path, setup)  # JSON is YAML.


def kept_from_time(walk: Walk) -> bool:
    """Whether the machine was too busy for the robot's clock: an attempt ended by it, or turns of the loop were missed.

    Such a walk tells of the machine. What it tells of the policy is found by walking once more without the clock.
    """
    if not walk.over_ros:
        return False
    if walk.earlier or walk.timed_out or _fault_code(walk.recording) in BUSY:
        return True
    try:
        return read_json_object(walk.recording.parent / STATISTICS)["missed_deadlines"] > 0
    except (OSError, ValueError, KeyError, TypeError):
        return False


def without_clock(walk: Walk, over_ros: Walk, reason: str) -> Walk:
    """A walk in this process with what kept it from being shown over ROS 2 among its earlier attempts."""
    return replace(walk, earlier=(*over_ros.earlier, over_ros.trouble or reason, *walk.earlier))


def walk_in_process(bundle: Path, profile: Profile, folder: Path, say: Say, *, realtime: bool = True) -> Walk:
    """The same profile through the same loop on the MuJoCo robot, without ROS.

    Args:
        bundle: The policy.
        profile: What the operator drives.
        folder: Gets the recording and loop statistics.
        say: Takes lines for people.
        realtime: Follow the clock, so that the loop's timing means something; else run as fast as possible, as every
            attempt after the first does: a machine that is too busy for the clock has shown it.
    """
    loaded = load_bundle(bundle)
    spec = robot_spec(loaded.contract.robot)

    def attempt(number: int) -> Walk:
        paced = realtime and number == 0
        with contextlib.ExitStack() as stack:
            robot = MujocoRobot(spec, realtime=paced, visuals=False)
            stack.callback(robot.close)
            recorder = Recorder(folder / RECORDING, loaded.contract, spec, lossless=not paced)
            stack.callback(recorder.close)
            runner = PolicyRunner(loaded, spec)
            robot.connect()
            controller = Controller(robot, runner, SafetyMachine(spec), recorder)
            session = WalkSession(controller, partial(command_at, profile), total_s(profile), _indent(say))
            refusal = ""
            try:
                session.run()
            except SafetyError as error:
                refusal = str(error)
        write_whole_json(folder / STATISTICS, controller.statistics())
        fault = controller.safety.fault
        trouble = "" if session.completed else refusal or (fault.text if fault is not None else "the policy stopped")
        trouble = trouble or recorder.failure or ""
        return Walk(False, folder / RECORDING, not trouble, trouble, paced=paced, refused=bool(refusal))

    return repeated(attempt, say)


def repeated(attempt: Callable[[int], Walk], say: Say) -> Walk:
    """Walk once more while only the clock was at fault.

    Args:
        attempt: One walk, given how many came before it.
        say: Takes lines for people.
    """
    earlier: list[str] = []
    while True:
        walk = attempt(len(earlier))
        busy = walk.paced and (walk.refused or walk.timed_out or _fault_code(walk.recording) in BUSY)
        if walk.completed or len(earlier) + 1 == ATTEMPTS or not busy:
            return replace(walk, earlier=tuple(earlier))
        earlier.append(walk.trouble)
        say(f"  {walk.trouble} This machine is busy: attempt {len(earlier) + 1} of {ATTEMPTS}.")


def _fault_code(recording: Path) -> str:
    """Code of the fault that damped the robot; empty if none did, or if there is no recording."""
    try:
        status = read_recording(recording).topics["/gantry/status"]
    except (GantryError, KeyError):
        return ""
    return next((str(code) for code in status["fault_code"][status["mode"] == Mode.DAMP.value]), "")


class _Heard:
    """Follows what the nodes say."""

    def __init__(self, done: str) -> None:
        self.completed = False
        self.timed_out = False
        self.trouble = ""
        self._done = done
        self._last = ""

    def listen(self, lines: queue.Queue[str | None], log: Any, say: Say, limit_s: float) -> None:
        """Until the nodes have ended, or the time is over."""
        deadline_s = time.monotonic() + limit_s
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                self.timed_out = not self.completed
                self.trouble = self.trouble or f"the nodes were still at it after {limit_s:.0f} s"
                return
            if line is None:
                break
            log.write(line + "\n")
            self._take(line, say)
        if not self.completed and not self.trouble:
            self.trouble = f"the nodes ended early: {self._last or 'they said nothing'}"

    def _take(self, line: str, say: Say) -> None:
        node, _, text = line.partition("|")
        told = _ROS_STAMP.search(text) is not None
        text = _ROS_STAMP.sub("", text).strip()
        if text and not text.endswith(LAST_WORDS):
            self._last = text
        done = text == self._done
        self.completed = self.completed or (done and not self.trouble)
        if DAMPED in line and not self.completed:
            self.trouble = self.trouble or text.removeprefix(f"{DAMPED}: ")
        if LOST_RECORDING in text:  # Of which the scores and the film are made.
            self.completed, self.trouble = False, self.trouble or text
        # What follows the end of the profile is the stopping of the nodes, which is for the log alone.
        if told and (done or not self.completed):
            say(f"  {node.strip():<14} {text}")


@contextlib.contextmanager
def _nodes(command: list[str], domain: str) -> Iterator[queue.Queue[str | None]]:
    """Run ``gantry launch`` and yield its lines, None at their end; whatever happens, it is gone afterwards."""
    with starting_uninterrupted():
        process = subprocess.Popen(
            ending_with_this(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "ROS_DOMAIN_ID": domain},
            # Ctrl-C reaches this process alone, which then ends the launch, and that its nodes.
            start_new_session=True,
        )
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read_lines, args=(process, lines), daemon=True)
    reader.start()
    try:
        yield lines
    finally:
        with _uninterrupted():
            _end(process)
            reader.join(STOP_TIMEOUT_S)


def _read_lines(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.rstrip())
    lines.put(None)


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not interrupt the clearing up, or processes would stay behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _indent(say: Say) -> Say:
    return lambda text: say(f"  {text}")

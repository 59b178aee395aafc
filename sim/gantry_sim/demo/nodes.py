"""A rollout over ROS 2: robot, policy and operator as processes of ``gantry launch``."""

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
from collections.abc import Iterator
from typing import IO

from gantry_deploy.control.safety import Mode
from gantry_deploy.process.domains import free_domain
from gantry_deploy.process.interrupts import starting_uninterrupted
from gantry_deploy.process.with_parent import ending_with_this
from gantry_deploy.recording.recorder import LOST_RECORDING
from gantry_hardware.whole_files import write_whole_json
from gantry_sim.demo.rollout import LOG, LOOP, PARAMETERS, RECORDING, Plan, Rollout, Say, clear, repeated

START_TIMEOUT_S = 240.0
"""Time that the nodes may take beside the rollout itself."""
STOP_TIMEOUT_S = 25.0
"""Time that the nodes may take to end once they are asked to."""
DAMPED = f"Mode {Mode.DAMP.value}"
"""Message of the policy's node when it gives up."""
STOPPING = "stopping the rest"
"""End of the line of ``gantry launch`` about a node that has ended; the reason is in the line before."""
NOT_FOUND = "(0 publishers)"
"""Part of the message of the policy's node when it has found no robot."""
ADVICE = (
    " Nodes on one machine find each other over its loopback interface, by multicast: a container, a sandbox or a "
    "firewall may forbid that. The demo goes without ROS 2 with --no-ros."
)
"""Advice for this case."""

_ROS_STAMP = re.compile(r"\[(INFO|WARN|ERROR|FATAL)\] \[[\d.]+\] \[[\w./]+\]: ")


def ros_trouble() -> str:
    """Reason for which a rollout cannot be over ROS 2 here; empty if it can."""
    if importlib.util.find_spec("rclpy") is None:
        return "ROS 2 is not installed in this Python (no rclpy; the extra 'ros' brings it)"
    if importlib.util.find_spec("gantry_bringup") is None:
        return "gantry_bringup is not installed"
    return ""


def over_ros(plan: Plan, say: Say) -> Rollout:
    """Run the processes of a launch description until the operator is through, the policy ends, or time is over.

    Args:
        plan: What to record.
        say: Takes lines for people.

    Returns:
        How it went. Every process that this started is gone, also when an exception leaves this function.
    """
    folder = plan.folder
    given = {f"/**/{name}": {"ros__parameters": values} for name, values in plan.parameters.items()}
    write_whole_json(folder / PARAMETERS, given)  # JSON is YAML.
    files = {"record": RECORDING, "statistics": LOOP, "config": PARAMETERS, **plan.outputs}
    arguments = {"bundle": plan.bundle.resolve(), **plan.arguments}
    arguments |= {name: (folder / file).resolve() for name, file in files.items()}
    command = [sys.executable, "-m", "gantry_deploy.cli.entry", "launch", plan.launch]
    command += [f"{name}:={value}" for name, value in arguments.items()]
    domain = os.environ.get("ROS_DOMAIN_ID") or str(free_domain())

    def attempt(number: int) -> Rollout:
        clear(plan)
        heard = _Heard(plan)
        with (folder / LOG).open("w", encoding="utf-8") as log, _nodes(command, domain) as lines:
            heard.listen(lines, log, say, START_TIMEOUT_S + plan.seconds)
        trouble = heard.trouble + ADVICE * (NOT_FOUND in heard.trouble)
        return Rollout(True, folder / RECORDING, heard.completed, trouble, domain, timed_out=heard.timed_out)

    return repeated(attempt, say)


class _Heard:
    """Follows what the nodes say."""

    def __init__(self, plan: Plan) -> None:
        self.completed = False
        self.timed_out = False
        self.trouble = ""
        self._plan = plan
        self._last = ""

    def listen(self, lines: queue.Queue[str | None], log: IO[str], say: Say, limit_s: float) -> None:
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
        if text and not text.endswith(STOPPING):
            self._last = text
        done = text == self._plan.done
        self.completed = self.completed or (done and not self.trouble)
        if DAMPED in line and not self.completed:
            self.trouble = self.trouble or text.removeprefix(f"{DAMPED}: ")
        if LOST_RECORDING in text:  # Of which the scores and the film are made.
            self.completed, self.trouble = False, self.trouble or text
        # What follows the end of the profile is the stopping of the nodes, which is for the log alone.
        if told and (done or not self.completed) and not text.endswith(self._plan.routine):
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

"""A rollout over ROS 2: robot, policy and operator as processes of ``gantry launch``."""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import time
from typing import IO

from gantry_deploy.control.safety import Mode
from gantry_deploy.process.domains import free_domain
from gantry_deploy.process.launched import launched
from gantry_deploy.recording.recorder import LOST_RECORDING
from gantry_hardware.files.whole_files import write_whole_json
from gantry_sim.demo.rollout import LOG, LOOP, PARAMETERS, RECORDING, Plan, Rollout, Say, clear, repeated

START_TIMEOUT_S = 240.0
"""Time that the nodes may take beside the rollout itself."""
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
    domain = os.environ.get("ROS_DOMAIN_ID") or str(free_domain())

    def attempt(number: int) -> Rollout:
        clear(plan)
        heard, nodes = _Heard(plan), launched(plan.launch, arguments, {**os.environ, "ROS_DOMAIN_ID": domain})
        with (folder / LOG).open("w", encoding="utf-8") as log, nodes as lines:
            heard.listen(lines, log, say, START_TIMEOUT_S + plan.seconds)
        trouble = heard.trouble + ADVICE * (NOT_FOUND in heard.trouble)
        return Rollout(True, folder / RECORDING, heard.completed, trouble, domain, late=heard.timed_out)

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

"""A scripted operator of a simulated arm: lays the object anew, lets the policy do its task, stops it, and counts.

For each episode it asks the robot's node for a reset, the policy's node to stand, to start and to stop, and takes the
robot's word for whether the task is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.client import Client
from std_msgs.msg import Empty, String
from std_srvs.srv import Trigger

from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import LINE_LIMIT, printable
from gantry_ros.convert import robot as convert
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter, ask, stop_on_signals, write_json

NAME = "episode_node"

PARAMETERS = (
    Parameter("episodes", 10, "How many."),
    Parameter("seconds", 5.0, "Longest time under the policy in each, s."),
    Parameter("hold_s", 0.7, "The arm is held so long after each, s."),
    Parameter(
        "instructions",
        "",
        "Said to a policy that is told in words, one an episode, in turn, separated by semicolons; empty: what the "
        "simulated arm's task asks for.",
    ),
    Parameter("results", "", "Path of a JSON file for what came of them; empty for none."),
    Parameter("policy_node", "policy_node", "Name of the policy node, in this node's namespace."),
    Parameter("robot_node", "sim_robot_node", "Name of the simulated robot's node, in this node's namespace."),
    Parameter("rate_hz", 50.0, "How often it looks, and sends a heartbeat, Hz."),
    Parameter("wait_s", 60.0, "How long to wait for both nodes, and for each of their steps, s."),
)
"""Every parameter of this node."""

FOLLOWED, ASKED = "instruction", "task instruction"
"""Diagnostics of the policy node and of the simulated arm: the sentence that is followed, and the one of the task."""
SETTLE_S = 0.2
"""A report this long after a reset tells of the episode that was laid by it."""
DAMPED = "DAMP"
"""Mode of a policy node that has given up."""
SILENCE_S = 2.0
"""Without diagnostics for this long a node counts as gone."""
WAIT_S = 5.0
"""Time after which it is logged what the node waits for."""
SERVICE_TIMEOUT_S = 5.0
"""Time that an answer may take."""
RETRY_S = 0.1
"""Time between two requests of which the first was refused."""


@dataclass(frozen=True)
class Trial:
    """Result of one episode."""

    done: bool
    """Whether the task was done."""
    done_s: float | None
    """Time of the end on this machine's monotonic clock, which is also that of the policy's recording; None if
    never.
    """
    reason: str
    """Reason for another end; empty if it was done."""


class PolicyLost(GantryError):  # noqa: N818 - it is news and no mistake
    """The policy has left its mode by itself."""


class EpisodeNode:
    """Sees episodes through.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.

    Raises:
        GantryError: If a number makes no sense.
    """

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        for name, least in (("episodes", 1), ("seconds", 0.1), ("rate_hz", 1.0), ("hold_s", 0.0)):
            if not values[name] >= least:
                raise GantryError(f"Parameter '{name}' is {values[name]}, expected {least} or more.")
        self._host, self._values = host, values
        self._period_s = 1.0 / values["rate_hz"]
        self._heard: dict[str, tuple[dict[str, str], float]] = {}
        self._waiting = host.wait_reason("Waiting", settle_s=WAIT_S)
        self._refusal = ""
        self._instructions = [text for part in values["instructions"].split(";") if (text := part.strip())]
        node, policy = host.node, values["policy_node"]
        self._beat = node.create_publisher(Empty, topics.HEARTBEAT, topics.OPERATOR_QOS)
        node.create_subscription(DiagnosticArray, topics.DIAGNOSTICS, self._on_diagnostics, topics.REPORT_QOS)
        self._told = node.create_publisher(String, topics.INSTRUCTION, topics.OPERATOR_QOS)
        self._clients: dict[str, Client] = {"reset": node.create_client(Trigger, "reset")}
        for event in ("stand", "start", "stop"):
            self._clients[event] = node.create_client(Trigger, f"{policy}/{event}")

    def run(self) -> int:
        """All episodes.

        Returns:
            0 once all were seen through, whatever came of them; 1 if the policy gave up in one, which ends the rest.

        Raises:
            GantryError: If the nodes are not there, or do not do what they are asked.
        """
        total, trials = self._values["episodes"], []
        self._wait(lambda: self._mode() != "" and self._robot() is not None, "both nodes")
        while len(trials) < total and not self._host.stop.is_set():
            try:
                trials.append(self._episode(len(trials)))
            except PolicyLost as lost:
                trials.append(Trial(False, None, str(lost)))
            trial = trials[-1]
            text = "done" if trial.done else trial.reason
            self._host.node.get_logger().info(f"Episode {len(trials)} of {total}: {text}.")
            if self._values["results"]:
                write_json(self._values["results"], {"episodes": [asdict(item) for item in trials]}, "results")
            if self._mode() == DAMPED:
                return 1
        if not self._host.stop.is_set():
            self._host.node.get_logger().info("Done.")
        return 0

    def _episode(self, number: int) -> Trial:
        self._bring_to("PASSIVE", "stop")
        self._ask("reset")
        self._instruct(number, time.monotonic())
        self._bring_to("STAND", "stand")
        self._bring_to("POLICY", "start")
        trial = self._watch()
        self._ask("stop")
        self._host.stop.wait(self._values["hold_s"])
        return trial

    def _instruct(self, number: int, reset_s: float) -> None:
        """Tell a policy that takes instructions what to do, until it follows."""
        if FOLLOWED not in self._heard.get(self._values["policy_node"], ({}, 0.0))[0]:
            return
        text = self._instructions[number % len(self._instructions)] if self._instructions else ""

        def asked() -> str:
            """Instruction of the task as it is now laid; empty before it is told."""
            values, heard_s = self._robot() or ({}, 0.0)
            return values.get(ASKED, "") if heard_s > reset_s + SETTLE_S else ""

        self._wait(lambda: asked() != "", "what the simulated arm's task asks for")
        text = text or asked()

        def follows() -> bool:
            self._told.publish(String(data=text))
            values = self._heard[self._values["policy_node"]][0]
            return values.get(FOLLOWED) == printable(text, LINE_LIMIT)

        self._wait(follows, f"the policy to follow '{text}'")
        self._host.node.get_logger().info(f"Told: {text}")

    def _watch(self) -> Trial:
        """Until the task is done, or time is over."""
        begin_s = time.monotonic()
        while not self._host.stop.is_set():
            self._beat.publish(Empty())
            if (mode := self._mode()) != "POLICY":
                raise PolicyLost(self._because() or f"the policy left for {mode}")
            found = self._robot()
            if found is not None and found[1] > begin_s and found[0].get("task done") == "True":
                return Trial(True, found[1], "")
            if time.monotonic() - begin_s > self._values["seconds"]:
                return Trial(False, None, f"not done within {self._values['seconds']:g} s")
            self._host.stop.wait(self._period_s)
        return Trial(False, None, "it was broken off")

    def _bring_to(self, mode: str, event: str) -> None:
        """Ask until the policy node is in a mode; what the present one does not grant is asked again."""

        def there() -> bool:
            if self._mode() == DAMPED:
                raise PolicyLost(self._because() or "the arm was damped")
            if self._mode() == mode:
                return True
            self._ask(event)
            self._host.stop.wait(RETRY_S)
            return self._mode() == mode

        self._wait(there, f"mode {mode}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + self._values["wait_s"]
        while not condition() and not self._host.stop.is_set():
            state = self._state()
            self._waiting.note(f"for {what}; {state}.")
            if time.monotonic() > deadline_s:
                raise GantryError(f"Waited {self._values['wait_s']:g} s for {what}; {state}.")
            self._beat.publish(Empty())
            self._host.stop.wait(self._period_s)

    def _ask(self, event: str) -> bool:
        """Whether a request was granted.

        Raises:
            GantryError: If no node answers.
        """
        answer = ask(self._clients[event], SERVICE_TIMEOUT_S)
        if answer is None:
            raise GantryError(f"No answer to '{event}' within {SERVICE_TIMEOUT_S:g} s.")
        self._refusal = "" if answer.success else f"{answer.message.rstrip('.')}"
        return bool(answer.success)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for name in (self._values["policy_node"], self._values["robot_node"]):
            values = convert.diagnostic_values(message, name)
            if values is not None:
                self._heard[name] = (values, time.monotonic())

    def _mode(self) -> str:
        """Mode of the policy node; empty if it is silent."""
        values, heard_s = self._heard.get(self._values["policy_node"], ({}, 0.0))
        return values.get("mode", "") if time.monotonic() - heard_s <= SILENCE_S else ""

    def _because(self) -> str:
        values, _ = self._heard.get(self._values["policy_node"], ({}, 0.0))
        return values.get("damped because", values.get("message", "")).rstrip(".")

    def _state(self) -> str:
        """State of the policy node, and of the robot's where it is silent."""
        text = f"the policy node: {self._refusal or self._because() or 'it says nothing'}"
        return (
            text if self._robot() is not None else f"{text}; the robot's node '{self._values['robot_node']}' is silent"
        )

    def _robot(self) -> tuple[dict[str, str], float] | None:
        """Last report of the robot's node, and its time; None if it was silent."""
        return self._heard.get(self._values["robot_node"])


def main(arguments: list[str]) -> int:
    """Run the node until all episodes are over.

    Raises:
        GantryError: If parameters are refused, or the other nodes do not do what they are asked.
    """
    with NodeHost(NAME, arguments) as host, stop_on_signals(host.stop):
        node = EpisodeNode(host, host.declare(PARAMETERS))
        host.start()
        return node.run()

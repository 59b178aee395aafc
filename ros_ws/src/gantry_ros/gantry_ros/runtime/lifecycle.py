"""Managed life cycle of a node: the services of ROS 2's lifecycle nodes around work in the main thread.

``ros2 lifecycle``, launch files and Nav2's lifecycle manager speak to it as to any managed node. The class that comes
with rclpy runs transitions in the executor's thread; a robot that is waited for there would never be heard.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

from lifecycle_msgs.msg import State, Transition, TransitionDescription, TransitionEvent
from lifecycle_msgs.srv import ChangeState, GetAvailableStates, GetAvailableTransitions, GetState
from rclpy.callback_groups import ReentrantCallbackGroup

from gantry_hardware.errors import GantryError
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter

PARAMETER = Parameter(
    "managed", False, "Wait for the transitions of a lifecycle manager instead of configuring and activating by itself."
)
"""Of every managed node."""
POLL_S = 0.02
"""Period at which requests are looked for while nothing runs."""
LAST_ANSWER_S = 0.1
"""Time in which the answer to a shutdown leaves, before the node does."""

UNCONFIGURED, INACTIVE, ACTIVE, FINALIZED = (
    State.PRIMARY_STATE_UNCONFIGURED,
    State.PRIMARY_STATE_INACTIVE,
    State.PRIMARY_STATE_ACTIVE,
    State.PRIMARY_STATE_FINALIZED,
)
CONFIGURE, CLEANUP, ACTIVATE, DEACTIVATE = (
    Transition.TRANSITION_CONFIGURE,
    Transition.TRANSITION_CLEANUP,
    Transition.TRANSITION_ACTIVATE,
    Transition.TRANSITION_DEACTIVATE,
)
STATES = {
    UNCONFIGURED: "unconfigured",
    INACTIVE: "inactive",
    ACTIVE: "active",
    FINALIZED: "finalized",
    State.TRANSITION_STATE_CONFIGURING: "configuring",
    State.TRANSITION_STATE_CLEANINGUP: "cleaningup",
    State.TRANSITION_STATE_SHUTTINGDOWN: "shuttingdown",
    State.TRANSITION_STATE_ACTIVATING: "activating",
    State.TRANSITION_STATE_DEACTIVATING: "deactivating",
    State.TRANSITION_STATE_ERRORPROCESSING: "errorprocessing",
}
"""Labels of all states."""


@dataclass(frozen=True)
class Step:
    """A transition that may be asked for."""

    id: int
    """Its number in ``lifecycle_msgs/Transition``."""
    label: str
    """Name."""
    start: int
    """State in which it is possible."""
    meanwhile: int
    """State while it happens."""
    goal: int
    """State after it."""


STEPS = (
    Step(CONFIGURE, "configure", UNCONFIGURED, State.TRANSITION_STATE_CONFIGURING, INACTIVE),
    Step(CLEANUP, "cleanup", INACTIVE, State.TRANSITION_STATE_CLEANINGUP, UNCONFIGURED),
    Step(ACTIVATE, "activate", INACTIVE, State.TRANSITION_STATE_ACTIVATING, ACTIVE),
    Step(DEACTIVATE, "deactivate", ACTIVE, State.TRANSITION_STATE_DEACTIVATING, INACTIVE),
    *(
        Step(number, "shutdown", start, State.TRANSITION_STATE_SHUTTINGDOWN, FINALIZED)
        for number, start in (
            (Transition.TRANSITION_UNCONFIGURED_SHUTDOWN, UNCONFIGURED),
            (Transition.TRANSITION_INACTIVE_SHUTDOWN, INACTIVE),
            (Transition.TRANSITION_ACTIVE_SHUTDOWN, ACTIVE),
        )
    ),
)
"""All of them."""


class ManagedWork(Protocol):
    """Work of a managed node; all methods are called in the main thread, while the node's executor runs."""

    def configure(self) -> None:
        """Load, check and connect.

        Raises:
            GantryError: With the reason; what was begun is taken down by :meth:`cleanup`.
        """
        ...

    def run(self, leave: threading.Event, begun: Callable[[], None]) -> int:
        """Work until ``leave`` is set, or by itself to an end; returns the exit code. May be called several times.

        Args:
            leave: Ends the work.
            begun: To be called once the work takes requests.
        """
        ...

    def cleanup(self) -> int:
        """Take down what :meth:`configure` has made, if it got so far; returns the exit code, 1 if something is lost.

        Raises:
            GantryError: If what shall be kept cannot be written.
        """
        ...


@dataclass
class _Asked:
    """A request that waits for the main thread."""

    step: Step
    done: threading.Event = field(default_factory=threading.Event)
    success: bool = False

    def __await__(self) -> Generator[None, None, bool]:
        # The executor asks whether a coroutine is done whenever it is woken, and serves others meanwhile.
        while not self.done.is_set():
            yield
        return self.success


class LifeCycle:
    """States of one node and the services that change them.

    A node that is not managed configures and activates itself, and ends with its work; its services are there all the
    same.

    Args:
        host: Its node, whose executor is started here.
        work: The work.
        managed: Whether to wait for transitions to be asked for.
    """

    def __init__(self, host: NodeHost, work: ManagedWork, *, managed: bool) -> None:
        self._host, self._work, self._managed = host, work, managed
        self._state = UNCONFIGURED
        # Not a SimpleQueue: before Python 3.13 its get() waits forever once a signal outlasts the timeout.
        self._asked: queue.Queue[_Asked] = queue.Queue()
        self._leave = threading.Event()
        self._asking = threading.Lock()  # Of the queue and the event together.
        self._code = 0
        self._answered = False
        self._activating: _Asked | None = None
        node = host.node
        self._events = node.create_publisher(TransitionEvent, "~/transition_event", topics.REPORT_QOS)
        # A group of their own: a transition that is waited for must not keep messages from being taken.
        group = ReentrantCallbackGroup()
        for kind, name, callback in (
            (ChangeState, "change_state", self._on_change),
            (GetState, "get_state", self._on_state),
            (GetAvailableStates, "get_available_states", self._on_states),
            (GetAvailableTransitions, "get_available_transitions", self._on_transitions),
            (GetAvailableTransitions, "get_transition_graph", self._on_graph),
        ):
            node.create_service(kind, f"~/{name}", callback, callback_group=group)

    @property
    def state(self) -> str:
        """Label of the present state."""
        return STATES[self._state]

    def run(self) -> int:
        """Go through the states until the node is stopped, is shut down, or has done its work by itself.

        Raises:
            GantryError: If a node that is not managed is refused.
        """
        self._host.start()
        try:
            if not self._managed:
                try:
                    self._configure(_step(CONFIGURE))
                except GantryError:
                    if self._host.stop.is_set():
                        return 0  # Stopped while it was still waiting.
                    raise
                self._enter(_step(ACTIVATE).meanwhile, _step(ACTIVATE))
                self._enter(ACTIVE, _step(ACTIVATE))
            while self._state != FINALIZED and not self._host.stop.is_set():
                if self._state == ACTIVE:
                    self._be_active()
                else:
                    self._serve()
        finally:
            if self._state not in (UNCONFIGURED, FINALIZED):
                self._cleanup()
            while not self._asked.empty():
                self._answer(self._asked.get(), False)
            if self._answered:
                time.sleep(LAST_ANSWER_S)
        return self._code or int(self._host.failure is not None)

    def _serve(self) -> None:
        """Obey the next request in a state in which nothing runs."""
        try:
            asked = self._asked.get(timeout=POLL_S)
        except queue.Empty:
            return
        step = asked.step
        if step.start != self._state:
            self._answer(asked, False)
            return
        try:
            if step.id == CONFIGURE:
                self._configure(step)
            elif step.id == ACTIVATE:
                self._enter(step.meanwhile, step)
                self._enter(ACTIVE, step)
                self._activating = asked  # Answered once the work takes requests.
                return
            else:
                self._enter(step.meanwhile, step)
                if step.start != UNCONFIGURED:
                    self._cleanup()
                self._enter(step.goal, step)
        except GantryError as error:
            self._host.node.get_logger().error(f"'{step.label}' failed: {error}")
            self._answer(asked, False)
            return
        self._answer(asked, True)

    def _configure(self, step: Step) -> None:
        self._enter(step.meanwhile, step)
        try:
            self._work.configure()
        except BaseException:
            self._cleanup()
            self._enter(UNCONFIGURED, step)
            raise
        self._enter(INACTIVE, step)

    def _be_active(self) -> None:
        """Work until a request or the end of the work."""
        with self._asking:
            self._leave.clear()
            self._refuse_late()
            if not self._asked.empty():  # A request came before the work had begun.
                self._leave.set()
        asked: _Asked | None = None
        try:
            self._code = self._work.run(self._leave, self._begun)
            self._begun()
        except GantryError as error:
            if not self._managed:
                raise
            self._host.node.get_logger().error(f"The work has failed: {error}")
            if self._activating is not None:
                self._answer(self._activating, False)
                self._activating = None
            self._enter(State.TRANSITION_STATE_ERRORPROCESSING, _step(DEACTIVATE))
            self._cleanup()
            self._enter(UNCONFIGURED, _step(DEACTIVATE))
            return
        if not self._asked.empty():
            asked = self._asked.get()
        step = _step(DEACTIVATE) if asked is None else asked.step
        self._enter(step.meanwhile, step)
        if step.goal == FINALIZED or (asked is None and not self._managed):
            self._cleanup()
            self._enter(FINALIZED, step)
        else:
            self._enter(INACTIVE, step)
        if asked is not None:
            self._answer(asked, True)

    def _refuse_late(self) -> None:
        """Refuse requests that wait and were meant for an earlier state, such as a second activation."""
        waiting = [self._asked.get() for _ in range(self._asked.qsize())]
        for asked in waiting:
            if asked.step.start == self._state:
                self._asked.put(asked)
            else:
                self._answer(asked, False)

    def _begun(self) -> None:
        asked, self._activating = self._activating, None
        if asked is not None:
            self._answer(asked, True)

    def _cleanup(self) -> None:
        self._code = self._work.cleanup() or self._code

    def _answer(self, asked: _Asked, success: bool) -> None:
        """Let the caller of a transition have its answer."""
        asked.success = success
        asked.done.set()
        self._answered = True
        self._host.wake()

    def _enter(self, state: int, step: Step) -> None:
        before, self._state = self._state, state
        if before == state:
            return
        event = TransitionEvent(transition=Transition(id=step.id, label=step.label))
        event.timestamp = self._host.node.get_clock().now().nanoseconds
        event.start_state, event.goal_state = _state(before), _state(state)
        self._events.publish(event)
        if self._managed and state in (UNCONFIGURED, INACTIVE, ACTIVE, FINALIZED):
            self._host.node.get_logger().info(f"State '{STATES[state]}'.")

    def _ask(self, wanted: Transition) -> _Asked | None:
        """Pass a request on to the main thread; None if it is not possible in the present state."""
        with self._asking:  # The work that an activation begins must not be left because of that very request.
            for step in STEPS:
                named = step.label == wanted.label if wanted.label else step.id == wanted.id
                if step.start == self._state and named:
                    asked = _Asked(step)
                    self._asked.put(asked)
                    self._leave.set()
                    return asked
        return None

    async def _on_change(self, request: Any, response: Any) -> Any:
        wanted = request.transition
        asked = self._ask(wanted)
        if asked is not None:
            response.success = await asked
            return response
        labels = {step.id: step.label for step in STEPS}
        name = f"'{wanted.label or labels.get(wanted.id, wanted.id)}'"
        possible = ", ".join(step.label for step in STEPS if step.start == self._state) or "nothing"
        self._host.node.get_logger().error(
            f"Transition {name} is not possible in state '{self.state}'; possible: {possible}."
        )
        response.success = False
        return response

    def _on_state(self, request: Any, response: Any) -> Any:
        response.current_state = _state(self._state)
        return response

    def _on_states(self, request: Any, response: Any) -> Any:
        response.available_states = [_state(number) for number in STATES]
        return response

    def _on_transitions(self, request: Any, response: Any) -> Any:
        return _described(response, lambda step: step.start == self._state)

    def _on_graph(self, request: Any, response: Any) -> Any:
        return _described(response, lambda step: True)


def _described(response: Any, wanted: Callable[[Step], bool]) -> Any:
    response.available_transitions = [
        TransitionDescription(
            transition=Transition(id=step.id, label=step.label),
            start_state=_state(step.start),
            goal_state=_state(step.goal),
        )
        for step in STEPS
        if wanted(step)
    ]
    return response


def _state(number: int) -> State:
    return State(id=number, label=STATES[number])


def _step(number: int) -> Step:
    return next(step for step in STEPS if step.id == number)

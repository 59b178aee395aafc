"""Common parts of all nodes here: parameters with descriptors, an executor in a thread of its own, an orderly end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import rclpy
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.client import Client
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.context import Context
from rclpy.exceptions import InvalidHandle, InvalidParameterTypeException, ParameterException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.timer import Timer
from std_srvs.srv import Trigger

from gantry_hardware.errors import GantryError, unknown_name_text
from gantry_hardware.files.text import plain_text
from gantry_hardware.files.whole_files import write_whole_json
from gantry_ros.runtime.log_folder import VARIABLE, ensure_log_folder
from gantry_ros.runtime.network_watch import LOOK_PERIOD_S, NetworkWatch
from gantry_ros.runtime.waiting import SETTLE_S, WaitReason

JOIN_TIMEOUT_S = 5.0
"""Time that the executor's thread may take to end."""

TASK_POLL_S = 0.05
"""Period at which a thread that waits for a task of the executor looks whether the executor still runs."""

GROUP_END = "."
"""End of the name of a group of parameters."""
# What rclpy declares by itself; everything else on the command line must be ours.
FOREIGN_PARAMETERS = ("use_sim_time", "start_type_description_service", "qos_overrides.")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a node."""

    name: str
    """Name, dots for groups. One that ends with a dot stands for all names below it: its value is what was given of
    them, by the rest of the name."""
    default: bool | int | float | str
    """Value without one from outside; its type is the parameter's type."""
    text: str
    """Description with its unit; shown by ``ros2 param describe``."""
    read_only: bool = True
    """Whether it is fixed once the node runs."""
    bounds: tuple[float, float] | None = None
    """Least and largest value of a number; None for those of its unit, see :data:`BOUNDS`."""


BOUNDS = {
    "rate_hz": (0.01, 10_000.0),
    "_s": (0.0, 1e6),
    "_m": (0.0, 1e5),
    "_m_s": (0.0, 1e3),
    "": (-1e6, 1e6),
}
"""Ending of a parameter's name, longest first where several fit -> least and largest value without an own one. All are
finite: 1 / 1e-300 Hz is no time that anything can wait."""


def bounds(parameter: Parameter) -> tuple[float, float]:
    """Least and largest value of a numeric parameter."""
    if parameter.bounds is not None:
        return parameter.bounds
    return BOUNDS[max((ending for ending in BOUNDS if parameter.name.endswith(ending)), key=len)]


class NodeHost:
    """A node with its own context and a single-threaded executor in a thread.

    The multi-threaded executor loses timer ticks and the events executor hangs, so neither is used. Python's signal
    handlers stay ours: a node must be able to send its last command before ROS goes away.

    Args:
        name: Node name; ``--ros-args -r __node:=...`` overrides it.
        arguments: Command line, ``--ros-args`` included; none for a node inside another program.
    """

    def __init__(self, name: str, arguments: Sequence[str] = ()) -> None:
        self.stop = threading.Event()
        """Set when the node shall end: by a signal, by a dead executor, by anyone."""
        self.failure: BaseException | None = None
        """What a callback raised, if one did."""
        self._context = Context()
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        folder = ensure_log_folder()
        try:
            rclpy.init(
                args=["gantry", *arguments], context=self._context, signal_handler_options=SignalHandlerOptions.NO
            )
        except Exception as error:  # rclpy's own types differ between releases; the text says which argument.
            if "log" in str(error):
                raise GantryError(
                    f"ROS cannot write log files for '{name}' ({folder or 'its usual folder'}): {error}. "
                    f"Set {VARIABLE} to a folder that can be written."
                ) from error
            raise GantryError(f"ROS refuses the arguments of '{name}': {error}") from error
        try:
            self.node: Node = rclpy.create_node(name, context=self._context)
            self._executor = SingleThreadedExecutor(context=self._context)
            self._executor.add_node(self.node)
        except BaseException as error:
            self._context.try_shutdown()
            if isinstance(error, Exception):
                raise GantryError(f"ROS makes no node '{name}': {error}") from error
            raise
        self.network = NetworkWatch(self.node)
        """What does not arrive, and why."""
        self.create_timer(LOOK_PERIOD_S, self.network.look)
        self._thread = threading.Thread(target=self._spin, name=f"{name} executor", daemon=True)
        self._closed = False

    def __enter__(self) -> NodeHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def declare(self, parameters: Sequence[Parameter]) -> dict[str, Any]:
        """Declare parameters and return their values by name.

        Raises:
            GantryError: If a value has the wrong type, or if one was given that this node does not know.
        """
        self._refuse_unknown([parameter.name for parameter in parameters])
        return {
            parameter.name: self._declare_group(parameter)
            if parameter.name.endswith(GROUP_END)
            else self._declare_one(parameter)
            for parameter in parameters
        }

    def create_timer(self, period_s: float, callback: Callable[[], None]) -> Timer:
        """Call back again and again, by the steady clock: what guards, watches or reports must not stand still because
        ``use_sim_time`` is set and no ``/clock`` comes. Nothing here makes timers in another way."""
        return self.node.create_timer(period_s, callback, clock=self._steady)

    def entities(self) -> list[tuple[str, Any]]:
        """Everything that the node has now, each with its kind, for :meth:`destroy_all_but`."""
        node = self.node
        kinds = {
            "publisher": node.publishers,
            "subscription": node.subscriptions,
            "service": node.services,
            "client": node.clients,
            "timer": node.timers,
        }
        return [(kind, entity) for kind, entities in kinds.items() for entity in entities]

    def destroy_all_but(self, kept: Sequence[tuple[str, Any]]) -> None:
        """Take down everything that the node has and had not at an earlier :meth:`entities`."""
        self.destroy([pair for pair in self.entities() if not any(pair[1] is other for _, other in kept)])

    def destroy(self, entities: Sequence[tuple[str, Any]]) -> None:
        """Take entities down, the last first, in the executor's thread while it runs.

        Taken down by another thread, one may be missing in the middle of the executor's turn; rclpy then leaves its
        callback group locked, and nothing in that group is ever called again.

        Args:
            entities: Each with its kind, as :meth:`entities` has them.
        """

        def work() -> None:
            for kind, entity in reversed(entities):
                getattr(self.node, f"destroy_{kind}")(entity)

        if self._closed or not self._thread.is_alive() or threading.current_thread() is self._thread:
            work()
            return
        done = threading.Event()
        self._executor.create_task(work).add_done_callback(lambda _: done.set())
        end_s = time.monotonic() + JOIN_TIMEOUT_S
        while not done.wait(TASK_POLL_S):
            if not self._thread.is_alive() or time.monotonic() > end_s:
                raise GantryError(f"The executor of '{self.node.get_name()}' does not take down topics and services.")

    def wait_reason(self, before: str, settle_s: float = SETTLE_S) -> WaitReason:
        """Says in the log why something waits, once and again when the reason changes.

        Args:
            before: Its beginning, for example "Not started".
            settle_s: How long a reason must last before it is said.
        """
        return WaitReason(self.node.get_logger().warning, before, settle_s=settle_s)

    def start(self) -> None:
        """Start the executor's thread; call it once everything is declared."""
        self._thread.start()

    def wake(self) -> None:
        """Let the executor look at coroutines that wait for something which has just happened."""
        self._executor.wake()

    def close(self) -> None:
        """Stop the executor, wait for its thread, then take ROS down, in this order; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self.stop.set()
        self._executor.shutdown()
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)
        self.node.destroy_node()
        self._context.try_shutdown()

    def _spin(self) -> None:
        try:
            self._spin_on()
        except ExternalShutdownException:
            pass
        except Exception as error:  # A callback's mistake must end the node, not its executor alone.
            self.failure = error
            if not self._closed:
                self.node.get_logger().fatal(f"A callback failed: {type(error).__name__}: {error}")
        self.stop.set()

    def _spin_on(self) -> None:
        while True:
            try:
                self._executor.spin()
                return
            except InvalidHandle:
                continue  # A subscription was taken down by another thread while its message was on the way.

    def _declare_one(self, parameter: Parameter) -> Any:
        number = isinstance(parameter.default, float)
        descriptor = ParameterDescriptor(
            description=parameter.text,
            read_only=parameter.read_only,
            # YAML reads "1" as an integer, and ROS would then refuse it for a double.
            dynamic_typing=number,
        )
        try:
            value = self.node.declare_parameter(parameter.name, parameter.default, descriptor).value
        except (InvalidParameterTypeException, ParameterException) as error:
            raise GantryError(f"Parameter '{parameter.name}': {error}") from error
        if isinstance(parameter.default, bool | str):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GantryError(f"Parameter '{parameter.name}' is {plain_text(value)}, expected a number.")
        least, most = bounds(parameter)
        if not least <= value <= most:  # Not a number lies nowhere.
            raise GantryError(f"Parameter '{parameter.name}' is {value}, expected {least:g} to {most:g}.")
        return float(value) if number else value

    def _declare_group(self, group: Parameter) -> dict[str, Any]:
        found = {}
        descriptor = ParameterDescriptor(description=group.text, read_only=group.read_only, dynamic_typing=True)
        for name in [name for name in self._given() if name.startswith(group.name)]:
            found[name.removeprefix(group.name)] = self.node.declare_parameter(name, None, descriptor).value
        return found

    def _given(self) -> Sequence[str]:
        return list(getattr(self.node, "_parameter_overrides", {}))

    def _refuse_unknown(self, known: Sequence[str]) -> None:
        groups = tuple(name for name in known if name.endswith(GROUP_END))
        for name in self._given():
            if name not in known and not name.startswith((*FOREIGN_PARAMETERS, *groups)):
                raise GantryError(unknown_name_text(f"parameter of {self.node.get_name()}", name, known))


@contextmanager
def stop_on_signals(stop: threading.Event, *, at_once: bool = False) -> Iterator[None]:
    """SIGINT and SIGTERM set ``stop``; only from the main thread.

    Args:
        stop: Event that the work looks at.
        at_once: They raise KeyboardInterrupt as well, for long work that does not look.
    """

    def handle(number: int, frame: object) -> None:
        stop.set()
        if at_once:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def positive(values: dict[str, Any], name: str) -> float:
    """A parameter that must be more than 0; that it is finite and within its bounds was seen to when it was declared.

    Raises:
        GantryError: If it is not.
    """
    if not values[name] > 0.0:
        raise GantryError(f"Parameter '{name}' is {values[name]}, expected more than 0.")
    return values[name]


def write_json(path: str, values: dict[str, Any], what: str) -> None:
    """Write plain data that a parameter asked for.

    Raises:
        GantryError: If the file cannot be written.
    """
    try:
        write_whole_json(path, values)
    except OSError as error:
        raise GantryError(f"The {what} cannot be written to {path}: {error.strerror}.") from error


def ask(client: Client, timeout_s: float) -> Trigger.Response | None:
    """The answer of a Trigger service; None if there is none in time. Not for callbacks, which the answer waits for."""
    answered = threading.Event()
    future = client.call_async(Trigger.Request())
    future.add_done_callback(lambda _: answered.set())
    return future.result() if answered.wait(timeout_s) else None


def answer(action: Callable[[], str]) -> Callable[[Any, Any], Any]:
    """A Trigger service's callback: what ``action`` returns is the answer, what it refuses is the reason."""

    def callback(request: Any, response: Any) -> Any:
        try:
            response.message = action()
            response.success = True
        except GantryError as error:
            response.message = str(error)
            response.success = False
        return response

    return callback

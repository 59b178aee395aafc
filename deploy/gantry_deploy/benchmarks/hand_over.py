"""Latency of a hand-over: from the person's hand on the device to the first command that follows it, in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.control.ticks import TickReport
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.session.config import SessionCfg
from gantry_deploy.session.run import SessionRun, Views
from gantry_deploy.session.states import SessionState
from gantry_deploy.teleop.operator import Axis, OperatorInput
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec

LONGEST_WAIT_TICKS = 50
"""Ticks after which a hand-over counts as missed."""
PAUSE_TICKS = (4.0, 8.0)
"""Shortest and longest time between two hand-overs, in ticks; drawn at random, so that every phase of a tick occurs."""
MOTION = {Axis.X: 0.3, Axis.THROTTLE: 0.2, Axis.STEER: 0.1}
"""Motion while the hand is on the device."""


@dataclass(frozen=True)
class HandOvers:
    """Latencies of one robot."""

    rate_hz: float
    """Rate of the control loop."""
    take_s: list[float]
    """From the hand to the person's first command, s, one for each take-over."""
    give_s: list[float]
    """From letting go to the policy's first command, s."""
    missed: int
    """Hand-overs that nothing followed, for example because the attempt ended at the same moment."""

    def summary(self) -> dict[str, Any]:
        """Plain data: counts, and percentiles in seconds."""
        found: dict[str, Any] = {"rate_hz": self.rate_hz, "missed": self.missed}
        for name, values in (("take", self.take_s), ("give", self.give_s)):
            found[f"{name}_count"] = len(values)
            for share in (50, 99):
                found[f"{name}_p{share}_s"] = float(np.percentile(values, share)) if values else None
        return found


class Lever:
    """Device for measurements: another thread presses its dead-man switch and lets it go."""

    name = "lever"

    def __init__(self) -> None:
        self.pressed = False

    def connect(self) -> None:
        """Nothing to open."""

    def read(self, now_s: float) -> OperatorInput:
        """See :meth:`gantry_deploy.teleop.operator.TeleopDevice.read`."""
        pressed = self.pressed
        return OperatorInput(now_s, pressed, MOTION if pressed else {})

    def describe(self) -> list[str]:
        """One line for the person."""
        return ["pressed and let go at random moments"]

    def close(self) -> None:
        """Nothing to close."""


class _Changes:
    """Wall-clock times at which commands began to be the person's, or the policy's."""

    def __init__(self) -> None:
        self.session: SessionRun | None = None
        self.condition = threading.Condition()
        self.by_person, self.changed_s = False, 0.0
        self.stopped = False
        """Whether a fault has stopped the robot, after which nothing follows a hand any more."""

    def record(self, report: TickReport) -> None:
        assert self.session is not None
        if report.fault is not None:
            self.stopped = True
        if report.sent is None:
            return
        with self.condition:
            state = self.session.session.state
            if state in (SessionState.AUTONOMOUS, SessionState.CORRECTING):
                by_person = state is SessionState.CORRECTING
                if by_person is not self.by_person:
                    self.by_person, self.changed_s = by_person, time.monotonic()
                self.condition.notify_all()

    def statistics(self) -> dict[str, Any]:
        return {}


class _Hand(threading.Thread):
    """Presses and lets go at random moments, and notes how long it took until commands followed."""

    def __init__(
        self,
        session: SessionRun,
        lever: Lever,
        changes: _Changes,
        count: int,
        dt_s: float,
        seed: int,
        on_progress: Callable[[float], None],
    ) -> None:
        super().__init__(daemon=True)
        self._on_progress = on_progress
        self._session, self._lever, self._changes = session, lever, changes
        self._count, self._dt_s, self._random = count, dt_s, np.random.default_rng(seed)
        self.take_s: list[float] = []
        self.give_s: list[float] = []
        self.missed = 0

    def run(self) -> None:
        """See :meth:`threading.Thread.run`."""
        changes, lever = self._changes, self._lever
        with changes.condition:
            changes.condition.wait(60.0)  # The first attempt.
        while min(len(self.take_s), len(self.give_s)) < self._count and not self._session.session.is_closed:
            if changes.stopped:
                break
            time.sleep(self._random.uniform(*PAUSE_TICKS) * self._dt_s)
            pressed = not lever.pressed
            longest_s = LONGEST_WAIT_TICKS * self._dt_s
            with changes.condition:
                ready = changes.by_person is lever.pressed
                lever.pressed, pressed_s = pressed, time.monotonic()
                done = changes.condition.wait_for(lambda: changes.by_person is lever.pressed, longest_s)
            if not ready or not done:
                self.missed += 1
            else:
                (self.take_s if pressed else self.give_s).append(changes.changed_s - pressed_s)
                self._on_progress(min(len(self.take_s), len(self.give_s)) / self._count)
        self._session.close()


def measure_hand_overs(
    bundle_name: str, count: int, seed: int = 1, on_progress: Callable[[float], None] = lambda share: None
) -> HandOvers:
    """Let a lever take over and give back ``count`` times beside a simulated robot in real time.

    Args:
        bundle_name: As ``gantry run`` takes it.
        count: Take-overs.
        seed: Of the moments.
        on_progress: Called with the share of hand-overs that are done, from another thread.

    Raises:
        GantryError: If the robot cannot be simulated here, or stops.
    """
    bundle = load_bundle(find_bundle(bundle_name))
    contract, kind = bundle.contract, embodiment_of(bundle.contract)
    options = {**kind.backend_options(contract, kind.simulated_backend), "realtime": True, "seed": seed}
    robot = make_backend(kind.simulated_backend, robot_spec(contract.robot), **options)
    lever, changes = Lever(), _Changes()
    session = SessionRun(bundle, robot, lever, SessionCfg(), views=Views(recorder=changes))
    changes.session = session
    hand = _Hand(session, lever, changes, count, contract.dt_s, seed, on_progress)
    hand.start()
    try:
        session.run(600.0 + 60.0 * count / contract.rate_hz)
    finally:
        session.close()
        hand.join(10.0)
        robot.close()
    fault = session.summary()["loop"]["fault"]
    if fault is not None:
        raise GantryError(f"The robot stopped: {fault['text']}")
    return HandOvers(contract.rate_hz, hand.take_s, hand.give_s, hand.missed)

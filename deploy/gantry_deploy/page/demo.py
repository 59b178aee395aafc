"""A made-up session behind a real page, for looking at it: ``python -m gantry_deploy.page.demo``."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import math
import threading
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.page.device import PageDevice
from gantry_deploy.page.server import PageServer
from gantry_deploy.page.terminal import TerminalView
from gantry_deploy.session.snapshot import LearnerFacts, SessionSnapshot
from gantry_deploy.session.states import ENDS, Internal, SessionState, following, possible
from gantry_deploy.teleop.operator import Axis, TeleopEvent

DT_S = 0.1
ATTEMPT_STEPS = 120
RESET_S = 1.5
PAST = 34
AXES = (Axis.X, Axis.Y, Axis.Z, Axis.YAW, Axis.GRIPPER)
CAMERAS = ("front", "wrist", "side")
HELP = ("front trigger: take over while held", "stick: ahead, left; second stick: up, turn", "A: success, B: failure")


@dataclass
class MadeUpSession:
    """A session without a robot: attempts come and go, and get better. All methods are for any thread."""

    device: PageDevice
    """The page as a device."""
    state: SessionState = SessionState.READY
    """Present state."""
    log: deque[str] = field(default_factory=lambda: deque(["the session begins"], maxlen=20))
    """Latest events."""
    outcomes: list[tuple[bool, float]] = field(default_factory=list)
    """Per attempt its success, and the person's share of its steps."""
    fault: str = ""
    """Fault in words."""
    connected: bool = True
    """Whether there is a learner."""
    step: int = 0
    """Step of the attempt."""

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._begun_s, self._state_s = time.monotonic(), time.monotonic()
        self._by_person, self._person_steps, self._toggled = 0, 0, False
        self._random = np.random.default_rng(3)

    def request(self, event: TeleopEvent) -> str | None:
        """See :meth:`gantry_deploy.session.session.CorrectionSession.request`."""
        with self._lock:
            if event.value not in possible(self.state):
                return f"'{event.value}' is not possible in {self.state.value}."
            if event is TeleopEvent.INTERVENTION:
                self._toggled = not self._toggled
            elif event is TeleopEvent.VETO:
                return "No classifier has reported a success."
            else:
                self._go(event)
        return None

    def estop(self) -> None:
        """Stop."""
        with self._lock, contextlib.suppress(Exception):
            self._toggled = False
            self._go(Internal.STOPPED)

    def tick(self) -> None:
        """One step; at first also an attempt of the past, so that there is a curve to look at."""
        with self._lock:
            if len(self.outcomes) < PAST:
                skill = 1.0 - math.exp(-len(self.outcomes) / 12.0)
                helped = max(0.0, 0.6 * (1.0 - skill) - 0.1)
                self.outcomes.append((bool(self._random.random() < 0.2 + 0.75 * skill), helped))
                self._person_steps += round(ATTEMPT_STEPS * helped)
            engaged = self.device.read(time.monotonic()).engaged or self._toggled
            takes = engaged and self.state in (SessionState.READY, SessionState.AUTONOMOUS, SessionState.PAUSED)
            if takes:
                self._go(Internal.ENGAGED)
            elif not engaged and self.state is SessionState.CORRECTING:
                self._go(Internal.RELEASED)
            if self.state is SessionState.RESETTING and time.monotonic() - self._state_s > RESET_S:
                self._go(Internal.RESET_DONE)
                self._go(TeleopEvent.START)
            elif self.state in (SessionState.AUTONOMOUS, SessionState.CORRECTING):
                self.step += 1
                self._by_person += self.state is SessionState.CORRECTING
                self._person_steps += self.state is SessionState.CORRECTING
                if self.step >= ATTEMPT_STEPS:
                    self._go(Internal.TASK_DONE if self._random.random() < 0.9 else Internal.TIME_OUT)

    def _go(self, event: TeleopEvent | Internal) -> None:
        before, self.state = self.state, following(self.state, event)
        if event in ENDS:
            self.outcomes.append(
                (event in (TeleopEvent.SUCCESS, Internal.TASK_DONE), self._by_person / max(1, self.step))
            )
        if self.state in (SessionState.RESETTING, SessionState.STOPPED):
            self.step = self._by_person = 0
        if before is not self.state:
            self._state_s = time.monotonic()
            self.log.append(f"{before.value} -> {self.state.value}: {event.value}")

    def snapshot(self) -> SessionSnapshot:
        """State of now."""
        with self._lock:
            time_s, recent = time.monotonic() - self._begun_s, self.outcomes[-20:]
            wobble = 1.0 + 0.8 * math.sin(time_s / 3.0) + 0.7 * max(0.0, math.sin(time_s / 7.0)) ** 8
            acts = {SessionState.AUTONOMOUS: "policy", SessionState.CORRECTING: "person"}.get(self.state, "")
            version = 40 + int(time_s / 5.0)
            hashed = hashlib.sha256(str(version).encode()).hexdigest()
            stopped = self.state is SessionState.STOPPED
            lost_s = time_s if not self.connected else 0.1
            learner = LearnerFacts(
                self.connected, lost_s, 18000 + int(95 * time_s), 95.2, 5210, 1466, version, hashed,
                3 if self.connected else int(10 * time_s), "learning" if self.connected else "no connection"
            )  # fmt: skip
            advised = wobble > 2.0 and self.state is SessionState.AUTONOMOUS
            return SessionSnapshot(
                time_s, self.state.value, acts, "DAMP" if stopped else "POLICY", self.fault,
                possible(self.state), "yam", "yam-pick-place", "gamepad + page", HELP, len(self.outcomes), self.step,
                len(self.outcomes), sum(won for won, _ in self.outcomes),
                sum(won and not share for won, share in self.outcomes),
                float(np.mean([won for won, _ in recent])) if recent else None,
                float(np.mean([share for _, share in recent])) if recent else None,
                self._person_steps * DT_S, 0.0, 0.5 + 0.45 * math.sin(time_s / 5.0),
                f"Step in: the critic disagrees {wobble:.1f} times as much as usual." if advised else "",
                max(0.05, wobble), version - 1, hashed, CAMERAS,
                {f"joint{index}": math.sin(time_s / 2.0 + index) for index in range(1, 7)},
                {axis.value: value for axis, value in self.device.read(0.0).axes.items()}, learner, tuple(self.log),
            )  # fmt: skip

    def picture(self, camera: str) -> NDArray[np.uint8]:
        """A made-up picture, uint8 (240, 320, 3), 0 to 255."""
        rows, cols = np.mgrid[0:240, 0:320]
        time_s = time.monotonic() - self._begun_s
        phase = CAMERAS.index(camera)
        table = rows > 130 + 30 * phase
        frame = np.where(table[..., None], (121, 96, 74), (196, 203, 209)) * (0.75 + rows[..., None] / 960)
        x, y = 160 + 90 * math.sin(time_s / 2 + phase), 165 + 25 * math.cos(time_s / 1.3 + phase)
        frame[np.hypot(cols - x, rows - y) < 16] = (214, 76, 52)
        frame[(np.abs(cols - x) < 7) & (rows < y - 26)] = (58, 64, 72)
        frame[(np.abs(np.abs(cols - x) - 18) < 4) & (np.abs(rows - y + 14) < 16)] = (40, 44, 50)
        return np.clip(frame, 0, 255).astype(np.uint8)


def main() -> None:
    """Serve a made-up session until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port of the page; a free one if not given")
    parser.add_argument("--fault", default="", help="fault that is shown")
    parser.add_argument("--no-learner", action="store_true", help="a learner that is not connected")
    parser.add_argument("--terminal", action="store_true", help="show the facts here as well")
    args = parser.parse_args()
    device = PageDevice()
    session = MadeUpSession(device, fault=args.fault, connected=not args.no_learner)
    session.request(TeleopEvent.START)
    server = PageServer(
        session.snapshot, session.request, session.estop, session.picture,
        port=args.port, axes=device.receive, motions=AXES,
    )  # fmt: skip
    view = TerminalView() if args.terminal else None
    with server, contextlib.suppress(KeyboardInterrupt), view or contextlib.nullcontext():
        print(f"page: {server.url}", flush=True)
        while session.state is not SessionState.CLOSED:
            session.tick()
            if view is not None:
                view(session.snapshot())
            time.sleep(DT_S)


if __name__ == "__main__":
    main()

"""Thread that talks to a Unitree robot at the rate of its motors: states in, commands out, reflexes in between."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gantry_hardware.errors import RobotError
from gantry_hardware.unitree.clock import RobotClock
from gantry_hardware.unitree.codec import LowState, StateCodec
from gantry_hardware.unitree.guard import Guard
from gantry_hardware.unitree.idl import CLASSES
from gantry_hardware.unitree.link import Link, send, take
from gantry_hardware.unitree.models import UnitreeModel
from gantry_hardware.unitree.remote import RemoteButtons
from gantry_hardware.unitree.watch import StateWatch

STATE_TOPIC, COMMAND_TOPIC = "rt/lowstate", "rt/lowcmd"
"""Topics of every robot of Unitree."""
RATE_HZ = 500.0
"""Rate of states and of commands."""
LOOK_EVERY = 10
"""Turns between two looks for other writers of commands, if none comes or goes."""
BEAT_EVERY = 2
"""Turns between two signs of life to the guard; each wakes it."""
CATCH_UP_S = 0.05
"""A thread that is further behind than this leaves turns out instead of making them up."""
KEPT_PERIODS = 1 << 17
"""Periods between two commands that are kept for the statistics: 262 s."""

_LOG = logging.getLogger("gantry.unitree")


@dataclass(frozen=True)
class Received:
    """A state and its time."""

    state: LowState
    """As it came."""
    stamp_s: float
    """Time at which it was made, on this machine's monotonic clock."""


class MotorLoop:
    """Takes states and repeats the newest command at :data:`RATE_HZ`.

    Whatever the owner wants, damping is sent while there is a fault, and when the owner has said nothing for a while:
    a program that hangs must not leave a robot with its last targets.

    Args:
        link: Where the robot is.
        model: Which robot it is.
        codec: Reads its states.
        watch: Finds faults in them.
        damping: The message that damps it, for a kind of machine.
        command_timeout_s: Age of the owner's newest command at which damping is sent instead.
        tolerates_silent: Take programs for harmless that announce commands and send none.
    """

    def __init__(
        self,
        link: Link,
        model: UnitreeModel,
        codec: StateCodec,
        watch: StateWatch,
        damping: Callable[[int], bytes],
        command_timeout_s: float,
        tolerates_silent: bool = False,
    ) -> None:
        state_kind, self._command_kind = CLASSES[model.family.name]
        self._link, self._codec, self._damping = link, codec, damping
        self._timeout_s, self._tolerates_silent = command_timeout_s, tolerates_silent
        self.watch = watch
        self.clock = RobotClock()
        self.newest: Received | None = None
        """The newest state."""
        self.requests: list[str] = []
        """What the remote controller asked for, oldest first."""
        self.counts = dict.fromkeys(
            ("states", "lost", "repeated", "out_of_order", "crc_errors", "undecodable", "sent", "damped", "late"), 0
        )
        self._states = link.reader(STATE_TOPIC, state_kind)
        self._others = link.reader(COMMAND_TOPIC, self._command_kind)
        self._writer = link.writer(COMMAND_TOPIC, self._command_kind)
        self.guard: Guard | None = None
        """Process that damps the robot if this one cannot; None for none."""
        self._buttons = RemoteButtons()
        self._command: tuple[bytes, float, bool] | None = None
        self.crowded = False
        """Whether another program announces commands."""
        self._drives = self._stop = False
        self._periods, self._sent_s = np.zeros(KEPT_PERIODS), 0.0
        self._thread = threading.Thread(target=self._run, name="unitree-motors", daemon=True)

    def start(self) -> None:
        """Start to listen; nothing is sent before :meth:`drive`."""
        self._thread.start()

    def drive(self) -> None:
        """Send from now on, damping until there is a command, and look out for other programs that do so."""
        take(self._others)
        self._drives = True

    @property
    def drives(self) -> bool:
        """Whether commands are sent."""
        return self._drives

    def set_command(self, data: bytes, *, is_limp: bool) -> None:
        """The message to send until the next one; one without any torque is withheld while others command."""
        self._command = (data, time.monotonic(), is_limp)

    def others(self) -> list[str]:
        """Other writers of this robot's commands, unless they are tolerated."""
        return [] if self._tolerates_silent else self._link.writers(self._others)

    def close(self, damped_s: float) -> None:
        """End; if commands are being sent, damping is sent for a while before."""
        if self._thread.is_alive():
            if self._drives:
                self._command = None
                time.sleep(damped_s)
            self._stop = True
            self._thread.join()
        if self.guard is not None:
            self.guard.close()

    def period_statistics(self) -> dict[str, float]:
        """Times between two commands, of the newest :data:`KEPT_PERIODS`; empty without any."""
        periods_s = self._periods[: min(max(0, self.counts["sent"] - 1), KEPT_PERIODS)].copy()
        if not periods_s.size:
            return {}
        p50, p99 = np.percentile(periods_s, (50, 99))
        return {
            "command_period_p50_s": float(p50),
            "command_period_p99_s": float(p99),
            "command_period_max_s": float(periods_s.max()),
            "command_jitter_p99_s": float(np.percentile(np.abs(periods_s - 1.0 / RATE_HZ), 99)),
        }

    def _run(self) -> None:
        period_s, due_s, turn = 1.0 / RATE_HZ, time.monotonic(), 0
        while not self._stop:
            try:
                self._take_states()
                if self._drives:
                    if turn % BEAT_EVERY == 0:
                        self._beat()
                    self._look(turn)
                    self._send()
            except Exception as error:  # This thread is the one that damps; it must not end by an accident.
                _LOG.exception("The motors' thread stumbled")
                self.watch.note("driver", f"The driver's motor thread broke: {type(error).__name__}: {error}")
            turn, due_s = turn + 1, due_s + period_s
            wait_s = due_s - time.monotonic()
            if wait_s < -CATCH_UP_S:
                self.counts["late"] += int(-wait_s / period_s)
                due_s -= wait_s
            time.sleep(max(0.0, wait_s))
        if self.guard is not None:
            self.guard.leave()

    def _take_states(self) -> None:
        samples = take(self._states)
        received_s = time.monotonic()
        for sample in samples:
            self.counts["states"] += 1
            try:
                state, is_right = self._codec.decode(sample.data)
            except ValueError:
                self.counts["undecodable"] += 1
                continue
            if is_right:
                self._take(state, received_s)
            else:
                self.counts["crc_errors"] += 1
                self.watch.wrong_crc()

    def _take(self, state: LowState, received_s: float) -> None:
        ahead = self.clock.ahead(state.tick)
        if ahead <= 0:
            self.counts["repeated" if ahead == 0 else "out_of_order"] += 1
            self.watch.went_back(ahead)
            return
        if self.newest is not None and ahead > 2:
            self.counts["lost"] += ahead // 2 - 1
        stamp_s = self.clock.stamp_s(state.tick, received_s)
        self.watch.look(state, self.clock.robot_s)
        asked = self._buttons.update(state.remote)
        if self._buttons.stop:
            self.watch.pressed_stop()
        if asked is not None:
            self.requests.append(asked)
        self.newest = Received(state, stamp_s)

    def _beat(self) -> None:
        """Show the guard that this thread works, and hear whether the guard has damped the robot."""
        if self.guard is not None:
            reason = self.guard.beat(b"" if self._withholds() else self._damping_now())
            if reason:
                self.watch.note("guard", reason)

    def _look(self, turn: int) -> None:
        """Look for other programs that command the robot, by what they announce and by what they send."""
        heard = len(take(self._others))
        if not heard and not self._link.has_changed(self._others) and turn % LOOK_EVERY:
            return
        others, command = self.others(), self._command
        self.crowded = bool(heard or others)
        if self.crowded and not (command is not None and command[2]):
            self._beat()  # The other may be the guard, which says why.
            sent = f"sent {heard} commands" if heard else "announces commands"
            self.watch.note(
                "second_writer",
                f"Another program {sent} on '{COMMAND_TOPIC}' ({', '.join(others) or 'it has gone'}; "
                f"{self._link.text}): two of them make the robot twitch. End it, or release its service.",
            )

    def _withholds(self) -> bool:
        """Whether the robot is left to another program: one commands it, and the owner wants no torque."""
        command = self._command
        return self.crowded and command is not None and command[2]

    def _damping_now(self) -> bytes:
        newest = self.newest
        return self._damping(0 if newest is None else newest.state.mode_machine)

    def _send(self) -> None:
        now_s = time.monotonic()
        command = self._command
        if self._withholds():
            return
        if command is None or self.watch.fault is not None or now_s - command[1] > self._timeout_s:
            data = self._damping_now()
            self.counts["damped"] += 1
        else:
            data = command[0]
        try:
            send(self._writer, self._command_kind, data)
        except RobotError as error:
            self.watch.note("link", str(error))
            return
        if self.counts["sent"]:
            self._periods[(self.counts["sent"] - 1) % KEPT_PERIODS] = now_s - self._sent_s
        self._sent_s = now_s
        self.counts["sent"] += 1

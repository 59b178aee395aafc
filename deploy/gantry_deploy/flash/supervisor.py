"""The service on a robot: runs the current release, watches first runs, and returns to the last good release.

Needs no other machine. The state on the disk says what is on trial and how often it was started, so that a release
that takes the whole computer down is given up as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path

from gantry_deploy.control.modes import Mode
from gantry_deploy.errors import FlashError
from gantry_deploy.flash.home import SERVICE_LOCK, HealthConfig, RobotConfig, RobotHome, Trial
from gantry_deploy.flash.selftest import python_of
from gantry_deploy.flash.status import STATUS_VARIABLE, Status, read_status, unsafe_reason
from gantry_deploy.flash.switch import commit, give_up
from gantry_deploy.process.folder_lock import FolderLock
from gantry_deploy.process.identity import process_identity
from gantry_deploy.process.interrupts import starting_uninterrupted
from gantry_deploy.process.with_parent import ending_with_this
from gantry_hardware.errors import GantryError

SERVICE = "service"
"""Name of the service in the log."""
LOOK_S = 0.1
"""Period at which everything is looked at."""
END_S = 15.0
"""Time that a runtime may take to damp the robot and end."""
CRASH_MEMORY_S = 600.0
"""Time for which a crash counts."""
CONFIG_S = 2.0
"""Pause before a configuration that makes no sense is looked at again."""
RESTART_S = 1.0
"""Pause before a good release is started again."""


class Verdict(Enum):
    """Outcome of a look at a running release."""

    GOING_ON = "going on"
    PROVED = "proved"
    FAILED = "failed"


class HealthWindow:
    """Judge of a first run: counts the time without a fault, and finds the fault.

    Args:
        config: What the run must be like.
        now_s: Time of the start, on the monotonic clock.
    """

    def __init__(self, config: HealthConfig, now_s: float) -> None:
        self._config, self._start_s = config, now_s
        self._last_s = now_s
        self._heard = False
        self._first: Status | None = None
        self.clean_s = 0.0
        """Time without a fault so far."""
        self.why = ""
        """What was wrong."""

    def look(self, status: Status | None, now_s: float) -> Verdict:
        """Judge the newest status of the process; None if it has said nothing yet."""
        config, passed_s = self._config, now_s - self._last_s
        self._last_s = now_s
        if status is None:
            if now_s - self._start_s > config.start_s:
                return self._fail(f"it said nothing within {config.start_s:g} s of its start")
            return Verdict.GOING_ON
        if status.mode == Mode.DAMP.value:
            return self._fail(f"the robot was damped: {status.fault or 'no reason given'}")
        if now_s - status.stamp_s > config.silence_s:
            return self._fail(f"its loop has stood still for {now_s - status.stamp_s:.1f} s")
        if self._first is None:
            self._first = status
        if not config.mode or status.mode == config.mode:
            self.clean_s += passed_s
        ticks = status.ticks - self._first.ticks
        missed = status.missed_deadlines - self._first.missed_deadlines
        if self.clean_s < config.window_s:
            return Verdict.GOING_ON
        if missed > config.missed_share * max(ticks, 1):
            return self._fail(f"{missed} of {ticks} ticks were late, allowed are {100.0 * config.missed_share:g} %")
        return Verdict.PROVED

    def _fail(self, why: str) -> Verdict:
        self.why = why
        return Verdict.FAILED


class Supervisor:
    """Runs releases until it is stopped.

    Args:
        home: The robot's folder, set up.
        say: Takes lines for people.

    Raises:
        FlashError: If another service runs in that folder, or the robot was never set up.
    """

    def __init__(self, home: RobotHome, say: Callable[[str], None]) -> None:
        self._home, self._say = home, say
        home.config()
        self._lock = FolderLock(
            home.root, "The robot's service", FlashError, name=SERVICE_LOCK, holder=process_identity()
        )
        self._stop = threading.Event()
        self._crashes: deque[float] = deque()

    def stop(self) -> None:
        """Let :meth:`run` end the runtime and return."""
        self._stop.set()

    def run(self) -> None:
        """Run what is current, and what becomes current, until :meth:`stop`."""
        try:
            while not self._stop.is_set():
                release = self._home.current()
                if release and release not in self._home.state().failed:
                    self._run_release(release)
                else:
                    self._stop.wait(LOOK_S)
        finally:
            self._lock.release()

    def _run_release(self, release: str) -> None:
        """One run of a release, to its end or to the next release."""
        config = self._configuration()
        on_trial = None if config is None else self._begin_trial(release, config)
        if config is None or on_trial is None:
            return
        try:
            command = run_command(self._home, release)
        except GantryError as error:
            self._failed(release, str(error), on_trial)
            return
        self._home.status_file.unlink(missing_ok=True)  # What is written from now on is of this run.
        self._say(f"{'first run of' if on_trial else 'running'} {release[:12]}")
        with starting_uninterrupted():
            process = subprocess.Popen(
                ending_with_this(command),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self._home.root,
                env={**os.environ, STATUS_VARIABLE: str(self._home.status_file)},
            )
        try:
            why = self._watch(release, process, config.health if on_trial else None)
        finally:
            self._end(process)
        if why:
            trial = self._home.state().trial  # None once the first run has proved the release.
            self._failed(release, why, on_trial and trial is not None and trial.release == release)

    def _configuration(self) -> RobotConfig | None:
        """The robot's configuration; None, after a while, where a person has made a mistake in it."""
        try:
            return self._home.config()
        except GantryError as error:
            self._say(str(error))
            self._stop.wait(CONFIG_S)
            return None

    def _begin_trial(self, release: str, config: RobotConfig) -> bool | None:
        """Whether this run is on trial; None if the release was given up instead."""
        state = self._home.state()
        if release in state.good and (state.trial is None or state.trial.release != release):
            if state.trial is not None:  # A power cut between state and link: the link counts.
                self._home.write_state(trial=None)
            return False
        trial = state.trial if state.trial is not None and state.trial.release == release else Trial(release)
        if trial.starts >= config.health.most_starts:
            why = f"it was started {trial.starts} times and never got through its first run"
            self._failed(release, why, on_trial=True)
            return None
        self._home.write_state(
            trial=replace(trial, starts=trial.starts + 1), note=f"first run of {release[:12]} has begun"
        )
        return True

    def _watch(self, release: str, process: subprocess.Popen[bytes], health: HealthConfig | None) -> str:
        """Watch a run until it ends, another release is current, or the service stops; returns what went wrong."""
        window = None if health is None else HealthWindow(health, time.monotonic())
        while not self._stop.is_set():
            code = process.poll()
            if code is not None:
                if code:
                    return _ended_text(code)
                if window is not None and window.clean_s == 0.0:
                    return "its process ended before it had said anything"
                if window is not None:
                    commit(self._home, release, SERVICE)  # A run of limited time that ended as it should.
                self._rest(release)
                return ""
            if self._home.current() != release and not unsafe_reason(self._home.status_file):
                return ""  # Another release is to run, and the robot is at rest.
            if window is not None:
                verdict = window.look(read_status(self._home.status_file), time.monotonic())
                if verdict is Verdict.FAILED:
                    return window.why
                if verdict is Verdict.PROVED:
                    commit(self._home, release, SERVICE)
                    self._say(f"{release[:12]} is good")
                    window = None
            self._stop.wait(LOOK_S)
        return ""

    def _rest(self, release: str) -> None:
        """Let nothing run after a run that ended by itself, until another is current or the service restarts."""
        self._say(f"{release[:12]} has ended by itself; it runs again when the service starts anew")
        self._home.write_state(note=f"{release[:12]} has ended by itself")
        self._wait_for_another(release)

    def _wait_for_another(self, release: str) -> None:
        """Wait until another release is current, or this one is on trial once more."""
        while not self._stop.is_set() and self._home.current() == release:
            trial = self._home.state().trial
            if trial is not None and trial.release == release and trial.starts == 0:
                return
            self._stop.wait(LOOK_S)

    def _failed(self, release: str, why: str, on_trial: bool) -> None:
        """A trial failed, or a good release crashed."""
        if on_trial:
            self._say(f"{release[:12]} is given up: {why}")
            last = give_up(self._home, release, why, SERVICE)
            self._say(f"back to {last[:12]}" if last else "there is no release before it; nothing runs")
            return
        now_s = time.monotonic()
        self._crashes.append(now_s)
        while now_s - self._crashes[0] > CRASH_MEMORY_S:
            self._crashes.popleft()
        self._home.note("crashed", SERVICE, release, why=why)
        most = self._home.config().health.most_crashes
        if len(self._crashes) < most:
            self._say(f"{release[:12]} crashed: {why}; it is started again")
            self._stop.wait(RESTART_S)
            return
        self._crashes.clear()
        text = (
            f"{release[:12]} crashed {most} times in {CRASH_MEMORY_S / 60.0:g} minutes ({why}) and is started no more"
        )
        self._say(text)
        self._home.note("stopped", SERVICE, release, why=text)
        self._home.write_state(note=text)
        self._wait_for_another(release)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Let the runtime damp the robot and end; a runtime that does not is killed with all that it started."""
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_command(home: RobotHome, release: str) -> list[str]:
    """Command line that runs a release.

    Raises:
        FlashError: If nothing says how it is run.
    """
    run, folder, python = home.run_config(release), home.releases / release, python_of(home, release)
    names = {
        "bundle": str(folder / "bundle"),
        "config": str(folder / "config"),
        "status": str(home.status_file),
        "python": python,
    }
    if run.command:
        return _with_path([_filled(word, names) for word in run.command])
    if not run.backend:
        raise FlashError("neither the release nor robot.yaml says how to run a bundle ('run').")
    words = [python, "-m", "gantry_deploy.cli.entry", "run", names["bundle"], "--backend", run.backend]
    words += ["--status-file", names["status"]]
    for key, value in run.options.items():
        words += ["--option", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return [*words, *(_filled(word, names) for word in run.arguments)]


def _filled(word: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _with_path(words: Sequence[str]) -> list[str]:
    """The same with the first word as a path, which a process is started by.

    Raises:
        FlashError: If there is no such program.
    """
    found = words[0] if Path(words[0]).is_absolute() else shutil.which(words[0])
    if found is None or not os.access(found, os.X_OK):
        raise FlashError(f"there is no program '{words[0]}' to run the release with.")
    return [found, *words[1:]]


def _ended_text(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"

"""Folder of releases on a robot's computer: its layout, the robot's own configuration, state, and log.

::

    robot.yaml          the robot's name and what it accepts; edited by a person, never by a release
    trusted_keys.json   keys whose signatures it accepts
    releases/HASH/      releases, whole and verified
    incoming/HASH/      one that is being copied
    current -> releases/HASH
    state.json          which releases were good, and which is on trial
    status.json         mode and fault of the running runtime
    log.jsonl           events with time, person and release; lines are only ever added
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.keys import RELEASE, ROLES
from gantry_deploy.errors import FlashError
from gantry_deploy.process.identity import is_running
from gantry_hardware.compat import UTC
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_hardware.files.json_file import parse_json_object, read_json_object
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.text import path_text
from gantry_hardware.files.whole_files import reach_disk, write_whole_json
from gantry_hardware.files.yaml_file import read_yaml

FLASH_LOCK, SERVICE_LOCK, _STATE_LOCK = ".flash.lock", ".service.lock", ".state.lock"
"""Files that a flash and the service hold, and a change of the state for its moment."""
RUN_FILE = "run.yaml"
"""File of a release's configuration that says how its bundle is run, in place of the robot's own ``run``."""


@dataclass(frozen=True)
class RunConfig:
    """Way in which a release is run."""

    backend: str = ""
    """Backend of ``gantry run``; empty with ``command``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the backend."""
    arguments: tuple[str, ...] = ()
    """Further words of ``gantry run``, for example ``--yes``."""
    command: tuple[str, ...] = ()
    """A whole command line in place of ``gantry run``; ``{bundle}``, ``{config}``, ``{status}`` and ``{python}`` stand
    for the release's bundle, its folder of configuration files, the file of the status, and its interpreter."""


@dataclass(frozen=True)
class HealthConfig:
    """Requirements of the first run of a release."""

    window_s: float = 30.0
    """Time without a fault after which it is good."""
    start_s: float = 30.0
    """Longest time until the runtime first says anything."""
    silence_s: float = 3.0
    """Longest time for which it may then be silent."""
    mode: str = ""
    """Mode whose time alone counts, for example ``POLICY``; empty for any."""
    missed_share: float = 0.2
    """Largest share of ticks whose deadline is missed in the window."""
    step_share: float = 0.5
    """Largest share of the control period that a step may take in the self-test, in the median."""
    most_starts: int = 3
    """Starts on trial, those after a power cut counted, before it is given up."""
    most_crashes: int = 3
    """Crashes of a good release within ten minutes before it is started no more."""

    def __post_init__(self) -> None:
        times = Range(0.1, 86400.0)
        ranges = {"window_s": times, "start_s": times, "silence_s": times, "missed_share": Range(0.0, 1.0)}
        ranges["step_share"] = Range(0.01, 100.0)
        check_fields(
            self, {**ranges, "most_starts": Range(1, 100), "most_crashes": Range(1, 100)}, "health.", FlashError
        )


@dataclass(frozen=True)
class RobotConfig:
    """Content of ``robot.yaml``."""

    robot: str
    """Name of the robot, as in contracts."""
    accept: tuple[str, ...] = (RELEASE,)
    """Roles of the keys whose signatures are accepted."""
    allow_unsigned: bool = False
    """Whether releases without a signature of such a key are accepted as well."""
    run: RunConfig = RunConfig()
    """Way in which bundles are run, unless a release brings its own ``run.yaml``."""
    health: HealthConfig = HealthConfig()
    """Requirements of a first run."""
    keep: int = 5
    """Releases that are kept at least; the current one and the good ones before it are among them."""
    safe_command: tuple[str, ...] = ()
    """Command that ends with 0 if the robot may be switched now, for example one that reads a support switch."""

    def __post_init__(self) -> None:
        for role in self.accept:
            if role not in ROLES:
                raise UnknownNameError("role of a key", role, ROLES)
        check_fields(self, {"keep": Range(2, 100)}, "", FlashError)


@dataclass(frozen=True)
class Trial:
    """A release that has not proved itself yet."""

    release: str
    """Its hash."""
    starts: int = 0
    """Number of its starts."""


@dataclass(frozen=True)
class State:
    """Fate of the releases."""

    good: tuple[str, ...] = ()
    """Releases that were good, newest last."""
    trial: Trial | None = None
    """The release on trial."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Reasons of releases that were given up, by hash."""
    note: str = ""
    """Newest news of the service, for people."""


class RobotHome:
    """The folder of releases on this computer.

    Args:
        root: Its place.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.releases, self.incoming = self.root / "releases", self.root / "incoming"
        self.current_link = self.root / "current"
        self.robot_file, self.keys_file = self.root / "robot.yaml", self.root / "trusted_keys.json"
        self.state_file, self.status_file = self.root / "state.json", self.root / "status.json"
        self.log_file = self.root / "log.jsonl"
        self._depth, self._state_lock = 0, -1

    def config(self) -> RobotConfig:
        """The robot's configuration.

        Raises:
            FlashError: If the folder was not set up, or the file says what makes no sense.
        """
        if not self.robot_file.is_file():
            raise FlashError(
                f"There is no {path_text(self.robot_file)}; set the robot up first: gantry flash --setup USER@HOST "
                "--robot NAME"
            )
        return from_plain(RobotConfig, read_yaml(self.robot_file), f"{path_text(self.robot_file)}", FlashError)

    def run_config(self, release: str) -> RunConfig:
        """Way in which a release is run.

        Raises:
            FlashError: If neither the release nor the robot says so, or it makes no sense.
        """
        path = self.releases / release / "config" / RUN_FILE
        if path.is_file():
            return from_plain(RunConfig, read_yaml(path), f"'{RUN_FILE}' of the release", FlashError)
        return self.config().run

    def state(self) -> State:
        """Fate of the releases; nothing yet if there is no file.

        Raises:
            FlashError: If the file is damaged.
        """
        try:
            data = read_json_object(self.state_file, error=FlashError)
        except FileNotFoundError:
            return State()
        return from_plain(State, data, f"{path_text(self.state_file)}", FlashError)

    @contextlib.contextmanager
    def changing(self) -> Iterator[State]:
        """The state, for a change of it and of the link that no other process gets between."""
        if self._depth == 0:
            self._state_lock = os.open(self.root / _STATE_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._state_lock, fcntl.LOCK_EX)
        self._depth += 1
        try:
            yield self.state()
        finally:
            self._depth -= 1
            if self._depth == 0:
                os.close(self._state_lock)

    def write_state(self, **changes: Any) -> None:
        """Change fields of the state; the new state is on the disk when this returns."""
        with self.changing() as state:
            write_whole_json(self.state_file, asdict(replace(state, **changes)))

    def current(self) -> str:
        """Hash of the release that is switched to; empty if there is none."""
        try:
            return Path(os.readlink(self.current_link)).name
        except OSError:
            return ""

    def last_good(self) -> str:
        """Hash of the release to return to; empty if none was ever good."""
        return next(iter(reversed(self.state().good)), "")

    def service_runs(self) -> bool:
        """Whether the service that watches first runs is running."""
        with contextlib.suppress(OSError):
            return is_running((self.root / SERVICE_LOCK).read_text().strip())
        return False

    def note(self, what: str, by: str, release: str = "", **details: Any) -> None:
        """Add a line to the log; it is on the disk when this returns, unless the disk is full.

        Args:
            what: Kind of event, for example ``switched``.
            by: Person and machine, or the service.
            release: Hash of the release.
            details: Further plain data.
        """
        line = {"time_utc": utc_now().isoformat(timespec="milliseconds"), "what": what, "by": by, "release": release}
        text = json.dumps({**line, **details}) + "\n"
        with contextlib.suppress(OSError):
            # One write of a file that is only ever appended to: lines of two processes do not mix.
            descriptor = os.open(self.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "ab", buffering=0) as file:
                file.write(text.encode())
                reach_disk(file)

    def log(self, most: int = 1000) -> list[dict[str, Any]]:
        """Newest lines of the log, oldest first; a line that a power cut left torn is passed over."""
        lines = self.log_file.read_bytes().splitlines()[-most:] if self.log_file.is_file() else []
        found = []
        for line in lines:
            with contextlib.suppress(GantryError):
                found.append(parse_json_object(line, "a line of the log"))
        return found


def robot_home(path: str | None) -> RobotHome:
    """The folder that is named, or ``GANTRY_ROBOT_HOME``, or ``~/gantry-robot``."""
    return RobotHome(Path(path or os.environ.get("GANTRY_ROBOT_HOME") or Path.home() / "gantry-robot").expanduser())


def utc_now() -> datetime:
    """Present time, UTC."""
    return datetime.now(UTC)


def this_person() -> str:
    """User and machine, for logs."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # A user without a name, as in a container.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"

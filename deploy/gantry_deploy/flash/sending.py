"""The engineer's side of a flash: sends a release, goes on after a cut, and tells what the robot says."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gantry_deploy.errors import FlashError
from gantry_deploy.flash.channel import PROTOCOL, CutError
from gantry_deploy.flash.home import this_person
from gantry_deploy.flash.release import Release
from gantry_deploy.flash.ssh import Connection, Target
from gantry_hardware.files.text import printable

RETRIES = 5
"""Attempts after the first one, each of which goes on where the last one was cut."""
PAUSE_S = 1.0
"""Pause before another attempt."""


@dataclass
class Outcome:
    """Result of a flash, for people and programs."""

    release: str
    """Hash of the release."""
    state: str = "refused"
    """``good``, ``returned``, ``waiting`` (for its first run), ``unknown`` (the connection was cut after the switch),
    ``ready`` (dry run: would be copied), ``refused``."""
    text: str = ""
    """The robot's words on it."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """Findings of the preflight."""
    stages: list[dict[str, Any]] = field(default_factory=list)
    """Results of verification and self-test on the robot."""
    bytes_sent: int = 0
    """Bytes of files that were sent, in all attempts."""
    attempts: int = 0
    """Connections that were made."""


@dataclass(frozen=True)
class Plan:
    """Flash to be made."""

    release: Release
    """Content."""
    target: Target
    """Destination."""
    dry_run: bool = False
    """Whether to end after the preflight."""
    no_return: bool = False
    """Whether to do without a release to return to."""
    retries: int = RETRIES
    """Further attempts after a cut."""
    pause_s: float = PAUSE_S
    """Pause before each."""


def flash(plan: Plan, say: Callable[[str], None]) -> Outcome:
    """Put a release onto a robot.

    Args:
        plan: Release and destination.
        say: Takes lines for people.

    Raises:
        FlashError: If the robot cannot be reached, or refuses.
    """
    flash_id, outcome = uuid.uuid4().hex, Outcome(plan.release.manifest.release)
    while True:
        outcome.attempts += 1
        outcome.findings, outcome.stages = [], []
        with Connection(plan.target, ["onboard", "receive"]) as connection:
            try:
                return Attempt(plan, connection, outcome, say, flash_id).run()
            except _BusyWithThisError as busy:
                trouble, helps = busy, True
            except CutError as error:
                trouble, helps = connection.explain(error)
        if outcome.state == "unknown":
            outcome.text = (
                f"switched, then: {trouble} The robot watches the first run by itself; see gantry flash --list."
            )
            return outcome
        if not helps or outcome.attempts > plan.retries:
            raise trouble
        say(f"{str(trouble).rstrip('.')}. Going on in {plan.pause_s:g} s.")
        time.sleep(plan.pause_s)


class _BusyWithThisError(FlashError):
    """The robot has not noticed yet that an earlier attempt of the same flash is over."""


class Attempt:
    """One connection of a flash."""

    def __init__(
        self, plan: Plan, connection: Connection, outcome: Outcome, say: Callable[[str], None], flash_id: str
    ) -> None:
        self._plan, self._channel, self._outcome, self._say = plan, connection.channel, outcome, say
        self._flash_id = flash_id

    def run(self) -> Outcome:
        """Everything from the first message to the last.

        Raises:
            CutError: If the connection is cut.
            FlashError: If the robot refuses.
        """
        outcome = self._outcome
        self.ask()
        if not self.preflight():
            failed = ", ".join(item["name"] for item in outcome.findings if not item["passed"])
            raise FlashError(f"Refused before anything was copied: {failed}.")
        if self._plan.dry_run:
            outcome.state, outcome.text = "ready", "nothing was copied (dry run)"
            return outcome
        message = self._receive("have", "done")
        if message["kind"] == "done":
            return self._done(message)
        self._send_files(message["sizes"])
        self._until_ready()
        self._channel.send("switch")
        outcome.state = "unknown"
        return self._until_done()

    def ask(self) -> None:
        """Name the release and the person.

        Raises:
            CutError: If the connection is cut.
        """
        release = self._plan.release
        self._channel.send(
            "flash",
            protocol=PROTOCOL,
            id=self._flash_id,
            by=this_person(),
            now_s=time.time(),
            manifest=release.manifest.text.decode(),
            contract=release.contract,
            bundle_manifest=release.bundle_manifest.decode(),
            dry_run=self._plan.dry_run,
            no_return=self._plan.no_return,
        )

    def preflight(self) -> bool:
        """Hear what the robot looked at; whether all of it is right.

        Raises:
            CutError: If the connection is cut.
            FlashError: If the robot refuses for another reason.
        """
        while (message := self._receive("finding", "verdict"))["kind"] == "finding":
            self._outcome.findings.append({name: message[name] for name in ("name", "passed", "text")})
            self._tell(message)
        return bool(message["passed"])

    def _send_files(self, sizes: dict[str, int]) -> None:
        files = self._plan.release.manifest.files
        left = sum(file.size - int(sizes.get(file.path, 0)) for file in files)
        self._say(f"  copying {left} of {sum(file.size for file in files)} bytes")
        for file in files:
            try:
                for piece in self._plan.release.read(file.path, int(sizes.get(file.path, 0))):
                    self._channel.send_bytes(piece)
                    self._outcome.bytes_sent += len(piece)
            except CutError:
                self._refusal()  # The robot may have said why it hung up: its disk is full.
                raise

    def _refusal(self) -> None:
        while True:
            self._receive()

    def _until_ready(self) -> None:
        while (message := self._receive("stage", "ready"))["kind"] == "stage":
            self._outcome.stages.append({name: message[name] for name in ("name", "passed", "text")})
            self._tell(message)

    def _until_done(self) -> Outcome:
        while (message := self._receive("switched", "health", "done"))["kind"] != "done":
            text = "switched; the first run is being watched" if message["kind"] == "switched" else message["text"]
            self._say(f"  {printable(str(text), 500)}")
        return self._done(message)

    def _done(self, message: dict[str, Any]) -> Outcome:
        self._outcome.state, self._outcome.text = str(message["state"]), printable(str(message["text"]), 1000)
        return self._outcome

    def _receive(self, *kinds: str) -> dict[str, Any]:
        message = self._channel.receive(*((*kinds, "refused", "busy") if kinds else ()))
        if message["kind"] == "busy":
            same = message.get("id") and message.get("id") == self._flash_id
            raise (_BusyWithThisError if same else FlashError)(str(message["text"]))
        if message["kind"] == "refused":
            self._outcome.state = "refused"
            raise FlashError(str(message["text"]))
        return message

    def _tell(self, message: dict[str, Any]) -> None:
        mark = "ok" if message["passed"] else "NO"
        self._say(f"  {mark}  {message['name']:<13} {printable(str(message['text']), 1000)}")

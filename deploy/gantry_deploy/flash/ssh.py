"""SSH through the system's own OpenSSH client: the user's keys, agent, configuration and jump hosts hold as they are.

A library would have to repeat all of that. One process per flash carries everything over its standard streams, so that
one connection is made, and one question for a passphrase asked.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO

from gantry_deploy.errors import FlashError
from gantry_deploy.flash.channel import Channel, CutError
from gantry_hardware.files.text import plain_text, printable

CONNECT_S = 10
"""Time in which a host must answer."""
ALIVE_S, ALIVE_COUNT = 5, 3
"""Period of the client's questions whether the host is still there, and how many go unanswered before it gives up."""
LOST = 255
"""Exit code of ``ssh`` where the connection, and not the command, failed."""
_FINAL = re.compile(
    r"permission denied|host key verification failed|could not resolve|no such identity|bad configuration|"
    r"identification has changed|unprotected private key|too many authentication failures",
    re.IGNORECASE,
)
"""Troubles that another attempt does not mend."""
_NO_CLIENT = "There is no 'ssh' on this machine; install the OpenSSH client (openssh-client)."
DEFAULT_COMMAND = 'if [ -x "$HOME/gantry-robot/venv/bin/gantry" ]; then set -- "$HOME/gantry-robot/venv/bin/gantry" "$@"; else set -- gantry "$@"; fi; exec "$@"'  # noqa: E501
"""Shell that finds the robot's ``gantry``: in the environment of the guide, or on the path."""


@dataclass(frozen=True)
class Target:
    """A robot's computer, and how to reach it."""

    host: str
    """``USER@HOST``, or a name of the SSH configuration."""
    port: int | None = None
    """Port; that of the SSH configuration if None."""
    config: str = ""
    """SSH configuration file in place of the user's."""
    command: str = ""
    """The robot's ``gantry``, with its path; looked for if empty."""
    home: str = ""
    """The robot's folder of releases; its own default if empty."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][^\s'\"`$;&|<>]*", self.host):
            raise FlashError(
                f"{plain_text(self.host)} is no host, expected USER@HOST or a name of the SSH configuration."
            )

    def words(self, arguments: Sequence[str]) -> list[str]:
        """Command line that runs ``gantry`` with these arguments there, for the robot's folder of releases."""
        options = {"ConnectTimeout": CONNECT_S, "ServerAliveInterval": ALIVE_S, "ServerAliveCountMax": ALIVE_COUNT}
        words = ["ssh", "-T", *(f"-o{name}={value}" for name, value in options.items())]
        words += ["-F", self.config] if self.config else []
        words += ["-p", str(self.port)] if self.port else []
        home = ["--home", self.home] if self.home else []
        inner = shlex.join([*arguments, *home])
        remote = f"exec {self.command} {inner}" if self.command else f"sh -c {shlex.quote(DEFAULT_COMMAND)} sh {inner}"
        return [*words, "--", self.host, remote]


class Connection:
    """A command on the robot's computer, its standard streams as a channel.

    Args:
        target: The robot.
        arguments: Words after ``gantry``.

    Raises:
        FlashError: If there is no SSH client here.
    """

    def __init__(self, target: Target, arguments: Sequence[str]) -> None:
        if shutil.which("ssh") is None:
            raise FlashError(_NO_CLIENT)
        self.target = target
        self._process = subprocess.Popen(
            target.words(arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        self.channel = Channel(source.fileno(), sink.fileno())
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True)
        self._listener.start()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> int:
        """End the connection; its exit code."""
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        try:
            code = self._process.wait(2.0 * CONNECT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._listener.join(1.0)
        return code

    def explain(self, error: CutError) -> tuple[FlashError, bool]:
        """Reason of a cut, and whether another attempt may help."""
        code = self.close()
        helps = (code == LOST and not _FINAL.search("\n".join(self._said))) or (code in (0, 2) and not self._said)
        if code in (0, 2) and not self._said:
            return FlashError(f"{self.target.host} ended without an answer ({error})"), helps
        return _trouble(self.target.host, code, self._said), helps

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            text = printable(line.decode("utf-8", "replace").strip(), 500)
            if text and not text.startswith("Warning: Permanently added"):
                self._said.append(text)
                del self._said[:-20]


def call(target: Target, arguments: Sequence[str]) -> str:
    """Run ``gantry`` on the robot's computer to its end; returns what it printed.

    Raises:
        FlashError: If it cannot be reached, or refuses, with the reason.
    """
    if shutil.which("ssh") is None:
        raise FlashError(_NO_CLIENT)
    done = subprocess.run(
        target.words(arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    said = [printable(line, 1000) for line in done.stderr.splitlines() if line.strip()]
    if done.returncode in (0, 1):
        return done.stdout
    raise _trouble(target.host, done.returncode, said)


def _trouble(host: str, code: int, said: list[str]) -> FlashError:
    """Error of a command on a robot, by its exit code and its newest lines."""
    last = said[-1] if said else ""
    if code == LOST:
        return FlashError(f"The connection to {host} was cut or never made{f': {last}' if last else '.'}")
    if code in (126, 127):
        return FlashError(
            f"{host} has no 'gantry' where it is looked for ({last}); install it there (docs/flash.md, first setup), "
            "or say where it is with --gantry PATH."
        )
    return FlashError(f"{host}: {last.removeprefix('Error: ') or f'ended with exit code {code}'}")

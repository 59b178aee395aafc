"""Client of a policy server that speaks openpi's protocol: every call has a deadline, every answer is judged."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect

from gantry_deploy.errors import PolicyServerError
from gantry_deploy.openpi.answers import checked_answer, metadata_changes
from gantry_deploy.openpi.codec import MESSAGE_LIMITS, MessageLimits, decode, encode
from gantry_deploy.openpi.description import PolicyDescription
from gantry_hardware.files.bounds import finite, whole
from gantry_hardware.files.text import LINE_LIMIT, path_text, plain_text, printable

MAX_DEADLINE_S = 3600.0
"""Longest time that a call may be given."""
CLOSE_S = 0.5
"""Time for the closing handshake of a connection that is given up."""
REFUSALS = (401, 403, 407)
"""HTTP statuses with which a server does not take a client, however often it asks."""


class PolicyClient:
    """Connection to a policy server; it is made at once, and made again after a cut. For one thread at a time.

    A call that is not answered leaves no connection: an answer that comes late can never be taken for the next one.
    Whatever a server remembers of a client begins anew with the next connection.

    Args:
        host: Name or address of the server.
        port: Its port.
        api_key: Sent as ``Authorization: Api-Key ...``; None for none.
        deadline_s: Longest time of a call of :meth:`infer`, s, connecting again included. A server that compiles its
            network at the first question needs more for that one.
        connect_s: Longest time until the first connection stands and has told its metadata, s.
        retries: Further attempts of a call, or of the first connection, after a cut or where nothing listens.
        backoff_s: Pause before the first further attempt, s; each next one is twice as long.
        authority: Certificate of the authority to trust, PEM: TLS is spoken then. None speaks plainly.
        limits: Bounds of messages.

    Raises:
        PolicyServerError: If no connection comes about in time, the client is refused, or the metadata are none.
        GantryError: If a setting is out of range.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        api_key: str | None = None,
        deadline_s: float = 2.0,
        connect_s: float = 5.0,
        retries: int = 2,
        backoff_s: float = 0.1,
        authority: Path | None = None,
        limits: MessageLimits = MESSAGE_LIMITS,
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        """Host and port."""
        whole("port", port, 1, 65535)
        self._deadline_s = finite("deadline_s", deadline_s, 1e-3, MAX_DEADLINE_S)
        finite("connect_s", connect_s, 1e-3, MAX_DEADLINE_S)
        self._retries = whole("retries", retries, 0, 100)
        self._backoff_s = finite("backoff_s", backoff_s, 0.0, MAX_DEADLINE_S)
        self._tls = None if authority is None else _tls_context(authority)
        self._headers = {} if api_key is None else {"Authorization": f"Api-Key {api_key}"}
        self._limits = limits
        self._connection: ClientConnection | None = None
        self._metadata: dict[Any, Any] | None = None
        self._shape: tuple[int, ...] | None = None
        with _Deadline(connect_s) as deadline:
            self._attempts(deadline, lambda: self._open(deadline))
        try:
            self._description = PolicyDescription.from_metadata(self.metadata)
        except PolicyServerError:
            self._drop()
            raise

    @property
    def metadata(self) -> Mapping[Any, Any]:
        """Metadata that the server told first; another server's, after a restart, are never taken in their place."""
        assert self._metadata is not None
        return self._metadata

    @property
    def description(self) -> PolicyDescription:
        """Description in the metadata; it tells nothing where the server tells none."""
        return self._description

    def infer(self, observation: Mapping[str, Any], rows: int | None = None) -> dict[Any, Any]:
        """Ask for actions.

        Args:
            observation: As the server wants it; see its metadata.
            rows: Number of questions in the observation, for a server that takes several at once; None for one.

        Returns:
            The server's answer. ``actions`` is float32, (horizon, n), or (rows, horizon, n), in the server's units.

        Raises:
            PolicyServerError: If no answer comes in time, the server sends an error, serves another policy after a
                restart, or the actions are missing, of the wrong shape or kind, or not finite.
        """
        data = encode(observation, self._limits)
        with _Deadline(self._deadline_s) as deadline:
            answer = self._attempts(deadline, lambda: self._ask(data, deadline))
        actions = checked_answer(answer, self._description, self._shape, rows, self.address)
        self._shape = actions.shape[-2:]
        return {**answer, "actions": actions}

    def close(self) -> None:
        """End the connection; a later call makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _attempts(self, deadline: _Deadline, act: Callable[[], Any]) -> Any:
        """Result of the first attempt that succeeds; one that would fail again, or comes too late, is the last."""
        pause_s = self._backoff_s
        for attempt in range(self._retries + 1):
            try:
                return act()
            except PolicyServerError:
                self._drop()
                raise
            except (OSError, EOFError, ConnectionClosed, InvalidHandshake, InvalidURI) as error:
                self._drop()
                if deadline.is_over or isinstance(error, TimeoutError):
                    raise self._slow(deadline) from error
                if attempt == self._retries or _is_refusal(error):
                    raise self._failed(error, attempt + 1) from error
            if not deadline.wait(pause_s):
                raise self._slow(deadline)
            pause_s *= 2.0
        raise AssertionError

    def _ask(self, data: bytes, deadline: _Deadline) -> dict[Any, Any]:
        if self._connection is None:
            self._open(deadline)
        connection = self._connection
        assert connection is not None
        with deadline.cutting(connection.socket):
            connection.send(data)
            answer = connection.recv(deadline.left_s)
        return self._message(answer)

    def _open(self, deadline: _Deadline) -> None:
        """Connect, and compare what the server says of itself with what it said first."""
        scheme = "ws" if self._tls is None else "wss"
        self._connection = connect(
            f"{scheme}://{self.address}",
            additional_headers=self._headers,
            compression=None,
            max_size=self._limits.message_bytes,
            open_timeout=deadline.left_s,
            close_timeout=CLOSE_S,
            ping_interval=None,  # Every call has a deadline; a server that computes on its event loop answers no pings.
            proxy=None,
            ssl=self._tls,
        )
        with deadline.cutting(self._connection.socket):
            metadata = self._message(self._connection.recv(deadline.left_s))
        if self._metadata is None:
            self._metadata = metadata
        elif changes := metadata_changes(self._metadata, metadata):
            raise PolicyServerError(
                "other_model",
                f"The policy server {self.address} came back with another policy, which is not asked. Changed: "
                f"{'; '.join(changes)}.",
            )

    def _message(self, answer: str | bytes) -> dict[Any, Any]:
        if isinstance(answer, bytes):
            return decode(answer, self._limits)
        lines = [line.strip() for line in answer.splitlines() if line.strip()]
        last = printable(lines[-1], LINE_LIMIT // 2) if lines else "(nothing)"
        raise PolicyServerError("error_frame", f"The policy server {self.address} failed: {last}", answer)

    def _drop(self) -> None:
        """Give the connection up without waiting for the other side."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(Exception):
                connection.close()

    def _slow(self, deadline: _Deadline) -> PolicyServerError:
        return PolicyServerError(
            "slow", f"The policy server {self.address} has not answered within {deadline.limit_s:g} s."
        )

    def _failed(self, error: Exception, attempts: int) -> PolicyServerError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return PolicyServerError(
                "refused", f"The certificate of policy server {self.address} is not trusted: {error.verify_message}."
            )
        if isinstance(error, InvalidStatus):
            body = (error.response.body or b"").decode("utf-8", "replace").strip()
            said = f"HTTP {error.response.status_code}" + (f", {plain_text(body, LINE_LIMIT // 2)}" if body else "")
            reason = "refused" if _is_refusal(error) else "dead"
            return PolicyServerError(reason, f"The policy server {self.address} takes no connection: {said}.")
        times = "once" if attempts == 1 else f"{attempts} times"
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return PolicyServerError("dead", f"No policy server answers at {self.address}, tried {times} ({words}).")


class _Deadline:
    """Longest time of a call: it cuts the socket that the call waits for, whatever it is doing with it."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._end_s = time.monotonic() + limit_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(limit_s, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    @property
    def left_s(self) -> float:
        """Time that is left, s; never quite none, for what takes no zero."""
        return max(self._end_s - time.monotonic(), 1e-3)

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._end_s

    def wait(self, pause_s: float) -> bool:
        """Pause; False, at once, if the time would be over by then."""
        if self.left_s <= pause_s:
            return False
        time.sleep(pause_s)
        return True

    @contextlib.contextmanager
    def cutting(self, used: socket.socket) -> Any:
        """Cut a socket if the time ends in this block: a full buffer blocks a sender without a limit of its own."""
        with self._lock:
            self._socket = used
        try:
            yield
        finally:
            with self._lock:
                self._socket = None

    def _cut(self) -> None:
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


def _is_refusal(error: Exception) -> bool:
    if isinstance(error, InvalidStatus):
        return error.response.status_code in REFUSALS
    return isinstance(error, (ssl.SSLCertVerificationError, InvalidURI))


def _tls_context(authority: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        raise PolicyServerError(
            "refused", f"{path_text(authority)} is no certificate of an authority in PEM: {error}."
        ) from error

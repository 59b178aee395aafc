"""An HTTP server whose connections are bounded in number, time and size, so that no client can hold it up."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOG = logging.getLogger("gantry.page")

HEAD_BYTES = 16 * 1024
"""Largest request line with headers."""
BODY_BYTES = 4 * 1024
"""Largest body."""
REQUEST_S = 5.0
"""Longest time in which a request must have arrived whole."""
IDLE_S = 20.0
"""Longest time between two requests of a connection."""
SEND_S = 5.0
"""Longest wait for a client that does not read."""
MOST = 48
"""Connections of a server at once."""
POLL_S = 0.1


@dataclass
class Slot:
    """A connection and its present deadline."""

    connection: socket.socket
    deadline_s: float | None
    """On the steady clock; None while the server is at work for it."""
    known: bool = False
    """Whether a request of it has brought the right token."""


class BoundedServer(ThreadingHTTPServer):
    """A thread per connection, at most :data:`MOST`; a full server drops the oldest stranger for a newcomer.

    Args:
        address: Host and port to listen on.
        handler: Class of the requests' handler.
        name: Name of its threads.
        tls: Context of TLS; None for plain HTTP.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BoundedHandler],
        name: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(address, handler)
        self._tls, self._name = tls, name
        self._slots: dict[int, Slot] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(POLL_S,), name=name, daemon=True)

    def start(self) -> None:
        """Accept connections in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """End every connection; threads inside of a callback are left to themselves."""
        if self._thread.ident is not None:
            self.shutdown()
        self.server_close()
        with self._lock:
            slots = list(self._slots.values())
        for slot in slots:
            _shut(slot.connection)

    def server_bind(self) -> None:
        """Bind without asking a name server for the host's name."""
        socket_address: Any = self.server_address
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(socket_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """Accept; the handshake of TLS is left to the connection's thread."""
        connection, address = super().get_request()
        connection.settimeout(SEND_S)
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take a place for a connection, if need be that of the oldest stranger."""
        with self._lock:
            if len(self._slots) >= MOST:
                strangers = [slot for slot in self._slots.values() if not slot.known and slot.deadline_s is not None]
                if not strangers:
                    return False
                oldest = min(strangers, key=lambda slot: slot.deadline_s or 0.0)
                _shut(oldest.connection)
                self._slots = {key: slot for key, slot in self._slots.items() if slot is not oldest}
            self._slots[id(request)] = Slot(request, time.monotonic() + REQUEST_S)
        return True

    def shutdown_request(self, request: Any) -> None:
        """Give back the place of a connection."""
        with self._lock:
            self._slots.pop(id(request), None)
        super().shutdown_request(request)

    def slot(self, request: Any) -> Slot:
        """Place of a connection; of one that was dropped a place that counts no more."""
        with self._lock:
            return self._slots.get(id(request)) or Slot(request, 0.0)

    def service_actions(self) -> None:
        """Drop connections that are late."""
        now_s = time.monotonic()
        with self._lock:
            late = [slot for slot in self._slots.values() if slot.deadline_s is not None and slot.deadline_s < now_s]
        for slot in late:
            _shut(slot.connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep errors of connections out of the terminal."""
        LOG.debug("A connection of the page ended with an error.", exc_info=True)


class BoundedHandler(BaseHTTPRequestHandler):
    """Reads requests within the bounds, and answers with JSON or bytes."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: BoundedServer

    def setup(self) -> None:
        """Bound the bytes of a request's head."""
        super().setup()
        self.reader = BoundedReader(self.rfile)
        self.rfile = self.reader
        self.place = self.server.slot(self.request)

    def handle_one_request(self) -> None:
        """One request; the time for it runs from its first byte or, of a new connection, from the beginning."""
        self.reader.budget = HEAD_BYTES
        with contextlib.suppress(OSError, ValueError):
            if isinstance(self.request, ssl.SSLSocket) and self.place.deadline_s is not None:
                self.request.do_handshake()
            super().handle_one_request()
            if self.place.deadline_s is None:
                self.place.deadline_s = time.monotonic() + IDLE_S
            self.request.settimeout(SEND_S if self.close_connection else IDLE_S)
            return
        self.close_connection = True

    def parse_request(self) -> bool:
        """The head has arrived, or is refused."""
        self.place.deadline_s = time.monotonic() + REQUEST_S
        return super().parse_request()

    def body(self) -> bytes | None:
        """Body of the request; None after an answer that refuses its size."""
        lengths = self.headers.get_all("Content-Length", [])
        if self.headers.get("Transfer-Encoding") or len(lengths) != 1 or not lengths[0].isdecimal():
            self.refuse(411, "A request needs one Content-Length.")
            return None
        length = int(lengths[0][:12])
        if length > BODY_BYTES:
            self.refuse(413, f"A request's body has {length} bytes, at most {BODY_BYTES} are read.")
            return None
        self.reader.budget = length
        data = self.rfile.read(length)
        return data if len(data) == length else None

    def answer(self, code: int, kind: str, data: bytes, extra: dict[str, str] | None = None) -> None:
        """Send an answer of a content type, with headers that forbid everything else."""
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.guard_headers()
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def guard_headers(self) -> None:
        """Headers of every answer."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")

    def refuse(self, code: int, reason: str) -> None:
        """Answer with a reason and end the connection."""
        self.close_connection = True
        self.answer(code, "text/plain; charset=utf-8", reason.encode("utf-8", "replace"))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Errors of the HTTP parser."""
        del explain
        if not hasattr(self, "command") or self.command is None:
            self.command = ""
        self.refuse(code, message or "This request cannot be answered.")

    def version_string(self) -> str:
        """Name of the server without versions."""
        return "gantry"

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the terminal."""
        LOG.debug(format, *args)


class BoundedReader(io.BufferedIOBase):
    """A reader that ends the connection when a budget of bytes is used up."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner
        self.budget = HEAD_BYTES
        """Bytes that may still be read."""

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line within the budget."""
        wanted = self.budget + 1 if size is None or size < 0 else min(size, self.budget + 1)
        return self._spent(self._inner.readline(wanted))

    def read(self, size: int | None = -1, /) -> bytes:
        """Bytes within the budget."""
        wanted = self.budget + 1 if size is None or size < 0 else min(size, self.budget + 1)
        return self._spent(self._inner.read(wanted))

    def close(self) -> None:
        """Close what is read from."""
        self._inner.close()
        super().close()

    def _spent(self, data: bytes) -> bytes:
        self.budget -= len(data)
        if self.budget < 0:
            raise ConnectionError(f"A request is longer than {HEAD_BYTES} bytes.")
        return data


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Of an encrypted connection too without its farewell, which could wait for the other side.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)

"""Server of openpi's websocket protocol for a bundle: metadata, then one answer for each observation."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from gantry_deploy.errors import PolicyServerError
from gantry_deploy.openpi.codec import MESSAGE_LIMITS, MessageLimits, decode, encode
from gantry_deploy.openpi.served import ServedClient, ServedPolicy
from gantry_deploy.process.hosts import is_loopback
from gantry_deploy.process.server_tls import server_context
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import plain_text

_LOG = logging.getLogger("gantry.serve")

HEALTH = "/healthz"
"""Path that answers plain HTTP, for whatever looks whether the server lives."""
INTERNAL_ERROR = 1011
"""Close code after an error."""
MAX_CLIENTS = 16
"""Clients at the same time."""
CLOSE_S = 1.0
"""Time for the closing handshakes when the server ends."""
MIN_KEY = 16
"""Fewest characters of an API key."""


@dataclass(frozen=True)
class ServeConfig:
    """Place and access of a server."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8000
    """Port; 0 for a free one."""
    api_key: str | None = None
    """Key that clients must send as ``Authorization: Api-Key ...``; None takes everybody that reaches the port."""
    tls_certificate: Path | None = None
    """Certificate with its chain, PEM; None speaks plainly."""
    tls_key: Path | None = None
    """Its private key, PEM without a password."""
    insecure: bool = False
    """Whether a key and pictures may travel unencrypted off this machine."""

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise GantryError("TLS needs a certificate and its key: give --tls-cert and --tls-key.")
        if not 0 <= self.port <= 65535:
            raise GantryError(f"The port is {self.port}, expected 0 (a free one) to 65535.")
        if self.api_key is not None and (len(self.api_key) < MIN_KEY or not self.api_key.isprintable()):
            raise GantryError(f"The API key must be {MIN_KEY} or more printable characters on one line.")
        if is_loopback(self.host) or self.tls_certificate is not None:
            return
        if self.api_key is None or not self.insecure:
            raise GantryError(
                f"{plain_text(self.host)} can be reached from other machines, and there every one of them could use "
                "the policy and read along. Give --tls-cert and --tls-key; or --api-key-file together with --insecure, "
                "where the network is trusted: the key and all pictures travel unencrypted then."
            )


class PolicyServer:
    """Server of a policy. Clients are answered one after another, by one thread beside the event loop.

    Args:
        served: The policy.
        config: Place and access.
        limits: Bounds of messages.

    Raises:
        GantryError: If the certificate or its key cannot be used.
    """

    def __init__(self, served: ServedPolicy, config: ServeConfig, limits: MessageLimits = MESSAGE_LIMITS) -> None:
        self._served, self._config, self._limits = served, config, limits
        self._tls = None
        if config.tls_certificate is not None and config.tls_key is not None:
            self._tls = server_context(config.tls_certificate, config.tls_key, "The certificate")
        self._metadata = encode(served.metadata, limits)
        self._clients = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve for as long as the block runs; gives the address, ``ws://host:port``.

        Raises:
            GantryError: If the address cannot be listened on.
        """
        config = self._config
        with ThreadPoolExecutor(1, "gantry-serve") as worker:

            async def talk(connection: ServerConnection) -> None:
                await self._talk(connection, worker)

            try:
                server = await serve(
                    talk,
                    config.host,
                    config.port,
                    compression=None,
                    max_size=self._limits.message_bytes,
                    max_queue=1,
                    origins=[None],  # A page in a browser must not ask a server on this machine.
                    process_request=self._judge,
                    close_timeout=CLOSE_S,
                    ssl=self._tls,
                )
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error
                raise GantryError(f"Cannot listen on {config.host}, port {config.port}: {reason}.") from error
            try:
                yield self._address(server)
            finally:
                server.close()
                await server.wait_closed()

    def _address(self, server: Server) -> str:
        name = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        port = next(iter(server.sockets)).getsockname()[1]
        return f"{'ws' if self._tls is None else 'wss'}://{name}:{port}"

    def _judge(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer to a request that is no conversation; None for one that may begin."""
        if request.path == HEALTH:
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        if (key := self._config.api_key) is not None:
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Api-Key {key}".encode()):
                return connection.respond(http.HTTPStatus.UNAUTHORIZED, "The API key is missing or wrong.\n")
        if self._clients >= MAX_CLIENTS:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_CLIENTS} clients are connected.\n")
        return None

    async def _talk(self, connection: ServerConnection, worker: ThreadPoolExecutor) -> None:
        self._clients += 1
        try:
            await self._answers(connection, self._served.client(), worker)
        except ConnectionClosed:
            return
        finally:
            self._clients -= 1

    async def _answers(self, connection: ServerConnection, client: ServedClient, worker: ThreadPoolExecutor) -> None:
        loop, total_ms = asyncio.get_running_loop(), None
        await connection.send(self._metadata)
        while True:
            message = await connection.recv()
            begin_s = time.perf_counter()
            try:
                answer, infer_ms = await loop.run_in_executor(worker, self._infer, client, message)
                timing = {"infer_ms": infer_ms} | ({} if total_ms is None else {"prev_total_ms": total_ms})
                data = encode({**answer, "server_timing": timing}, self._limits)
            except GantryError as error:
                await _fail(connection, str(error))
                return
            except Exception as error:
                _LOG.exception("An observation could not be answered.")
                await _fail(connection, f"The server failed, its log says more: {type(error).__name__}.")
                return
            await connection.send(data)
            total_ms = 1e3 * (time.perf_counter() - begin_s)

    def _infer(self, client: ServedClient, message: str | bytes) -> tuple[dict[str, object], float]:
        """Answer to a message, and the time that it took in ms; runs in the worker."""
        if isinstance(message, str):
            raise PolicyServerError("malformed", "An observation is a text, expected a binary message in msgpack.")
        begin_s = time.perf_counter()
        return client.infer(decode(message, self._limits)), 1e3 * (time.perf_counter() - begin_s)


async def serve_until(server: PolicyServer, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
    """Serve until an event is set.

    Args:
        server: The server.
        stop: Ends it.
        ready: Called with the address once clients can connect.

    Raises:
        GantryError: If the address cannot be listened on.
    """
    async with server.serving() as address:
        ready(address)
        await stop.wait()


async def _fail(connection: ServerConnection, text: str) -> None:
    """Tell a client of an error as openpi's server does: a text, then the end of the connection."""
    await connection.send(f"gantry serve: {text}")
    await connection.close(INTERNAL_ERROR, "The observation was refused; the text before says why.")

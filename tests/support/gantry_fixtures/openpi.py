"""Policy servers for tests: one of a bundle in a thread, the command in a process, and servers that do harm."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.server import ServerConnection, serve

from gantry_deploy.openpi.codec import decode, encode
from gantry_deploy.openpi.served import ServedPolicy
from gantry_deploy.openpi.server import PolicyServer, ServeConfig, serve_until

Answer = Callable[[ServerConnection, dict[Any, Any]], None]
"""Answers one observation, or does not."""
COMMAND = "from gantry_deploy.cli.entry import main; raise SystemExit(main())"


def shape_of(*shape: int) -> Answer:
    """Zeros of a shape as the actions of every answer."""
    return lambda connection, observation: connection.send(encode({"actions": np.zeros(shape, np.float32)}))


@contextlib.contextmanager
def other_server(
    answer: Answer,
    metadata: dict[str, Any] | None = None,
    port: int = 0,
    begin: Callable[[ServerConnection], None] = lambda connection: None,
) -> Iterator[int]:
    """A server of another maker: metadata, ``begin``, then what ``answer`` does with each observation. Gives the port.

    Its end cuts all connections, as that of a process does.
    """
    connections: list[ServerConnection] = []

    def talk(connection: ServerConnection) -> None:
        connections.append(connection)
        connection.send(encode(metadata or {}))
        begin(connection)
        for message in connection:
            assert isinstance(message, bytes)
            answer(connection, decode(message))

    server = serve(talk, "127.0.0.1", port, compression=None, max_size=None)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.socket.getsockname()[1]
    finally:
        server.shutdown()
        thread.join()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def bundle_server(served: ServedPolicy, config: ServeConfig | None = None, **limits: Any) -> Iterator[str]:
    """The server of a bundle in a thread of its own; gives its address."""
    found: list[str] = []
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    server = PolicyServer(served, config or ServeConfig(port=0), **limits)

    def is_ready(address: str) -> None:
        found.append(address)
        ready.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve_until(server, stop, is_ready),), daemon=True)
    thread.start()
    assert ready.wait(60.0)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def port_of(address: str) -> int:
    """Port of ``ws://host:port``."""
    return int(address.rpartition(":")[2])


@contextlib.contextmanager
def serve_process(bundle: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """``gantry serve`` in a process of its own; gives it and its port, and ends it by Ctrl-C."""
    words = [sys.executable, "-c", COMMAND, "serve", str(bundle), "--port", "0", *arguments]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line
            if match := re.search(r"serving on wss?://\S+:(\d+)", line):
                yield process, int(match[1])
                break
        else:
            raise AssertionError(said)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()

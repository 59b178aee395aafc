"""``gantry serve``: a bundle behind openpi's websocket protocol."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_deploy.cli.bundles import add_bundle_arguments, open_bundle
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import path_text

if TYPE_CHECKING:
    from gantry_deploy.openpi.served import ServedPolicy
    from gantry_deploy.openpi.server import PolicyServer

MAX_KEY_BYTES = 4096
"""Largest file of an API key."""
INSTALL = "pip install 'gantry-rl[serve]'"
"""Remedy where a package is missing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_bundle_arguments(parser)
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port to listen on; 0 for a free one")
    parser.add_argument(
        "--api-key-file", metavar="FILE", help="file with the key that clients must send, at least 16 characters"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate with its chain, PEM: clients then use wss://")
    parser.add_argument("--tls-key", metavar="FILE", help="private key of the certificate, PEM without a password")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="allow another address than this machine's with an API key and without TLS: everybody on that network can "
        "read key and pictures",
    )
    parser.add_argument(
        "--instruction", default="", metavar="TEXT", help="the task that the policy does; other prompts are refused"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM, which are no failures.

    Raises:
        GantryError: If the bundle, the key, the certificate or the address is refused.
    """
    try:
        from gantry_deploy.openpi.served import ServedPolicy
        from gantry_deploy.openpi.server import PolicyServer, ServeConfig
    except ImportError as error:
        raise GantryError(f"Serving a policy needs a package that is missing ({error}): {INSTALL}.") from error
    config = ServeConfig(
        host=args.host,
        port=args.port,
        api_key=None if args.api_key_file is None else read_api_key(args.api_key_file),
        tls_certificate=None if args.tls_cert is None else Path(args.tls_cert),
        tls_key=None if args.tls_key is None else Path(args.tls_key),
        insecure=args.insecure,
    )
    served = ServedPolicy(open_bundle(args), args.instruction)
    asyncio.run(_serve(PolicyServer(served, config), served))
    print("ended", flush=True)
    return 0


def read_api_key(path: str) -> str:
    """The key in a file, without the space around it.

    Raises:
        GantryError: If the file cannot be read, or holds no text.
    """
    try:
        with open(path, "rb") as file:
            return file.read(MAX_KEY_BYTES).decode().strip()
    except OSError as error:
        raise GantryError(f"--api-key-file: {path_text(path)} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise GantryError(f"--api-key-file: {path_text(path)} holds no text.") from error


async def _serve(server: PolicyServer, served: ServedPolicy) -> None:
    from gantry_deploy.openpi.server import serve_until

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, stop.set)
    try:
        await serve_until(server, stop, lambda address: _say(address, served))
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _say(address: str, served: ServedPolicy) -> None:
    contract = served.contract
    print(
        f"{contract.robot} {contract.provenance.task or 'policy'}: {contract.planned_steps() or 1} x "
        f"{contract.action_size} actions at {contract.rate_hz:g} Hz for each observation of "
        f"{contract.observation_size} numbers and {len(contract.cameras)} pictures"
    )
    if served.measured.unavailable:
        print(f"measured states: no. {served.measured.unavailable}")
    print(f"serving on {address} (Ctrl-C ends)", flush=True)

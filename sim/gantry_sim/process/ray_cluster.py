"""Ray, an optional extra: connection to a cluster, which may be this machine's cores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gantry_hardware.errors import GantryError

LOCAL = "local"
"""Address of a cluster that is made on this machine and ends with the connection."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module ``ray`` while it is connected.

    Args:
        address: ``local``, ``auto``, or an address such as ``ray://HOST:10001``.

    Raises:
        GantryError: If Ray is not installed, or cannot be reached there.
    """
    ray = require_ray()
    where: dict[str, Any] = {"include_dashboard": False} if address == LOCAL else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise GantryError(f"Ray cannot be reached at '{address}': {error}.") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def require_ray() -> Any:
    """The module ``ray``.

    Raises:
        GantryError: If it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise GantryError("Ray is not installed; pip install 'gantry-rl[ray]' brings it.") from error
    return ray


def reason_of(error: BaseException) -> str:
    """Last line of what an error of Ray says, or of its cause, which comes with the worker's traceback."""
    lines = str(getattr(error, "cause", None) or error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__

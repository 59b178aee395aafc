"""Ray, an optional extra: connection to a cluster, which may be this machine's cores."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

from gantry_hardware.errors import GantryError

LOCAL = "local"
"""Address of a cluster that is made on this machine and ends with the connection."""


MISSING = "Ray is not installed; pip install 'gantry-rl[ray]' brings it."


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module ``ray`` while it is connected.

    Args:
        address: ``local``, ``auto``, or an address such as ``ray://HOST:10001``.

    Raises:
        GantryError: If Ray is not installed, or cannot be reached there.
    """
    ray = require_ray()
    more = {"include_dashboard": False} if address == LOCAL else {}
    try:
        ray.init(address, log_to_driver=False, configure_logging=False, **more)
    except Exception as error:  # Ray raises that very class where a node does not start in time
        raise GantryError(f"Ray cannot be reached at '{address}': {reason_of(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def require_ray_installed() -> None:
    """Refuse to go on without Ray, which is not loaded yet: that takes a second.

    Raises:
        GantryError: If it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise GantryError(MISSING)


def require_ray() -> Any:
    """The module ``ray``.

    Raises:
        GantryError: If it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise GantryError(MISSING) from error
    return ray


def reason_of(error: BaseException) -> str:
    """Last line of what an error of Ray says, or of its cause, which comes with the worker's traceback."""
    lines = str(getattr(error, "cause", None) or error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__

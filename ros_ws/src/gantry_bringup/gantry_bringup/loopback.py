"""Whether nodes that hear this machine alone can hear one another at all."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from gantry_bringup.parts import NodeSpec
from gantry_deploy.process.transports import LOCALHOST, RANGE_VARIABLE, keeps_to_this_machine
from gantry_hardware.errors import GantryError

_ADDRESS, _PATIENCE_S = "127.0.0.1", 1.0


def require_loopback(specs: Sequence[NodeSpec]) -> None:
    """Refuse nodes that are to hear this machine alone where its loopback interface is down: they would wait for ever.

    Raises:
        GantryError: With what to do.
    """
    here = any(keeps_to_this_machine({**os.environ, **spec.environment}) for spec in specs)
    if here and (trouble := loopback_trouble()):
        raise GantryError(
            f"The nodes are to hear this machine alone ({RANGE_VARIABLE}={LOCALHOST}), and they cannot: nothing comes "
            f"through to {_ADDRESS} ({trouble}). Is the loopback interface down? 'ip link set lo up' brings it up."
        )


def loopback_trouble() -> str:
    """Why a datagram from this machine to itself does not arrive; empty if it does."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here, socket.socket(type=socket.SOCK_DGRAM) as there:
            there.bind((_ADDRESS, 0))
            there.settimeout(_PATIENCE_S)
            here.sendto(b"gantry", there.getsockname())
            there.recv(16)
    except TimeoutError:
        return f"it has not arrived within {_PATIENCE_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return ""

"""Addresses at which a learner may listen, checked before anything is made."""

from __future__ import annotations

import socket

from gantry_deploy.errors import LinkError
from gantry_deploy.link.service import host_and_port
from gantry_deploy.link.tls import MAKE
from gantry_deploy.process.hosts import is_loopback


def require_free(address: str, has_certificates: bool) -> None:
    """Refuse an address that a learner cannot listen on.

    Args:
        address: ``host:port``; port 0 takes a free one.
        has_certificates: Whether both sides prove themselves; needed off loopback.

    Raises:
        LinkError: If it is none, needs certificates, or is in use.
    """
    host, port = host_and_port(address)
    if not has_certificates and not is_loopback(host):
        raise LinkError(f"{address} is not this machine alone; give --certificates FOLDER, which '{MAKE}' makes.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise LinkError(f"A learner cannot listen on {address}: {error.strerror}. Give another address.") from error

"""DDS domains of this machine: which of them nobody uses."""

from __future__ import annotations

import random
import socket

DOMAINS = range(1, 102)
"""Domains to choose from; above 101 their ports run into those that Linux hands out to anybody."""


def free_domain() -> int:
    """A random DDS domain in which no participant of this machine listens.

    The ports follow from the domain's number (DDSI-RTPS 2.2, section 9.6.1.1).
    """
    for domain in random.sample(DOMAINS, len(DOMAINS)):
        ports = [7400 + 250 * domain + offset for offset in (10, 11, 12, 13)]
        if all(map(_is_free, ports)):
            return domain
    return random.choice(DOMAINS)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True

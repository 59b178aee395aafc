"""DDS domains of this machine that are free."""

from __future__ import annotations

import random
import socket
import sys

DOMAINS = range(1, 102)
"""Domains to choose from; above 101 their ports run into those that Linux hands out to any program."""

_claims: dict[int, socket.socket] = {}
"""Domains that this process has chosen, for as long as it lives."""


def free_domain() -> int:
    """A random DDS domain in which no participant of this machine listens and that no other process has chosen.

    A domain has no listener until its first node starts, so this process also claims it: by an abstract Unix socket,
    which the kernel releases when the process ends, and which is visible in the same network namespace. The ports
    follow from the domain's number (DDSI-RTPS 2.2, section 9.6.1.1).
    """
    quiet = [domain for domain in random.sample(DOMAINS, len(DOMAINS)) if _is_quiet(domain)]
    for domain in quiet:
        if domain not in _claims and _claim(domain):
            return domain
    # All are claimed: reuse one that this process has claimed before.
    return next((domain for domain in quiet if domain in _claims), random.choice(DOMAINS))


def _is_quiet(domain: int) -> bool:
    return all(_is_free(7400 + 250 * domain + offset) for offset in (10, 11, 12, 13))


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _claim(domain: int) -> bool:
    """Whether a domain is this process's from now on."""
    if sys.platform != "linux":  # Sockets without a file are Linux's.
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0gantry-dds-domain-{domain}")
    except OSError:
        claim.close()
        return False
    _claims[domain] = claim
    return True

"""Place at which a learner waits for actors; apart from the link itself, which needs further packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Listen:
    """Place at which a learner waits for actors."""

    address: str
    """``host:port``; port 0 takes a free one."""
    tls: Any = None
    """Certificates (:class:`gantry_deploy.link.tls.TlsFiles`); needed off loopback."""

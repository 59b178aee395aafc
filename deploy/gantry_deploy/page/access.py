"""Access to the page: a token, and the Host and Origin headers of browsers."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from gantry_deploy.errors import PageError
from gantry_deploy.process.hosts import is_loopback
from gantry_hardware.files.text import plain_text

TOKEN = re.compile(r"[A-Za-z0-9_-]{20,200}")
"""Form of a token: safe in a URL, too long to be guessed."""
LOOPBACK_NAMES = ("127.0.0.1", "localhost")
HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


class Access:
    """Rules of access. A page of another origin cannot know the token, and is refused before it is compared.

    Args:
        host: Address that is listened on.
        names: Further names under which the page is reached.
        secure: Whether TLS is spoken.
        token: Secret of the link; a new one if None.

    Raises:
        PageError: If a name or the token has no form that can be checked.
    """

    def __init__(self, host: str, names: Sequence[str] = (), secure: bool = False, token: str | None = None) -> None:
        self.token = secrets.token_urlsafe(32) if token is None else token
        if not TOKEN.fullmatch(self.token):
            raise PageError("The page's token must be 20 to 200 letters, digits, '_' and '-'.")
        own = LOOPBACK_NAMES if is_loopback(host) else (host,)
        self._names = frozenset(name.lower() for name in (*own, *names))
        for name in self._names:
            if not HOST_NAME.fullmatch(name):
                raise PageError(f"The page cannot be served under {plain_text(name)}; expected a name or IPv4 address.")
        self.scheme = "https" if secure else "http"
        self._digest = _digest(self.token)

    def host_refusal(self, host: str | None) -> str | None:
        """Reason to refuse a Host header, as a name that was rebound to this address has one; None if it is known."""
        name = _host_name(host)
        if name in self._names:
            return None
        return f"This page is not served as {plain_text(host or '')}; expected: {', '.join(sorted(self._names))}."

    def origin_refusal(self, origin: str | None, host: str) -> str | None:
        """Reason to refuse an Origin header other than the page's own; None without the header: no browser asks."""
        if origin is None or hmac.compare_digest(
            origin.encode("latin-1", "replace"), f"{self.scheme}://{host}".encode()
        ):
            return None
        return f"Requests of {plain_text(origin)} are refused; expected {self.scheme}://{host}."

    def knows(self, token: str | None) -> bool:
        """Whether a token is the right one, compared in constant time."""
        return token is not None and hmac.compare_digest(_digest(token), self._digest)


def bearer(header: str | None) -> str | None:
    """Token of an Authorization header; None without one."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _host_name(host: str | None) -> str:
    try:
        parts = urlsplit(f"//{host or ''}")
        _ = parts.port
    except ValueError:
        return ""
    return (parts.hostname or "").lower() if parts.username is None and not parts.path else ""

"""TLS of a server with one certificate, for the page of a session and for served policies."""

from __future__ import annotations

import ssl
from pathlib import Path

from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import path_text


def server_context(
    certificate: Path, key: Path, what: str, error_type: type[GantryError] = GantryError
) -> ssl.SSLContext:
    """A server's TLS context, 1.2 or later.

    Args:
        certificate: Certificate with its chain, PEM.
        key: Its private key, PEM without a password.
        what: Beginning of the message, for example "The certificate".
        error_type: Raised where they cannot be used.

    Raises:
        GantryError: Of that type, with both files and the reason.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(str(certificate), str(key), password=lambda: "")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise error_type(
            f"{what} {path_text(certificate)} with key {path_text(key)} cannot be used: {error}."
        ) from error
    return context

"""Ed25519 signatures over manifests: one mechanism for bundles and for releases, told apart by a tag.

``cryptography`` (extra ``signing``) is loaded when a signature is made or judged, and not before.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gantry_deploy.errors import BundleError
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import path_text

BUNDLE_TAG = b"gantry policy bundle\0"
"""Stands before what is signed of a bundle, so that a signature says what it is of and fits nothing else."""
RELEASE_TAG = b"gantry robot release\0"
"""The same of a release."""
KEY_BYTES = 32
"""Length of a raw Ed25519 key, public or private."""
SIGNATURE = "signature"
"""Field of a manifest; all other fields are signed."""


def sign_manifest(manifest: Mapping[str, Any], private_key: bytes, tag: bytes) -> str:
    """Signature of a manifest, base64.

    Args:
        manifest: Plain data; an older signature in it does not count.
        private_key: Raw Ed25519 key, 32 bytes.
        tag: Kind of the manifest, for example :data:`BUNDLE_TAG`.

    Raises:
        BundleError: If the key has another length.
    """
    try:
        key = _ed25519().Ed25519PrivateKey.from_private_bytes(private_key)
    except ValueError as error:
        raise BundleError(f"The private key has {len(private_key)} bytes, expected 32 (raw Ed25519).") from error
    return base64.b64encode(key.sign(_signed_bytes(manifest, tag))).decode()


def signature_fits(manifest: Mapping[str, Any], public_key: bytes, tag: bytes) -> bool:
    """Whether the owner of a key has signed a manifest; False without a signature.

    Args:
        manifest: Plain data with its signature.
        public_key: Raw Ed25519 key, 32 bytes.
        tag: Kind of the manifest.

    Raises:
        BundleError: If the key has another length.
    """
    signature = manifest.get(SIGNATURE)
    if signature is None:
        return False
    try:
        key = _ed25519().Ed25519PublicKey.from_public_bytes(public_key)
    except ValueError as error:
        raise BundleError(f"The public key has {len(public_key)} bytes, expected 32 (raw Ed25519).") from error
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(base64.b64decode(signature, validate=True), _signed_bytes(manifest, tag))
    except (InvalidSignature, binascii.Error, TypeError, ValueError):
        return False
    return True


def new_private_key() -> bytes:
    """A new raw Ed25519 key, 32 bytes."""
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives import serialization

    key = ed25519.Ed25519PrivateKey.generate()
    form = (serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption())
    return key.private_bytes(*form)


def public_key_of(private_key: bytes) -> bytes:
    """The raw public key, 32 bytes, that belongs to a raw private one."""
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives import serialization

    key = ed25519.Ed25519PrivateKey.from_private_bytes(private_key).public_key()
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def read_public_key(text: str | Path) -> bytes:
    """The 32 raw bytes of an Ed25519 public key, from 64 hex digits or from a file: PEM, hex digits or raw bytes.

    Raises:
        GantryError: If the file cannot be read or holds no such key.
    """
    if is_hex_key(str(text)):
        return bytes.fromhex(str(text))
    data = _read(text, "public key")
    if (raw := _plain_key(data)) is not None:
        return raw
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives import serialization

    key: Any = None
    with contextlib.suppress(ValueError):
        key = serialization.load_pem_public_key(data)
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise GantryError(f"'{path_text(text)}' holds no Ed25519 public key; expected a PEM file, or 32 raw bytes.")
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def read_private_key(path: str | Path) -> bytes:
    """The 32 raw bytes of an Ed25519 private key, from a file with them or with 64 hex digits.

    Raises:
        GantryError: If the file cannot be read or holds no such key.
    """
    data = _read(path, "key")
    raw = _plain_key(data)
    if raw is None:
        raise GantryError(f"The key '{path_text(path)}' has {len(data)} bytes, expected 32 (raw Ed25519).")
    return raw


def is_hex_key(text: str) -> bool:
    """Whether a text is 64 hex digits."""
    return re.fullmatch(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", text) is not None


def _plain_key(data: bytes) -> bytes | None:
    if len(data) == KEY_BYTES:
        return data
    try:
        text = data.decode("ascii").strip()
    except UnicodeDecodeError:
        return None
    return bytes.fromhex(text) if is_hex_key(text) else None


def _read(path: str | Path, what: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(2**16)
    except OSError as error:
        raise GantryError(f"Cannot read the {what} '{path_text(path)}': {error.strerror}.") from error


def _signed_bytes(manifest: Mapping[str, Any], tag: bytes) -> bytes:
    """Bytes that are signed: the tag, and canonical JSON (sorted keys, no spaces) of every field but the signature."""
    signed = {name: value for name, value in manifest.items() if name != SIGNATURE}
    return tag + json.dumps(signed, sort_keys=True, separators=(",", ":")).encode()


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise GantryError(
            f"Keys and signatures need the package 'cryptography' ({error}): pip install 'gantry-rl[signing]'."
        ) from error
    return ed25519

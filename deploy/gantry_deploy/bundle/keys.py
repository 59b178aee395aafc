"""Keys of people that sign, on their machines, and keys that a robot trusts: with a role, a last day, and a withdrawal.

A person's keys lie in one folder: ``NAME.key`` (64 hex digits, readable by its owner alone) and ``NAME.pub``. What a
robot trusts is one file, written whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.signature import (
    is_hex_key,
    new_private_key,
    public_key_of,
    read_private_key,
    signature_fits,
)
from gantry_deploy.errors import BundleError
from gantry_hardware.compat import UTC
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.json_file import read_json_object
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.text import path_text, plain_text
from gantry_hardware.files.whole_files import write_whole_json

DEVELOPMENT, RELEASE = "development", "release"
ROLES = (DEVELOPMENT, RELEASE)
"""Purposes of keys; a robot's configuration says which of them it accepts."""
DAYS = {DEVELOPMENT: 90, RELEASE: 730}
"""Days for which a key is trusted unless others are given, by its role."""
MOST_DAYS = 3650
"""Most days."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class TrustedKey:
    """A public key that a robot knows."""

    name: str
    """Name for people."""
    public_key: str
    """Raw Ed25519 key, 64 hex digits."""
    role: str
    """One of :data:`ROLES`."""
    last_day: str
    """Last day on which it counts, ISO 8601, UTC."""
    revoked_utc: str = ""
    """Time at which trust was withdrawn, ISO 8601; empty if it was not."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.role not in ROLES:
            raise UnknownNameError("role of a key", self.role, ROLES)
        if not is_hex_key(self.public_key):
            raise BundleError(f"Key '{self.name}' is {plain_text(self.public_key)}, expected 64 hex digits.")
        parse_day(self.last_day)

    def refusal(self, now: datetime, roles: Iterable[str]) -> str:
        """Reason for which it does not count now, where only some roles do; empty if it counts."""
        if self.revoked_utc:
            return f"was revoked on {self.revoked_utc[:10]}"
        if now.date() > parse_day(self.last_day):
            return f"expired on {self.last_day}"
        if self.role not in (roles := tuple(roles)):
            return f"is a {self.role} key, and this robot accepts: {', '.join(roles) or '(none)'}"
        return ""


class TrustedKeys:
    """The keys in a robot's file of trusted keys; every change is written at once.

    Args:
        path: The file; missing means none.

    Raises:
        BundleError: If it cannot be read, or is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[str, TrustedKey] = {}
        if not path.exists():
            return
        try:
            data = read_json_object(path, error=BundleError)
        except OSError as error:
            raise BundleError(f"{path_text(path)} cannot be read: {error.strerror}.") from error
        for item in data.get("keys", []):
            key = from_plain(TrustedKey, item, f"a key in {path_text(path)}", BundleError)
            self.keys[key.name] = key

    def trust(self, key: TrustedKey) -> None:
        """Add a key, or give one of that name another role or last day.

        Raises:
            BundleError: If another key has that name, or the key another name.
            OSError: If it cannot be written.
        """
        for other in self.keys.values():
            if (other.name == key.name) != (other.public_key == key.public_key):
                same = "name" if other.name == key.name else "key"
                raise BundleError(
                    f"'{other.name}' ({other.public_key[:12]}) has that {same} already; revoke it, and use another "
                    "name for another key."
                )
            if other.name == key.name and other.revoked_utc:
                raise BundleError(f"Key '{key.name}' was revoked on {other.revoked_utc[:10]}; make a new one.")
        self._write({**self.keys, key.name: key})

    def revoke(self, name: str, now: datetime) -> TrustedKey:
        """Withdraw trust for good.

        Raises:
            UnknownNameError: If there is no such key.
        """
        key = replace(self._named(name), revoked_utc=now.isoformat(timespec="seconds"))
        self._write({**self.keys, name: key})
        return key

    def expire(self, name: str, last_day: date) -> TrustedKey:
        """Change the last day on which a key counts.

        Raises:
            UnknownNameError: If there is no such key.
        """
        key = replace(self._named(name), last_day=last_day.isoformat())
        self._write({**self.keys, name: key})
        return key

    def signer(self, manifest: Mapping[str, Any], tag: bytes, roles: Iterable[str], now: datetime) -> TrustedKey:
        """The key that signed a manifest.

        Args:
            manifest: Plain data with its signature.
            tag: Kind of the manifest.
            roles: Roles that are accepted.
            now: Present time, UTC.

        Raises:
            BundleError: If it is not signed, or by none of these keys, or by one that does not count now.
        """
        if manifest.get("signature") is None:
            raise BundleError("It is not signed.")
        refusals = []
        roles = tuple(roles)
        for key in self.keys.values():
            if not signature_fits(manifest, bytes.fromhex(key.public_key), tag):
                continue
            if not (refusal := key.refusal(now, roles)):
                return key
            refusals.append(f"It is signed by '{key.name}', which {refusal}.")
        known = ", ".join(sorted(self.keys)) or "(none)"
        raise BundleError(
            refusals[0] if refusals else f"It is signed by a key that is not trusted here; known: {known}."
        )

    def _named(self, name: str) -> TrustedKey:
        if name not in self.keys:
            raise UnknownNameError("trusted key", name, self.keys)
        return self.keys[name]

    def _write(self, keys: dict[str, TrustedKey]) -> None:
        _private_folder(self.path.parent)
        if not self.path.exists():
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            write_whole_json(self.path, {"format": 1, "keys": []})
        write_whole_json(self.path, {"format": 1, "keys": [asdict(key) for key in keys.values()]})
        self.path.chmod(0o600)
        self.keys = keys


def key_folder() -> Path:
    """Folder of a person's keys: ``GANTRY_KEYS``, or ``~/.config/gantry/keys``."""
    return Path(os.environ.get("GANTRY_KEYS") or Path.home() / ".config" / "gantry" / "keys")


def make_key(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a key; its private file is readable by its owner alone.

    Returns:
        The private file and the public one.

    Raises:
        GantryError: If there is one of that name, or the name is none.
    """
    check_name(name)
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    _private_folder(folder)
    key = new_private_key()
    try:
        file = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise GantryError(f"There is a key '{name}' in {path_text(folder)} already; use another name.") from error
    with os.fdopen(file, "wb") as stream:
        stream.write(key.hex().encode() + b"\n")
    public.write_text(public_key_of(key).hex() + "\n")
    return private, public


def private_key_named(folder: Path, name: str) -> bytes:
    """The raw private key, 32 bytes, of a name or of a file.

    Raises:
        UnknownNameError: If there is no such key.
        GantryError: If it cannot be read, or others may read it.
    """
    path = Path(name) if os.sep in name or os.path.isfile(name) else folder / f"{name}.key"
    if not path.is_file():
        raise UnknownNameError("key", name, key_names(folder))
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise GantryError(f"Others may read the key {path_text(path)} (mode {mode:o}); close it: chmod 600 {path}")
    return read_private_key(path)


def key_names(folder: Path) -> list[str]:
    """Names of the keys in a person's folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.key")) if folder.is_dir() else []


def check_name(name: str) -> None:
    """Refuse a name that no key may have.

    Raises:
        BundleError: With the name.
    """
    if not _NAME.fullmatch(name):
        raise BundleError(f"{plain_text(name)} is no name of a key; expected letters, digits, '.', '_' and '-'.")


def parse_day(text: str) -> date:
    """A day, ISO 8601.

    Raises:
        BundleError: If it is none.
    """
    try:
        return date.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise BundleError(f"{plain_text(text)} is no day, expected for example 2027-06-30.") from error


def last_day_after(days: int) -> date:
    """The day so many days from now, UTC."""
    return datetime.now(UTC).date() + timedelta(days=days)


def _private_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, mode=0o700)

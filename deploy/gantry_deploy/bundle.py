"""A policy in a folder (or a zip of it), sealed by hashes: written by the exporter, refused by the robot if changed.

Nothing is parsed before its hash is verified, nothing is unpacked to disk, and nothing in a bundle can run code but the
network itself: arrays are read without pickle.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import re
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gantry_deploy.contract import PolicyContract
from gantry_deploy.errors import BundleError
from gantry_deploy.npz import ZIP_ERRORS, plain_arrays, read_npz
from gantry_deploy.whole_files import write_all, write_whole

FORMAT = 1
"""Newest manifest format that this runtime understands."""

SIGNATURE_TAG = b"gantry policy bundle\0"
"""Stands before what is signed, so that a signature says what it is of and fits nothing else that the key signs."""

MANIFEST, MODEL, CONTRACT, GOLDEN, CARD = "manifest.json", "policy.onnx", "contract.json", "golden.npz", "card.json"
MAPPER = "mapper.onnx"
"""The mapping network of a policy that looks at a map; a bundle without one is mapped for without a network."""
BASE = "base.onnx"
"""The network that plans the actions which a residual policy corrects."""
REQUIRED = (MODEL, CONTRACT, GOLDEN)
"""Files without which a bundle is none."""

MAX_BYTES = 256 * 2**20
"""Largest bundle, and largest golden data, once unpacked; a policy network is a few megabytes."""
MAX_FILES = 16
"""Largest number of files."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Bundle:
    """A verified bundle."""

    path: Path
    """Folder or zip that it came from."""
    contract: PolicyContract
    """Everything a runtime must know."""
    model_bytes: bytes
    """The ONNX file."""
    golden: dict[str, np.ndarray]
    """Recorded states, observations and actions of the training environment, for parity checks."""
    card: dict[str, Any] | None
    """Measured scores; None before the bundle was checked."""
    manifest: dict[str, Any]
    """Format, hashes and signature."""
    signature_verified: bool = False
    """Whether a public key was given, and the signature is its owner's."""
    mapper_bytes: bytes | None = None
    """The ONNX file of the mapping network, if there is one."""
    base_bytes: bytes | None = None
    """The ONNX file of the network that a residual policy corrects, if it is one."""

    @property
    def is_signed(self) -> bool:
        """Whether the manifest carries a signature (which counts only if a public key verified it)."""
        return self.manifest.get("signature") is not None

    @property
    def signature_text(self) -> str:
        """What is known of the signature, for people."""
        if self.signature_verified:
            return "signature verified"
        return "carries a signature, not verified (no key given)" if self.is_signed else "not signed"


def load_bundle(path: str | Path, *, public_key: bytes | None = None) -> Bundle:
    """Read and verify a bundle.

    Args:
        path: Folder or ``.zip``.
        public_key: Raw Ed25519 key, 32 bytes; if given, an unsigned or otherwise signed bundle is refused.

    Raises:
        BundleError: If a file is missing, extra, changed, too large, a link, or outside the bundle.
        ContractError: If the contract is malformed or of a newer version.
    """
    path = Path(path)
    files = _read_files(path)
    manifest = _verified_manifest(path, files)
    if public_key is not None:
        _verify_signature(path, manifest, public_key)
    contract = PolicyContract.from_json(_text(path, CONTRACT, files[CONTRACT]))
    card = _json_object(path, CARD, files[CARD]) if CARD in files else None
    golden = _golden(path, files[GOLDEN])
    mapper, base = files.get(MAPPER), files.get(BASE)
    _check_mapper(path, contract, mapper)
    _check_base(path, contract, base)
    return Bundle(path, contract, files[MODEL], golden, card, manifest, public_key is not None, mapper, base)


def seal_bundle(folder: str | Path, *, private_key: bytes | None = None) -> dict[str, Any]:
    """Write the manifest over every file of a folder; the last step of an export.

    Args:
        folder: Holds the files of the bundle and nothing else.
        private_key: Raw Ed25519 key, 32 bytes, to sign with.

    Returns:
        The manifest.

    Raises:
        BundleError: If a required file is missing or something does not belong into a bundle.
    """
    folder = Path(folder)
    files = {name: data for name, data in _read_folder(folder).items() if name != MANIFEST}
    _require_files(folder, files)
    manifest = _make_manifest(files, private_key)
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    return manifest


def write_bundle(
    folder: str | Path,
    *,
    contract: PolicyContract,
    model_bytes: bytes,
    golden: Mapping[str, np.ndarray],
    card: Mapping[str, Any] | None = None,
    private_key: bytes | None = None,
    mapper_bytes: bytes | None = None,
    base_bytes: bytes | None = None,
) -> Path:
    """Write and seal a bundle, whole or not at all; an older bundle in the folder is replaced.

    Args:
        folder: Created if missing; holds nothing or an older bundle.
        contract: Must equal the one in the model's metadata.
        model_bytes: The ONNX file.
        golden: Arrays without objects.
        card: Measured scores, if they exist already.
        private_key: Raw Ed25519 key, 32 bytes, to sign with.
        mapper_bytes: The ONNX file of the mapping network, for a policy that looks at a map.
        base_bytes: The ONNX file of the network that a residual policy corrects.

    Returns:
        The folder.

    Raises:
        BundleError: If the contract names another base than that, the bundle is too large, or the folder holds other
            files; nothing is written then.
        OSError: If the disk does not take it; the folder is as it was before.
    """
    folder = Path(folder)
    _check_base(folder, contract, base_bytes)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **plain_arrays(golden))
    files = {MODEL: model_bytes, CONTRACT: contract.to_json().encode(), GOLDEN: buffer.getvalue()}
    card_bytes = None if card is None else json.dumps(card, indent=1).encode()
    others = {CARD: card_bytes, MAPPER: mapper_bytes, BASE: base_bytes}
    files |= {name: data for name, data in others.items() if data is not None}
    total = 0
    for count, (name, data) in enumerate(files.items()):
        total += _check_entry(folder, name, len(data), total, count)
    if folder.is_dir() and (foreign := {path.name for path in folder.iterdir()} - {MANIFEST, *REQUIRED, *others}):
        raise BundleError(f"{folder} holds {', '.join(sorted(foreign)[:3])}, which no bundle holds.")
    files[MANIFEST] = json.dumps(_make_manifest(files, private_key), indent=1).encode()
    write_all(folder, files, last=MANIFEST, stale=others.keys() - files.keys())
    return folder


def write_zip(folder: str | Path, zip_path: str | Path) -> Path:
    """Pack a sealed folder; equal folders give equal bytes.

    Raises:
        BundleError: If the folder is no intact bundle.
    """
    folder, zip_path = Path(folder), Path(zip_path)
    files = _read_files(folder)
    _verified_manifest(folder, files)
    write_whole(zip_path, _zip_bytes(files))
    return zip_path


def update_card(path: str | Path, card: Mapping[str, Any], *, private_key: bytes | None = None) -> None:
    """Replace the scores of a bundle (folder or zip) and seal it again.

    Raises:
        BundleError: If the bundle is not intact, or is signed and no key to sign it again is given.
    """
    path = Path(path)
    files = _read_files(path)
    manifest = _verified_manifest(path, files)
    if manifest.get("signature") is not None and private_key is None:
        raise BundleError(f"{path} is signed; a new card needs the private key to sign it again.")
    files[CARD] = json.dumps(card, indent=1).encode()
    files.pop(MANIFEST)
    sealed = json.dumps(_make_manifest(files, private_key), indent=1).encode()
    if path.is_dir():
        write_all(path, {CARD: files[CARD], MANIFEST: sealed}, last=MANIFEST)
    else:
        write_whole(path, _zip_bytes({**files, MANIFEST: sealed}))


def _read_files(path: Path) -> dict[str, bytes]:
    try:
        if path.is_dir():
            return _read_folder(path)
        if path.is_file():
            return _read_zip(path)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror or error}.") from error
    raise BundleError(f"There is no bundle at {path}; expected a folder or a .zip file.")


def _read_folder(folder: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            raise BundleError(f"{folder}: '{entry.name}' is a link; a bundle holds plain files only.")
        if not entry.is_file():
            raise BundleError(f"{folder}: '{entry.name}' is no plain file; a bundle has no sub-folders.")
        total += _check_entry(folder, entry.name, entry.stat().st_size, total, len(files))
        files[entry.name] = entry.read_bytes()
    return files


def _read_zip(path: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                total += _check_entry(path, info.filename, info.file_size, total, len(files))
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise BundleError(f"{path}: '{info.filename}' is a link; a bundle holds plain files only.")
                if info.filename in files:
                    raise BundleError(f"{path}: '{info.filename}' is in the archive twice.")
                files[info.filename] = archive.read(info)
    except ZIP_ERRORS as error:
        raise BundleError(f"{path} is no readable zip of a bundle: {error}.") from error
    return files


def _check_entry(path: Path, name: str, size: int, total: int, count: int) -> int:
    """Refuse what a bundle never holds, before it is read; returns the size."""
    if not _PLAIN_NAME.fullmatch(name):
        raise BundleError(f"{path}: '{name}' is no plain file name; a bundle has no paths inside.")
    if total + size > MAX_BYTES:
        raise BundleError(f"{path} holds {total + size} bytes with '{name}', allowed are {MAX_BYTES}.")
    if count >= MAX_FILES:
        raise BundleError(f"{path} holds more than {MAX_FILES} files.")
    return size


def _require_files(path: Path, files: Mapping[str, bytes]) -> None:
    missing = [name for name in REQUIRED if name not in files]
    if missing:
        raise BundleError(f"{path} lacks {', '.join(missing)}; it holds: {', '.join(sorted(files)) or '(nothing)'}.")


def _verified_manifest(path: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The manifest, after every file has been compared with it."""
    if MANIFEST not in files:
        raise BundleError(f"{path} has no {MANIFEST}; it holds: {', '.join(sorted(files)) or '(nothing)'}.")
    manifest = _json_object(path, MANIFEST, files[MANIFEST])
    version, hashes = manifest.get("format"), manifest.get("files")
    if type(version) is not int or not isinstance(hashes, dict):
        raise BundleError(f"{path}: {MANIFEST} has format {version!r}, expected an integer, and an object 'files'.")
    if not 1 <= version <= FORMAT:
        raise BundleError(f"{path}: {MANIFEST} has format {version}, this runtime understands 1 to {FORMAT}.")
    present = set(files) - {MANIFEST}
    missing, extra = sorted(set(hashes) - present), sorted(present - set(hashes))
    if missing:
        raise BundleError(f"{path} lacks {', '.join(missing)}, which its manifest lists.")
    if extra:
        raise BundleError(f"{path} holds {', '.join(extra)}, which its manifest does not list.")
    for name in sorted(present):
        found = hashlib.sha256(files[name]).hexdigest()
        if found != hashes[name]:
            raise BundleError(
                f"{path}: '{name}' was changed after the bundle was sealed "
                f"(SHA-256 is {found}, sealed was {hashes[name]})."
            )
    _require_files(path, files)
    return manifest


def _check_mapper(path: Path, contract: PolicyContract, mapper: bytes | None) -> None:
    """Refuse a mapping network that the policy did not learn with, and none where it learned with one."""
    found = hashlib.sha256(mapper).hexdigest() if mapper is not None else "missing"
    if (wanted := contract.map_window.mapper_sha256 if contract.map_window else "") not in ("", found):
        raise BundleError(f"{path}: the policy was trained with {MAPPER} {wanted[:12]}, this one is {found[:12]}.")


def _check_base(path: Path, contract: PolicyContract, base: bytes | None) -> None:
    """Refuse a residual policy without the network that it corrects, or with another one; and a base without one."""
    if contract.chunk is None or not contract.chunk.residual:
        if base is not None:
            raise BundleError(f"{path} has {BASE}, and its contract describes no residual policy (chunk.residual).")
        return
    wanted = contract.chunk.base_sha256
    if base is None or not wanted:
        lacking = f"there is no {BASE}" if base is None else "the contract's chunk.base_sha256 is empty"
        raise BundleError(f"{path}: the policy corrects the plans of {BASE}, and {lacking}.")
    found = hashlib.sha256(base).hexdigest()
    if found != wanted:
        raise BundleError(f"{path}: the policy was trained on {BASE} {wanted[:12]}, this one is {found[:12]}.")


def _make_manifest(files: Mapping[str, bytes], private_key: bytes | None) -> dict[str, Any]:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "files": {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)},
    }
    if private_key is not None:
        try:
            key = Ed25519PrivateKey.from_private_bytes(private_key)
        except ValueError as error:
            raise BundleError(f"The private key has {len(private_key)} bytes, expected 32 (raw Ed25519).") from error
        manifest["signature"] = base64.b64encode(key.sign(_signed_bytes(manifest))).decode()
    return manifest


def _verify_signature(path: Path, manifest: Mapping[str, Any], public_key: bytes) -> None:
    signature = manifest.get("signature")
    if signature is None:
        raise BundleError(f"{path} is not signed, and a public key was given.")
    try:
        key = Ed25519PublicKey.from_public_bytes(public_key)
    except ValueError as error:
        raise BundleError(f"The public key has {len(public_key)} bytes, expected 32 (raw Ed25519).") from error
    try:
        key.verify(base64.b64decode(signature, validate=True), _signed_bytes(manifest))
    except (InvalidSignature, binascii.Error, TypeError, ValueError) as error:
        raise BundleError(f"{path}: the signature does not belong to this public key and these files.") from error


def _signed_bytes(manifest: Mapping[str, Any]) -> bytes:
    """What is signed: the tag, and canonical JSON (sorted keys, no spaces) of the format and the hashes."""
    signed = {name: manifest[name] for name in ("format", "files")}
    return SIGNATURE_TAG + json.dumps(signed, sort_keys=True, separators=(",", ":")).encode()


def _text(path: Path, name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"{path}: '{name}' is no UTF-8 text: {error}.") from error


def _json_object(path: Path, name: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(_text(path, name, data))
    except (ValueError, RecursionError) as error:  # ValueError also for a whole number of thousands of digits
        raise BundleError(f"{path}: '{name}' is no JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BundleError(f"{path}: '{name}' is a JSON {type(value).__name__}, expected an object.")
    return value


def _golden(path: Path, data: bytes) -> dict[str, np.ndarray]:
    try:
        return read_npz(data, MAX_BYTES)
    except ZIP_ERRORS as error:
        raise BundleError(f"{path}: {GOLDEN} is not readable: {error}.") from error


def _zip_bytes(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            # A fixed time and mode, so that the archive depends on the contents alone.
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, files[name])
    return buffer.getvalue()

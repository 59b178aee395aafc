"""A policy in a folder (or a zip of it), sealed by hashes: written by the exporter, refused by the robot if changed.

Nothing is parsed before its hash is verified, nothing is unpacked to disk, and nothing in a bundle can run code but the
network itself: arrays are read without pickle.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.bundle.files import (
    BASE,
    CARD,
    CONTRACT,
    GOLDEN,
    MANIFEST,
    MAPPER,
    MAX_BYTES,
    MODEL,
    REQUIRED,
    check_sizes,
    foreign_names,
    read_files,
    write_files,
    zip_bytes,
)
from gantry_deploy.bundle.signature import BUNDLE_TAG, SIGNATURE, sign_manifest, signature_fits
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import BundleError
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.npz import ZIP_ERRORS, plain_arrays, read_npz
from gantry_hardware.files.text import names_text, path_text, plain_text
from gantry_hardware.files.whole_files import write_whole

__all__ = [
    "BASE",
    "CARD",
    "CONTRACT",
    "FORMAT",
    "GOLDEN",
    "MANIFEST",
    "MAPPER",
    "MODEL",
    "REQUIRED",
    "Bundle",
    "copy_bundle",
    "load_bundle",
    "seal_bundle",
    "sign_bundle",
    "update_card",
    "write_bundle",
    "write_zip",
]

FORMAT = 1
"""Newest manifest format that this runtime understands."""

_READS, _PAUSE_S = 20, 0.01
"""Number of times a bundle is read that another process is writing, and the pause where a file went away."""


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
        """State of the signature, for people."""
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
    files, manifest = _sealed_files(path)
    if public_key is not None:
        _verify_signature(path, manifest, public_key)
    contract = PolicyContract.from_json(files[CONTRACT])
    card = _json_object(path, CARD, files[CARD], allow_nan=True) if CARD in files else None
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
    files = {name: data for name, data in read_files(folder).items() if name != MANIFEST}
    _require_files(folder, files)
    manifest = _make_manifest(files, private_key)
    write_files(folder, {**files, MANIFEST: _json_bytes(manifest)})
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
    others = {CARD: None if card is None else _json_bytes(card), MAPPER: mapper_bytes, BASE: base_bytes}
    files |= {name: data for name, data in others.items() if data is not None}
    check_sizes(folder, files)
    if foreign := foreign_names(folder):
        raise BundleError(f"{path_text(folder)} holds {names_text(foreign[:3])}, which no bundle holds.")
    write_files(folder, {**files, MANIFEST: _json_bytes(_make_manifest(files, private_key))})
    return folder


def write_zip(folder: str | Path, zip_path: str | Path) -> Path:
    """Pack a sealed folder; equal folders give equal bytes.

    Raises:
        BundleError: If the folder is no intact bundle.
    """
    folder, zip_path = Path(folder), Path(zip_path)
    files, _ = _sealed_files(folder)
    write_whole(zip_path, zip_bytes(files))
    return zip_path


def copy_bundle(source: str | Path, target: str | Path) -> Path:
    """An equal bundle elsewhere, a folder of a folder and a zip of a zip, whole or not at all.

    Raises:
        BundleError: If the source is no intact bundle.
        OSError: If the disk does not take it.
    """
    source, target = Path(source), Path(target)
    files, _ = _sealed_files(source)
    if source.is_dir():
        write_files(target, files)
    else:
        write_whole(target, zip_bytes(files))
    return target


def update_card(path: str | Path, card: Mapping[str, Any], *, private_key: bytes | None = None) -> None:
    """Replace the scores of a bundle (folder or zip) and seal it again.

    Raises:
        BundleError: If the bundle is not intact, or is signed and no key to sign it again is given.
    """
    path = Path(path)
    files, manifest = _sealed_files(path)
    if manifest.get("signature") is not None and private_key is None:
        raise BundleError(f"{path_text(path)} is signed; a new card needs the private key to sign it again.")
    files[CARD] = _json_bytes(card)
    _seal_again(path, files, private_key)


def sign_bundle(path: str | Path, private_key: bytes) -> None:
    """Sign a bundle (folder or zip) as it is; an older signature is replaced.

    Args:
        path: The bundle.
        private_key: Raw Ed25519 key, 32 bytes.

    Raises:
        BundleError: If the bundle is not intact, or the key is none.
        OSError: If the disk does not take it; the bundle is as it was before.
    """
    path = Path(path)
    files, _ = _sealed_files(path)
    _seal_again(path, files, private_key)


def _seal_again(path: Path, files: dict[str, bytes], private_key: bytes | None) -> None:
    files.pop(MANIFEST)
    check_sizes(path, files)
    files[MANIFEST] = _json_bytes(_make_manifest(files, private_key))
    if path.is_dir():
        write_files(path, files)
    else:
        write_whole(path, zip_bytes(files))


def _sealed_files(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Every file and the manifest that it was compared with.

    A folder that is being written while it is read may show files of two bundles; it is read again until it rests.
    """
    before: dict[str, bytes] | None = None  # Not {}: a folder is seen empty while its files are moved.
    for _ in range(_READS):
        try:
            files = read_files(path)
        except BundleError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            time.sleep(_PAUSE_S)  # a file went away
            continue
        try:
            return files, _verified_manifest(path, files)
        except BundleError:
            if files == before:
                raise
        before = files
    raise BundleError(f"{path_text(path)} is being written by another process.")


def _require_files(path: Path, files: Mapping[str, bytes]) -> None:
    missing = [name for name in REQUIRED if name not in files]
    if missing:
        raise BundleError(
            f"{path_text(path)} lacks {names_text(missing)}; it holds: {names_text(sorted(files)) or '(nothing)'}."
        )


def _verified_manifest(path: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The manifest, after every file has been compared with it."""
    if MANIFEST not in files:
        holds = names_text(sorted(files)) or "(nothing)"
        raise BundleError(f"{path_text(path)} is no bundle: it has no {MANIFEST}; it holds: {holds}.")
    manifest = _json_object(path, MANIFEST, files[MANIFEST])
    version, hashes = manifest.get("format"), manifest.get("files")
    if type(version) is not int or not isinstance(hashes, dict):
        found = f"{MANIFEST} has format {plain_text(version)}"
        raise BundleError(f"{path_text(path)}: {found}, expected an integer, and an object 'files'.")
    if not 1 <= version <= FORMAT:
        raise BundleError(
            f"{path_text(path)}: {MANIFEST} has format {version}, this runtime understands 1 to {FORMAT}."
        )
    present = set(files) - {MANIFEST}
    missing, extra = sorted(set(hashes) - present), sorted(present - set(hashes))
    if missing:
        raise BundleError(f"{path_text(path)} lacks {names_text(missing)}, which its manifest lists.")
    if extra:
        raise BundleError(f"{path_text(path)} holds {names_text(extra)}, which its manifest does not list.")
    for name in sorted(present):
        found = hashlib.sha256(files[name]).hexdigest()
        if found != hashes[name]:
            raise BundleError(
                f"{path_text(path)}: '{name}' was changed after the bundle was sealed "
                f"(SHA-256 is {found}, sealed was {plain_text(hashes[name], 64)})."
            )
    _require_files(path, files)
    return manifest


def _check_mapper(path: Path, contract: PolicyContract, mapper: bytes | None) -> None:
    """Refuse a mapping network that the policy did not learn with, and none where it learned with one."""
    found = hashlib.sha256(mapper).hexdigest() if mapper is not None else "missing"
    if (wanted := contract.map_window.mapper_sha256 if contract.map_window else "") not in ("", found):
        raise BundleError(
            f"{path_text(path)}: the policy was trained with {MAPPER} {wanted[:12]}, this one is {found[:12]}."
        )


def _check_base(path: Path, contract: PolicyContract, base: bytes | None) -> None:
    """Refuse a residual policy without the network that it corrects, or with another one; and a base without one."""
    chunk = contract.chunk
    if chunk is None or not chunk.residual:
        if base is not None:
            raise BundleError(
                f"{path_text(path)} has {BASE}, and its contract describes no residual policy (chunk.residual)."
            )
        return
    wanted = chunk.base_sha256
    if base is None or not wanted:
        lacking = f"there is no {BASE}" if base is None else "the contract's chunk.base_sha256 is empty"
        raise BundleError(f"{path_text(path)}: the policy corrects the plans of {BASE}, and {lacking}.")
    found = hashlib.sha256(base).hexdigest()
    if found != wanted:
        raise BundleError(
            f"{path_text(path)}: the policy was trained on {BASE} {wanted[:12]}, this one is {found[:12]}."
        )


def _make_manifest(files: Mapping[str, bytes], private_key: bytes | None) -> dict[str, Any]:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "files": {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)},
    }
    if private_key is not None:
        manifest[SIGNATURE] = sign_manifest(manifest, private_key, BUNDLE_TAG)
    return manifest


def _verify_signature(path: Path, manifest: Mapping[str, Any], public_key: bytes) -> None:
    if manifest.get(SIGNATURE) is None:
        raise BundleError(f"{path_text(path)} is not signed, and a public key was given.")
    if not signature_fits(manifest, public_key, BUNDLE_TAG):
        raise BundleError(f"{path_text(path)}: the signature does not belong to this public key and these files.")


def _json_bytes(data: Any) -> bytes:
    return json.dumps(data, indent=1).encode()


def _json_object(path: Path, name: str, data: bytes, *, allow_nan: bool = False) -> dict[str, Any]:
    return parse_json_object(data, f"{path_text(path)}: '{name}'", allow_nan=allow_nan, error=BundleError)


def _golden(path: Path, data: bytes) -> dict[str, np.ndarray]:
    try:
        return read_npz(data, MAX_BYTES)
    except ZIP_ERRORS as error:
        raise BundleError(f"{path_text(path)}: {GOLDEN} is not readable: {error}.") from error

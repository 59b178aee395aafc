"""The bundle of a session on its way to the actors: files by name, and the hash of its contract."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from gantry_deploy.bundle.bundle import CONTRACT, Bundle, load_bundle
from gantry_deploy.bundle.files import read_files, write_files
from gantry_deploy.errors import LinkError

LIVE = "live.onnx"
"""File beside those of the bundle: the acting network, whose weights the learner sends."""


def contract_sha256(files: Mapping[str, bytes]) -> str:
    """SHA-256, 64 hexadecimal digits, of the contract among a bundle's files."""
    return hashlib.sha256(files[CONTRACT]).hexdigest()


def session_files(bundle: Path, live: bytes) -> dict[str, bytes]:
    """Files of a bundle by name, and the acting network beside them."""
    return {**read_files(bundle), LIVE: live}


def unpacked(files: Mapping[str, bytes], folder: Path) -> tuple[Bundle, bytes]:
    """The bundle, written into a new folder and verified as any other, and the acting network.

    Raises:
        LinkError: If the acting network is missing.
        BundleError: If the bundle is not what its manifest says.
    """
    if LIVE not in files:
        raise LinkError(f"The learner sent {', '.join(sorted(files))}, expected {LIVE} among them.")
    write_files(folder, {name: data for name, data in files.items() if name != LIVE})
    return load_bundle(folder), files[LIVE]

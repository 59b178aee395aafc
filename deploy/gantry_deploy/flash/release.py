"""A release: bundle, configuration files, and the runtime's wheels or a note of the installed one, in one folder.

The folder bears the SHA-256 of its ``manifest.json``, which has size and SHA-256 of every other file. Equal contents
give an equal name, so that a copy that was cut can go on in another call.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.files import MANIFEST, read_files
from gantry_deploy.bundle.signature import RELEASE_TAG, SIGNATURE, sign_manifest
from gantry_deploy.errors import FlashError
from gantry_deploy.flash.home import RUN_FILE, RunConfig
from gantry_hardware.compat import sha256_of
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.text import path_text, plain_text, printable
from gantry_hardware.files.yaml_file import read_yaml

FORMAT = 1
"""Newest format of manifests that this version understands."""
DISTRIBUTION = "gantry-rl"
"""Distribution whose version is the runtime's."""
PARTS = ("bundle", "config", "wheels")
"""Folders of a release."""
VENV = "venv"
"""Folder beside them that a robot makes of the wheels; no part of the release."""
MAX_FILES, MAX_BYTES, MAX_MANIFEST = 500, 4 * 2**30, 2**20
"""Most files, bytes of all files, and bytes of a manifest."""
_PATH = re.compile(rf"({'|'.join(PARTS)})/[A-Za-z0-9][A-Za-z0-9._+-]{{0,159}}")
_PIECE = 2**20


@dataclass(frozen=True)
class ReleaseFile:
    """A file of a release, by its manifest."""

    path: str
    """Folder of :data:`PARTS`, a slash, and a plain name."""
    size: int
    """Bytes."""
    sha256: str
    """64 hexadecimal digits."""


@dataclass(frozen=True)
class Manifest:
    """Content of a release's manifest."""

    data: Mapping[str, Any]
    """All of it, as it is signed."""
    text: bytes
    """The file's bytes."""
    files: tuple[ReleaseFile, ...]
    """Every file, in the order in which they are copied."""

    @property
    def release(self) -> str:
        """Name of the release: SHA-256 of the manifest, 64 hexadecimal digits."""
        return hashlib.sha256(self.text).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def runtime(self) -> Mapping[str, Any]:
        """Version of the runtime (``version``), and whether its wheels come along (``wheels``)."""
        return self.data["runtime"]

    def in_part(self, part: str) -> list[ReleaseFile]:
        """Files of one folder."""
        return [file for file in self.files if file.path.startswith(f"{part}/")]


@dataclass(frozen=True)
class Release:
    """A release on the machine of an engineer."""

    manifest: Manifest
    """Hashes of everything."""
    contents: Mapping[str, bytes | Path]
    """Bytes of each file, or the file that has them."""
    contract: str
    """JSON of the policy's contract."""

    @property
    def bundle_manifest(self) -> bytes:
        """The bundle's ``manifest.json``."""
        return b"".join(self.read(f"bundle/{MANIFEST}", 0))

    def read(self, path: str, offset: int) -> Iterator[bytes]:
        """Bytes of a file from an offset on, in pieces."""
        content = self.contents[path]
        if isinstance(content, bytes):
            yield from (content[i : i + _PIECE] for i in range(offset, len(content), _PIECE))
            return
        with open(content, "rb") as file:
            file.seek(offset)
            while piece := file.read(_PIECE):
                yield piece


def make_release(
    bundle: Path, configs: Iterable[Path] = (), wheels: Path | None = None, private_key: bytes | None = None
) -> Release:
    """Collect a release; nothing is written.

    Args:
        bundle: Folder or zip of a policy; everything in it is verified.
        configs: YAML files of robot and site; one called ``run.yaml`` says how the bundle is run.
        wheels: Folder with wheels of the runtime and all that it needs; None for the runtime installed on the robot.
        private_key: Raw Ed25519 key, 32 bytes, to sign the release with.

    Raises:
        GantryError: If the bundle is not intact, a file cannot be read or has a name that no file of a release has.
    """
    contract = load_bundle(bundle).contract
    contents: dict[str, bytes | Path] = {f"bundle/{name}": data for name, data in read_files(bundle).items()}
    for config in configs:
        plain = read_yaml(config)  # What makes no sense is refused here and not on the robot.
        if config.name == RUN_FILE:
            from_plain(RunConfig, plain, path_text(config), FlashError)
        _add(contents, f"config/{config.name}", config.read_bytes())
    found = sorted(wheels.glob("*.whl")) if wheels is not None else []
    if wheels is not None and not any(path.name.startswith("gantry_rl-") for path in found):
        raise FlashError(
            f"{path_text(wheels)} holds no wheel of {DISTRIBUTION}; make them with: pip wheel -w FOLDER '.[signing]'"
        )
    for path in found:
        _add(contents, f"wheels/{path.name}", path)
    entries = {path: _entry(content) for path, content in sorted(contents.items())}
    own = next((path.name.split("-")[1] for path in found if path.name.startswith("gantry_rl-")), runtime_version())
    data: dict[str, Any] = {
        "format": FORMAT,
        "name": bundle.parent.name if bundle.name == "bundle" else bundle.stem,
        "robot": contract.robot,
        "runtime": {"version": own, "wheels": bool(found), "python": f"{sys.version_info[0]}.{sys.version_info[1]}"},
        "files": entries,
    }
    if private_key is not None:
        data[SIGNATURE] = sign_manifest(data, private_key, RELEASE_TAG)
    return Release(parse_manifest(json.dumps(data, indent=1, sort_keys=True).encode()), contents, contract.to_json())


def parse_manifest(text: bytes) -> Manifest:
    """A manifest, judged.

    Raises:
        FlashError: If it is none, of a newer format, or names what no release holds.
    """
    data = parse_json_object(text, "the release's manifest", max_bytes=MAX_MANIFEST, error=FlashError)
    made = data.get("format")
    if type(made) is not int or not 1 <= made <= FORMAT:
        raise FlashError(f"The release's manifest has format {plain_text(made)}, understood are 1 to {FORMAT}.")
    entries, runtime = data.get("files"), data.get("runtime")
    if not isinstance(entries, dict) or not isinstance(runtime, dict) or not isinstance(data.get("robot"), str):
        raise FlashError("The release's manifest lacks 'files', 'runtime' or 'robot'.")
    if not isinstance(runtime.get("version"), str) or not isinstance(runtime.get("wheels"), bool):
        raise FlashError("The release's manifest does not say which runtime it is for ('runtime').")
    files = tuple(_file(path, entry) for path, entry in entries.items())
    if len(files) > MAX_FILES or sum(file.size for file in files) > MAX_BYTES:
        raise FlashError(f"The release has more than {MAX_FILES} files, or {MAX_BYTES} bytes.")
    if not any(file.path == f"bundle/{MANIFEST}" for file in files):
        raise FlashError("The release holds no bundle.")
    return Manifest(data, text, files)


def read_release(folder: Path) -> Manifest:
    """The manifest of a release's folder, after every file was compared with it.

    Raises:
        FlashError: If something is missing, extra, or changed.
    """
    try:
        text = (folder / MANIFEST).read_bytes()[: MAX_MANIFEST + 1]
    except OSError as error:
        raise FlashError(f"{path_text(folder)} is no release: {MANIFEST} cannot be read, {error.strerror}.") from error
    manifest = parse_manifest(text)
    for file in manifest.files:
        if (trouble := file_trouble(folder, file)) != "":
            raise FlashError(f"{path_text(folder)}: '{file.path}' {trouble}.")
    known = {file.path for file in manifest.files}
    for part in PARTS:
        for path in sorted((folder / part).iterdir()) if (folder / part).is_dir() else []:
            if f"{part}/{path.name}" not in known:
                raise FlashError(f"{path_text(folder)}: '{part}/{printable(path.name)}' is not in its manifest.")
    return manifest


def file_trouble(folder: Path, file: ReleaseFile) -> str:
    """Difference of a file from its manifest, in words; empty if there is none."""
    path = folder / file.path
    if path.is_symlink():
        return "is a link"
    try:
        with path.open("rb") as stream:
            found = sha256_of(stream)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if found != file.sha256:
        return f"was changed or damaged (SHA-256 is {found[:12]}, in the manifest {file.sha256[:12]})"
    return ""


def remove_folder(folder: Path) -> None:
    """Remove a release's folder, of which nothing may be left that looks whole."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def runtime_version() -> str:
    """Version of the runtime that is installed here; empty if it is not installed as a distribution."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""


def _add(contents: dict[str, bytes | Path], path: str, content: bytes | Path) -> None:
    if not _PATH.fullmatch(path):
        raise FlashError(f"'{printable(path)}' is no name for a file of a release; expected letters, digits and ._+-")
    if path in contents:
        raise FlashError(f"Two files of the release are called '{path}'.")
    contents[path] = content


def _entry(content: bytes | Path) -> dict[str, Any]:
    if isinstance(content, bytes):
        return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    with content.open("rb") as file:
        return {"sha256": sha256_of(file), "size": content.stat().st_size}


def _file(path: str, entry: Any) -> ReleaseFile:
    if not _PATH.fullmatch(path):
        raise FlashError(f"The release's manifest names '{printable(path)}', which is no file of a release.")
    if not isinstance(entry, dict):
        raise FlashError(f"The release's manifest says nothing of '{printable(path)}'.")
    size, sha256 = entry.get("size"), entry.get("sha256")
    if type(size) is not int or size < 0 or not isinstance(sha256, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
        raise FlashError(f"The release's manifest has no size and SHA-256 of '{printable(path)}'.")
    return ReleaseFile(path, size, sha256)

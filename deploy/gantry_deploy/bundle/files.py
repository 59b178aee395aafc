"""The files of a bundle as bytes: read from a folder or a zip within limits, and replaced whole or not at all.

A folder is replaced in steps, of which one counts: all new files are written to ``.scratch`` in it and reach the disk,
then ``.scratch`` becomes ``.next``. From then on the folder holds the new bundle, wherever the writer is stopped: a
reader takes ``.next`` if it is there. At leisure its files take the places of the old ones, and ``.next`` goes. Nothing
outside the folder is touched, so that it may be a mount, and no file system must be able to exchange folders.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import stat
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from gantry_deploy.errors import BundleError
from gantry_hardware.files.archive import ZIP_ERRORS, read_archive
from gantry_hardware.files.text import path_text, printable
from gantry_hardware.files.whole_files import folder_reaches_disk, is_temporary, reach_disk

MANIFEST, MODEL, CONTRACT, GOLDEN, CARD = "manifest.json", "policy.onnx", "contract.json", "golden.npz", "card.json"
MAPPER = "mapper.onnx"
"""The mapping network of a policy that looks at a map; a bundle without one is mapped for without a network."""
BASE = "base.onnx"
"""The network that plans the actions which a residual policy corrects."""
REQUIRED = (MODEL, CONTRACT, GOLDEN)
"""Files without which a bundle is none."""
NAMES = (MANIFEST, *REQUIRED, CARD, MAPPER, BASE)
"""Every file that an export writes."""

MAX_BYTES = 256 * 2**20
"""Largest bundle, and largest golden data, once unpacked; a policy network is a few megabytes."""
MAX_FILES = 16
"""Largest number of files."""
SCRATCH, NEXT = ".scratch", ".next"
"""Folders in a bundle's folder: what is being written and counts for nothing, and what counts instead of the files
around it."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOCK_S = 10.0
"""Time for which a writer waits for another one."""


def read_files(path: Path) -> dict[str, bytes]:
    """The files of a bundle by name, from a folder or a zip; what they hold is not looked at.

    Raises:
        BundleError: If there is none, it cannot be read, is too large, or holds links, folders or odd names.
    """
    try:
        if path.is_dir():
            return _read_folder(path)
        if path.is_file():
            return _read_zip(path)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        raise BundleError(f"{path_text(path)} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    raise BundleError(f"There is no bundle at {path_text(path)}; expected a folder or a .zip file.")


def holds_bundle(folder: Path) -> bool:
    """Whether a folder is a bundle's, by its manifest."""
    return os.path.isfile(folder / MANIFEST) or os.path.isfile(folder / NEXT / MANIFEST)


def foreign_names(folder: Path) -> list[str]:
    """Names in a folder that belong to no bundle, sorted; empty for a folder that does not exist.

    Raises:
        OSError: If it cannot be read.
    """
    if not folder.is_dir():
        return []
    names = {path.name for path in folder.iterdir() if not is_temporary(path.name)}
    return sorted(names - {*NAMES, SCRATCH, NEXT})


def check_sizes(path: Path, files: Mapping[str, bytes]) -> None:
    """Refuse files that could not be read again.

    Raises:
        BundleError: With the name or the number that is wrong.
    """
    total = 0
    for count, (name, data) in enumerate(files.items()):
        total += _check_entry(path, name, len(data), total, count)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace a bundle in a folder by another one, or write the first; of an older one nothing is left.

    Args:
        folder: Created if missing, with those above it; removed again, as far as it was created, if that fails.
        files: Content by name, the manifest among them.

    Raises:
        BundleError: If another process does not end writing to it.
        OSError: If the disk does not take it; the folder holds what it held before.
    """
    with _created(folder), _held(folder):
        _settle(folder)
        scratch = folder / SCRATCH
        try:
            _fresh(scratch)
            for name, data in files.items():
                _write(scratch / name, data)
            folder_reaches_disk(scratch)
            os.rename(scratch, folder / NEXT)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        folder_reaches_disk(folder)
        with contextlib.suppress(OSError):  # the new bundle counts already; the next writer ends what is left to do
            _settle(folder)


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    """The files as a zip; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            # A fixed time and mode, so that the archive depends on the contents alone.
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, files[name])
    return buffer.getvalue()


def _read_folder(folder: Path) -> dict[str, bytes]:
    staged = folder / NEXT
    if staged.is_dir() and not staged.is_symlink():
        folder = staged
    files: dict[str, bytes] = {}
    total = 0
    for entry in sorted(folder.iterdir()):
        if is_temporary(entry.name):
            continue
        mode = entry.lstat().st_mode  # asked once: beside a writer, a second answer can differ from the first
        if entry.name == SCRATCH and stat.S_ISDIR(mode):
            continue
        if entry.name == NEXT and folder != staged and stat.S_ISDIR(mode):
            raise FileNotFoundError(f"{entry.name} came while the files around it were read")
        if stat.S_ISLNK(mode):
            raise BundleError(
                f"{path_text(folder)}: '{printable(entry.name)}' is a link; a bundle holds plain files only."
            )
        if not stat.S_ISREG(mode):
            raise BundleError(
                f"{path_text(folder)}: '{printable(entry.name)}' is no plain file; a bundle has no sub-folders."
            )
        _check_entry(folder, entry.name, entry.stat().st_size, total, len(files))
        files[entry.name] = _read(entry, MAX_BYTES - total)
        total += _check_entry(folder, entry.name, len(files[entry.name]), total, len(files) - 1)
    return files


def _read(path: Path, room: int) -> bytes:
    """A file's content, of a growing one at most a byte more than there is room for."""
    with open(path, "rb") as file:
        return file.read(room + 1)


def _read_zip(path: Path) -> dict[str, bytes]:
    data = _read(path, MAX_BYTES)
    if len(data) > MAX_BYTES:
        raise BundleError(f"{path_text(path)} has more than {MAX_BYTES} bytes, the most that a bundle has.")
    try:
        members = read_archive(data, max_bytes=MAX_BYTES, max_files=MAX_FILES)
    except ZIP_ERRORS as error:
        raise BundleError(f"{path_text(path)} is no readable zip of a bundle: {error}.") from error
    top = _top_folder(members)
    files = {name.removeprefix(top): data for name, data in members.items() if name != top}
    for count, name in enumerate(files):
        _check_entry(path, name, len(files[name]), 0, count)
    return files


def _top_folder(names: Mapping[str, bytes]) -> str:
    """``walk/`` where everything lies in one folder of that name, as when a folder is zipped; else empty."""
    tops = {name[: name.find("/") + 1] for name in names}
    top = tops.pop() if len(tops) == 1 else ""
    return "" if top in ("/", "./", "../") or "\\" in top else top


def _check_entry(path: Path, name: str, size: int, total: int, count: int) -> int:
    """Refuse what a bundle never holds, before it is read; returns the size."""
    if not _PLAIN_NAME.fullmatch(name):
        held = "a bundle holds its files, or one folder with them"
        raise BundleError(f"{path_text(path)}: '{printable(name)}' is no plain file name; {held}.")
    if total + size > MAX_BYTES:
        raise BundleError(
            f"{path_text(path)} holds {total + size} bytes with '{printable(name)}', allowed are {MAX_BYTES}."
        )
    if count >= MAX_FILES:
        raise BundleError(f"{path_text(path)} holds more than {MAX_FILES} files.")
    return size


def _settle(folder: Path) -> None:
    """Put what counts in the places where it is looked for first, if a writer was stopped before that."""
    staged, scratch = folder / NEXT, folder / SCRATCH
    if not staged.is_dir():
        return
    _fresh(scratch)
    names = sorted(entry.name for entry in staged.iterdir())
    for name in names:
        try:
            os.link(staged / name, scratch / name)
        except OSError:  # a file system without links
            _write(scratch / name, (staged / name).read_bytes())
        os.replace(scratch / name, folder / name)
    for name in set(NAMES) - set(names):
        (folder / name).unlink(missing_ok=True)
    folder_reaches_disk(folder)
    shutil.rmtree(scratch)  # holds names of files that are in their places already
    os.rename(staged, scratch)
    folder_reaches_disk(folder)
    shutil.rmtree(scratch, ignore_errors=True)


def _fresh(folder: Path) -> None:
    """An empty folder, whatever a stopped writer left there."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        reach_disk(file)


@contextlib.contextmanager
def _created(folder: Path) -> Iterator[None]:
    """Make a folder, and take away what was made if the block fails; a folder that holds something stays."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder; the system lets go with this process, however that ends."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        end_s = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > end_s:
                    raise BundleError(f"{path_text(folder)} is being written by another process.") from error
                time.sleep(0.05)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)

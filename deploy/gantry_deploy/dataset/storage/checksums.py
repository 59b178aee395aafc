"""SHA-256 of every file of a dataset, so that a changed number is noticed whatever the statistics say.

``meta/checksums.json`` holds the checksums of the files as they are and, for the last change, as they were before it:
it is put into place before the other files of a change, and a writer that is killed on the way leaves some files of
each side. Programs that know nothing of it pass over it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gantry_deploy.dataset.checks.findings import REPAIR, Finding
from gantry_deploy.dataset.notes import NOTES
from gantry_deploy.dataset.storage.files import FolderLock, replace_files
from gantry_deploy.dataset.storage.layout import INFO, json_bytes, read_json
from gantry_deploy.errors import DatasetError
from gantry_hardware.compat import sha256_of

CHECKSUMS = "meta/checksums.json"
ABSENT = ""
"""Stands for the checksum of a file that was not there before."""
CHANGED = (
    "take the file from a backup; if another program changed the dataset on purpose, "
    "'gantry data check FOLDER --accept-changes' takes it as it is"
)
_COVERED = ("meta", "data", "videos")


@dataclass(frozen=True)
class Checksums:
    """Checksums of the files of a dataset, by path within its folder."""

    files: Mapping[str, str]
    """As the files are."""
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """As those were that the last change replaced, or :data:`ABSENT`."""

    def changed(self, files: Mapping[str, bytes], removed: Collection[str] = ()) -> Checksums:
        """Checksums after some files get another content and some are removed."""
        new = {path: digest(content) for path, content in files.items()}
        kept = {path: value for path, value in self.files.items() if path not in removed}
        before = {
            path: tuple(dict.fromkeys([self.files.get(path, ABSENT), *self.before.get(path, ())]))
            for path in [*new, *removed]
        }
        return Checksums({**kept, **new}, before)

    def settled(self) -> Checksums:
        """The same after the change is complete."""
        return Checksums(self.files)

    def content(self) -> bytes:
        """The file."""
        return json_bytes(
            {"sha256": dict(self.files), "before": {path: list(old) for path, old in self.before.items()}}
        )

    @classmethod
    def read(cls, folder: Path) -> Checksums | None:
        """Those of a dataset; None if it has none.

        Raises:
            DatasetError: If the file is damaged, or missing where Gantry's notes lie.
        """
        path = folder / CHECKSUMS
        if not path.exists():
            if (folder / NOTES).exists() and (folder / INFO).exists():
                raise DatasetError(f"{path} does not exist, and Gantry writes one beside every {NOTES}.")
            return None
        data = read_json(path)
        files, before = data.get("sha256"), data.get("before", {})
        if not isinstance(files, dict) or not isinstance(before, dict):
            raise DatasetError(f"{path} holds something else than checksums by file.")
        if not all(isinstance(old, list) for old in before.values()):
            raise DatasetError(f"{path}: before holds something else than lists of checksums by file.")
        texts = {name: str(value) for name, value in files.items()}
        return cls(texts, {name: tuple(map(str, old)) for name, old in before.items()})

    @classmethod
    def of(cls, folder: Path) -> Checksums:
        """Of all files of a dataset as they are.

        Raises:
            DatasetError: If one cannot be read.
        """
        return cls({name: file_digest(folder / name) for name in covered_files(folder)})


def covered_files(folder: Path) -> list[str]:
    """Files of a dataset that have checksums, whether it needs them or not."""
    names = [NOTES] if (folder / NOTES).is_file() else []
    for part in _COVERED:
        names += [str(path.relative_to(folder)) for path in sorted((folder / part).rglob("*")) if path.is_file()]
    return [name for name in names if name != CHECKSUMS and name.endswith((".json", ".parquet", ".mp4"))]


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def file_digest(path: Path) -> str:
    """Of a file; :data:`ABSENT` if it does not exist.

    Raises:
        DatasetError: If it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return sha256_of(file)
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}.") from error


def compare_checksums(folder: Path, checksums: Checksums) -> list[Finding]:
    """Files that are not as they were written."""
    found = []
    for name in dict.fromkeys([*checksums.files, *covered_files(folder)]):
        wanted, old = checksums.files.get(name), checksums.before.get(name, ())
        if ".." in Path(name).parts or Path(name).is_absolute():
            found.append(Finding(CHECKSUMS, f"names '{name}', which lies outside the dataset", CHANGED))
            continue
        try:
            there = file_digest(folder / name)
        except DatasetError as error:
            found.append(Finding(name, str(error), CHANGED))
            continue
        if there == (wanted or ABSENT):
            continue
        if there in old:
            said = "is as it was before a change that was not completed"
            found.append(Finding(name, said, REPAIR))
        elif there == ABSENT:
            found.append(Finding(name, "does not exist, and its checksum does", CHANGED))
        elif wanted is None:
            if name == NOTES or name.startswith("meta/"):  # Of other files the episodes know which belong to them.
                found.append(Finding(name, f"has no checksum in {CHECKSUMS}", CHANGED))
        else:
            said = f"has SHA-256 {there[:12]}..., and {wanted[:12]}... was written: its content has changed"
            found.append(Finding(name, said, CHANGED))
    return found


def require_checksums(folder: Path) -> Checksums | None:
    """Refuse a dataset whose files are not as they were written.

    Returns:
        Its checksums; None if it has none.

    Raises:
        DatasetError: Naming the first file.
    """
    checksums = Checksums.read(folder)
    damaged = (
        [] if checksums is None else [item for item in compare_checksums(folder, checksums) if item.advice != REPAIR]
    )
    if damaged:
        first = damaged[0]
        raise DatasetError(
            f"{folder / first.place} {first.problem}. Advice: {first.advice.replace('FOLDER', str(folder))}."
        )
    return checksums


def accept_changes(folder: Path) -> None:
    """Write the checksums of all files anew: what they hold now is right.

    Raises:
        DatasetError: If that cannot be written, or another process writes into the folder.
    """
    lock = FolderLock(folder)
    try:
        write_checksums(folder, Checksums.of(folder))
    finally:
        lock.release()


def write_checksums(folder: Path, checksums: Checksums) -> None:
    """Write the file alone.

    Raises:
        DatasetError: If it cannot be written.
    """
    replace_files(folder, {CHECKSUMS: checksums.content()}, last=CHECKSUMS)

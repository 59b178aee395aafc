"""Files that are written whole or not at all: a full disk leaves what was there before, and nothing half done."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path


def write_whole(path: str | Path, data: bytes) -> None:
    """Write a file beside its place and move it there; what a link leads to is written, and devices directly.

    Raises:
        OSError: If it cannot be written; what was there stays as it was.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    with _temporaries([target]) as (temporary,):
        temporary.write_bytes(data)
        os.replace(temporary, target)


def write_all(folder: Path, files: Mapping[str, bytes], *, last: str, stale: Collection[str] = ()) -> None:
    """Write files of a folder, all of them or none: only when all lie beside their places, the first one is moved.

    Args:
        folder: Created if missing, with those above it; removed again, as far as it was created, if that fails.
        files: Content by name.
        last: The one of them that is moved at the end, and makes the others count.
        stale: Names of files that are removed if they are there.

    Raises:
        OSError: If something cannot be written.
    """
    order = [*(name for name in files if name != last), last]
    with _created(folder), _temporaries([folder / name for name in order]) as temporaries:
        for name, temporary in zip(order, temporaries, strict=True):
            temporary.write_bytes(files[name])
        for name, temporary in zip(order[:-1], temporaries[:-1], strict=True):
            os.replace(temporary, folder / name)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        os.replace(temporaries[-1], folder / last)


@contextlib.contextmanager
def _temporaries(targets: list[Path]) -> Iterator[list[Path]]:
    """Places beside files to write to; what still lies there in the end is removed."""
    paths = [target.with_name(f".{target.name}.{os.getpid()}.tmp") for target in targets]
    try:
        yield paths
    finally:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


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

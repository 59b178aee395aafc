"""Datasets that appear whole: they are written beside their place and moved there when they are complete."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from gantry_deploy.errors import DatasetError
from gantry_hardware.files.text import path_text
from gantry_hardware.files.whole_files import folder_reaches_disk


def require_new(output: Path) -> None:
    """Refuse a place that is taken.

    Raises:
        DatasetError: If something is there already.
    """
    if output.exists():
        raise DatasetError(f"'{path_text(output)}' exists already; give the name of a new folder.")


@contextlib.contextmanager
def whole_output(output: Path) -> Iterator[Path]:
    """A folder to write a dataset into, which takes its place when the block ends without an error.

    After an error or Ctrl-C nothing is left; a killed process leaves a hidden folder ``.NAME.unfinished``, which the
    next attempt removes.

    Raises:
        DatasetError: If the place is taken, or the dataset cannot be moved there.
    """
    require_new(output)
    scratch = output.absolute().with_name(f".{output.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.parent.mkdir(parents=True, exist_ok=True)
        yield scratch
        require_new(output)
        os.rename(scratch, output)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise DatasetError(f"'{path_text(output)}' could not be written: {error.strerror or error}.") from error
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    folder_reaches_disk(output.absolute().parent)

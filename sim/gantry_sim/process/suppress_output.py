"""Keeps what libraries print while they build from burying what a person wants to read."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
import warnings
from collections.abc import Iterator

_NO_DRIVER = b"Could not find or load the NVIDIA CUDA driver"
"""Warp's warning on a machine without a GPU, where none was asked for."""


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Swallow standard output and warnings; errors pass."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@functools.cache
def start_warp() -> None:
    """Initialise Warp, once, without its warning that there is no CUDA driver.

    Warp writes that line from C to the process's standard error and offers no switch for it; a user that asks for a GPU
    is told by torch. Whatever else appears there meanwhile is passed on.
    """
    import warp

    with contextlib.ExitStack() as stack:
        try:
            caught = stack.enter_context(tempfile.TemporaryFile())
            kept = os.dup(2)
        except OSError:  # standard error is closed, or there is no room for a file
            warp.init()
            return
        os.dup2(caught.fileno(), 2)
        try:
            warp.init()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            os.write(2, b"".join(line for line in caught if _NO_DRIVER not in line))

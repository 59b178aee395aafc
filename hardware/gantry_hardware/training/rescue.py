"""Saving of what was learned before an error ends a training, whatever the error is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gantry_hardware.errors import GantryError


@contextlib.contextmanager
def saving_on_error(save: Callable[[], Path | None], unless: type[BaseException] | tuple[()] = ()) -> Iterator[None]:
    """Save before an error goes on: of an environment, of memory, an interruption.

    Args:
        save: Writes a checkpoint and returns its path; None if nothing was learned since the last one, if what was
            learned is not finite, or if nothing is written at all.
        unless: Errors of saving itself, after which it is not tried again.

    Raises:
        BaseException: What was raised inside, unchanged.
    """
    try:
        yield
    except unless:
        raise
    except BaseException:
        try:
            path = save()
        except Exception as error:
            reason = str(error) if isinstance(error, GantryError) else f"{type(error).__name__}: {error}"
            _tell(f"What was learned since the last checkpoint could not be saved: {reason}")
        else:
            if path is not None:
                _tell(f"What was learned until then is saved: {path}")
        raise


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

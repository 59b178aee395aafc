"""How to come back to a training that ended early, whatever ended it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def way_back(folder: Path) -> Iterator[None]:
    """Tell how a run is continued, if it has a checkpoint, before an error or an interruption goes on.

    Args:
        folder: Of the run.
    """
    from gantry_policies.checkpoint import UnusableCheckpointError, list_checkpoints
    from gantry_policies.runner import CHECKPOINTS

    try:
        yield
    except UnusableCheckpointError:  # it would only say so again
        raise
    except BaseException:
        if list_checkpoints(folder / CHECKPOINTS):
            print(f"Continue with: gantry train --resume {folder}", file=sys.stderr)
        raise

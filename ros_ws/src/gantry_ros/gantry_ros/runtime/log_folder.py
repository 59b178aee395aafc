"""Folder of ROS's log files: elsewhere, and said so, where the usual folder cannot be written."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import plain_text

VARIABLE = "ROS_LOG_DIR"
"""Environment variable that names the folder."""


def ensure_log_folder() -> str:
    """Make sure that ROS can write log files, before ``rclpy.init`` refuses to begin because it cannot.

    Without ``HOME``, as in a service of systemd, or with one that cannot be written, a new folder for temporary files
    takes them; that is said once on stderr, and child processes inherit it.

    Returns:
        The folder; empty where ROS itself finds it.

    Raises:
        GantryError: If no folder at all can be written.
    """
    trouble = _trouble()
    if not trouble:
        return ""
    try:
        folder = tempfile.mkdtemp(prefix="ros_log_")
    except OSError as error:
        raise GantryError(
            f"ROS has no folder for its log files: {trouble}, and no temporary one can be made ({error}). "
            f"Set {VARIABLE} to a folder that can be written."
        ) from error
    os.environ[VARIABLE] = folder
    print(f"ROS logs to {folder}: {trouble}. Set {VARIABLE} to choose the folder.", file=sys.stderr, flush=True)
    return folder


def _trouble() -> str:
    """Reason for which ROS could write no log file; empty if it could. The order of places is that of
    rcl_logging_interface.
    """
    named = os.environ.get(VARIABLE, "")
    root = os.environ.get("ROS_HOME", "") or "~/.ros"
    text = named or f"{root}/log"
    if text.startswith("~"):
        home = os.environ.get("HOME", "")
        if not home:
            return "HOME is not set"
        text = home + text[1:]
    folder = Path(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"{plain_text(text, 200)} cannot be made ({error.strerror or error})"
    except ValueError as error:
        return f"{plain_text(text, 200)} is no path ({error})"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{plain_text(text, 200)} cannot be written"

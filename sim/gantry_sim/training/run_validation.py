"""Check of a folder for a new training run; without the learning libraries, so that a refusal comes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gantry_deploy.bundle.files import MAPPER
from gantry_deploy.bundle.locate import RUN_CONFIG, find_run
from gantry_hardware.errors import GantryError, near_name
from gantry_hardware.files.json_file import read_json_object
from gantry_hardware.files.whole_files import is_temporary
from gantry_hardware.plugins import find_plugin

LOCK_FILE = "run.lock"
TEACHER_FOLDER = "teacher"
"""Folder of a run with what it needs of its teacher's run: configuration and one checkpoint."""
PLANNERS = "gantry.teachers"
"""Entry-point group of teachers that plan from pictures, numbers and words."""
SCRIPTED = "scripted"
"""Name of a task's scripted policy, as ``--teacher`` takes it in place of a run folder."""
MAX_RUN_FILE_BYTES = 64 * 2**20
"""Largest JSON file of a run; results hold numbers of every episode."""
SOURCE_FILES = ("base", "demos.npz", "contract.json")
"""Parts of a run folder: copies of a base and of demonstrations, and the contract of its policy."""
_BEGUN = {RUN_CONFIG, LOCK_FILE, MAPPER, TEACHER_FOLDER, *SOURCE_FILES}
"""Files in a run folder before its first iteration."""


class RunError(GantryError):
    """A run folder is missing, damaged, or not what was expected."""


def read_run_file(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run: its configuration, or numbers that came of it.

    Raises:
        OSError: If it cannot be read.
        JsonError: If it holds something else.
    """
    return read_json_object(path, max_bytes=MAX_RUN_FILE_BYTES, allow_nan=True)


def require_fresh(folder: Path) -> None:
    """Refuse a folder in which a new run would overwrite or mix with something.

    What never came as far as a first iteration (a typo, a missing device) is no loss and may be begun again.

    Raises:
        RunError: If the folder holds a run, or anything else.
    """
    try:
        names = {item.name for item in folder.iterdir() if not is_temporary(item.name)}
    except (FileNotFoundError, NotADirectoryError):  # Making it shows what is wrong with it, if anything is.
        return
    except OSError as error:
        raise RunError(f"Cannot read '{folder}': {error.strerror}.") from error
    ours = _holds_configuration(folder)
    if names <= (_BEGUN if ours else {LOCK_FILE}):
        return
    if ours:
        raise RunError(f"'{folder}' already holds a run. Continue it with --resume {folder}, or name another folder.")
    raise RunError(f"'{folder}' is in use already; name another folder.")


def trained_task(folder: Path) -> str:
    """Name of the task that a run folder is about; empty where it does not say."""
    return str(_configuration(folder).get("task", ""))


def trained_teacher(folder: Path) -> str:
    """Teacher of a run as ``--teacher`` named it; empty for none."""
    return str(_configuration(folder).get("teacher") or "")


def is_planner(name: str) -> bool:
    """Whether a teacher's name is that of one that plans, such as ``openpi:HOST:PORT``, and of no run folder."""
    kind, colon, _ = name.partition(":")
    return bool(colon) and kind.isidentifier() and not Path(name).exists()


def require_teacher(name: str) -> None:
    """Refuse what is neither :data:`SCRIPTED`, nor a teacher that plans, nor a run folder.

    Raises:
        RunError: With the near miss.
        UnknownNameError: If there is no such kind of teacher that plans.
    """
    if name == SCRIPTED:
        return
    if is_planner(name):
        find_plugin(PLANNERS, name.partition(":")[0], "kind of teacher")
        return
    if near_name(name, (SCRIPTED,)) and not Path(name).exists():
        raise RunError(f"'{name}' is no run folder. Did you mean '{SCRIPTED}'?")
    find_run(Path(name), RunError)


def _configuration(folder: Path) -> dict[str, Any]:
    try:
        return read_run_file(folder / RUN_CONFIG)
    except (OSError, ValueError, RunError):
        return {}


def _holds_configuration(folder: Path) -> bool:
    return bool(trained_task(folder))

"""The current release: changed in one step, on trial until it is good, and returned from.

Order of every change: what the state must say is on the disk before the link changes, so that a power cut between the
two leaves a link to a release that works, and a trial that names another release, which then counts for nothing.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from gantry_deploy.errors import FlashError
from gantry_deploy.flash.home import RobotConfig, RobotHome, State, Trial
from gantry_deploy.flash.release import remove_folder
from gantry_hardware.files.whole_files import folder_reaches_disk

_NEW = ".current.new"


def point_current_at(home: RobotHome, release: str) -> None:
    """Make a release the current one: a new link under another name, which takes the place of the old one.

    Raises:
        OSError: If the file system does not take it; the old link stays.
    """
    fresh = home.root / _NEW
    fresh.unlink(missing_ok=True)
    os.symlink(Path("releases") / release, fresh)
    folder_reaches_disk(home.root)
    os.replace(fresh, home.current_link)
    folder_reaches_disk(home.root)


def prove_switching(home: RobotHome) -> None:
    """Try links and their exchange beside the real one.

    Raises:
        FlashError: If this file system cannot do it.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".switch-", dir=home.root) as folder:
            link, fresh = Path(folder) / "link", Path(folder) / "fresh"
            os.symlink("first", link)
            os.symlink("second", fresh)
            os.replace(fresh, link)
            if os.readlink(link) != "second":
                raise FlashError("a link does not lead where it was told to")
    except OSError as error:
        raise FlashError(f"the file system cannot exchange links: {error.strerror}") from error


def switch(home: RobotHome, release: str, by: str) -> None:
    """Put a whole and verified release on trial."""
    with home.changing():
        home.write_state(trial=Trial(release), note=f"{release[:12]} waits for its first run")
        point_current_at(home, release)
    home.note("switched", by, release)


def commit(home: RobotHome, release: str, by: str) -> None:
    """Mark the release on trial as good; from now on it is the one to return to."""
    with home.changing() as state:
        good = (*(name for name in state.good if name != release), release)
        failed = {name: why for name, why in state.failed.items() if name != release}
        trial = None if state.trial is None or state.trial.release == release else state.trial
        home.write_state(good=good, trial=trial, failed=failed, note=f"{release[:12]} is good")
    home.note("good", by, release)


def give_up(home: RobotHome, release: str, why: str, by: str) -> str:
    """Return from a release to the last good one, unless another one is current by now.

    Returns:
        Hash of the release that is current now; empty if none was ever good, and nothing is current then.
    """
    with home.changing() as state:
        good = tuple(name for name in state.good if name != release)
        trial, current = state.trial, home.current()
        if current == release:
            current = good[-1] if good else ""
            if current:
                point_current_at(home, current)
            else:
                home.current_link.unlink(missing_ok=True)
                folder_reaches_disk(home.root)
        if trial is not None and trial.release == release:
            trial = None
        back = f"back to {current[:12]}" if current else "there is no release before it"
        note = f"{release[:12]} was given up: {why}; {back}"
        home.write_state(good=good, trial=trial, failed={**state.failed, release: why}, note=note)
    home.note("returned", by, release, why=why, to=current)
    return current


def roll_back(home: RobotHome, by: str) -> str:
    """Return to the good release before the current one; the one that is left can be returned to in turn.

    Returns:
        Its hash.

    Raises:
        FlashError: If there is none.
    """
    with home.changing() as state:
        target, current = roll_back_target(home), home.current()
        others = tuple(name for name in state.good if name not in (current, target))
        good = ((current,) if current in state.good else ()) + (*others, target)
        point_current_at(home, target)
        home.write_state(good=good, trial=None, note=f"back to {target[:12]} on request")
    home.note("rolled back", by, target, left=current)
    return target


def roll_back_target(home: RobotHome) -> str:
    """Hash of the release that a rollback would return to.

    Raises:
        FlashError: If there is none.
    """
    current = home.current()
    target = next((name for name in reversed(home.state().good) if name != current), "")
    if not target:
        raise FlashError("There is no good release before the current one; nothing to return to.")
    return target


def clean(home: RobotHome, config: RobotConfig) -> list[str]:
    """Remove old releases; the current one, one on trial and the newest good ones stay.

    Returns:
        Hashes of those that were removed.
    """
    with home.changing() as state:
        removed = _remove_old(home, config, state)
        if removed:
            home.write_state(good=tuple(name for name in state.good if name not in removed))
    return removed


def _remove_old(home: RobotHome, config: RobotConfig, state: State) -> list[str]:
    kept = {home.current(), *state.good[-max(2, config.keep - 1) :], *((state.trial.release,) if state.trial else ())}
    found = sorted(home.releases.iterdir(), key=lambda path: path.stat().st_mtime) if home.releases.is_dir() else []
    removed = []
    free = [folder for folder in found if folder.name not in kept]
    for folder in free[: max(0, len(found) - config.keep)]:
        with contextlib.suppress(OSError):
            remove_folder(folder)
            removed.append(folder.name)
    return removed

"""Return to the good release before the current one, on a person's request."""

from __future__ import annotations

import json
from collections.abc import Callable

from gantry_deploy.errors import FlashError
from gantry_deploy.flash.home import FLASH_LOCK, RobotHome, utc_now
from gantry_deploy.flash.preflight import safe_to_switch
from gantry_deploy.flash.release import read_release
from gantry_deploy.flash.selftest import test_release
from gantry_deploy.flash.switch import roll_back, roll_back_target
from gantry_deploy.process.folder_lock import FolderLock


def return_on_request(home: RobotHome, by: str, say: Callable[[str], None]) -> str:
    """Verify and test the good release before the current one, and switch to it.

    Args:
        home: The robot's folder.
        by: Person and machine, for the log.
        say: Takes lines for people.

    Returns:
        Hash of the release that is current now.

    Raises:
        FlashError: If there is none, it is not intact, a policy runs, or the robot is being flashed.
        GantryError: If its self-test fails.
    """
    config = home.config()
    holder = {"by": by, "id": "", "since": utc_now().isoformat(timespec="seconds"), "release": "a rollback"}
    lock = FolderLock(home.root, "The robot", FlashError, name=FLASH_LOCK, holder=json.dumps(holder))
    try:
        target = roll_back_target(home)
        read_release(home.releases / target)
        test_release(home, target, lambda name, passed, text: say(f"  ok  {name:<13} {text}"))
        say(f"  ok  safe          {safe_to_switch(home, config)}")
        return roll_back(home, by)
    finally:
        lock.release()

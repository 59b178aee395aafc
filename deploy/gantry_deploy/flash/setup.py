"""First setup of a robot's computer: folder, configuration, and the systemd unit that starts the service."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gantry_deploy.errors import FlashError
from gantry_deploy.flash.home import RobotHome, this_person
from gantry_hardware.backends.registry import backend_names, check_options
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.text import path_text
from gantry_hardware.files.whole_files import write_whole
from gantry_hardware.robots import robot_spec

UNIT = "gantry-robot.service"
"""Name of the systemd unit."""
FILES = Path(__file__).resolve().parent / "files"
"""Folder of the files that are filled in or copied: unit, configuration, container recipe."""


def set_up(home: RobotHome, robot: str, backend: str, options: Mapping[str, Any]) -> list[str]:
    """Make what is missing; what exists is left as it is.

    Args:
        home: The folder, made if missing.
        robot: Name of the robot.
        backend: Backend that bundles are run on; empty where releases bring their own ``run.yaml``.
        options: Options of the backend.

    Returns:
        Lines for people: what was made, and what to do next.

    Raises:
        UnknownNameError: If there is no such robot or backend.
        FlashError: If the folder cannot be written.
    """
    robot_spec(robot)
    if backend and backend not in backend_names():
        raise UnknownNameError("robot backend", backend, backend_names())
    if backend:
        check_options(backend, options)
    lines = []
    try:
        for folder in (home.root, home.releases, home.incoming):
            folder.mkdir(parents=True, exist_ok=True)
        if home.robot_file.exists():
            lines.append(f"kept    {path_text(home.robot_file)}")
        else:
            text = (FILES / "robot.yaml").read_text().replace("ROBOT", robot).replace("BACKEND", json.dumps(backend))
            write_whole(home.robot_file, text.replace("OPTIONS", json.dumps(dict(options))).encode())
            lines.append(f"wrote   {path_text(home.robot_file)}")
        config = home.config()
        if config.robot != robot:
            raise FlashError(
                f"{path_text(home.robot_file)} is of robot '{config.robot}', not '{robot}'; edit it by hand."
            )
        unit = home.root / UNIT
        write_whole(unit, unit_text(home).encode())
    except OSError as error:
        raise FlashError(f"{error.filename} cannot be written: {error.strerror}.") from error
    home.note("set up", this_person(), robot=robot)
    return [
        *lines,
        f"wrote   {path_text(unit)}",
        "next, on the robot's computer:",
        f"  systemctl --user enable --now {unit}",
        '  loginctl enable-linger "$USER"     # the service then starts with the computer',
        "next, on your machine: gantry keys new NAME; gantry keys trust NAME --host USER@HOST",
    ]


def unit_text(home: RobotHome) -> str:
    """The systemd unit that starts the service for a folder of releases with this interpreter."""
    text = (FILES / UNIT).read_text()
    return text.replace("PYTHON", sys.executable).replace("HOME_FOLDER", str(home.root))

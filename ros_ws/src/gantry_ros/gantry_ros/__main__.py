"""Start a node: ``python -m gantry_ros policy_node --ros-args -p bundle:=...``; ``ros2 run`` enters here as well."""

from __future__ import annotations

import sys
from importlib import import_module

from gantry_deploy.interrupts import remembering_interrupts
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_ros.availability import require_ros

EXECUTABLES = ("policy_node", "mapping_node", "sim_robot_node", "sim_car_node", "drive_node", "episode_node")
"""Nodes of this package; each is a module with a ``main(arguments) -> int``."""


def start(executable: str, arguments: list[str]) -> int:
    """Run a node until it ends.

    Args:
        executable: One of :data:`EXECUTABLES`.
        arguments: What follows on the command line, ``--ros-args`` included.

    Returns:
        Exit code; 2 after a refusal whose reason is on stderr, 0 if it is asked to stop before it has begun.
    """
    # Once a node runs, its host takes the signal: only loading is interrupted here.
    with remembering_interrupts() as interrupted:
        try:
            if executable not in EXECUTABLES:
                raise UnknownNameError("executable of gantry_ros", executable, EXECUTABLES)
            require_ros()
            return import_module(f"gantry_ros.{executable}").main(arguments)
        except KeyboardInterrupt:
            pass
        except Exception as error:
            if not interrupted.is_set():
                return _refuse(executable, error)
    print(f"{executable}: interrupted while loading", file=sys.stderr, flush=True)
    return 0


def _refuse(executable: str, error: Exception) -> int:
    """Say why a node does not run; a fault of the program is raised again, for its traceback."""
    if not isinstance(error, GantryError):
        raise error
    print(f"{executable}: {error}", file=sys.stderr, flush=True)
    return 2


def policy_node() -> int:
    """Entry point of ``ros2 run gantry_ros policy_node``."""
    return start("policy_node", sys.argv[1:])


def mapping_node() -> int:
    """Entry point of ``ros2 run gantry_ros mapping_node``."""
    return start("mapping_node", sys.argv[1:])


def sim_robot_node() -> int:
    """Entry point of ``ros2 run gantry_ros sim_robot_node``."""
    return start("sim_robot_node", sys.argv[1:])


def sim_car_node() -> int:
    """Entry point of ``ros2 run gantry_ros sim_car_node``."""
    return start("sim_car_node", sys.argv[1:])


def drive_node() -> int:
    """Entry point of ``ros2 run gantry_ros drive_node``."""
    return start("drive_node", sys.argv[1:])


def episode_node() -> int:
    """Entry point of ``ros2 run gantry_ros episode_node``."""
    return start("episode_node", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(start(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))

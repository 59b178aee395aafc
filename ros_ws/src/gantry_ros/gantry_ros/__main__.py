"""Start a node: ``python -m gantry_ros policy_node --ros-args -p bundle:=...``; ``ros2 run`` enters here as well."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module

from gantry_deploy.process.interrupts import end_on_interrupt, remembering_interrupts
from gantry_deploy.process.transports import use_udp

EXECUTABLES = (
    "policy_node",
    "mapping_node",
    "sim_robot_node",
    "sim_car_node",
    "operator_node",
    "episode_node",
    "teleop_node",
    "session_node",
    "controller_watch_node",
)
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
    with remembering_interrupts() as interrupts:
        interrupts.begin()
        try:
            from gantry_hardware.errors import UnknownNameError
            from gantry_ros.runtime.availability import require_ros

            if executable not in EXECUTABLES:
                raise UnknownNameError("executable of gantry_ros", executable, EXECUTABLES)
            require_ros()
            return import_module(f"gantry_ros.nodes.{executable}").main(arguments)
        except KeyboardInterrupt:
            pass
        except Exception as error:
            if not interrupts.is_set():
                return _refuse(executable, error)
    print(_interrupted(executable), file=sys.stderr, flush=True)
    return 0


def _process(executable: str, arguments: list[str]) -> int:
    """Run a node as all that this process does: Ctrl-C ends it at once for as long as the node's modules are loaded."""
    end_on_interrupt(_interrupted(executable), 0)
    use_udp()
    if executable in EXECUTABLES:
        with contextlib.suppress(Exception):  # What is wrong shows again when the node starts.
            import_module(f"gantry_ros.nodes.{executable}")
    code = start(executable, arguments)
    end_on_interrupt("", code)  # What it answers stands, however often it is asked to stop.
    return code


def _interrupted(executable: str) -> str:
    return f"{executable}: interrupted while loading"


def _refuse(executable: str, error: Exception) -> int:
    """Say why a node does not run; a fault of the program is raised again, for its traceback."""
    from gantry_hardware.errors import GantryError

    if not isinstance(error, GantryError):
        raise error
    print(f"{executable}: {error}", file=sys.stderr, flush=True)
    return 2


def policy_node() -> int:
    """Entry point of ``ros2 run gantry_ros policy_node``."""
    return _process("policy_node", sys.argv[1:])


def mapping_node() -> int:
    """Entry point of ``ros2 run gantry_ros mapping_node``."""
    return _process("mapping_node", sys.argv[1:])


def sim_robot_node() -> int:
    """Entry point of ``ros2 run gantry_ros sim_robot_node``."""
    return _process("sim_robot_node", sys.argv[1:])


def sim_car_node() -> int:
    """Entry point of ``ros2 run gantry_ros sim_car_node``."""
    return _process("sim_car_node", sys.argv[1:])


def operator_node() -> int:
    """Entry point of ``ros2 run gantry_ros operator_node``."""
    return _process("operator_node", sys.argv[1:])


def episode_node() -> int:
    """Entry point of ``ros2 run gantry_ros episode_node``."""
    return _process("episode_node", sys.argv[1:])


def teleop_node() -> int:
    """Entry point of ``ros2 run gantry_ros teleop_node``."""
    return _process("teleop_node", sys.argv[1:])


def session_node() -> int:
    """Entry point of ``ros2 run gantry_ros session_node``."""
    return _process("session_node", sys.argv[1:])


def controller_watch_node() -> int:
    """Entry point of ``ros2 run gantry_ros controller_watch_node``."""
    return _process("controller_watch_node", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_process(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))

"""Check for ROS 2 on this machine, and advice if it cannot be used."""

from __future__ import annotations

import os

from gantry_hardware.errors import GantryError

WHEELS_GUARD = "_ROS_WHEELS_BOOTSTRAP_COMPLETE"
"""Set by the ROS wheels once they have put their libraries on LD_LIBRARY_PATH; it leaks into child processes."""


def require_ros() -> None:
    """Make sure that rclpy imports.

    Raises:
        GantryError: With what to install or to set.
    """
    try:
        import rclpy  # noqa: F401
    except ImportError as error:
        raise GantryError(_advice(error)) from error


def child_environment() -> dict[str, str]:
    """This process's environment for a child that uses ROS.

    A child that inherits the wheels' guard without their LD_LIBRARY_PATH cannot load rclpy; without the guard it finds
    the libraries by itself.
    """
    return {key: value for key, value in os.environ.items() if key != WHEELS_GUARD}


def _advice(error: ImportError) -> str:
    if getattr(error, "name", None) == "rclpy":
        return (
            "ROS 2 is not installed in this Python (no rclpy). On a robot: source its ROS 2 setup file first. "
            "Elsewhere: pip install -c constraints-ros.txt 'gantry-rl[ros]'."
        )
    if os.environ.get(WHEELS_GUARD):
        return (
            f"rclpy cannot load its libraries ({_first_line(error)}). {WHEELS_GUARD} is set, so the ROS wheels take "
            f"LD_LIBRARY_PATH for prepared, and it is not. Unset {WHEELS_GUARD} and start again."
        )
    return f"rclpy cannot be imported: {_first_line(error)}."


def _first_line(error: ImportError) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__

"""The control loop as a ROS 2 node, timed by itself: a simulated robot and a policy are started as two processes.

The nodes belong to a higher shelf, so they are started through ``gantry launch`` and not imported.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import time
from pathlib import Path
from typing import Any

from gantry_deploy.process.launched import launched
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import read_json_object

START_TIMEOUT_S = 60.0
"""Time that the nodes may take until the policy runs."""
ATTEMPTS = 3
"""Number of starts of the nodes; while processes start, a small machine can be too busy for the safety limits."""
RUNNING, DAMPED = "Mode POLICY.", "Mode DAMP"
"""Messages of the policy's node when the policy runs, and when it gives up."""


class DampedError(GantryError):
    """The robot was damped before the policy ran."""


def measure_ros_loop(
    bundle: Path,
    rate_hz: float,
    seconds: float,
    launch: str,
    arguments: dict[str, str],
    folder: Path,
    realtime_priority: int = 0,
) -> dict[str, Any]:
    """Start both nodes, let the policy run for a while, and read the statistics that its node leaves.

    Args:
        bundle: Policy whose contract has ``rate_hz``.
        rate_hz: For the result.
        seconds: Time under the policy.
        launch: Launch description that simulates the robot.
        arguments: Of the launch description, beside bundle, statistics and namespace.
        folder: For the statistics.
        realtime_priority: Of the policy's control loop.

    Raises:
        GantryError: If ROS 2 is missing or the nodes do not run; with what they said.
    """
    if importlib.util.find_spec("rclpy") is None:
        raise GantryError("ROS 2 is not installed in this Python (no rclpy)")
    statistics_file = folder / f"ros-{rate_hz:g}.json"
    # A namespace of its own, so that no other robot in this network answers.
    arguments = {
        **arguments,
        "bundle": str(bundle),
        "statistics": str(statistics_file),
        "namespace": f"bench_{os.getpid()}",
    }
    if realtime_priority > 0:
        arguments["realtime_priority"] = str(realtime_priority)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            said: list[str] = []
            with launched(launch, arguments, os.environ) as lines:
                wait_for_policy(lines, said)
                time.sleep(seconds)
            break
        except DampedError:
            if attempt == ATTEMPTS:
                raise
    if not statistics_file.is_file():
        raise GantryError(f"the policy's node left no statistics; it said: {_tail(said)}")
    statistics = read_json_object(statistics_file)
    return {"backend": f"ros, {launch}", "rate_hz": rate_hz, "seconds": seconds, **statistics}


def wait_for_policy(lines: queue.Queue[str | None], said: list[str]) -> None:
    """Wait until the nodes say that the policy runs.

    Args:
        lines: What they say; None when they have ended.
        said: Gets every line.

    Raises:
        DampedError: If the robot was damped instead.
        GantryError: If they ended, or took too long.
    """
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            raise GantryError(f"the policy did not run within {START_TIMEOUT_S:g} s; it said: {_tail(said)}") from None
        if line is None:
            raise GantryError(f"the nodes ended; they said: {_tail(said)}")
        said.append(line)
        if DAMPED in line:
            raise DampedError(f"the robot was damped before the policy ran: {line}")
        if RUNNING in line:
            return


def _tail(said: list[str]) -> str:
    return " / ".join(said[-4:]) or "(nothing)"

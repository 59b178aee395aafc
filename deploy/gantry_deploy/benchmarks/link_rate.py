"""Rate, size and delay of steps on their way from actors to a learner on this machine."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gantry_deploy.link.codec import encode_step
from gantry_deploy.link.limits import LINK_LIMITS
from gantry_deploy.testing.link import actor_command, learner_command, made_step, start
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import parse_json_object

STEPS = 2000
"""Steps of each actor when it sends as fast as it can."""
PACED_HZ = 20.0
"""Steps per second of each actor when delays are measured."""
PACED_STEPS = 100
"""Steps of each actor then."""
WINDOW = 256
"""Steps that an actor has under way at most."""
PATIENCE_S = 300.0
"""Longest time for each part, s."""


def measure_link(steps: int = STEPS, image_px: int = 84, actors: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    """Rate at full speed and delay at :data:`PACED_HZ`, with actors and learner as processes of this machine.

    Args:
        steps: Steps of each actor at full speed.
        image_px: Height and width of the two images of a step; 0 for none.
        actors: Numbers of actors to measure with.

    Raises:
        GantryError: If a process fails, with the end of its log.
    """
    rows = []
    for count in actors:
        with tempfile.TemporaryDirectory(prefix="gantry-bench-") as folder:
            fast = _part(Path(folder) / "fast", count, steps, 0.0, image_px)
            paced = _part(Path(folder) / "paced", count, PACED_STEPS, PACED_HZ, image_px)
        rows.append(
            {
                "actors": count,
                "steps_per_s": count * steps / max(result["seconds"] for result in fast["results"]),
                "journal_bytes_per_step": fast["journal_bytes"] / (count * steps),
                "p50_s": max(result["p50_s"] for result in paced["results"]),
                "p99_s": max(result["p99_s"] for result in paced["results"]),
            }
        )
    return {"step_bytes": len(encode_step(made_step(1, 0, image_px), LINK_LIMITS.step_bytes)), "rows": rows}


def _part(folder: Path, count: int, steps: int, rate_hz: float, image_px: int) -> dict[str, Any]:
    """Results of actors that each send their steps to one learner, and the size of its journal."""
    folder.mkdir()
    log, errors = folder / "taken.txt", folder / "processes.log"
    processes = [start(learner_command("127.0.0.1:0", folder / "journal", log), errors)]
    try:
        address = folder / "taken.txt.address"
        _wait(lambda: address.exists() and address.read_text().endswith("\n"), processes, errors)
        options = [
            *["--steps", str(steps), "--rate-hz", str(rate_hz), "--window", str(WINDOW)],
            *["--image-px", str(image_px)],
        ]
        for index in range(count):
            name = f"robot-{index}"
            command = actor_command(address.read_text().strip(), name, folder / name, folder / f"{name}.txt", *options)
            processes.append(start(command, errors))
        _wait(lambda: all(process.poll() == 0 for process in processes[1:]), processes, errors)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(PATIENCE_S)
    lines = [(folder / f"robot-{index}.txt").read_text().splitlines()[-1] for index in range(count)]
    return {
        "results": [parse_json_object(line.removeprefix("result "), "the result of an actor") for line in lines],
        "journal_bytes": sum(path.stat().st_size for path in (folder / "journal").glob("*.journal")),
    }


def _wait(is_done: Callable[[], bool], processes: list[subprocess.Popen[bytes]], errors: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_done():
        if time.monotonic() > deadline_s or any(process.poll() not in (None, 0) for process in processes):
            raise GantryError(f"A process of the measurement has failed: {errors.read_text()[-2000:]}")
        time.sleep(0.02)

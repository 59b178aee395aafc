"""Tasks of packages that only a process of its own has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import Bundle, load_bundle


def list_and_train(
    task: str, steps: int, run: Path, environment: dict[str, str]
) -> tuple[str, list[dict[str, Any]], Bundle]:
    """What `gantry tasks` prints, the iterations of a training with eight environments, and the bundle exported after.

    Args:
        task: Name of the task.
        steps: Of all environments together; an iteration has 192.
        run: Folder of the training.
        environment: Variables of the process.
    """

    def gantry(*words: str) -> str:
        # A process for each, as a user has it: mjlab and Isaac Lab set up Warp in different ways.
        command = [sys.executable, "-m", "gantry_deploy.cli.main", *words]
        done = subprocess.run(command, env=environment, cwd=run.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = gantry("tasks")
    sizes = ("--set", "env.num_envs=8", "--set", "learner.hidden=[8]", "--episodes", "0", "--steps", str(steps))
    gantry("train", task, *sizes, "--run-dir", str(run))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return listed, [row for row in rows if row["phase"] == "learn"], load_bundle(run / "bundle")

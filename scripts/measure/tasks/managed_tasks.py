"""Tasks of mjlab or Isaac Lab through Gantry: built, 100 steps, 5 updates of PPO, export, check; the tables of
docs/mjlab.md and docs/isaaclab.md.

python scripts/measure/tasks/managed_tasks.py mjlab|isaaclab [--only TASK_ID ...] [--envs 16]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.cli.main import main as gantry
from gantry_hardware.errors import GantryError
from gantry_sim.isaaclab_tasks import listing as isaaclab
from gantry_sim.isaaclab_tasks.names import PREFIX as ISAACLAB
from gantry_sim.mjlab_tasks import listing as mjlab
from gantry_sim.tasks.registry import Task, find_task

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "support"))

from gantry_fixtures.held_motion import held_motion

STEPS, UPDATES = 100, 5
"""Control steps of each environment with random actions; updates of PPO."""
PARTS = ("builds", "100 steps", "5 updates", "contract", "export", "check")
"""Columns after the task."""


def small_terrain(name: str) -> dict[str, Any]:
    """Changes for a task of Isaac Lab on rough ground: four tiles instead of two hundred."""
    path = "scene.terrain.terrain_generator."
    return {path + "num_rows": 2, path + "num_cols": 2} if "-Rough-" in name else {}


def steps(task: Task, cfg: Any) -> str:
    """Random actions; mean reward of a step."""
    env = task.make_env(cfg, "cpu", 1)
    torch.manual_seed(1)
    try:
        rewards = [env.step(torch.randn(cfg.num_envs, env.action_size)).reward.mean() for _ in range(STEPS)]
    finally:
        env.close()
    mean = torch.stack(rewards).mean()
    if not torch.isfinite(mean):
        raise GantryError(f"the reward is {mean:g}")
    return f"yes ({float(mean):.3f})"


def command(*words: str) -> str:
    """A command of ``gantry``; its last line.

    Raises:
        GantryError: With what it printed, if it ends with another code than 0 or, for a gate that is not passed, 1.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = gantry(list(words))
    text = (out.getvalue() + err.getvalue()).strip()
    if code not in (0, 1):
        raise GantryError(text.splitlines()[-1] if text else f"exit code {code}")
    return text


def row(name: str, envs: int, folder: Path) -> list[str]:
    """Cells of one task; a cell that failed says why, and those after it that need it are empty."""
    cells: list[str] = []

    def done(part: Callable[[], str]) -> bool:
        try:
            cells.append(part())
        except (GantryError, OSError, ValueError) as error:
            reason = re.sub(r".* not exported: | Known are the functions .*", "", " ".join(str(error).split()))
            cells.append(f"no: {reason}")
        return not cells[-1].startswith("no: ")

    task_id = name.removeprefix(mjlab.PREFIX)
    changes = small_terrain(name) if task_id == name else held_motion(task_id, folder)
    try:
        task = find_task(name)
    except GantryError as error:
        return [f"no: {' '.join(str(error).split())}"] + [""] * (len(PARTS) - 1)
    cfg = replace(task.usual_env(), num_envs=envs, changes=changes)
    run = folder / "run"
    total = UPDATES * envs * task.presets["cpu"]().learner.steps_per_env
    options = ["--steps", str(total), "--set", f"env.num_envs={envs}", "--episodes", "0", "--no-export"]
    options += ["--run-dir", str(run)]
    options += ["--set", f"env.changes={json.dumps(changes)}"] if changes else []

    def builds() -> str:
        task.make_env(cfg, "cpu", 1).close()
        return "yes"

    def contract() -> str:
        found = task.contract(cfg)
        return f"{found.robot}, {found.observation_size} numbers"

    def trains() -> str:
        command("train", task.name, *options)
        return "yes"

    def exports() -> str:
        text = command("export", str(run))
        found = re.search(r"(\d+) observations compared", text)
        return "yes" if found is None else f"yes ({found[1]} rows equal)"

    def checks() -> str:
        command("check", str(run / "bundle"), "--episodes", "2", "--seconds", "4", "--json", str(folder / "check.json"))
        report = json.loads((folder / "check.json").read_text(encoding="utf-8"))
        failed = [stage["name"] for stage in report["stages"] if not stage["passed"]]
        return f"all {len(report['stages'])} stages" if not failed else f"all but {', '.join(failed)}"

    if done(builds) and done(lambda: steps(task, cfg)):
        trained = done(trains)
        if done(contract) and trained and done(exports):
            done(checks)
    else:
        cells += [""] * (PARTS.index("contract") - len(cells))
        done(contract)
    return cells + [""] * (len(PARTS) - len(cells))


def main() -> None:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", choices=("mjlab", "isaaclab"), help="owner of the tasks")
    parser.add_argument("--only", metavar="TASK_ID", nargs="+", help="these tasks alone")
    parser.add_argument("--envs", type=int, default=16, metavar="N", help="environments side by side; %(default)s")
    args = parser.parse_args()
    print(f"| task | {' | '.join(PARTS)} |")
    print("|---" * (len(PARTS) + 1) + "|", flush=True)
    prefix, infos = (mjlab.PREFIX, mjlab.infos()) if args.package == "mjlab" else (ISAACLAB, isaaclab.infos())
    for task_id in args.only or [info.name.removeprefix(prefix) for info in infos]:
        with tempfile.TemporaryDirectory() as folder:
            cells = row(prefix + task_id, args.envs, Path(folder))
        print(f"| `{task_id}` | {' | '.join(cell.replace('|', '/') for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()

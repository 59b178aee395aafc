"""AME-2's teacher on a GPU in chunks of a few minutes: one command, given again until the training is over.

python scripts/gpu/teacher.py FOLDER [--minutes 8] [--device cuda:0] [--task ame2-go2] [--set FIELD=VALUE ...]

The first call begins the run in FOLDER/run, each further one continues it. A chunk ends as Ctrl-C ends a training: it
saves and stops. Only the newest checkpoint is kept, and written once more in parts of at most 15 MiB that lie beside it
(``travel.py``): where the folder of checkpoints is missing, as on a machine that only the small files have come to, the
next chunk goes on from those. At the end of a chunk the curve is printed, and what to do next.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from travel import LIST, pack, unpack

COMMAND = [sys.executable, "-c", "import sys; from gantry_deploy.cli.entry import main; sys.exit(main())", "train"]
GRACE_S = 60.0
"""Time to save after the request to stop, s."""
ROWS = 12
"""Rows of the curve that are printed."""
COLUMNS = ("env_steps", "wall_s", "steps_per_s", "reward_per_s", "success_rate", "falls_per_step")


def main() -> int:
    """Train for one chunk; 0 once the whole training is over, 3 if there is more to do, else an error's code."""
    args = _arguments()
    run = args.folder / "run"
    begun = (run / "config.json").is_file()
    if begun:
        if not (run / "checkpoints").is_dir() and (run / LIST).is_file():
            print(f"Going on from {unpack(run, run / 'checkpoints').name}, from its parts.")
        command = [*COMMAND, "--resume", str(run)]
    else:
        command = [*COMMAND, args.task, "--preset", "gpu", "--device", args.device, "--run-dir", str(run)]
        command += [word for change in args.set for word in ("--set", change)]
        args.folder.mkdir(parents=True, exist_ok=True)
    code, stopped = train_for([*command, "--episodes", "0", "--no-export"], 60.0 * args.minutes)
    if not list(run.glob("checkpoints/model_*.pt")):
        print(f"The training has not begun in {args.minutes:g} min (exit {code}); give it more, or see above.")
        return code or 1
    newest = keep_newest(run / "checkpoints")
    print(curve(run / "metrics.jsonl"))
    print(f"{newest.name}: {newest.stat().st_size / 2**20:.1f} MiB, in parts {pack(newest, run):.1f} MiB")
    if stopped:
        print(f"There is more to do: python scripts/gpu/teacher.py {args.folder} --minutes {args.minutes:g}")
        return 3
    if code == 0:
        print(f"Over. Score and export it: gantry eval {run}; gantry export {run}")
    return code


def train_for(command: list[str], seconds: float) -> tuple[int, bool]:
    """Run a training, and interrupt it when its time is over.

    Returns:
        Its exit code, and whether it was interrupted.
    """
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(seconds), False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(GRACE_S), True
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(), True


def keep_newest(folder: Path) -> Path:
    """The newest checkpoint; all others are removed."""
    found = sorted(folder.glob("model_*.pt"), key=lambda path: int(path.stem.rpartition("_")[2]))
    for path in found[:-1]:
        path.unlink()
    return found[-1]


def curve(path: Path) -> str:
    """Some rows of the learning curve as text."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for row in rows if row.get("kind") == "train"]
    shown = rows[:: max(1, len(rows) // ROWS)]
    if rows and shown[-1] is not rows[-1]:
        shown.append(rows[-1])
    lines = []
    for row in shown:
        lines.append(
            "  ".join(f"{name} {row[name]:,.4g}" for name in COLUMNS if isinstance(row.get(name), int | float))
        )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="AME-2's teacher on a GPU, in chunks.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of the run; travels between machines")
    parser.add_argument("--minutes", type=float, default=8.0, metavar="M", help="of this chunk (default: 8)")
    parser.add_argument("--device", default="cuda:0", help="default: cuda:0")
    parser.add_argument("--task", default="ame2-go2", help="default: ame2-go2")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="as of `gantry train`")
    args = parser.parse_args()
    if not args.minutes > 0.0:
        parser.error(f"--minutes is {args.minutes:g}, expected more than 0")
    return args


if __name__ == "__main__":
    sys.exit(main())

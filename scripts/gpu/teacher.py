"""AME-2's teacher on a GPU in chunks of a few minutes: one command, given again until the training is over.

python scripts/gpu/teacher.py FOLDER [--minutes 8] [--device cuda:0] [--limit-mib 15] [--set FIELD=VALUE ...]

The first call begins the run in FOLDER/run, each further one continues it. A chunk ends as Ctrl-C ends a training: it
saves and stops. Only the newest intact checkpoint is kept, and the run is written once more as small parts in
FOLDER/parts (``travel.py``): where they alone have come to another machine, or are further than the run there, the next
chunk goes on from them. At the end of a chunk the curve is printed, and what to do next.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from travel import CHECKPOINTS, PART_MIB, keep_only, pack, unpack

from gantry_policies.common.checkpoint import UnusableCheckpointError, list_checkpoints

COMMAND = [sys.executable, "-c", "import sys; from gantry_deploy.cli.entry import main; sys.exit(main())", "train"]
GRACE_S = 60.0
"""Time to save after the request to stop, s."""
ROWS = 12
"""Rows of the curve that are printed."""
COLUMNS = ("env_steps", "wall_s", "steps_per_s", "reward_per_s", "success_rate", "falls_per_step")


def main() -> int:
    """Train for one chunk; 0 once the whole training is over, 3 if there is more to do, else an error's code."""
    args = _arguments()
    run, parts = args.folder / "run", args.folder / "parts"
    try:
        iteration = unpack(parts, run)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if iteration is not None:
        print(f"Going on from iteration {iteration}, from the parts in {parts}.")
    if (run / "config.json").is_file():
        command = [*COMMAND, "--resume", str(run)]
    else:
        command = [*COMMAND, args.task, "--preset", "gpu", "--device", args.device, "--run-dir", str(run)]
        command += [word for change in args.set for word in ("--set", change)]
        args.folder.mkdir(parents=True, exist_ok=True)
    code, stopped = train_for([*command, "--episodes", "0", "--no-export"], 60.0 * args.minutes)
    if not list_checkpoints(run / CHECKPOINTS):
        print(f"The training has not begun in {args.minutes:g} min (exit {code}); give it more, or see above.")
        return code or 1
    print(curve(run / "metrics.jsonl"))
    try:
        newest, size_mib = pack(run, parts, args.limit_mib)
    except UnusableCheckpointError as error:
        print(error, file=sys.stderr)
        return code or 1
    keep_only(newest)
    print(f"{newest.name}: {newest.stat().st_size / 2**20:.1f} MiB. What the next chunk needs of the run, as parts:")
    print(f"{size_mib:.1f} MiB, {len(list(parts.iterdir()))} files in {parts}")
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
    text = f"size of a part at most (default: {PART_MIB:g})"
    parser.add_argument("--limit-mib", type=float, default=PART_MIB, metavar="M", help=text)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="as of `gantry train`")
    args = parser.parse_args()
    for name in ("minutes", "limit_mib"):
        if not getattr(args, name) > 0.0:
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name):g}, expected more than 0")
    return args


if __name__ == "__main__":
    sys.exit(main())

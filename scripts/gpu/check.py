"""Check of the presets ``gpu`` on this machine: agreement of MuJoCo Warp, steps per second, a short training.

python scripts/gpu/check.py --output FOLDER [--minutes M] [--device cuda:0] [--only PART,PART] [--small]

Every part runs in a process of its own with a share of the time, so that what one of them breaks, or a kernel that
takes long to compile, costs no other its numbers. The whole takes several commands: in FOLDER, parts that came to their
end are not run again. Those that did not, by an error or because their time was over, are repeated after the ones that
no time was left for, and go on behind the rows that they have written. FOLDER/gpu.json holds all rows and the last
lines of what failed, and is all that has to travel: where it alone has come to another machine, the next command goes
on from it. Beside it lie the rows of each part (``PART.jsonl``) and all that it printed (``PART.log``). Tables are
printed at the end. Warp compiles its kernels at their first use, which takes minutes for each task, and keeps them.
With ``--small`` and ``--device cpu`` the same code runs on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gantry_hardware.files.whole_files import write_whole_json

HERE = Path(__file__).resolve().parent
LIMITS_S = {
    "machine": 30.0,
    "agreement": 150.0,
    "go2": 240.0,
    "mjlab": 150.0,
    "drive": 120.0,
    "train": 150.0,
    "ame2": 240.0,
    "mapping": 150.0,
    "syncs": 90.0,
}
"""Parts in their order, and the time that each may take in one command, s."""
MORE_TO_DO = 3
"""Exit code where the same command has to be given again."""
LEAST_S = 30.0
"""Least time that a part is begun with, s."""
GRACE_S = 10.0
"""Time between the request to end and the end of a part that has used up its time, s."""


def main() -> int:
    """Run the parts; 0 if all came to their end, 3 if some had no or too little time, 1 if something failed."""
    args = _arguments()
    args.output.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60.0 * args.minutes
    names = args.only.split(",") if args.only else list(LIMITS_S)
    if unknown := sorted(set(names) - set(LIMITS_S)):
        print(f"Unknown part {', '.join(unknown)}. Available: {', '.join(LIMITS_S)}.", file=sys.stderr)
        return 2
    file = args.output / "gpu.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    for name in to_do(names, found):
        left_s = end - time.monotonic() - GRACE_S
        if left_s < LEAST_S:
            break
        found[name] = run_part(name, args, min(LIMITS_S[name], left_s), found.get(name, {}).get("rows", []))
        write_whole_json(file, found)
    print(tables(found))
    left = [name for name in to_do(names, found) if found.get(name, {}).get("timed_out", True)]
    if left:
        print(f"There is more to do ({', '.join(left)}): give the same command again.")
    if any(found[name]["exit"] and not found[name]["timed_out"] for name in names if name in found):
        return 1
    return MORE_TO_DO if left else 0


def to_do(names: Sequence[str], found: Mapping[str, Any]) -> list[str]:
    """Parts that have not come to their end: those that were not tried before, then the others.

    Args:
        names: Of parts, in order.
        found: What earlier parts gave, see :func:`run_part`.
    """
    tried = [name for name in names if name in found and found[name]["exit"]]
    return [*(name for name in names if name not in found), *tried]


def run_part(
    name: str, args: argparse.Namespace, seconds: float, earlier: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """One part in a process of its own.

    Args:
        name: Of the part.
        args: The command line.
        seconds: Time that it may take.
        earlier: Rows of an earlier try; what failed there is tried again.

    Returns:
        ``exit`` (negative: the signal that ended it), ``timed_out``, ``wall_s`` of this try, ``rows`` of all tries and,
        of a failure, ``tail``: the last lines.
    """
    rows, log = args.output / f"{name}.jsonl", args.output / f"{name}.log"
    rows.write_text("".join(json.dumps(row) + "\n" for row in earlier if "error" not in row))
    command = [sys.executable, str(HERE / "parts.py"), name, "--rows", str(rows), "--device", args.device]
    command += ["--seconds", f"{seconds:.0f}", *(["--small"] if args.small else [])]
    print(f"{name}, at most {seconds:.0f} s ...", flush=True)
    begin = time.monotonic()
    with log.open("w") as out:
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
        code, timed_out = _waited(process, seconds)
    wall_s = round(time.monotonic() - begin, 1)
    result: dict[str, Any] = {"exit": code, "timed_out": timed_out, "wall_s": wall_s, "rows": read_rows(rows)}
    if code:
        result["tail"] = log.read_text(errors="replace").splitlines()[-25:]
        print("\n".join(result["tail"]))
    print(f"{name}: exit {code} after {wall_s:.0f} s, {len(result['rows'])} rows", flush=True)
    return result


def _waited(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, bool]:
    """Exit code, and whether the process was ended because its time was over."""
    for wait_s, sent in ((seconds, signal.SIGTERM), (GRACE_S, signal.SIGKILL)):
        try:
            return process.wait(wait_s), sent == signal.SIGKILL
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, sent)
    return process.wait(), True


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows that were written whole."""
    rows = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def tables(found: dict[str, Any]) -> str:
    """Rows of all parts as text."""
    lines = []
    for name, part in found.items():
        lines.append(f"== {name} (exit {part['exit']}, {part['wall_s']:.0f} s)")
        for row in part["rows"]:
            lines.append("  " + "  ".join(f"{key} {_cell(value)}" for key, value in row.items()))
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} {_cell(item)}" for key, item in value.items()) + "}"
    return str(value)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The gpu presets on this machine.")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="for rows, logs and gpu.json")
    parser.add_argument("--minutes", type=float, default=8.0, metavar="M", help="time of this command (default: 8)")
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu with --small")
    parser.add_argument("--only", default="", metavar="PART,PART", help=f"of {', '.join(LIMITS_S)}")
    parser.add_argument("--small", action="store_true", help="few environments, to try the script")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Check of the presets ``gpu`` on this machine: agreement of MuJoCo Warp, steps per second, a short training.

python scripts/gpu/check.py --output FOLDER [--minutes M] [--device cuda:0] [--only PART,PART] [--small]

Every part runs in a process of its own with a share of the time, so that what one of them breaks, or a kernel that
takes long to compile, costs no other its numbers. FOLDER holds the rows of each part (``PART.jsonl``, written as they
are measured), all that it printed (``PART.log``), and ``gpu.json``; tables are printed at the end. Warp compiles its
kernels at their first use, which takes minutes for each task, and keeps them: where a part has ended too early, run the
same command again. With ``--small`` and ``--device cpu`` the same code runs on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WEIGHTS = {
    "machine": 1.0,
    "agreement": 4.0,
    "go2": 10.0,
    "mjlab": 6.0,
    "drive": 3.0,
    "train": 6.0,
    "ame2": 6.0,
    "mapping": 3.0,
    "syncs": 2.0,
}
"""Parts in their order, and the share of the remaining time that each may take."""
LEAST_S = 30.0
"""Least time of a part, s."""
GRACE_S = 10.0
"""Time between the request to end and the end of a part that has used up its time, s."""


def main() -> int:
    """Run the parts; 0 if all came to their end."""
    args = _arguments()
    args.output.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60.0 * args.minutes
    names = args.only.split(",") if args.only else list(WEIGHTS)
    if unknown := sorted(set(names) - set(WEIGHTS)):
        print(f"Unknown part {', '.join(unknown)}. Available: {', '.join(WEIGHTS)}.", file=sys.stderr)
        return 2
    found: dict[str, Any] = {}
    for number, name in enumerate(names):
        share = WEIGHTS[name] / sum(WEIGHTS[other] for other in names[number:])
        found[name] = run_part(name, args, max(LEAST_S, share * (end - time.monotonic())))
        (args.output / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    print(tables(found))
    return 0 if all(part["exit"] == 0 for part in found.values()) else 1


def run_part(name: str, args: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """One part in a process of its own.

    Returns:
        ``exit`` (negative: the signal that ended it), ``wall_s``, ``rows`` and, of a failure, ``tail``: the last lines.
    """
    rows, log = args.output / f"{name}.jsonl", args.output / f"{name}.log"
    rows.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "parts.py"), name, "--rows", str(rows), "--device", args.device]
    command += ["--seconds", f"{seconds:.0f}", *(["--small"] if args.small else [])]
    print(f"{name}, at most {seconds:.0f} s ...", flush=True)
    begin = time.monotonic()
    with log.open("w") as out:
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
        code = _waited(process, seconds)
    result: dict[str, Any] = {"exit": code, "wall_s": round(time.monotonic() - begin, 1), "rows": read_rows(rows)}
    if code:
        result["tail"] = log.read_text(errors="replace").splitlines()[-25:]
        print("\n".join(result["tail"]))
    print(f"{name}: exit {code} after {result['wall_s']:.0f} s, {len(result['rows'])} rows", flush=True)
    return result


def _waited(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Exit code; the process is ended when its time is over."""
    for wait_s, sent in ((seconds, signal.SIGTERM), (GRACE_S, signal.SIGKILL)):
        try:
            return process.wait(wait_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, sent)
    return process.wait()


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
    parser.add_argument("--minutes", type=float, default=20.0, metavar="M", help="time of all parts (default: 20)")
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu with --small")
    parser.add_argument("--only", default="", metavar="PART,PART", help=f"of {', '.join(WEIGHTS)}")
    parser.add_argument("--small", action="store_true", help="few environments, to try the script")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

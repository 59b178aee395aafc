"""Attacks on what Gantry reads: mutated bundles, recordings and datasets, disturbed ROS nodes, killed writers.

Each case runs in a process of its own with a limit on memory and on processor time, and ends in one of four ways:

* ``refused``: one message of a ``GantryError`` that a person can read;
* ``right``: accepted, and an independent oracle agrees with the result;
* ``ugly``: a traceback, an unreadable message, too much memory or processor time;
* ``wrong``: accepted, and the oracle disagrees.

Cases are drawn from a seed, which is printed. Exit code 0 if none is ugly or wrong.

    python scripts/attack all
    python scripts/attack bundles --count 1000 --seed 7
    python scripts/attack recordings --only 41          # one case again, with its traceback
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import Report, run_cases

COUNTS = {"bundles": 1000, "recordings": 200, "datasets": 200, "ros": 25, "kills": 100}
"""Cases of each kind unless ``--count`` says otherwise."""


def main() -> int:
    """Run the attacks that were asked for and print their counts."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind", choices=[*COUNTS, "all"])
    parser.add_argument("--count", type=int, help="cases; the defaults are " + str(COUNTS))
    parser.add_argument("--seed", type=int, help="of the cases; drawn and printed if not given")
    parser.add_argument("--only", type=int, metavar="N", help="run case N alone, in this process")
    parser.add_argument("--json", metavar="FILE", help="write counts and every ugly or wrong case to a file")
    args = parser.parse_args()
    seed = secrets.randbelow(2**31) if args.seed is None else args.seed
    reports: list[Report] = []
    for kind in COUNTS if args.kind == "all" else [args.kind]:
        module = __import__(f"attack_{kind}")
        reports.append(run_cases(kind, module.Attack, args.count or COUNTS[kind], seed, args.only))
    for report in reports:
        print(report.text())
    if args.json:
        Path(args.json).write_text(json.dumps([report.plain() for report in reports], indent=1))
    return int(any(report.failed for report in reports))


if __name__ == "__main__":
    sys.exit(main())

"""Gate of every committed bundle again, as its card says it was run, and the new scores against the card's intervals.

python scripts/measure/bundle_scores.py            # all; about 15 minutes
python scripts/measure/bundle_scores.py go2-walk

Cards stay as they are. Exit code 1 if a bundle fails its gate or a mean lies outside the card's 95 % interval.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "sim" / "gantry_sim" / "pretrained"


def intervals(check: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Scores of a card's gate that have a mean and an interval."""
    return {name: value for name, value in check["scores"].items() if isinstance(value, dict) and "low" in value}


def check_again(name: str) -> bool:
    """Run one gate and print each score beside the card's interval; whether it passed and all lie inside."""
    old = json.loads((FOLDER / name / "card.json").read_text())["check"]
    drawn = old["conditions"]
    with TemporaryDirectory() as folder:
        result = Path(folder) / "check.json"
        command = [
            str(Path(sys.executable).with_name("gantry")),
            "check",
            str(FOLDER / name),
            "--no-card",
            "--json",
            str(result),
        ]
        command += ["--episodes", str(drawn["episodes"]), "--seed", str(drawn["seed"]), "--noise", str(drawn["noise"])]
        begin = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        took_s = time.monotonic() - begin
        if not result.is_file():
            print(f"{name}: no result, exit code {done.returncode}")
            return False
        new = json.loads(result.read_text())
    print(f"{name}: exit code {done.returncode}, {drawn['episodes']} episodes, {took_s:.0f} s")
    right, scores = done.returncode == 0, intervals(new.get("check", new))
    for score, card in intervals(old).items():
        mean = scores[score]["mean"] if score in scores else float("nan")
        inside = card["low"] - 1e-9 <= mean <= card["high"] + 1e-9
        right = right and inside
        word = "inside" if inside else "OUTSIDE"
        print(f"    {score:<22} {mean:.4g} {word} [{card['low']:.4g}, {card['high']:.4g}], was {card['mean']:.4g}")
    return right


def main() -> int:
    """Check the bundles named, or all that have a gate in their card."""
    found = sorted(path.parent.name for path in FOLDER.glob("*/card.json") if "check" in json.loads(path.read_text()))
    unknown = set(sys.argv[1:]) - set(found)
    if unknown:
        print(f"Unknown: {', '.join(sorted(unknown))}. Available: {', '.join(found)}.", file=sys.stderr)
        return 2
    return 0 if all([check_again(name) for name in sys.argv[1:] or found]) else 1


if __name__ == "__main__":
    sys.exit(main())

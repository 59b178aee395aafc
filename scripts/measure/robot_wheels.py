"""Look up whether everything that runs on a robot has wheels for its computer: aarch64 and x86-64, Python 3.10 to 3.13.

Nothing is installed or built; pip resolves the dependencies of pyproject.toml for each platform.

    python scripts/measure/robot_wheels.py --json wheels.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PLATFORMS = {
    "aarch64": ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64"),
    "x86_64": ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64"),
}
"""Tags of Ubuntu 20.04 and later, glibc 2.31, and of 22.04, glibc 2.35, on Jetson and on other computers."""


def requirements(extra: str) -> list[str]:
    """Dependencies of an extra with the base's; those of other extras of the project are followed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = list(project["dependencies"])
    for item in project["optional-dependencies"][extra] if extra else ():
        if item.startswith(project["name"]):
            for other in item.partition("[")[2].rstrip("]").split(","):
                found += [line for line in requirements(other) if line not in found]
        else:
            found.append(item)
    return found


def look_up(extra: str, python: str, machine: str) -> dict[str, Any]:
    """Names and versions that pip would install there; or the reason why it would not."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        tags = [word for tag in PLATFORMS[machine] for word in ("--platform", tag)]
        command = [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
            *("--only-binary=:all:", "--implementation", "cp", "--python-version", python, *tags),
            *("--target", str(Path(folder) / "target"), "--report", str(report), *requirements(extra)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        row: dict[str, Any] = {"extra": extra or "base", "python": python, "machine": machine}
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return row | {"found": False, "why": errors[-1] if errors else done.stderr[-300:]}
        items = json.loads(report.read_text())["install"]
        names = {item["metadata"]["name"]: item["metadata"]["version"] for item in items}
        return row | {"found": True, "packages": names}


def main() -> int:
    """Look all up; exit code 1 if something is missing on aarch64."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--extras", default=",robot,data,corrections,signing,unitree,realsense", help="extras, by commas"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = [extra for extra in args.extras.split(",") if not extra or extra in known]
    cases = [(extra, python, machine) for extra in extras for python in PYTHONS for machine in PLATFORMS]
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda case: look_up(*case), cases))
    for row in rows:
        told = f"{len(row['packages'])} packages" if row["found"] else row["why"]
        print(
            f"{'ok' if row['found'] else 'MISSING':<8}{row['extra']:<12} {row['python']:<5} {row['machine']:<8} {told}"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return int(any(not row["found"] and row["machine"] == "aarch64" for row in rows))


if __name__ == "__main__":
    sys.exit(main())

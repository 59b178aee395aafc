"""Flashes over a real SSH server whose connection is cut after a random number of bytes, counted.

python scripts/measure/flash.py --cuts 60 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))


def main() -> None:
    """Cut, and print what was true of the robot after each cut, and the counts at the end."""
    from gantry_fixtures.flash_cuts import cut_flashes
    from gantry_fixtures.flashing import FlashRobot
    from gantry_fixtures.ssh_server import SshServer, find_sshd

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=60, metavar="N", help="connections to cut")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the places of the cuts")
    parser.add_argument("--server", choices=("sshd", "asyncssh"), default="sshd" if find_sshd() else "asyncssh")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantry-flash-") as folder:
        with SshServer(Path(folder) / "ssh", args.server) as server:
            robot = FlashRobot(Path(folder) / "robot", server)
            counts = cut_flashes(robot, args.cuts, args.seed, lambda text: print(text, flush=True))
        print(f"server {args.server}, seed {args.seed}")
        for name, count in counts.items():
            print(f"{count:>9}  {name}")


if __name__ == "__main__":
    main()

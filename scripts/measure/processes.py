"""Speed of PPO in one process and in two of torchrun with the same batch, measured in turns.

python scripts/measure/processes.py [--pairs 3] [--iterations 12] [--envs 1024]

Trains ``velocity-flat-go2`` by its ``cpu`` preset on two cores, and counts control steps per second of training after
the first iterations: one process on one core, two processes with half of the environments each, and one process with
two threads. Prints the load of the machine before each round, since whatever else runs there takes its share.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gantry_hardware.training.log import METRICS_FILE, read_metrics

LEFT_OUT = 3
"""First iterations that are not counted: caches are cold, and robots stand."""
TASK = "velocity-flat-go2"


def rate(processes: int, cores: list[int], threads: int, envs: int, iterations: int) -> float:
    """Control steps per second of a training, on given cores with so many threads in each process."""
    steps = (iterations + LEFT_OUT) * envs * 24
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        words = [TASK, "--run-dir", str(run), "--steps", str(steps), "--episodes", "0", "--no-export"]
        words += ["--set", f"env.num_envs={envs // processes}", "--set", "learner.steps_per_env=24"]
        launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
        command = [sys.executable, "-m", *(launcher if processes > 1 else []), "gantry_deploy.cli.main", "train"]
        number = str(threads)
        done = subprocess.run(
            ["taskset", "--cpu-list", ",".join(map(str, cores)), *command, *words],
            env=os.environ | {"GANTRY_PHYSICS_THREADS": number, "OMP_NUM_THREADS": number},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(done.stderr)
        rows = read_metrics(run / METRICS_FILE)[LEFT_OUT - 1 :]
    first, last = rows[0], rows[-1]
    return (float(last["env_steps"]) - float(first["env_steps"])) / (float(last["wall_s"]) - float(first["wall_s"]))


def main() -> None:
    """Measure in turns, and print ratios with their spread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="measurements of each, in turns (default: 3)")
    parser.add_argument("--iterations", type=int, default=12, help="iterations that count (default: 12)")
    parser.add_argument("--envs", type=int, default=1024, help="environments of all processes (default: 1024)")
    args = parser.parse_args()
    both = sorted(os.sched_getaffinity(0))[:2]
    if len(both) < 2:
        parser.error("this process may use one core alone; expected two")
    cases = {
        "one process on one core": (1, both[1:], 1),
        "two processes on two cores": (2, both, 1),
        "one process on two cores": (1, both, 2),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(1, args.pairs + 1):
        print(f"round {number} of {args.pairs}, load {os.getloadavg()[0]:.1f}", flush=True)
        for name, (processes, cores, threads) in cases.items():
            found[name].append(rate(processes, cores, threads, args.envs, args.iterations))
            print(f"  {name}: {found[name][-1]:,.0f} steps/s", flush=True)
    one, two, threaded = found.values()
    for name, others in (("one process on one core", one), ("one process on two cores", threaded)):
        ratios = [new / old for new, old in zip(two, others, strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"two processes on two cores / {name}: {statistics.median(ratios):.2f} [{spread}]")


if __name__ == "__main__":
    main()

"""UniLab, Isaac Lab, EnvPool, and a plain C++ loop, measured in turns with this project: peers of `gantry bench page`.

python scripts/measure/peers/compare.py --output FOLDER [--peers unilab,isaaclab,envpool,loop,recipe] [--pairs 3]

``unilab`` and ``isaaclab`` compare short trainings of a Go2 on level ground: control steps per second while collecting,
and with learning. ``envpool`` compares environments alone, under random actions: a Go1 on level ground, by the preset
here and by mjlab's unmodified task on the CPU backend, with EnvPool's Go1 of MuJoCo Playground, all of it C++.
``loop`` compares a step of a policy and the evenness of a loop at 200 Hz with a C++ program. ``recipe`` runs both Go2
recipes as they ship to the end, and compares the time until the planar velocity error in training first falls to that
with which UniLab ends. UniLab and EnvPool are installed by scripts/peers.sh, Isaac Lab by `make test-isaaclab`.

``FOLDER/peers.json`` has the rows; `gantry bench page --output FOLDER` puts them on its page. An interrupted comparison
goes on: every peer that has ended is kept.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_sim.benchmarks.page_rows import Row, markdown_of, paired_row, plain, rows_from
from gantry_sim.benchmarks.text import PEERS_FILE
from gantry_sim.tasks.registry import find_task

ROOT = Path(__file__).resolve().parents[3]
UNILAB, ISAACLAB = ROOT / ".venv-peers" / "bin", ROOT / ".venv-isaaclab" / "bin" / "python"
TASK = "velocity-flat-go2"
ISAAC_TASK = "isaaclab:Isaac-Velocity-Flat-UnitreeGo2"
ISAAC_ENVS = 256
UNILAB_PEER = "UniLab 1.5.2, go2_joystick_flat, its recipe"
UNILAB_ENVS = 1024
"""Of that recipe."""
UNILAB_AIM = 2.0
"""Times that a training here shall be faster than UniLab's."""
ENVPOOL = ROOT / ".venv-envpool" / "bin" / "python"
ENVPOOL_TASK, ENVPOOL_ENVS, ENVPOOL_S = "Go1JoystickFlatTerrain-v1", 256, 10.0
SETTLED = 2
"""First iterations, which compile and fill caches, are not counted."""
LOOP_HZ, LOOP_S, LOOP_STEPS = 200.0, 10.0, 20_000
FULL_EPISODE = 1000
"""Control steps of UniLab's episodes, by which its logged error is divided."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")

Numbers = dict[str, float]
"""One measurement: name -> control steps per second, or time in milliseconds."""
RATES = {"collect": "without learning", "train": "with learning"}
"""Numbers of a training in control steps per second, in words."""


def run(words: list[str], folder: Path, **options: Any) -> str:
    """Output of a program.

    Raises:
        SystemExit: If it fails, with its last lines.
    """
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def trained(python: str, task: str, folder: Path, *words: str) -> list[dict[str, Any]]:
    """Rows of the metrics of a training that is thrown away."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    command = [python, "-m", "gantry_deploy.cli.main", "train", task, "--episodes", "0", "--no-export"]
    run([*command, "--run-dir", str(folder / "run"), *words], folder)
    return list(read_metrics(folder / "run" / METRICS_FILE, "train"))


def rates_of(rows: list[dict[str, Any]]) -> Numbers:
    """Medians of the iterations that count."""
    names = {"collect": "collect_steps_per_s", "train": "steps_per_s"}
    return {key: statistics.median(row[name] for row in rows[SETTLED:]) for key, name in names.items()}


def unilab(folder: Path, *changes: str) -> list[dict[str, float]]:
    """Numbers that UniLab's own trainer prints of its Go2 recipe, one entry for each iteration."""
    link = folder / "src" / "unilab"  # It looks for its models below `src`.
    link.parent.mkdir(exist_ok=True)
    if not link.exists():
        (site,) = UNILAB.parent.glob("lib/python*/site-packages")
        link.symlink_to(site / "unilab")
    words = ["--algo", "ppo", "--task", "go2_joystick_flat", "--sim", "mujoco", "training.no_play=true", *changes]
    text = ANSI.sub("", run([str(UNILAB / "train"), *words], folder))
    found = []
    for part in text.split("Learning iteration ")[1:]:
        numbers = {name.strip(): value for name, value in re.findall(r"^\s*([^\n:]+):\s*([-\d.:]+)s?\s*$", part, re.M)}
        hours, minutes, seconds = (float(value) for value in numbers["Time elapsed"].split(":"))
        length = max(1.0, float(numbers["Mean episode length"]))
        found.append(
            {
                "collect_s": float(numbers["Collection time"]),
                "learn_s": float(numbers["Learning time"]),
                "steps": float(numbers["Total steps"]),
                "wall_s": 3600.0 * hours + 60.0 * minutes + seconds,
                # Logged per whole episode, whatever its length.
                "error_m_s": float(numbers["Metrics/twist/error_vel_xy"]) * FULL_EPISODE / length,
            }
        )
    return found


def unilab_rates(folder: Path, iterations: int) -> Numbers:
    """Rates of a short training with UniLab's recipe."""
    rows = unilab(folder, f"algo.max_iterations={iterations}")
    size = rows[0]["steps"]
    collect = statistics.median(size / row["collect_s"] for row in rows[SETTLED:])
    return {
        "collect": collect,
        "train": statistics.median(size / (row["collect_s"] + row["learn_s"]) for row in rows[SETTLED:]),
    }


def preset_envs(task: str) -> int:
    """Number of environments of a task's preset ``cpu``."""
    return find_task(task).preset("cpu").env.num_envs


def in_turns(pairs: int, ours: Callable[[], Numbers], theirs: Callable[[], Numbers]) -> list[tuple[Numbers, Numbers]]:
    """Measurements of both, one after the other."""
    found = []
    for pair in range(1, pairs + 1):
        found.append((ours(), theirs()))
        print(f"  pair {pair} of {pairs}: ours {told(found[-1][0])}; theirs {told(found[-1][1])}", flush=True)
    return found


def told(rates: Numbers) -> str:
    """Numbers in words."""
    return ", ".join(f"{name} {value:.4g}" for name, value in rates.items())


def rows_of(words: dict[str, Row], found: list[tuple[Numbers, Numbers]], theirs: str | None = None) -> list[Row]:
    """A row for each of our numbers.

    Args:
        words: Name of the number -> its row, without values.
        found: Measurements of both.
        theirs: Name of the peer's number; None for the same.
    """
    return [
        paired_row(row, [a[name] for a, _ in found], [b[theirs or name] for _, b in found])
        for name, row in words.items()
    ]


def rows_of_rates(peer: str, peer_envs: int, found: list[tuple[Numbers, Numbers]], aim: float | None) -> list[Row]:
    """Rows of the preset `cpu` with and without learning; the aim is of the one with learning."""
    row = Row("peers", "", "steps/s", "higher", None, environments=preset_envs(TASK))
    row = replace(row, peer=peer, peer_environments=peer_envs)
    words = {name: replace(row, what=f"preset cpu of {TASK}, {word}") for name, word in RATES.items()}
    words["train"] = replace(words["train"], aim_ratio=aim)
    return rows_of(words, found)


def against_unilab(folder: Path, pairs: int, iterations: int) -> list[Row]:
    """Short trainings of a Go2 on level ground, each as its makers ship it."""

    def ours() -> Numbers:
        return rates_of(trained(sys.executable, TASK, folder, "--steps", str(24_576 * iterations)))

    found = in_turns(pairs, ours, lambda: unilab_rates(folder, iterations))
    return rows_of_rates(UNILAB_PEER, UNILAB_ENVS, found, UNILAB_AIM)


def against_isaaclab(folder: Path, pairs: int, iterations: int) -> list[Row]:
    """Isaac Lab's Go2 on level ground, with this project's PPO and Isaac Lab's numbers, beside the preset `cpu`."""
    steps = str(ISAAC_ENVS * 24 * iterations)

    def ours() -> Numbers:
        return rates_of(trained(sys.executable, TASK, folder, "--steps", str(24_576 * iterations)))

    def theirs() -> Numbers:
        words = ("--steps", steps, "--set", f"env.num_envs={ISAAC_ENVS}")
        return rates_of(trained(str(ISAACLAB), ISAAC_TASK, folder, *words))

    found = in_turns(pairs, ours, theirs)
    peer = "Isaac Lab 3.0.0 on the CPU, Isaac-Velocity-Flat-UnitreeGo2"
    return rows_of_rates(peer, ISAAC_ENVS, found, None)


def against_envpool(folder: Path, pairs: int, iterations: int) -> list[Row]:
    """Environments of a Go1 on level ground under random actions; no policy runs."""
    del iterations
    rate_file, script = folder / "sim.json", Path(__file__).with_name("envpool_rate.py")

    def ours() -> Numbers:
        words = ["--task", "velocity-flat-go1", "--envs", str(ENVPOOL_ENVS), "--seconds", str(ENVPOOL_S)]
        command = [sys.executable, "-m", "gantry_deploy.cli.main", "bench", "sim", "--no-mjlab", "--repeats", "1"]
        run([*command, *words, "--iterations", "0", "--json", str(rate_file)], folder)
        result = json.loads(rate_file.read_text())
        return {
            name: part["env_steps_per_s"]["gantry"]["median"]
            for name, part in (("mjlab", result["results"][0]), ("preset", result["preset"]["environment_alone"]))
        }

    def theirs() -> Numbers:
        words = [str(ENVPOOL), str(script), ENVPOOL_TASK, str(ENVPOOL_ENVS), str(ENVPOOL_S)]
        result = json.loads(run(words, folder))
        versions.add(result["version"])
        return {"steps": result["steps_per_s"]}

    versions: set[str] = set()
    found = in_turns(pairs, ours, theirs)
    row = Row("peers", "", "steps/s", "higher", None, peer=f"EnvPool {', '.join(versions)}, {ENVPOOL_TASK}")
    row = replace(row, peer_environments=ENVPOOL_ENVS)
    own, mjlab = (
        "preset cpu of velocity-flat-go1, random actions",
        "mjlab's unmodified Velocity-Flat-Go1, random actions",
    )
    words = {
        "preset": replace(row, what=own, environments=preset_envs("velocity-flat-go1")),
        "mjlab": replace(row, what=mjlab, environments=ENVPOOL_ENVS),
    }
    return rows_of(words, found, theirs="steps")


def against_loop(folder: Path, pairs: int, iterations: int) -> list[Row]:
    """A policy's step and a loop without physics at 200 Hz, beside a C++ program that does the same arithmetic."""
    del iterations
    binary = folder / "loop"
    run(["g++", "-O3", "-march=native", str(Path(__file__).with_name("loop.cpp")), "-o", str(binary)], folder)

    def ours() -> Numbers:
        told = folder / "runtime.json"
        words = ["--rates", str(LOOP_HZ), "--seconds", str(LOOP_S), "--iterations", str(LOOP_STEPS), "--no-ros"]
        command = [sys.executable, "-m", "gantry_deploy.cli.main", "bench", "runtime", *words, "--json", str(told)]
        run(command, folder)
        result = json.loads(told.read_text())
        loop = next(item for item in result["loops"] if item["backend"] == "mock")
        step = result["compute"]["step"]
        return {
            "p50": 1e3 * step["p50_s"],
            "p99": 1e3 * step["p99_s"],
            "jitter": 1e3 * loop["timing"]["jitter"]["p99_s"],
        }

    def theirs() -> Numbers:
        found = json.loads(run([str(binary), str(LOOP_HZ), str(LOOP_S), str(LOOP_STEPS)], folder))
        return {
            "p50": 1e3 * found["step_p50_s"],
            "p99": 1e3 * found["step_p99_s"],
            "jitter": 1e3 * found["jitter_p99_s"],
        }

    found = in_turns(pairs, ours, theirs)
    words = {
        "p50": "policy step, median",
        "p99": "policy step, 99th percentile",
        "jitter": f"loop without physics, {LOOP_HZ:g} Hz: distance from the period, 99th percentile",
    }
    row = Row("peers", "", "ms", "lower", None, peer="a plain C++ loop without safety, limits and recording")
    return rows_of({name: replace(row, what=word) for name, word in words.items()}, found)


def whole_recipes(folder: Path, pairs: int, iterations: int) -> list[Row]:
    """Both recipes to their ends, one after the other; one pair."""
    del pairs, iterations
    theirs = unilab(folder)
    goal = theirs[-1]["error_m_s"]
    reached = next(row for row in theirs if row["error_m_s"] <= goal)
    mine = trained(sys.executable, TASK, folder)
    row = next((item for item in mine if item["lin_vel_error_m_s"] <= goal), None)
    print(
        f"  UniLab: {goal:.3f} m/s after {reached['wall_s']:.0f} s, all of it {theirs[-1]['wall_s']:.0f} s", flush=True
    )
    if row is None:
        raise SystemExit(f"{TASK} did not reach {goal:.3f} m/s: {mine[-1]['lin_vel_error_m_s']:.3f} at its end.")
    note = f"after {row['env_steps']:,} and {reached['steps']:,.0f} steps"
    told = Row("peers", f"Go2 to {goal:.3f} m/s of planar error in training", "s", "lower", None, aim_ratio=UNILAB_AIM)
    told = replace(told, environments=preset_envs(TASK), peer=UNILAB_PEER, peer_environments=UNILAB_ENVS, note=note)
    return [paired_row(told, [row["wall_s"]], [reached["wall_s"]])]


PEERS: dict[str, Callable[[Path, int, int], list[Row]]] = {
    "unilab": against_unilab,
    "isaaclab": against_isaaclab,
    "envpool": against_envpool,
    "loop": against_loop,
    "recipe": whole_recipes,
}
"""Name -> rows, from a folder for what is thrown away, pairs, and iterations of a training."""


def main() -> None:
    """Measure what is missing, and write all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="results")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"of {', '.join(PEERS)} (default: all)")
    parser.add_argument("--pairs", type=int, default=3, help="measurements of each, in turns (default: 3)")
    parser.add_argument("--iterations", type=int, default=8, help="of each short training (default: 8)")
    args = parser.parse_args()
    names = args.peers.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"There is no peer '{unknown[0]}'; there are {', '.join(PEERS)}.")
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / PEERS_FILE
    kept: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    for name in names:
        if name in kept:
            continue
        print(name, flush=True)
        with tempfile.TemporaryDirectory(prefix="gantry-peers-") as folder:
            kept[name] = plain(PEERS[name](Path(folder), args.pairs, args.iterations))
        path.write_text(json.dumps(kept, indent=1))
    for rows in kept.values():
        print(markdown_of(rows_from(rows, str(path))))


if __name__ == "__main__":
    main()

"""Parts of ``check.py``, one a process: each writes a row of plain numbers as soon as it is measured."""

from __future__ import annotations

import argparse
import faulthandler
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from gantry_sim.benchmarks.rates import machine, training_rates
from gantry_sim.driving.bench.speed import step_rate
from gantry_sim.tasks.registry import Preset, find_task
from gantry_sim.training.run_cfg import RunCfg

GO2, AME2, TRAFFIC = "velocity-flat-go2", "ame2-go2", "drive-traffic"
STUDENT = "ame2-go2-student"
"""The goal task with a map that the mapping pipeline makes, in place of the true one."""
LIFT = "mjlab:Mjlab-Lift-Cube-Yam"
"""Lifting on a GPU; our own tasks of arms are simulated on the CPU."""
GO1, PEER = "velocity-flat-go1", "Mjlab-Velocity-Flat-Unitree-Go1"
"""Walking on flat ground, here and in mjlab as it ships."""
THREE = (1024, 4096, 16384)
SIZES = {GO2: THREE, GO1: THREE, AME2: THREE, STUDENT: THREE, TRAFFIC: THREE, LIFT: THREE}
"""Numbers of environments."""
SMALL = 8
"""Number of environments with ``--small``."""
MAPS = 64
"""Maps of a driving task, which are made on the CPU before the first step: the preset's 512 take minutes."""
LIBRARIES = ("torch", "mujoco", "mujoco-warp", "warp-lang", "mjlab", "rsl-rl-lib", "tensordict", "numpy")
START_S = 60.0
"""Time of a training for imports, kernels, environments and its last checkpoint, s."""
SYNC_STEPS = 4
"""Control steps in which waits for the GPU are counted."""


class Part:
    """Command line, clock and rows of a part.

    Args:
        args: The command line.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.device: str = args.device
        self.small: bool = args.small
        self.folder: Path = args.rows.parent
        self.end_s = time.monotonic() + args.seconds
        self.failed = False
        self._rows: Path = args.rows
        text = args.rows.read_text() if args.rows.is_file() else ""
        self._earlier: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    @property
    def left_s(self) -> float:
        """Time left, s."""
        return self.end_s - time.monotonic()

    def note(self, **row: Any) -> None:
        """Write a row."""
        with self._rows.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(row, flush=True)

    def sizes(self, task: str) -> tuple[int, ...]:
        """Numbers of environments."""
        return (SMALL,) if self.small else SIZES[task]

    def preset(self, task: str, envs: int) -> Preset:
        """The preset ``gpu`` with another number of environments, and of maps (:data:`MAPS`)."""
        preset = find_task(task).preset("gpu")
        changes: dict[str, Any] = {"num_envs": envs}
        if hasattr(preset.env, "map_count"):
            changes["map_count"] = SMALL if self.small else MAPS
        if self.small and hasattr(preset.env, "ground"):
            changes["ground"] = replace(preset.env.ground, levels=2, columns=14, start_levels=1)
        return replace(preset, env=replace(preset.env, **changes))

    def measure(self, measure: Callable[[], Mapping[str, Any]], **what: Any) -> None:
        """Write a row of something, unless an earlier try has; a failure is written, and no reason to stop.

        Args:
            measure: Gives the numbers.
            what: Begin of the row, which tells it from all others.
        """
        if any(what.items() <= row.items() for row in self._earlier):
            return
        begin = time.monotonic()
        try:
            self.note(**what, **measure())
        except Exception as error:
            self.failed = True
            traceback.print_exc()
            seconds = time.monotonic() - begin
            self.note(**what, error=f"{type(error).__name__}: {error}"[:300], after_s=round(seconds, 1))

    def forget(self) -> None:
        """Drop the rows of an earlier try."""
        self._rows.write_text("")
        self._earlier = []

    def wait(self) -> None:
        """Let the GPU finish."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)


def measure_machine(part: Part) -> None:
    """Hardware and versions."""
    part.forget()
    part.note(**machine(), python=platform.python_version(), **{name: version(name) for name in LIBRARIES})
    if part.device == "cpu":
        return
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    part.measure(lambda: {"gpu": subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()})
    import warp

    warp.init()
    part.note(warp_devices=[str(device) for device in warp.get_devices()], cuda=torch.version.cuda or "")


def measure_agreements(part: Part) -> None:
    """MuJoCo Warp on the device against MuJoCo C: largest differences, from identical states."""
    from gantry_sim.physics.agreement import AGREEMENT_TASKS, format_agreement, measure_agreement

    def agreement(name: str) -> Mapping[str, Any]:
        begin = time.monotonic()
        table = measure_agreement(AGREEMENT_TASKS[name], SMALL if part.small else 64, 1, part.device)
        print(format_agreement(name, table))
        return {"wall_s": round(time.monotonic() - begin, 1), **table}

    for name in ("go1-flat",) if part.small else ("go1-flat", "g1-flat", "go1-rough", "g1-rough"):
        part.measure(partial(agreement, name), task=name)


def measure_go2(part: Part) -> None:
    """Walking on flat ground: the environment alone, and trainings that are thrown away."""
    for envs in part.sizes(GO2):
        _environment(part, GO2, envs)
        _training(part, GO2, envs)


def measure_ame2(part: Part) -> None:
    """Walking to goals over terrain."""
    for envs in part.sizes(AME2):
        _environment(part, AME2, envs)
        _training(part, AME2, envs, iterations=2)


def measure_mapping(part: Part) -> None:
    """Walking to goals by a map that is made of what a camera has seen."""
    for envs in part.sizes(STUDENT):
        _environment(part, STUDENT, envs)


def measure_mjlab(part: Part) -> None:
    """Walking on flat ground in mjlab as it ships, ours beside it, and lifting: environments alone."""
    for envs in part.sizes(GO1):
        part.measure(partial(_as_shipped, part, envs), task=f"mjlab as it ships: {PEER}", envs=envs)
        _environment(part, GO1, envs)
    for envs in part.sizes(LIFT):
        _environment(part, LIFT, envs)


def measure_drive(part: Part) -> None:
    """Driving in traffic."""
    for envs in part.sizes(TRAFFIC):
        _environment(part, TRAFFIC, envs)
    _training(part, TRAFFIC, part.sizes(TRAFFIC)[-1])


def measure_train(part: Part) -> None:
    """``gantry train velocity-flat-go2 --preset gpu``, and rows of its curve, also where its time ends too early."""
    part.forget()
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=part.folder)) / "run"
    minutes = max(0.2, (part.left_s - START_S) / 60.0)
    command = [sys.executable, "-c", "import sys; from gantry_deploy.cli.entry import main; sys.exit(main())", "train"]
    command += [GO2, "--preset", "gpu", "--device", part.device, "--minutes", f"{minutes:.2f}", "--episodes", "0"]
    command += ["--run-dir", str(folder), "--no-export", *(["--set", "env.num_envs=8"] if part.small else [])]
    try:
        part.failed = subprocess.run(command).returncode != 0
    finally:
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows[:: max(1, len(rows) // 20)]:
            shown = ("iteration", "env_steps", "wall_s", "steps_per_s", "reward_per_s", "falls_per_step")
            errors = {key: value for key, value in row.items() if "error" in key and isinstance(value, float)}
            part.note(**{key: row[key] for key in shown if key in row}, **errors)


def measure_syncs(part: Part) -> None:
    """Places where a control step waits for the GPU, with their number a step."""
    if part.device == "cpu":
        part.note(skipped="waits are those of a GPU")
        return
    for task in (GO2, TRAFFIC, AME2):
        part.measure(partial(_waits, part, task), task=task)


def _waits(part: Part, task: str) -> Mapping[str, Any]:
    """Waits of some control steps, by place."""
    env, step = _stepped(part, task, 256)
    with torch.inference_mode(), warnings.catch_warnings(record=True) as caught:
        step(0)
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        for number in range(SYNC_STEPS):
            step(number)
        torch.cuda.set_sync_debug_mode("default")
    env.close()
    places = Counter(f"{Path(item.filename).name}:{item.lineno}" for item in caught)
    common = {place: count / SYNC_STEPS for place, count in places.most_common(25)}
    return {"waits_per_step": sum(places.values()) / SYNC_STEPS, "places": common}


def _stepped(part: Part, task: str, envs: int) -> tuple[Any, Callable[[int], None]]:
    """Environments, and a step with random actions."""
    env = find_task(task).make_env(part.preset(task, envs).env, part.device, 1)
    generator = torch.Generator(part.device).manual_seed(1)
    size = (env.num_envs, env.action_size)
    actions = [0.3 * torch.randn(size, generator=generator, device=part.device) for _ in range(8)]

    def step(number: int) -> None:
        env.step(actions[number % len(actions)])

    return env, step


def _environment(part: Part, task: str, envs: int) -> None:
    """A row of the environment alone."""
    part.measure(partial(_rates, part, task, envs), task=task, what="environment", envs=envs)


def _rates(part: Part, task: str, envs: int) -> Mapping[str, Any]:
    """Control steps per second of the environment alone, and of its physics."""
    begin = time.monotonic()
    env, step = _stepped(part, task, envs)
    part.wait()
    build_s = time.monotonic() - begin
    seconds = 0.2 if part.small else 3.0
    with torch.inference_mode():
        begin = time.monotonic()
        step(0)
        part.wait()
        first_s = time.monotonic() - begin
        rates = [step_rate(step, seconds, part.device) for _ in range(1 if part.small else 2)]
        inner = getattr(env, "env", None)
        row: dict[str, Any] = {"env_steps_per_s": envs * max(rates)}
        row |= {"ms_per_step": 1e3 / max(rates), "slower_ms_per_step": 1e3 / min(rates)}
        if inner is not None:
            substeps = inner.cfg.decimation
            physics = step_rate(lambda number: inner.sim.step(), 0.5 * seconds, part.device)
            row |= {"substeps": substeps, "physics_ms_per_step": substeps * 1e3 / physics}
    if inner is not None and hasattr(inner.sim, "wp_data"):
        from gantry_sim.physics.agreement import warp_limits

        row |= warp_limits(inner)
    # Warp compiles kernels while the environment is built, and keeps them for the next process.
    row |= {"build_s": round(build_s, 1), "first_step_s": round(first_s, 1)}
    if part.device != "cpu":
        free, total = torch.cuda.mem_get_info(part.device)
        row["gpu_memory_gib"] = (total - free) / 2**30
    env.close()
    return row


def _as_shipped(part: Part, envs: int) -> Mapping[str, Any]:
    """Control steps per second of mjlab's own environment, unmodified but for the number of environments."""
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

    begin = time.monotonic()
    cfg = load_env_cfg(PEER)
    cfg.scene.num_envs = envs
    env = ManagerBasedRlEnv(cfg, part.device)
    env.reset()
    size = (envs, sum(env.action_manager.action_term_dim))
    generator = torch.Generator(part.device).manual_seed(1)
    actions = [0.3 * torch.randn(size, generator=generator, device=part.device) for _ in range(8)]

    def step(number: int) -> None:
        env.step(actions[number % len(actions)])

    with torch.inference_mode():
        step(0)
        part.wait()
        first_s = time.monotonic() - begin
        seconds = 0.2 if part.small else 3.0
        rates = [step_rate(step, seconds, part.device) for _ in range(1 if part.small else 2)]
    env.close()
    return {
        "env_steps_per_s": envs * max(rates),
        "ms_per_step": 1e3 / max(rates),
        "slower_ms_per_step": 1e3 / min(rates),
        "build_and_first_step_s": round(first_s, 1),
    }


def _training(part: Part, task: str, envs: int, iterations: int = 3) -> None:
    """A row of a training that is thrown away: its control steps per second."""

    def rates() -> Mapping[str, Any]:
        run = RunCfg(find_task(task), "gpu", part.preset(task, envs), part.device, 1)
        rows = training_rates(run, iterations, 1)
        means = {key: sum(row[key] for row in rows) / len(rows) for key in ("collect_steps_per_s", "steps_per_s")}
        return means | {"steps_per_env": run.preset.learner.steps_per_env}

    part.measure(rates, task=task, what="training", envs=envs)


PARTS: dict[str, Callable[[Part], None]] = {
    "machine": measure_machine,
    "agreement": measure_agreements,
    "go2": measure_go2,
    "mjlab": measure_mjlab,
    "drive": measure_drive,
    "train": measure_train,
    "ame2": measure_ame2,
    "mapping": measure_mapping,
    "syncs": measure_syncs,
}


def main() -> int:
    """Run one part; 1 if something in it failed."""
    parser = argparse.ArgumentParser(description="One part of check.py.")
    parser.add_argument("name", choices=sorted(PARTS))
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    # A part whose time is over says where it was, for example in the compilation of a kernel.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    faulthandler.register(signal.SIGTERM, chain=True)
    part = Part(args)
    PARTS[args.name](part)
    return int(part.failed)


if __name__ == "__main__":
    sys.exit(main())

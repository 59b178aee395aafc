"""The presets of a GPU on a machine without one, by MuJoCo Warp's own CPU device, and the memory that they ask for.

python scripts/gpu/on_cpu.py [--only TASK:PRESET,... | --all] [--steps 50] [--output FILE]

Gantry's own presets are taken, and with ``--all`` those of mjlab's tasks after them. Every preset runs in a process of
its own, which builds few environments, takes control steps with random actions and learns from one rollout. That the
same code runs is all it shows; speed and numbers of a GPU are ``check.py``'s. The memory is computed from the sizes of
all arrays, of two numbers of environments: what grows with them is told for each environment, the rest as what is
fixed. Activations of networks and what torch and Warp themselves take are left out. Driving is plain torch, without
MuJoCo Warp.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gantry_hardware.errors import GantryError
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_sim.mjlab_tasks import listing as mjlab
from gantry_sim.mjlab_tasks.cfg import MjlabCfg, mjlab_env_cfg
from gantry_sim.tasks import catalogue
from gantry_sim.tasks.registry import Preset, Task, find_task
from gantry_sim.training.run_cfg import RunCfg

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from gantry_fixtures.held_motion import held_motion

TEACHERS = {"ame2-go2-student": "ame2-go2"}
"""Tasks that are learnt from a teacher, and the task of one: its training of one iteration will do."""
PICTURES = ("Mjlab-Lift-Cube-Yam-Depth", "Mjlab-Lift-Cube-Yam-Rgb", "Mjlab-Multi-Cube-Seg-Yam")
"""Tasks of mjlab that show the policy pictures, which Gantry refuses to learn from."""
FEW, MORE = 2, 4
"""Numbers of environments that are compared."""
MIB = 2.0**20


def gpu_presets(every: bool = False) -> list[str]:
    """``TASK:PRESET`` of Gantry's presets that are made for a GPU.

    Args:
        every: Those of mjlab's tasks too, but for :data:`PICTURES`.
    """
    others = [task for task in mjlab.infos() if task.name.removeprefix(mjlab.PREFIX) not in PICTURES]
    tasks = (*catalogue.TASKS, *(others if every else ()))
    return [f"{task.name}:{preset}" for task in tasks for preset in task.presets if "gpu" in preset]


def small(preset: Preset, envs: int, folder: Path) -> Preset:
    """The preset with few environments, the ground that they fit on, and as many maps.

    Args:
        preset: Of a GPU.
        envs: Number of environments.
        folder: For the motion that a task of mjlab follows.
    """
    changes: dict[str, Any] = {"num_envs": envs}
    if hasattr(preset.env, "ground"):
        changes["ground"] = replace(preset.env.ground, levels=2, columns=14, start_levels=1)
    if hasattr(preset.env, "map_count"):
        changes["map_count"] = 2
    if isinstance(preset.env, MjlabCfg):
        changes["changes"] = held_motion(preset.env.task, folder) | _small_terrain(preset.env)
    return replace(preset, env=replace(preset.env, **changes))


def _small_terrain(cfg: MjlabCfg) -> dict[str, Any]:
    """Changes for a task of mjlab on rough ground: four tiles instead of two hundred."""
    terrain = mjlab_env_cfg(cfg, seed=0).scene.terrain
    if terrain is None or terrain.terrain_generator is None:
        return {}
    return {f"scene.terrain.terrain_generator.{side}": 2 for side in ("num_rows", "num_cols")}


def arrays_mib() -> dict[str, float]:
    """Memory of all arrays that are alive, MiB: those of Warp, and those of torch beside them."""
    import warp as wp

    held: dict[str, dict[int, int]] = {"physics": {}, "torch": {}}
    for thing in gc.get_objects():
        if isinstance(thing, wp.array) and (place := getattr(thing, "ptr", None)):
            held["physics"][place] = max(thing.capacity or 0, held["physics"].get(place, 0))
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor) and thing.device.type != "meta":
            for tensor in (thing, thing.grad if thing.is_leaf else None):
                if tensor is not None and not tensor.is_sparse:
                    storage = tensor.untyped_storage()
                    held["torch"][storage.data_ptr()] = storage.nbytes()
    held["torch"] = {place: size for place, size in held["torch"].items() if place not in held["physics"]}
    return {name: sum(sizes.values()) / MIB for name, sizes in held.items()}


def run_preset(task_name: str, preset_name: str, steps: int) -> dict[str, Any]:
    """Control steps and one update of a preset, and its memory."""

    begin, task = time.monotonic(), find_task(task_name)
    usual = task.preset(preset_name)
    row: dict[str, Any] = {"task": task_name, "preset": preset_name, "envs": usual.env.num_envs}
    used = []
    with tempfile.TemporaryDirectory() as folder:
        teacher = _teacher(task_name, Path(folder)) if task.needs_teacher else None
        for envs in (FEW, MORE):
            held = _Learning(task, preset_name, small(usual, envs, Path(folder)), teacher)
            gc.collect()
            used.append(arrays_mib())
            if envs == FEW:
                row |= {"build_s": round(time.monotonic() - begin, 1)} | held.stepped(steps) | held.updated()
            held.close()
            del held
            gc.collect()
    for name in used[0]:
        each = (used[1][name] - used[0][name]) / (MORE - FEW)
        row |= {f"{name}_kib_per_env": 1024.0 * each, f"{name}_fixed_mib": used[0][name] - FEW * each}
    whole = sum(row[f"{name}_fixed_mib"] + row["envs"] * row[f"{name}_kib_per_env"] / 1024.0 for name in used[0])
    return row | {"whole_gib": whole / 1024.0, "wall_s": round(time.monotonic() - begin, 1)}


class _Learning:
    """Environments and a learner of few of them.

    Args:
        task: The task.
        name: Of the preset.
        preset: The preset, made small.
        teacher: Run folder of a teacher; None for none.
    """

    def __init__(self, task: Task, name: str, preset: Preset, teacher: Path | None) -> None:
        from gantry_sim.training.train import build_trainer

        self.trainer: Any = None
        if preset.algorithm == "ppo":
            total = preset.learner.steps_per_env * preset.env.num_envs
            preset = replace(preset, learner=replace(preset.learner, total_steps=total, minibatches=1))
            self.trainer = build_trainer(RunCfg(task, name, preset, "cpu", 1, 1, teacher=teacher), None)
            self.env = self.trainer.env.batched
            return
        # Off-policy presets learn from demonstrations and people; environments, learner and memory do without.
        self.env = task.make_env(preset.env, "cpu", 1)
        self.cfg = preset.learner
        shapes, count = self.env.obs_shapes, preset.env.num_envs
        self.learner = Learner(self.cfg.agent, shapes, self.env.action_size)
        self.replay = ReplayBuffer(64 * count, count, shapes, self.env.action_size)

    def stepped(self, count: int) -> dict[str, Any]:
        """Take control steps with random actions."""
        env = self.env
        obs, finite = env.reset(), True
        for _ in range(count):
            action = (0.3 * torch.randn(env.num_envs, env.action_size)).clamp(-1.0, 1.0)
            step = env.step(action)
            if self.trainer is None:
                self.replay.add(obs, action, step.reward, step.next_obs, step.terminated, step.truncated)
            obs = step.obs
            finite = finite and all(bool(torch.isfinite(value.float()).all()) for value in obs.values())
        return {"steps": count, "finite": finite, "simulation": type(_simulation(env)).__name__}

    def updated(self) -> dict[str, Any]:
        """One update."""
        if self.trainer is None:
            return {"losses": {key: float(value) for key, value in self.learner.update(self.replay).items()}}
        rows: list[Any] = []
        self.trainer.train(rows.append)
        return {"losses": _losses(rows[-1].metrics)}

    def close(self) -> None:
        """Release the environments."""
        self.env.close()


def _simulation(env: Any) -> Any:
    """The simulation under environments; None where they have none."""
    while env is not None and not hasattr(env, "sim"):
        env = getattr(env, "env", None)
    return getattr(env, "sim", None)


def _losses(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if "loss" in name or name in ("value", "surrogate")}


def _teacher(task_name: str, folder: Path) -> Path:
    """Run folder of a teacher that has learnt for one iteration."""
    from gantry_sim.training.begin import begin_run
    from gantry_sim.training.train import train

    task = find_task(TEACHERS[task_name])
    preset = small(task.preset("gpu"), FEW, folder)
    learner = replace(preset.learner, total_steps=FEW * preset.learner.steps_per_env, minibatches=1)
    run = RunCfg(task, "gpu", replace(preset, learner=learner), "cpu", 1, 1)
    begin_run(run, folder / "teacher")
    train(run, folder / "teacher")
    return folder / "teacher"


def _known(name: str) -> None:
    """Refuse what is no ``TASK:PRESET``.

    Raises:
        GantryError: If the name has no preset, or there is no such task or preset.
    """
    task_name, colon, preset_name = name.rpartition(":")
    if not colon:
        raise GantryError(f"--only {name}: expected TASK:PRESET, for example velocity-flat-go2:gpu.")
    find_task(task_name).preset(preset_name)


def main() -> int:
    """Run the presets one after the other; 0 if all of them did, 2 for a name that is none."""
    parser = argparse.ArgumentParser(description="The gpu presets on MuJoCo Warp's CPU device.")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", default="", metavar="TASK:PRESET,...", help="some of them")
    chosen.add_argument("--all", action="store_true", help="those of mjlab's tasks too")
    parser.add_argument("--steps", type=int, default=50, help="control steps (default: 50)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="for the rows, JSON lines")
    parser.add_argument("--here", action="store_true", help="in this process")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else gpu_presets(args.all)
    try:
        for name in names:
            _known(name)
    except GantryError as error:
        print(error, file=sys.stderr)
        return 2
    if args.here:
        for name in names:
            task_name, preset_name = name.rsplit(":", 1)
            print(json.dumps(run_preset(task_name, preset_name, args.steps)), flush=True)
        return 0
    failed = 0
    environment = os.environ | {"GANTRY_PHYSICS_ENGINE": "warp", "OMP_NUM_THREADS": "1"}
    for name in names:
        command = [sys.executable, __file__, "--here", "--only", name, "--steps", str(args.steps)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            failed += 1
            print(f"{name}: exit {done.returncode}\n{done.stderr[-3000:]}", flush=True)
            continue
        line = done.stdout.strip().splitlines()[-1]
        print(line, flush=True)
        if args.output:
            with args.output.open("a") as out:
                out.write(line + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

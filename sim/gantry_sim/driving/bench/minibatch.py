"""The same samples in minibatches of several sizes, under CaRL's reward and under a shaped sum.

CaRL (arXiv 2504.17838) says that PPO with a shaped additive reward gets worse with larger minibatches, and that it does
not with the reward that multiplies. All runs see as many samples, and each as often: number of cars, decisions between
updates and epochs are those of the preset, so that a smaller minibatch means more updates.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.bundle.locate import is_run
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.json_file import parse_json
from gantry_hardware.whole_files import write_whole
from gantry_policies.common.checkpoint import list_checkpoints
from gantry_policies.on_policy.trainer import CHECKPOINTS, CURVE_FILE, PpoTrainer, Progress
from gantry_sim.benchmarks.sweep import hold_plan
from gantry_sim.cli.common import ProgressBar, changed
from gantry_sim.driving.bench.scoring import Held, episodes_of, score_run, scores, width_of
from gantry_sim.driving.evaluation import scores_of
from gantry_sim.process.interrupts import stop_on_interrupt
from gantry_sim.tasks.registry import Preset, Task, find_task
from gantry_sim.training.run_config import RunCfg, add_session, check_run, create_run, hold_run, read_run, require_seeds
from gantry_sim.training.train import build_runner, policy_of

REWARDS = ("multiplicative", "additive")
"""Kinds of :class:`gantry_sim.driving.reward.RewardCfg`."""
SCALINGS = {"fixed": 0.0, "sqrt": 0.5, "linear": 1.0}
"""Scaling of the learning rate by the minibatch: this power of its size over the preset's."""
LOOKS_FILE = "looks.jsonl"
"""Evaluations of a training on maps of the validation split, a line each time."""
SEEN = ("driving_score", "completion_percent", "lateral_rmse_m")
"""Scores of a look."""


@dataclass(frozen=True)
class MinibatchCfg:
    """Settings of a comparison."""

    task: str
    """A driving task with a reward of both kinds."""
    sizes: tuple[int, ...]
    """Samples of a minibatch; each must divide those between two updates."""
    seeds: tuple[int, ...]
    """Seeds of every variant."""
    rewards: tuple[str, ...] = REWARDS
    """Names of :data:`REWARDS`."""
    steps: int = 0
    """Decisions of each training; 0 for the preset's."""
    learning_rate: str = "fixed"
    """A name of :data:`SCALINGS`."""
    changes: tuple[str, ...] = ()
    """``--set`` of all runs."""
    episodes: int = 200
    """Held-out episodes of each run."""
    looks: int = 10
    """Number of evaluations of a training."""
    look_episodes: int = 64
    """Episodes of a look."""

    def __post_init__(self) -> None:
        for name, known in (("rewards", REWARDS), ("learning_rate", tuple(SCALINGS))):
            value = getattr(self, name)
            for one in (value,) if isinstance(value, str) else value:
                if one not in known:
                    raise UnknownNameError(name.removesuffix("s"), one, known)
        require_seeds(self.seeds)
        for name in ("sizes", "rewards"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise GantryError(f"The {name} are {list(values)}, expected one or more, each once.")
        if self.looks < 1 or self.look_episodes < 1:
            raise GantryError(f"{self.looks} looks at {self.look_episodes} episodes, expected at least 1 of each.")


@dataclass(frozen=True)
class PlannedRun:
    """One training."""

    reward: str
    """Kind of its reward."""
    size: int
    """Samples of its minibatches."""
    seed: int
    """Its seed."""
    preset: Preset
    """Its configuration."""
    folder: Path
    """Its run folder."""


def planned(cfg: MinibatchCfg, output: Path) -> list[PlannedRun]:
    """All trainings, seed by seed, so that an unfinished comparison has all variants equally often.

    Raises:
        GantryError: If a size does not divide the samples between two updates, or a field does not exist.
    """
    base = changed(find_task(cfg.task).preset("cpu"), cfg.changes)
    learner, batch = base.learner, base.env.num_envs * base.learner.steps_per_env
    usual = batch // learner.minibatches_of(batch)
    runs = []
    for seed in cfg.seeds:
        for reward in cfg.rewards:
            for size in cfg.sizes:
                if size < 2 or batch % size:
                    raise GantryError(
                        f"Minibatches of {size} do not divide the {batch} decisions between two updates "
                        f"({base.env.num_envs} cars x {learner.steps_per_env})."
                    )
                rate = learner.learning_rate * (size / usual) ** SCALINGS[cfg.learning_rate]
                sets = [f"env.reward.kind={reward}", f"learner.minibatch_samples={size}"]
                sets += [f"learner.learning_rate={rate!r}", f"learner.total_steps={cfg.steps or learner.total_steps}"]
                folder = output / f"{reward}-{size}-s{seed}"
                runs.append(PlannedRun(reward, size, seed, changed(base, sets), folder))
    return runs


def run_minibatch(cfg: MinibatchCfg, output: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Train and score what is missing.

    Args:
        cfg: What is compared.
        output: Folder of all runs; the same call goes on after an interruption.
        say: Called with a line before each step.

    Returns:
        See :func:`collect`.

    Raises:
        KeyboardInterrupt: If it was interrupted; everything is saved.
    """
    runs = planned(cfg, output)
    hold_plan(cfg, output)
    task, held = find_task(cfg.task), Held(cfg.episodes)
    entries = []
    width = width_of(held, task, runs[0].preset.env)
    for number, run in enumerate(runs, start=1):
        title = f"[{number}/{len(runs)}] {run.reward}, minibatches of {run.size}, seed {run.seed}"
        say(title)
        _train(cfg, task, run)
        scored = score_run(run.folder, held)
        entries.append((run, scores(scored.found, width), scored.env_steps))
    return collect(cfg, entries)


def _train(cfg: MinibatchCfg, task: Task, run: PlannedRun) -> None:
    """Train to the end, from the newest checkpoint if there is one."""
    if is_run(run.folder):
        run_cfg = read_run(run.folder)
    else:
        run_cfg = RunCfg(task, "cpu", run.preset, "cpu", run.seed)
        check_run(run_cfg)
        create_run(run_cfg, run.folder)
    with hold_run(run.folder):
        runner = build_runner(run_cfg, run.folder)
        if list_checkpoints(run.folder / CHECKPOINTS):
            runner.resume()
            if runner.iteration >= runner.iterations:
                return
            add_session(run.folder, runner.iteration)
        looker = _Looker(cfg, run_cfg, runner, run.folder / LOOKS_FILE)
        with stop_on_interrupt(runner.stop):
            if not runner.train(looker):
                raise KeyboardInterrupt


class _Looker:
    """Looks at a training now and then, on maps of the validation split."""

    def __init__(self, cfg: MinibatchCfg, run: RunCfg, runner: PpoTrainer, path: Path) -> None:
        self._cfg, self._run, self._runner, self._path = cfg, run, runner, path
        self._held = Held(cfg.look_episodes)
        self._bar = ProgressBar("train")
        # A killed session may have looked beyond the checkpoint that is continued from.
        kept = [row for row in read_looks(path) if row["iteration"] <= runner.iteration]
        write_whole(path, "".join(json.dumps(row) + "\n" for row in kept).encode())
        if not kept:
            self._look(runner.iteration, runner.env_steps)

    def __call__(self, progress: Progress) -> None:
        self._bar.update(progress)
        looks, count = self._cfg.looks, progress.iterations
        if progress.iteration * looks // count > (progress.iteration - 1) * looks // count:
            self._look(progress.iteration, progress.env_steps)

    def _look(self, iteration: int, env_steps: int) -> None:
        with torch.random.fork_rng():
            policy = policy_of(self._runner)
            found = episodes_of(self._held, self._run.task, self._run.preset.env, policy, map_split="validation")
        seen = scores_of(found)
        row = {"iteration": iteration, "env_steps": env_steps} | {name: seen[name]["mean"] for name in SEEN}
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def read_looks(path: Path) -> list[dict[str, float]]:
    """Read the evaluations of a training; a line that a kill has cut is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            rows.append(parse_json(line, f"a line of '{path}'", allow_nan=True))
        except ValueError:
            break
    return rows


def collect(cfg: MinibatchCfg, entries: list[tuple[PlannedRun, dict[str, Any], int]]) -> dict[str, Any]:
    """``settings``, and ``runs`` with variant, ``updates`` of the network, ``learning_rate``, scores and looks each."""
    runs = []
    for run, scored, env_steps in entries:
        learner = run.preset.learner
        batch = run.preset.env.num_envs * learner.steps_per_env
        iterations = math.ceil(learner.total_steps / batch)
        runs.append(
            {
                "reward": run.reward,
                "size": run.size,
                "seed": run.seed,
                "run": str(run.folder),
                "learning_rate": learner.learning_rate,
                "env_steps": env_steps,
                "samples_per_update": batch,
                "epochs": learner.epochs,
                "updates": iterations * learner.epochs * learner.minibatches_of(batch),
                "train_wall_s": _learning_s(run.folder),
                "scores": scored,
                "looks": read_looks(run.folder / LOOKS_FILE),
            }
        )
    return {"settings": vars(cfg), "runs": runs}


def _learning_s(folder: Path) -> float:
    """Time of a training without its looks, from its learning curve."""
    with (folder / CURVE_FILE).open(newline="") as file:
        rows = [(float(row["env_steps"]), float(row["steps_per_s"])) for row in csv.DictReader(file)]
    before = [0.0, *(steps for steps, _ in rows)]
    return sum((steps - last) / rate for (steps, rate), last in zip(rows, before, strict=False))

"""Learning from a scripted person in one process: environments, person and learner take turns, step by step.

No clock counts here but that of the environments, so that a trial comes out the same on a busy machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.errors import SessionError
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.json_file import read_json
from gantry_hardware.training.trainer import Progress
from gantry_policies.common.batched_env import STATE, BatchedEnv
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.data import ChunkData
from gantry_policies.imitation.policy import make_base
from gantry_policies.imitation.trainer import CloningTrainer
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.config import GripperCfg, OffPolicyCfg
from gantry_policies.off_policy.replay.demos import Demo
from gantry_policies.off_policy.replay.recording import record_demos
from gantry_policies.off_policy.trainer import OffPolicyTrainer
from gantry_sim.benchmarks.comparison import hold_plan
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.tasks.manipulation.persons.batch import PersonCfg, ScriptedCorrector
from gantry_sim.tasks.registry import Task, find_task
from gantry_sim.training.run_files import write_json

HELD_OUT_SEED, DEMOS_SEED, ROOM_SEED = 90_000, 10_000, 20_000
"""Seeds of held-out episodes, and first ones of demonstrations and of training episodes."""
EVALUATION_ENVS, DEMOS_ENVS = 25, 8
"""Environments side by side."""
CLONE = "clone"
"""Method that learns from demonstrations alone."""


@dataclass(frozen=True)
class Way:
    """A learner, and what it is given."""

    learner: Callable[[], OffPolicyCfg]
    """Fresh settings."""
    person: bool = True
    """Whether a person corrects."""
    base: bool = False
    """Whether it corrects a frozen clone of the demonstrations."""
    gripper: bool = False
    """Whether a critic moves the gripper."""
    cameras: bool = False
    """Whether it sees by cameras; otherwise it is told where things are."""


WAYS: dict[str, Way] = {
    "hil-serl": Way(presets.hil_serl),
    "hil-serl-gripper": Way(presets.hil_serl, gripper=True),
    "hil-weighted": Way(presets.hil_weighted),
    "hil-weighted-gripper": Way(presets.hil_weighted, gripper=True),
    "hil-images": Way(presets.hil_images, cameras=True),
    "hil-residual": Way(presets.hil_residual, base=True),
    "dagger": Way(presets.dagger),
    CLONE: Way(presets.clone, person=False),
    "rlpd-alone": Way(presets.hil_serl, person=False),
    "rlpd-alone-gripper": Way(presets.hil_serl, person=False, gripper=True),
}
"""By name; ``rlpd-alone`` is the learner of ``hil-serl`` without a person, and ``clone`` spends the person's time on
further demonstrations in place of corrections."""


@dataclass(frozen=True)
class TeachingBenchCfg:
    """Settings of a comparison; a later call may differ in ``seeds`` and ``methods``."""

    task: str
    """Task of manipulation."""
    envs: int = 2
    """Robots side by side."""
    steps: int = 12_000
    """Steps of all robots together."""
    every: int = 2_000
    """Steps between two evaluations."""
    episodes: int = 200
    """Held-out episodes of an evaluation."""
    demos: int = 10
    """Successful demonstrations at the start."""
    suboptimality: float = 0.2
    """Of the expert that demonstrates, 0 to 1."""
    settled: float = 0.98
    """Held-out success that ends a trial where it is reached in two evaluations in a row; above 1 for none."""
    wrong: float = 0.0
    """Share of the corrections that do not help."""
    attention: float = 1.0
    """Share of the attempts in which the person steps in."""
    budgets: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    """Person-seconds of ``clone``, in units of those of the demonstrations at the start."""

    def __post_init__(self) -> None:
        for name in ("envs", "steps", "every", "episodes", "demos"):
            if not getattr(self, name) >= 1:
                raise SessionError(f"{name} is {getattr(self, name)}, expected 1 or more.")


@dataclass(frozen=True)
class Shown:
    """Demonstrations and what they took."""

    demos: list[Demo]
    """Successful ones."""
    person_s: float
    """Time of the person, failed attempts included, s."""


def run_teaching_bench(
    cfg: TeachingBenchCfg, methods: tuple[str, ...], seeds: tuple[int, ...], output: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run what is missing.

    Args:
        cfg: What is compared.
        methods: Names of :data:`WAYS`.
        seeds: Of learner, person and episodes.
        output: Folder of the results, continued if it is begun.
        say: Called with a line before each trial and after each evaluation.

    Returns:
        Plain data: ``cfg`` and ``trials``, see :func:`run_trial`.

    Raises:
        GantryError: If a method is not known, or a trial fails; those before are kept.
    """
    for name in methods:
        if name not in WAYS:
            raise UnknownNameError("method", name, WAYS)
    hold_plan(cfg, output)
    trials = []
    for seed in seeds:
        for name in methods:
            held = output / f"{name}-s{seed}.json"
            if not held.is_file():
                say(f"{name}, seed {seed}")
                write_json(held, run_trial(cfg, name, seed, say))
            trials.append(read_json(held))
    return {"cfg": asdict(cfg), "trials": trials}


def run_trial(cfg: TeachingBenchCfg, name: str, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Train a method with one seed.

    Returns:
        ``method``, ``seed``, ``demos_s`` (person-seconds before the first step) and ``curve``: points with ``steps``,
        ``success``, ``person_s`` (demonstrations included), ``corrections``, ``intervention_rate`` and ``wall_s``.
    """
    task, way = find_task(cfg.task), WAYS[name]
    with torch_threads(1):
        torch.manual_seed(seed)
        shown = record(task, cfg.demos, cfg.suboptimality, DEMOS_SEED + seed, way.cameras)
        curve = _clones(cfg, task, shown, seed, say) if name == CLONE else _learned(cfg, task, way, shown, seed, say)
    return {"method": name, "seed": seed, "demos_s": shown.person_s, "curve": curve}


def record(task: Task, wanted: int, suboptimality: float, seed: int, cameras: bool = False) -> Shown:
    """Demonstrations of the scripted expert until enough of them have succeeded."""
    env = _environments(task, DEMOS_ENVS, seed, cameras)
    expert = task.require_scripted().make_policy(env, suboptimality, seed)
    try:
        demos, steps = record_demos(env, expert, wanted)
    finally:
        env.close()
    return Shown(demos, steps * env.dt_s)


def _learned(
    cfg: TeachingBenchCfg, task: Task, way: Way, shown: Shown, seed: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    learner = replace(
        way.learner(),
        total_steps=cfg.steps,
        eval_every_steps=cfg.every,
        eval_episodes=cfg.episodes,
        log_every_steps=1_000_000,
        seed=seed,
    )
    if way.gripper:
        learner = replace(learner, agent=replace(learner.agent, gripper=GripperCfg(places=(-1.0, 1.0))))
    env = _environments(task, cfg.envs, ROOM_SEED + seed, way.cameras)
    judged = _environments(task, EVALUATION_ENVS, HELD_OUT_SEED, way.cameras)
    policy = _cloned(shown.demos, seed) if way.base else None
    bases = [None if policy is None else make_base(policy, where.num_envs) for where in (env, judged)]
    person = None
    if way.person:
        person = ScriptedCorrector(env, PersonCfg(wrong=cfg.wrong, attention=cfg.attention), seed)  # type: ignore[arg-type]
    trainer = OffPolicyTrainer(
        env, learner, base=bases[0], demos=shown.demos, eval_env=judged, eval_base=bases[1], person=person
    )
    curve: list[dict[str, Any]] = []

    def note(row: Progress) -> None:
        if row.evaluation is not None:
            curve.append(_point(row, shown.person_s))
            say("  " + json.dumps(curve[-1]))
            if len(curve) > 1 and min(point["success"] for point in curve[-2:]) >= cfg.settled:
                trainer.stop()

    trainer.train(note)
    env.close()
    judged.close()
    return curve


def _environments(task: Task, count: int, seed: int, cameras: bool) -> BatchedEnv:
    cfg = replace(task.usual_env(), num_envs=count)
    return task.make_env(replace(cfg, observer="camera") if cameras else cfg, "cpu", seed)


def _clones(
    cfg: TeachingBenchCfg, task: Task, first: Shown, seed: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A clone for each budget of person-seconds."""
    curve: list[dict[str, Any]] = []
    for budget in cfg.budgets:
        count = round(budget * cfg.demos)
        shown = first if count == cfg.demos else record(task, count, cfg.suboptimality, DEMOS_SEED + seed)
        (point,) = _learned(replace(cfg, steps=1, every=1), task, WAYS[CLONE], shown, seed, say)[:1]
        curve.append(point)
    return curve


def _cloned(demos: list[Demo], seed: int) -> Any:
    """A frozen base that plans chunks."""
    obs = {STATE: torch.cat([demo.obs[STATE][: len(demo.action)] for demo in demos])}
    action = torch.cat([demo.action for demo in demos])
    settings = BcCfg(steps=1_500, validation_share=0.0, seed=seed)
    trainer = CloningTrainer(ChunkData(obs, action, [len(demo.action) for demo in demos]), settings)
    trainer.train()
    return trainer.policy


def _point(row: Progress, demos_s: float) -> dict[str, Any]:
    told: Mapping[str, float] = row.metrics
    return {
        "steps": row.env_steps,
        "success": row.evaluation.success_once.mean,
        "steps_to_success": row.evaluation.steps_to_success,
        "person_s": demos_s + told.get("person_s", 0.0),
        "corrections": told.get("corrections", 0.0),
        "intervention_rate": told.get("intervention_rate", 0.0),
        "wall_s": round(row.wall_s, 1),
    }

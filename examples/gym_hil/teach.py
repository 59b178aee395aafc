"""Corrections in an environment of another project: gym-hil's PandaPickCubeBase-v0, with a scripted person.

Demonstrations and corrections come from a script that reads the observation. A person steps in when the gripper has not
come nearer to its aim for a while, and gives back after a few steps. See README.md for the versions that fit together.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from gantry_hardware.training.trainer import Progress
from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.config import OffPolicyCfg
from gantry_policies.off_policy.replay.recording import record_demos
from gantry_policies.off_policy.trainer import OffPolicyTrainer
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.tasks.registry import find_task

TASK = "gym:gym_hil/PandaPickCubeBase-v0"
STEP_M = 0.025
"""Largest motion of the hand along an axis in one step; the environment's own bound is a metre."""
GRIPPER, HAND, CUBE = 14, slice(15, 18), slice(18, 21)
"""Places in the state: command of the gripper (0 open, 255 closed), positions of hand and cube in the world, m."""
PRESETS = {"hil-serl": presets.hil_serl, "hil-weighted": presets.hil_weighted, "dagger": presets.dagger}
LIFTED_M = 0.12
"""Height of the hand at which an attempt is surely over."""


def expert_action(state: Tensor) -> Tensor:
    """Actions (N, 7) in [-1, 1] that bring the hand above the cube, down, close, and lift; states are (N, 21)."""
    hand, cube, closed = state[:, HAND], state[:, CUBE], state[:, GRIPPER] > 127.0
    away = cube - hand
    beside = away[:, :2].norm(dim=-1)
    near = away.norm(dim=-1) < 0.025
    aim = away.clone()
    aim[:, 2] += torch.where(beside > 0.02, 0.08, 0.0)  # Above it first.
    aim = torch.where((near & closed)[:, None], torch.tensor([0.0, 0.0, STEP_M]), aim)
    aim = torch.where((near & ~closed)[:, None], torch.zeros(3), aim)
    action = torch.zeros(len(state), 7)
    action[:, :3] = (aim / STEP_M).clamp(-1.0, 1.0)
    action[:, 6] = torch.where(near, 1.0, -1.0)
    return action


def progress(state: Tensor) -> Tensor:
    """(N,), m: nearness of hand and cube, and the cube's height."""
    return -(state[:, CUBE] - state[:, HAND]).norm(dim=-1) + 5.0 * (state[:, CUBE.start + 2] - 0.02)


class StallPerson:
    """Steps in after ``patience`` steps without a centimetre of progress, for ``length`` steps.

    See :class:`gantry_policies.corrections.person.Person`.
    """

    def __init__(self, num_envs: int, patience: int = 8, length: int = 15) -> None:
        self.patience, self.length = patience, length
        self._best = torch.full((num_envs,), -torch.inf)
        self._still, self._left = torch.zeros(num_envs), torch.zeros(num_envs)

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin."""
        rows = slice(None) if env_ids is None else env_ids
        self._best[rows], self._still[rows], self._left[rows] = -torch.inf, 0.0, 0.0

    def decide(self, obs: Observation, policy_action: Tensor) -> tuple[Tensor, Tensor]:
        """Where the person acts (N,), and how (N, 7)."""
        now = progress(obs[STATE])
        better = now > self._best + 0.01
        self._best = torch.where(better, now, self._best)
        self._still = torch.where(better | (self._left > 0), 0.0, self._still + 1)
        self._left = torch.where(self._still >= self.patience, float(self.length), (self._left - 1).clamp(min=0))
        acts = self._left > 0
        self._best = torch.where(acts, now, self._best)
        return acts, expert_action(obs[STATE])


class Expert:
    """The script with noise on its hand, which demonstrates.

    See :class:`gantry_policies.common.evaluation.ActingPolicy`.
    """

    def __init__(self, noise: float = 0.3) -> None:
        self.noise = noise

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Nothing to remember."""

    def act(self, obs: Observation) -> Tensor:
        """(N, 7)."""
        action = expert_action(obs[STATE])
        action[:, :3] = (action[:, :3] + self.noise * torch.randn(len(action), 3)).clamp(-1.0, 1.0)
        return action


def main() -> None:
    """Record, train with corrections, evaluate in between."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="hil-weighted")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--demos", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=100, help="held-out episodes of each evaluation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the curve as JSON lines")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    task = find_task(TASK)
    bound = (STEP_M,) * 3 + (1.0,) * 4
    cfg = replace(
        task.usual_env(),
        num_envs=2,
        env_kwargs={"random_block_position": True},
        action_low=tuple(-x for x in bound),
        action_high=bound,
    )
    with torch_threads(1):
        shown = task.make_env(replace(cfg, num_envs=4), "cpu", 1000 + args.seed)
        demos, steps = record_demos(shown, Expert(), args.demos)
        shown.close()
        print(f"{len(demos)} demonstrations, {steps * shown.dt_s:.0f} s of the person's time", flush=True)
        env, judged = task.make_env(cfg, "cpu", args.seed), task.make_env(replace(cfg, num_envs=4), "cpu", 90_000)
        learner: OffPolicyCfg = replace(
            PRESETS[args.preset](),
            total_steps=args.steps,
            eval_every_steps=2_000,
            eval_episodes=args.episodes,
            seed=args.seed,
        )
        person = StallPerson(env.num_envs)
        trainer = OffPolicyTrainer(env, learner, demos=demos, eval_env=judged, person=person)
        lines: list[str] = []

        def note(row: Progress) -> None:
            if row.evaluation is not None:
                lines.append(_line(row))
                print(lines[-1], flush=True)

        trainer.train(note)
        if args.output is not None:
            args.output.write_text("\n".join(lines) + "\n")
        env.close()
        judged.close()


def _line(row: Progress) -> str:
    found, told = row.evaluation.success_once, row.metrics
    facts = {"steps": row.env_steps, "success": found.mean, "low": found.low, "high": found.high}
    return json.dumps(facts | {name: told[name] for name in ("person_s", "corrections") if name in told})


if __name__ == "__main__":  # Worker processes start afresh and read this file again.
    main()

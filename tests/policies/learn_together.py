"""Trains the toy of these tests as one of the processes of torchrun, or alone: ``learn_together.py KIND FOLDER``.

Noise and minibatches are tables over all environments, of which each process takes its rows, so that however many
processes there are, they do the same work. ``ppo`` leaves ``weights-RANK.pt``; ``half`` learns from half of the
environments; ``lost`` ends in the second process without a word.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from conftest import Toy

from gantry_hardware.training.launcher import launched
from gantry_policies.common import processes
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.trainer import PpoTrainer

ENVS, STEPS, ITERATIONS = 8, 10, 4


class Share(Toy):
    """Some environments of a toy with eight."""

    def __init__(self, first: int, count: int) -> None:
        super().__init__(ENVS)
        self.num_envs, self.rows = count, slice(first, first + count)
        self.start, self.pos = self.start[self.rows], self.pos[self.rows]
        self.episode_length_buf = self.episode_length_buf[self.rows].clone()


def learn_by_table(folder: Path, first: int, count: int) -> PpoTrainer:
    """A training with noise and minibatches of a table."""
    torch.manual_seed(1 + processes.rank())
    cfg = PpoCfg(
        total_steps=ENVS * STEPS * ITERATIONS * count * processes.count() // ENVS,
        steps_per_env=STEPS,
        minibatches=2,
        hidden=(16,),
        critic_hidden=(16,),
        learning_rate=3e-3,
        normalize=True,
    )
    trainer = PpoTrainer(Share(first, count), cfg, folder, "cpu", None, 2)
    noise = torch.randn(ITERATIONS * STEPS, ENVS, 2, generator=torch.Generator().manual_seed(5))[:, first:][:, :count]
    draws = iter(noise)
    distribution = trainer.alg.actor.distribution
    distribution.sample = lambda: distribution.mean + distribution.std * next(draws)

    def minibatches():
        for epoch in range(cfg.epochs):
            for half in range(2):
                steps = torch.arange(STEPS)[(torch.arange(STEPS) + epoch) % 2 == half]
                yield (steps[:, None] * count + torch.arange(count)).flatten()

    trainer.alg._minibatches = minibatches
    return trainer


def main(kind: str, folder: Path) -> None:
    place = launched()
    torch.set_num_threads(1)
    with processes.joined(place, "cpu"):
        own = ENVS // 2 if kind == "half" else ENVS // place.count
        trainer = learn_by_table(folder, own * place.rank, own)
        if kind == "lost":
            # The launcher asks the other process to end as well, on a busy machine before that has noticed the loss.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            trainer.ppo_cfg = trainer.ppo_cfg.__class__(**{**vars(trainer.ppo_cfg), "total_steps": 10**9})
            draw = trainer.alg.actor.distribution
            draw.sample = lambda: draw.mean

            def on_progress(progress):
                if place.rank == 1 and progress.done == 3:
                    os._exit(9)

            trainer.train(on_progress)
        else:
            assert trainer.train()
        torch.save(trainer.alg.save(), folder / f"weights-{place.rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

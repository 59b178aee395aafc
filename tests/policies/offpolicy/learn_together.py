"""Off-policy learning as one of the processes of torchrun, or alone: ``learn_together.py KIND FOLDER``.

``updates`` makes updates from a table: batches and noise are drawn for all processes, of which each takes its rows, so
that however many there are, they do the same work. It leaves ``updates-RANK.pt``. ``train`` trains in environments of
each process's own, is stopped in the first one alone, and goes on in a new trainer; it leaves ``train-RANK.pt``.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import fields, replace
from pathlib import Path

import torch

from gantry_hardware.training.launcher import launched
from gantry_policies.common import processes
from gantry_policies.off_policy.config import OffPolicyCfg, TeachingCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.presets import rlpd, sac
from gantry_policies.off_policy.replay.batches import Batch
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.trainer import OffPolicyTrainer

spec = importlib.util.spec_from_file_location("reach", Path(__file__).parent / "conftest.py")
assert spec is not None
assert spec.loader is not None
reach = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reach)

BATCH, UPDATES = 32, 12
TOTAL, STOPPED = 128, 64
"""Steps of the whole training, and those after which the first process asks for a stop."""


def tiny(cfg: OffPolicyCfg, **agent: object) -> OffPolicyCfg:
    """A preset with small networks that learn fast."""
    inner = replace(cfg.agent, batch_size=BATCH, critic_updates=2, **agent)
    actor = replace(inner.actor, hidden=(16,), learning_rate=3e-3)
    critic = replace(inner.critic, hidden=(16,), heads=4, learning_rate=3e-3)
    return replace(cfg, agent=replace(inner, actor=actor, critic=critic))


def recorded(seed: int, is_demo: bool) -> ReplayBuffer:
    """Ten episodes of random numbers."""
    draw = torch.Generator().manual_seed(seed)
    buffer = ReplayBuffer(400, 1, {"state": (4,)}, 2)
    for _ in range(10):
        action, reward = torch.rand(20, 2, generator=draw) * 2 - 1, torch.rand(20, generator=draw)
        buffer.add_episode({"state": torch.randn(21, 4, generator=draw)}, action, reward, True, is_demo=is_demo)
    return buffer


def by_table(learner: Learner, rows: slice) -> None:
    """Let a learner draw for all processes, and take its own rows."""
    draw_all = learner.draw

    def draw(replay, demos):
        whole = draw_all(replay, demos)
        parts = {field.name: getattr(whole, field.name) for field in fields(Batch)}
        for name, value in parts.items():
            if isinstance(value, dict):
                parts[name] = {key: values[rows] for key, values in value.items()}
            elif value is not None:
                parts[name] = value[rows]
        return Batch(**parts)

    learner.draw = draw
    learner.generator.manual_seed(5)


def updates(rank: int, count: int) -> dict[str, torch.Tensor]:
    """Weights of learners of several kinds after some updates."""
    rows = slice(rank * BATCH // count, (rank + 1) * BATCH // count)
    normal = torch.Tensor.normal_

    def normal_of_all(self, *words, generator=None):
        return self.copy_(normal(torch.empty(BATCH, *self.shape[1:]), *words, generator=generator)[rows])

    replay, demos = recorded(1, False), recorded(2, True)
    found = {}
    for kind, cfg in (
        ("sac", tiny(sac())),
        ("rlpd", tiny(rlpd(), demo_fraction=0.25)),
        ("taught", tiny(rlpd(), demo_fraction=0.25, teaching=TeachingCfg("state", young_updates=8))),
        ("imitating", tiny(rlpd(), demo_fraction=0.25, teaching=TeachingCfg("only"))),
    ):
        learner = Learner(cfg.agent, {"state": (4,)}, 2, seed=rank)
        learner.share_first()
        by_table(learner, rows)
        torch.Tensor.normal_ = normal_of_all
        for number in range(UPDATES):
            if kind == "rlpd" and number < 4:
                learner.pretrain(demos, 1.0)
            else:
                learner.update(replay, None if kind == "sac" else demos)
        torch.Tensor.normal_ = normal
        networks = learner.state_dict()["networks"]
        found |= {f"{kind} {one} {name}": v for one, of in networks.items() for name, v in of.items()}
        found[f"{kind} temperature"] = learner.log_temperature.detach()
    return found


def trainer_of(rank: int, folder: Path) -> OffPolicyTrainer:
    """A training with a seed of its own in each process."""
    cfg = replace(
        tiny(sac()),
        total_steps=TOTAL,
        warmup_steps=32,
        eval_every_steps=32,
        eval_episodes=4,
        log_every_steps=16,
        updates_per_step=0.5,
        capacity=400,
        seed=1 + rank,
    )
    return OffPolicyTrainer(reach.Reach(4, seed=rank), cfg, folder, eval_env=reach.Reach(4, 9))


def facts(trainer: OffPolicyTrainer) -> dict[str, object]:
    """The state of a training that the test compares."""
    networks = trainer.learner.state_dict()["networks"]
    return {
        "weights": {f"{one} {name}": value for one, of in networks.items() for name, value in of.items()},
        "states": trainer.replay.stored("state"),
        "steps": (trainer.done, trainer.env_steps, trainer.collector.env_steps),
        "rows": trainer.rows,
        "draws": torch.rand(4),
    }


def train(rank: int, folder: Path) -> dict[str, object]:
    """A training that is stopped and continued."""
    torch.manual_seed(1 + rank)
    trainer = trainer_of(rank, folder)

    def on_progress(progress):
        if processes.is_first() and progress.done >= STOPPED:
            trainer.stop()

    ended = [trainer.train(on_progress)]
    found = {"before": facts(trainer)}
    trainer = trainer_of(rank, folder)
    trainer.resume()
    found["resumed"] = facts(trainer)
    ended.append(trainer.train())
    return found | {"after": facts(trainer), "ended": ended}


def main(kind: str, folder: Path) -> None:
    place = launched()
    torch.set_num_threads(1)
    with processes.joined(place, "cpu"):
        found = updates(place.rank, place.count) if kind == "updates" else train(place.rank, folder / "run")
        torch.save(found, folder / f"{kind}-{place.rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""Imitation with a weight for each state: kept where corrections are good, given up where they are bad."""

import copy
import dataclasses

import torch

from gantry_policies.off_policy import presets
from gantry_policies.off_policy.config import TeachingCfg
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.teaching import imitation_loss, worth

SEED = 3


def one_step_problem(mode: str, good: float, bad: float) -> tuple[Learner, ReplayBuffer, ReplayBuffer]:
    """Episodes of one step: the state is -1 or 1, the reward -(action - 0.5)^2.

    At state 1 the person does ``good``, at state -1 ``bad``.
    """
    cfg = presets.hil_weighted().agent
    cfg = dataclasses.replace(cfg, teaching=TeachingCfg(mode=mode, young_updates=200), batch_size=64)
    learner = Learner(cfg, {"state": (1,)}, 1, seed=SEED)
    replay, taught = (ReplayBuffer(3000, 1, {"state": (1,)}, 1) for _ in "12")
    random = torch.Generator().manual_seed(SEED)
    for index in range(900):
        state = torch.tensor([[1.0 if index % 2 else -1.0]])
        by_person = index % 3 == 0
        tried = 2.0 * torch.rand(1, 1, generator=random) - 1.0
        shown = torch.tensor([[good if index % 2 else bad]]) + 0.02 * torch.randn(1, 1, generator=random)
        action = shown.clamp(-1.0, 1.0) if by_person else tried
        parts = (
            {"state": state},
            action,
            -(action - 0.5).square().reshape(1),
            {"state": state},
            torch.tensor([True]),
            torch.tensor([False]),
        )
        replay.add(*parts, is_intervention=torch.tensor([by_person]))
        if by_person:
            taught.add(*parts, is_intervention=torch.tensor([True]))
    return learner, replay, taught


def acts(learner: Learner) -> tuple[float, float]:
    """Deterministic actions at the states 1 and -1."""
    found = learner.act({"state": torch.tensor([[1.0], [-1.0]])})
    return float(found[0]), float(found[1])


def test_good_corrections_are_imitated_and_bad_ones_are_left():
    learner, replay, taught = one_step_problem("state", good=0.5, bad=-0.8)
    for _ in range(400):
        metrics = learner.update(replay, taught)
    at_good, at_bad = acts(learner)
    assert abs(at_good - 0.5) < 0.15, f"seed {SEED}"
    assert abs(at_bad - 0.5) < 0.3, f"seed {SEED}: the reward is best at 0.5, the person did -0.8"
    assert 0.0 < float(metrics["corrections_better"]) < 1.0


def test_what_was_shown_weighs_by_the_critics_verdict_once_the_critic_has_learned():
    cfg = TeachingCfg(mode="state", softness=0.1, young_updates=100)
    shown, own = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.5, 0.3, 1.0])
    assert worth(shown, own, 0, cfg).tolist() == [1.0, 1.0, 1.0]
    ripe = worth(shown, own, 100, cfg)
    torch.testing.assert_close(ripe, torch.tensor([0.5, 0.880797, 0.000045]), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(worth(shown, own, 50, cfg), 0.5 + 0.5 * ripe)
    own_action, shown_action = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    assert float(imitation_loss(own_action, shown_action, torch.tensor([1.0, 0.25]))) == 1.0


def test_nothing_but_imitation_does_what_was_shown_good_or_bad():
    learner, replay, taught = one_step_problem("only", good=0.5, bad=-0.8)
    for _ in range(400):
        learner.update(replay, taught)
    at_good, at_bad = acts(learner)
    assert abs(at_good - 0.5) < 0.1, f"seed {SEED}"
    assert abs(at_bad + 0.8) < 0.1, f"seed {SEED}"


def test_a_learner_with_weights_goes_on_where_it_was():
    learner, replay, taught = one_step_problem("state", good=0.5, bad=-0.8)
    for _ in range(5):
        learner.update(replay, taught)
    other, _, _ = one_step_problem("state", good=0.5, bad=-0.8)
    other.load_state_dict(copy.deepcopy(learner.state_dict()))
    assert acts(other) == acts(learner)
    one, two = (float(item.update(replay, taught)["actor_loss"]) for item in (learner, other))
    assert one == two

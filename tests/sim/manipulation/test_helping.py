"""A scripted person beside many arms: when help comes, how long, how often it is wrong, and that it helps."""

from dataclasses import replace

import pytest
import torch

from gantry_deploy.errors import TeleopError
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.layouts import lift_cfg
from gantry_sim.tasks.manipulation.persons.batch import PersonCfg, ScriptedCorrector

pytestmark = pytest.mark.usefixtures("one_thread")

N, DT_S = 8, 0.05


def watched(cfg, steps, seed=3, stands_still=True, count=N, **options):
    """Where a person acts, (steps, N) bool, beside a policy that does nothing."""
    env = ArmStepEnv(replace(lift_cfg(), num_envs=count, **options), seed=11)
    person = ScriptedCorrector(env, cfg, seed)
    obs, acts, wins = env.reset(), [], 0
    person.reset()
    idle = torch.zeros(count, env.action_size)
    idle[:, -1] = 1.0
    for _ in range(steps):
        takes, theirs = person.decide(obs, idle)
        acts.append(takes)
        held = takes if not stands_still else torch.zeros_like(takes)
        step = env.step(torch.where(held[:, None], theirs, idle))
        ended = (step.terminated | step.truncated).nonzero().squeeze(1)
        if ended.numel():
            person.reset(ended)
        wins += int(step.success.sum())
        obs = step.obs
    env.close()
    return torch.stack(acts), person.help, wins


def test_help_comes_after_patience_and_reaction_and_not_before():
    cfg = PersonCfg(patience_s=0.5, reaction_s=0.2, most_s=0.3, least_s=0.1)
    acts, help_, _ = watched(cfg, 40)
    first = acts.int().argmax(0)
    # Progress is seen in the first step; then 10 steps of patience, and the reaction's 4 end with the motion.
    assert first.tolist() == [14] * N
    # Longest correction: six steps; nothing is better, since nobody moves the arm here but the policy.
    assert acts[14:20].all()
    assert not acts[20:34].any()
    assert acts[35].all(), "stalled again"
    assert help_.corrections == 2 * N
    assert help_.wrong_ones == 0


def test_a_share_of_the_corrections_is_wrong():
    cfg = PersonCfg(patience_s=0.1, reaction_s=0.0, most_s=0.1, least_s=0.05, wrong=0.3)
    _, help_, _ = watched(cfg, 90, count=16)
    assert help_.corrections > 200
    share = help_.wrong_ones / help_.corrections
    assert abs(share - 0.3) < 4.0 * (0.3 * 0.7 / help_.corrections) ** 0.5, help_.wrong_ones


def test_help_ends_with_success_and_wrong_help_does_not():
    found = [
        watched(PersonCfg(patience_s=0.2, most_s=5.0, shake=0.0, enough=1.0, wrong=wrong), 95, stands_still=False)
        for wrong in (0.0, 1.0)
    ]
    (acts, help_, good), (_, _, bad) = found
    assert good >= N
    assert help_.corrections >= good
    assert 0.2 < float(acts.float().mean()) < 0.9
    assert bad < 0.5 * good


def test_an_inattentive_person_watches_some_attempts():
    acts, help_, _ = watched(PersonCfg(patience_s=0.1, attention=0.0), 30)
    assert not acts.any()
    assert help_.corrections == 0


def test_one_arm_is_enough_and_odd_numbers_are_refused():
    acts, _, _ = watched(PersonCfg(patience_s=0.2, reaction_s=0.0), 20, count=1)
    assert acts.shape == (20, 1)
    assert acts.any()
    with pytest.raises(TeleopError, match="expected a share"):
        PersonCfg(wrong=1.5)

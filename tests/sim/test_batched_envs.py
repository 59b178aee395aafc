"""Environments as every algorithm sees them: true last observations, ends told apart, and PPO's view of them."""

from dataclasses import replace

import pytest
import torch

from gantry_policies.common.batched_env import EnvStep
from gantry_policies.common.evaluation import evaluate
from gantry_sim.driving.env import DriveEnv
from gantry_sim.envs.rsl_rl import BatchedVecEnv
from gantry_sim.tasks.registry import find_task, from_flat

pytestmark = pytest.mark.usefixtures("one_thread")


class Counter:
    """Two environments that show their age; the first succeeds at 2, the second runs out of time at 3."""

    num_envs, device, action_size, max_episode_steps, dt_s = 2, "cpu", 1, 3, 0.1
    obs_shapes = {"state": (1,)}  # noqa: RUF012
    keep_final_obs = True

    def reset(self):
        self.age = torch.zeros(2, 1)
        return {"state": self.age.clone()}

    def step(self, action):
        self.age = self.age + 1.0
        last = self.age.clone()
        won = torch.tensor([self.age[0, 0] == 2.0, False])
        late = torch.tensor([False, self.age[1, 0] == 3.0])
        self.age[won | late] = 0.0
        obs = {"state": self.age.clone()}
        return EnvStep(obs, {"state": last}, won.float(), won, late, won)

    def close(self):
        pass


def test_ppo_is_told_of_ends_and_of_time_running_out():
    env = BatchedVecEnv(Counter())
    seen = [env.get_observations()["actor"].flatten().tolist()]
    dones, late = [], []
    for _ in range(3):
        obs, _, done, extras = env.step(torch.zeros(2, 1))
        seen.append(obs["actor"].flatten().tolist())
        dones.append(done.tolist())
        late.append(extras["time_outs"].tolist())
    assert seen == [[0.0, 0.0], [1.0, 1.0], [0.0, 2.0], [1.0, 0.0]]
    assert dones == [[0, 0], [1, 0], [0, 1]]
    assert late == [[False, False], [False, False], [False, True]]
    assert torch.equal(obs["critic"], obs["actor"]), "without one of its own the critic reads what the actor reads"
    assert (env.step_metrics(), env.training_state()) == ({}, {})


def test_pictures_are_groups_of_their_own():
    class Seeing(Counter):
        obs_shapes = {"state": (1,), "image/front": (3, 8, 8)}  # noqa: RUF012

        def reset(self):
            return super().reset() | {"image/front": torch.full((2, 3, 8, 8), 7, dtype=torch.uint8)}

    seen = BatchedVecEnv(Seeing()).get_observations()
    assert set(seen.keys()) == {"actor", "critic", "image/front"}
    assert seen["image/front"].dtype == torch.uint8


def test_scores_count_whole_episodes():
    found = evaluate(Counter(), from_flat(lambda obs: torch.zeros(2, 1))(None), 4)
    assert (found.success_once.mean, found.steps_to_success, found.mean_steps) == (0.5, 2.0, 2.5)


def walked(keep):
    """First observation and 120 steps of four robots whose legs fold."""
    torch.manual_seed(5)
    task = find_task("velocity-flat-go2")
    cfg = replace(task.preset("cpu").env, num_envs=4, noise=None, episode_s=2.0, push_m_s=0.0)
    env = task.make_env(cfg, "cpu", 3)
    env.keep_final_obs = keep
    return [env.reset()["state"].clone()], [env.step(torch.full((4, 12), 2.0)) for _ in range(120)]


def test_the_last_observation_of_a_walk_is_what_it_ended_in_and_not_how_the_next_begins():
    """Keeping last observations changes nothing else: both go the same way, noise being off."""
    (first, plain), (same, keeping) = walked(False), walked(True)
    assert torch.equal(first[0], same[0])
    ended = 0
    for one, other in zip(plain, keeping, strict=True):
        torch.testing.assert_close(one.obs["state"], other.obs["state"])
        assert torch.equal(one.terminated, other.terminated)
        over = other.terminated | other.truncated
        assert not (other.terminated & other.truncated).any()
        assert torch.equal(other.next_obs["state"][~over], other.obs["state"][~over])
        ended += int(over.sum())
        for row in over.nonzero().flatten().tolist():
            assert not torch.allclose(other.next_obs["state"][row], other.obs["state"][row])
    assert ended > 0


def test_the_last_observation_of_a_drive_is_where_it_ended():
    task = find_task("drive-lane")
    cfg = replace(task.preset("cpu").env, num_envs=6, map_count=2, noise=None, episode_s=4.0)
    plain, keeping = DriveEnv(cfg, seed=2), DriveEnv(cfg, seed=2)
    keeping.keep_final_obs = True
    assert torch.equal(plain.reset()["state"], keeping.reset()["state"])
    action = torch.tensor([[0.1, 0.6]]).expand(6, 2)
    ended = 0
    for _ in range(60):
        speed_before = keeping.cars.speed_m_s.clone()
        one, other = plain.step(action), keeping.step(action)
        assert torch.equal(one.obs["state"], other.obs["state"])
        over = other.terminated | other.truncated
        ended += int(over.sum())
        last = other.next_obs["state"]
        assert torch.equal(last[~over], other.obs["state"][~over])
        for row in over.nonzero().flatten().tolist():
            assert speed_before[row] > 0.0
            assert not torch.equal(last[row], other.obs["state"][row])
    assert ended > 0

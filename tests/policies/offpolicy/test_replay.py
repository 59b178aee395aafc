"""The replay buffer against a plain list of episodes, and its samples against numbers by hand."""

import pytest
import torch

from gantry_policies.off_policy.replay.batches import Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer, ReplayError
from gantry_policies.off_policy.replay.mixing import sample_two

SHAPES = {"state": (2,), "image/front": (1, 2, 2)}


def frame(env, number):
    """An observation that says which one it is."""
    return {
        "state": torch.tensor([float(env), float(number)]),
        "image/front": torch.full((1, 2, 2), (number * 7 + env) % 256, dtype=torch.uint8),
    }


def stack(frames):
    return {key: torch.stack([one[key] for one in frames]) for key in frames[0]}


def put_episode(buffer, rewards, first=0, terminated=True):
    """An episode whose observations are numbered from ``first``."""
    steps = len(rewards)
    obs = stack([frame(0, first + i) for i in range(steps + 1)])
    buffer.add_episode(obs, torch.arange(steps)[:, None] / 100, torch.tensor(rewards), terminated)


def one_env(capacity=64, **options):
    return ReplayBuffer(capacity, 1, SHAPES, 1, **options)


def test_trap_6_returns_and_discounts_at_the_end_of_an_episode_by_hand():
    buffer = one_env()
    put_episode(buffer, [1.0, 2.0, 4.0, 8.0])
    batch = buffer.gather(torch.arange(4), Lookahead(3, 0.5))
    # 1 + 2 / 2 + 4 / 4; 2 + 4 / 2 + 8 / 4; 4 + 8 / 2; 8
    assert batch.returns.tolist() == [3.0, 6.0, 8.0, 8.0]
    assert batch.discount.tolist() == [0.125, 0.0, 0.0, 0.0]
    assert batch.next_obs["state"][:, 1].tolist() == [3.0, 4.0, 4.0, 4.0]


def test_trap_6_a_reward_at_the_last_step_alone_reaches_n_steps_back_and_no_further():
    buffer = one_env()
    put_episode(buffer, [0.0] * 5 + [1.0])
    batch = buffer.gather(torch.arange(6), Lookahead(3, 0.9))
    assert batch.returns.tolist() == pytest.approx([0.0, 0.0, 0.0, 0.81, 0.9, 1.0])
    assert batch.discount.tolist() == pytest.approx([0.729, 0.729, 0.729, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("terminal", [False, True])
def test_trap_6_out_of_time_bootstraps_from_the_true_last_observation_with_the_steps_that_there_were(terminal):
    buffer = one_env()
    put_episode(buffer, [1.0, 1.0, 1.0], terminated=False)
    put_episode(buffer, [5.0, 5.0], first=50)
    batch = buffer.gather(torch.tensor([0, 1, 2]), Lookahead(2, 0.5, timeout_is_terminal=terminal))
    assert batch.returns.tolist() == [1.5, 1.5, 1.0]
    assert batch.next_obs["state"][:, 1].tolist() == [2.0, 3.0, 3.0]
    assert batch.discount.tolist() == ([0.25, 0.0, 0.0] if terminal else [0.25, 0.25, 0.5])


def test_trap_7_no_window_goes_on_past_a_reset_between_phases():
    buffer = one_env()

    def step(number, next_number):
        no = torch.tensor([False])
        obs, next_obs = stack([frame(0, number)]), stack([frame(0, next_number)])
        buffer.add(obs, torch.zeros(1, 1), torch.ones(1), next_obs, no, no)

    step(0, 1), step(1, 2)
    buffer.end_episodes()
    # The new episode begins with the very observation that the old one was left at.
    step(2, 3), step(3, 4)
    batch = buffer.gather(buffer.transitions(), Lookahead(5, 0.5))
    assert batch.returns.tolist() == [1.5, 1.0, 1.5, 1.0]
    assert batch.discount.tolist() == [0.25, 0.5, 0.25, 0.5]
    assert batch.next_obs["state"][:, 1].tolist() == [2.0, 2.0, 4.0, 4.0]


class Life:
    """Random ends, resets, steps of some environments alone, data that does not follow; a plain list is told too."""

    def __init__(self, buffer):
        self.buffer, envs = buffer, range(buffer.num_envs)
        self.number, self.episodes = [0 for _ in envs], [[[]] for _ in envs]

    def act(self, env):
        return torch.tensor([env * 0.1 + self.number[env] * 1e-4])

    def see(self, envs):
        return [frame(env, self.number[env]) for env in envs], [self.act(env) for env in envs]

    def turn(self, turn):
        envs = [env for env in range(len(self.number)) if torch.rand(()) < 0.8]
        if not envs:
            return
        ids = torch.tensor(envs)
        for env in envs:
            if turn % 37 == 20:
                self.episodes[env].append([])
            if turn % 41 == 30:  # what comes now does not follow, and nobody says so
                self.number[env] += 100
                self.episodes[env].append([])
        if turn % 37 == 20:
            self.buffer.end_episodes(ids)
        reward, kind = torch.rand(len(envs)), torch.rand(len(envs))
        terminated, truncated = kind < 0.1, kind > 0.85
        now, now_base = self.see(envs)
        for env in envs:
            self.number[env] += 1
        then, then_base = self.see(envs)
        self.buffer.add(
            stack(now), torch.stack(now_base) * 2, reward, stack(then), terminated, truncated,
            base_action=torch.stack(now_base), next_base_action=torch.stack(then_base), env_ids=ids,
        )  # fmt: skip
        for row, env in enumerate(envs):
            self.episodes[env][-1].append((now[row], reward[row], terminated[row], then[row], then_base[row]))
            if terminated[row] or truncated[row]:
                self.number[env] += 1000
                self.episodes[env].append([])

    def steps_from(self, env, number, count):
        """The next steps of an episode, of those that there are."""
        for episode in self.episodes[env]:
            for place, step in enumerate(episode):
                if step[0]["state"][1] == number:
                    return episode[place : place + count]
        raise AssertionError(f"{env} never saw {number}")


@pytest.mark.parametrize("turns", [12, 60, 160])
def test_every_sample_agrees_with_a_plain_list_of_episodes_while_rings_come_round(turns):
    torch.manual_seed(3)
    buffer = ReplayBuffer(3 * 17, 3, SHAPES, 1, with_base=True)
    life = Life(buffer)
    for turn in range(turns):
        life.turn(turn)
    slots = buffer.transitions()
    batch = buffer.gather(slots, Lookahead(4, 0.8))
    assert len(slots) == len(buffer) > (20 if turns < 20 else 30)
    for row in range(len(slots)):
        env, at = (int(value) for value in batch.obs["state"][row])
        steps = life.steps_from(env, at, 4)
        expected = sum(0.8**k * float(step[1]) for k, step in enumerate(steps))
        assert float(batch.returns[row]) == pytest.approx(expected, rel=1e-5)
        assert float(batch.discount[row]) == pytest.approx(0.0 if steps[-1][2] else 0.8 ** len(steps), rel=1e-5)
        for key in SHAPES:
            assert torch.equal(batch.obs[key][row], steps[0][0][key])
            assert torch.equal(batch.next_obs[key][row], steps[-1][3][key])
        assert torch.equal(batch.next_base_action[row], steps[-1][4])
        assert torch.equal(batch.action[row], 2 * batch.base_action[row])
    kept = {(int(env), int(at)) for env, at in batch.obs["state"].tolist()}
    for env, episodes in enumerate(life.episodes):
        newest = [step for episode in episodes for step in episode][-10:]
        assert {(env, int(step[0]["state"][1])) for step in newest} <= kept


def test_a_frame_that_goes_on_is_stored_once_and_memory_is_bounded():
    buffer = one_env(capacity=11)
    bytes_a_frame = 2 * 4 + 4 + (4 + 4 + 4 + 4 + 5)
    assert buffer.nbytes == 11 * bytes_a_frame
    put_episode(buffer, [0.0] * 10)
    assert len(buffer) == 10  # eleven frames, ten transitions, with every next image
    for first in range(100, 1000, 100):
        put_episode(buffer, [0.0] * 6, first=first)
    assert buffer.nbytes == 11 * bytes_a_frame
    assert buffer.gather(buffer.transitions(), Lookahead(1, 0.9)).obs["state"][:, 1].max() == 905


def test_draws_are_uniform_over_transitions_and_never_hit_a_last_frame():
    buffer = one_env()
    for first in (0, 10, 20):
        put_episode(buffer, [0.0, 0.0, 1.0], first=first)
    seen = buffer.sample(9000, Lookahead(1, 0.9), torch.Generator().manual_seed(0)).obs["state"][:, 1]
    values, counts = seen.unique(return_counts=True)
    assert values.tolist() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert counts.min() > 850  # 1000 each, standard deviation 30
    assert counts.max() < 1150


def test_symmetric_sampling_takes_its_share_from_each_buffer():
    online, demos = one_env(), one_env()
    put_episode(online, [0.0] * 4)
    demos.add_episode(stack([frame(0, i) for i in range(3)]), torch.zeros(2, 1), torch.ones(2), True, is_demo=True)
    draw = torch.Generator().manual_seed(0)
    batch = sample_two(online, demos, 10, 0.3, Lookahead(1, 0.9), draw)
    assert batch.returns[:7].tolist() == [0.0] * 7
    assert batch.returns[7:].tolist() == [1.0] * 3
    assert sample_two(online, None, 10, 0.3, Lookahead(1, 0.9), draw).returns.tolist() == [0.0] * 10
    assert sample_two(online, demos, 10, 1.0, Lookahead(1, 0.9), draw).returns.tolist() == [1.0] * 10


def test_who_acted_is_remembered():
    buffer = ReplayBuffer(20, 2, {"state": (2,)}, 1)
    zeros, no = {"state": torch.zeros(2, 2)}, torch.tensor([False, False])
    person = torch.tensor([False, True])
    buffer.add(zeros, torch.zeros(2, 1), torch.zeros(2), zeros, no, no, is_intervention=person)
    batch = buffer.gather(buffer.transitions(), Lookahead(1, 0.9))
    assert (batch.is_intervention.tolist(), batch.is_demo.tolist()) == ([False, True], [False, False])


def test_what_is_saved_goes_on_exactly(tmp_path):
    buffer, other = one_env(capacity=12), one_env(capacity=12)
    put_episode(buffer, [0.5] * 7)
    no = torch.tensor([False])
    buffer.add(stack([frame(0, 40)]), torch.zeros(1, 1), torch.ones(1), stack([frame(0, 41)]), no, no)
    buffer.save(tmp_path / "replay.npz")
    other.load(tmp_path / "replay.npz")
    for one in (buffer, other):  # goes on in the open episode
        one.add(stack([frame(0, 41)]), torch.zeros(1, 1), torch.ones(1), stack([frame(0, 42)]), no, no)
    batches = [one.sample(50, Lookahead(3, 0.9), torch.Generator().manual_seed(5)) for one in (buffer, other)]
    for name in ("action", "returns", "discount", "is_demo"):
        assert torch.equal(getattr(batches[0], name), getattr(batches[1], name))
    assert torch.equal(batches[0].next_obs["image/front"], batches[1].next_obs["image/front"])
    assert len(buffer) == len(other) == 9


def test_files_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "replay.npz"
    with pytest.raises(ReplayError, match="Cannot read"):
        one_env().load(path)
    put_episode(buffer := one_env(), [1.0])
    buffer.save(path)
    with pytest.raises(ReplayError, match=r"64 frames of 1 .*here: 12 frames"):
        one_env(capacity=12).load(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ReplayError, match="Cannot read"):
        one_env().load(path)


def test_errors_say_what_is_wrong():
    with pytest.raises(ReplayError, match="2 frames is too little for 1"):
        one_env(capacity=2)
    with pytest.raises(ReplayError, match="empty"):
        one_env().sample(3, Lookahead(1, 0.9), torch.Generator())
    zeros = {key: torch.zeros(1, *shape) for key, shape in SHAPES.items()}
    no = torch.tensor([False])
    with pytest.raises(ReplayError, match="does not store any"):
        one_env().add(zeros, torch.zeros(1, 1), torch.zeros(1), zeros, no, no, base_action=torch.zeros(1, 1))
    with pytest.raises(ReplayError, match="9 steps does not fit a ring of 9"):
        put_episode(one_env(capacity=9), [0.0] * 9)

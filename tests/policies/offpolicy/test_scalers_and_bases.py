"""Ranges by hand, and whose turn it is in a chunk."""

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_policies.off_policy.bases import ChunkedBase
from gantry_policies.off_policy.replay.batches import Lookahead
from gantry_policies.off_policy.replay.demos import Demo, base_actions, demo_buffer
from gantry_policies.off_policy.scalers import ActionScaler, StateScaler


def test_a_range_is_floored_and_widened_by_the_largest_correction():
    scaler = ActionScaler(3)
    data = torch.tensor([[0.0, 0.5, -2.0], [0.4, 0.5, 2.0]])
    scaler.fit(data, action_scale=0.2, limit=None)
    # Half ranges 0.2, 0 and 2, of which the second is floored at 0.05.
    assert scaler.half_range.tolist() == pytest.approx([0.24, 0.06, 2.4])
    assert scaler.center.tolist() == pytest.approx([0.2, 0.5, 0.0])
    # Demonstrated actions are within 1 / (1 + action_scale), and a correction of action_scale takes them out.
    assert scaler.scale(data).abs().max().item() == pytest.approx(1 / 1.2)
    scaled = scaler.scale(data[1]) + 0.2 / 1.2
    assert scaler.unscale(scaled)[0].item() == pytest.approx(0.4 + 0.2 * 0.2)
    assert torch.allclose(scaler.unscale(scaler.scale(data)), data)
    assert scaler.scale(torch.full((3,), 9.0)).tolist() == [1.0, 1.0, 1.0]
    assert scaler.unscale(torch.full((3,), 9.0)).tolist() == pytest.approx([0.44, 0.56, 2.4])


def test_a_widened_range_ends_where_the_environment_does():
    scaler = ActionScaler(2)
    scaler.fit(torch.tensor([[-1.0, -0.5], [1.0, 0.95]]), action_scale=0.2)
    assert scaler.unscale(torch.ones(2)).tolist() == pytest.approx([1.0, 1.0])
    assert scaler.unscale(-torch.ones(2)).tolist() == pytest.approx([-1.0, 0.225 - 0.725 * 1.2])
    with pytest.raises(GantryError, match=r"go from -3 to 0, expected -1\.0 to 1\.0"):
        scaler.fit(torch.tensor([[-3.0, 0.0], [0.0, 0.0]]), 0.2)
    with pytest.raises(GantryError, match="no actions"):
        scaler.fit(torch.zeros(0, 2), 0.2)


def test_states_are_standardised_and_what_stands_still_is_not_blown_up():
    scaler = StateScaler(2)
    scaler.fit(torch.tensor([[0.0, 5.0], [4.0, 5.001]]))
    assert scaler(torch.tensor([[4.0, 5.1005]]))[0].tolist() == pytest.approx([1.0, 1.0], abs=1e-3)


class Counting:
    """Plans chunks that say how many were planned, for which observation, and which step it is."""

    def __init__(self, steps=3):
        self.steps, self.planned = steps, 0

    def __call__(self, obs):
        self.planned += 1
        seen = obs["state"][:, 0]
        chunk = [torch.stack((seen, torch.full_like(seen, float(i))), dim=-1) for i in range(self.steps)]
        return torch.stack(chunk, dim=1) / 100


def see(*values):
    return {"state": torch.tensor([[float(value)] for value in values])}


def test_a_chunk_is_executed_open_loop_by_each_environment_on_its_own():
    base = ChunkedBase(Counting(5), num_envs=2, execute=2)
    acted = []
    for time in range(4):
        if time == 1:
            base.reset(torch.tensor([1]))
        acted.append((base.act(see(10 + time, 20 + time)) * 100).round().tolist())
    assert acted == [
        [[10, 0], [20, 0]],
        [[10, 1], [21, 0]],  # the second one was reset, and planned again for what it saw then
        [[12, 0], [21, 1]],
        [[12, 1], [23, 0]],
    ]


def test_trap_8_peeking_uses_nothing_up_and_stores_nothing():
    chunk = Counting(2)
    base = ChunkedBase(chunk, num_envs=2)
    assert (base.peek(see(1, 2)) * 100).round().tolist() == [[1, 0], [2, 0]]
    assert (base.act(see(5, 6)) * 100).round().tolist() == [[5, 0], [6, 0]]
    for _ in range(3):
        assert (base.peek(see(8, 9)) * 100).round().tolist() == [[5, 1], [6, 1]]
    assert (base.peek(see(9), torch.tensor([1])) * 100).round().tolist() == [[6, 1]]
    assert (base.act(see(8, 9)) * 100).round().tolist() == [[5, 1], [6, 1]]
    planned = chunk.planned
    # Now both queues are empty: a look plans for what is given, and the next action for what is seen then.
    assert (base.peek(see(3), torch.tensor([1])) * 100).round().tolist() == [[3, 0]]
    assert (base.act(see(7, 8)) * 100).round().tolist() == [[7, 0], [8, 0]]
    assert chunk.planned == planned + 2


def demo(first, steps, terminated=True):
    states = torch.arange(first, first + steps + 1.0)[:, None] / 1
    return Demo({"state": states}, torch.zeros(steps, 2), torch.zeros(steps), terminated)


@pytest.mark.parametrize("num_envs", [1, 2, 5])
def test_trap_2_the_base_is_reset_at_the_beginning_of_every_demonstration(num_envs):
    base = ChunkedBase(Counting(3), num_envs)
    base.act(see(*[0] * num_envs))  # something is left in the queues
    labels = base_actions([demo(10, 4), demo(50, 2), demo(70, 5)], base)
    labels = [[[round(x * 100) for x in row] for row in rows.tolist()] for rows in labels]
    # Observation of the chunk, and step in it; at the last frame the queue is looked into, or a chunk planned if empty.
    assert labels[0] == [[10, 0], [10, 1], [10, 2], [13, 0], [13, 1]]
    assert labels[1] == [[50, 0], [50, 1], [50, 2]]
    assert labels[2] == [[70, 0], [70, 1], [70, 2], [73, 0], [73, 1], [73, 2]]


def test_demonstrations_become_transitions_with_the_bases_scaled_actions():
    scaler = ActionScaler(2)
    scaler.fit(torch.tensor([[-0.5, -0.5], [0.5, 0.5]]), 0.0)
    one = Demo(see(10, 11), torch.full((2, 2), 0.25), torch.tensor([0.0, 1.0]))
    buffer = demo_buffer([one, demo(50, 2, terminated=False)], scaler, ChunkedBase(Counting(3), 1))
    batch = buffer.gather(buffer.transitions(), Lookahead(2, 0.9))
    assert batch.is_demo.all()
    assert batch.action[0].tolist() == [0.5, 0.5]
    assert batch.returns.tolist() == pytest.approx([0.9, 1.0, 0.0, 0.0])
    assert batch.discount.tolist() == pytest.approx([0.0, 0.0, 0.81, 0.9])
    assert batch.base_action[:, 0].tolist() == pytest.approx([0.2, 0.2, 1.0, 1.0])  # 0.1 and 0.5 of half a unit
    assert batch.base_action[:, 1].tolist() == pytest.approx([0.0, 0.02, 0.0, 0.02])
    assert batch.next_base_action[2:, 1].tolist() == pytest.approx([0.04, 0.04])


def test_errors_say_what_is_wrong():
    with pytest.raises(GantryError, match=r"has 3 actions.*expected 3 rewards and one of \[4\] observations"):
        Demo(see(1, 2, 3), torch.zeros(3, 2), torch.zeros(3), terminated=False)
    with pytest.raises(GantryError, match=r"shape \(1, 2, 2\), expected \(1, 3 or more, n\)"):
        ChunkedBase(Counting(2), 1, execute=3).act(see(1))
    with pytest.raises(GantryError, match="execute is 0"):
        ChunkedBase(Counting(2), 1, execute=0)
    with pytest.raises(GantryError, match="no demonstrations"):
        demo_buffer([], ActionScaler(2))

"""What driving is worth: factors and terms against numbers worked out by hand."""

from dataclasses import replace

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.driving.reward import FACTORS, TERMS, RewardCfg, make_reward

from .conftest import facts

DT_S = 0.1
ALL = torch.tensor([0, 1])


def made(episode_s=40.0, **changes):
    return make_reward(RewardCfg(**changes), 2, DT_S, episode_s)


def test_a_route_without_fault_is_worth_a_hundred():
    reward = made()
    whole = sum(reward(facts())[0] for _ in range(200))
    torch.testing.assert_close(whole, torch.full((2,), 100.0))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"off_route": [True, False]}, [0.0, 0.5]),
        ({"speed_m_s": [12.0 + 2.23 / 4, 12.0 + 5.0]}, [0.5 * 0.75, 0.0]),
        ({"lane_share": [0.25, -0.25]}, [0.375, 0.375]),
        ({"lane_share": [1.5, 1.5], "in_junction": [True, False]}, [0.5, 0.0]),
        ({"fault": [True, False]}, [-0.5, 0.5]),
        ({"near_collision": [True, False]}, [0.25, 0.5]),
    ],
)
def test_factors_by_hand(change, expected):
    given, factors = made()(facts(**change))
    torch.testing.assert_close(given, torch.tensor(expected))
    assert tuple(factors) == FACTORS


def test_a_near_collision_counts_for_a_quarter_of_the_episode_or_fifty_seconds():
    for episode_s, steps in ((40.0, 100), (400.0, 500)):
        reward = made(episode_s)
        seen = [reward(facts(near_collision=[i == 0, False]))[0][0].item() for i in range(steps + 1)]
        assert seen == pytest.approx([0.25] * steps + [0.5])


def test_discomfort_costs_a_twelfth_for_each_limit_and_is_told_to_the_critic():
    reward = made()
    felt = torch.zeros(2, 6, dtype=torch.bool)
    felt[0, 1] = felt[0, 4] = True
    given, _ = reward(facts(discomfort=felt))
    assert given.tolist() == pytest.approx([0.5 * (1 - 2 / 12), 0.5])
    assert reward.remembered[0].tolist() == pytest.approx([0, 0, 1, 0, 0, 1, 0])
    reward(facts())
    assert reward.remembered[0, 2].item() == pytest.approx(0.99)
    reward.reset(torch.tensor([0]))
    assert not reward.remembered.any()


def test_it_goes_on_where_it_was():
    first, second = made(), made()
    first(facts(near_collision=[True, False]))
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(first(facts())[0], second(facts())[0])


def test_a_lane_that_may_be_left_costs_nothing():
    assert made(lane=False)(facts(lane_share=[0.9, 0.0]))[0].tolist() == [0.5, 0.5]


def test_the_additive_kind_by_hand():
    given, terms = made(kind="additive")(
        facts(
            speed_m_s=[9.0, 6.0],
            safe_speed_m_s=[12.0, 0.0],
            lane_share=[0.5, 0.0],
            heading_error_rad=[0.1, -0.2],
            steer_change=[0.02, 0.0],
            fault=[False, True],
        )
    )
    assert tuple(terms) == TERMS
    assert given.tolist() == pytest.approx([0.75 - 0.25 - 0.1 - 0.1, 0.5 - 0.2 - 7.0])


def test_what_makes_no_sense_is_refused():
    with pytest.raises(GantryError, match=r"Unknown env.reward.kind.*additive.*multiplicative"):
        RewardCfg(kind="sum")
    with pytest.raises(GantryError, match="near_collision is 2"):
        replace(RewardCfg(), near_collision=2)

"""The way that a car has to go: lengths known from geometry, what stands in the way, and a driver that follows it."""

import math
from dataclasses import replace

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.driving.drivers.cost_to_go import CostToGo
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import drive_episodes
from gantry_sim.driving.maps.bank import LotBank, lot_bank
from gantry_sim.driving.maps.lots import parking_lot
from gantry_sim.driving.maps.projection import wrapped
from gantry_sim.driving.park_cfg import ParkCfg, WayCfg
from gantry_sim.driving.vehicle.actuation import CarRandomization
from gantry_sim.tasks.registry import find_task

SPEC = ParkCfg().driver
FREE = WayCfg(change_m=0.0)
PLAIN = ParkCfg(num_envs=4, map_count=4, noise=None, randomization=CarRandomization(), near_share=0.0)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


def lot_of(boxes=(), size_m=40.0, turned_rad=0.0):
    """A slot along an aisle that lies to its left, in a wide square of walls; boxes beside the slot's own axes."""

    def placed(x, y, yaw=0.0):
        cos, sin = math.cos(turned_rad), math.sin(turned_rad)
        return [cos * x - sin * y, sin * x + cos * y, yaw + turned_rad]

    half = 0.5 * size_m
    corners = [placed(x, y)[:2] for x, y in ((-half, -half), (half, -half), (half, half), (-half, half))]
    walls = [[*a, *b] for a, b in zip(corners, corners[1:] + corners[:1], strict=True)]
    rows = [[*placed(x, y, yaw), length, width] for x, y, yaw, length, width in boxes] or [[1e3, 0.0, 0.0, 1.0, 1.0]]
    return LotBank(
        goal=torch.tensor([[*placed(0.0, 0.0), 6.6, 2.7]]),
        boxes=torch.tensor([rows]),
        taken=torch.tensor([[bool(boxes)] * len(rows)]),
        walls=torch.tensor([walls]),
        start=torch.tensor([[*placed(0.0, 5.0), 20.0, 8.0]]),
        digest="",
    )


def away(ways, *poses):
    """The way from poses beside the goal, in its own axes."""
    x, y, turn = torch.tensor(poses).unbind(-1)
    goal = ways.goal[0]
    cos, sin = torch.cos(goal[2]), torch.sin(goal[2])
    pose = torch.stack((goal[0] + cos * x - sin * y, goal[1] + sin * x + cos * y, goal[2] + turn), dim=1)
    return ways.distance_to_go_m(pose, torch.zeros(len(pose), dtype=torch.int64))


@pytest.fixture(scope="module")
def empty():
    """Nothing around."""
    return CostToGo(lot_of(turned_rad=0.7), SPEC, FREE)


def test_tables_do_not_depend_on_the_order_in_which_lots_are_asked_for():
    """A training that goes on asks in another order than one that was never interrupted."""
    bank = lot_bank([parking_lot(seed) for seed in range(10)], "cpu")
    coarse = WayCfg(cell_m=0.5, headings=36, reach_m=4.0)
    one, other = CostToGo(bank, SPEC, coarse), CostToGo(bank, SPEC, coarse)
    pose, lots = one.goal + torch.tensor([1.0, 2.0, 0.3]), torch.arange(10)
    backwards = torch.cat(
        [other.distance_to_go_m(pose[lot : lot + 1], lots[lot : lot + 1]) for lot in reversed(range(10))]
    )
    assert torch.equal(one.distance_to_go_m(pose, lots), backwards.flip(0))


def test_at_the_goal_there_is_no_way_left_and_straight_ways_cost_their_length(empty):
    assert away(empty, (0.0, 0.0, 0.0)).item() == pytest.approx(0.0, abs=0.01)
    for x in (0.3, 1.0, 2.5, 6.0, -0.3, -1.7, -6.0):
        assert away(empty, (x, 0.0, 0.0)).item() == pytest.approx(abs(x), abs=0.05)


def test_a_quarter_turn_costs_its_arc_and_so_does_turning_on_the_spot(empty):
    # A turn by an angle takes R times the angle at least; Reeds and Shepp's three arcs on the spot take no more.
    radius, quarter = empty.radius_m, 0.5 * math.pi
    assert radius == pytest.approx(SPEC.wheelbase_m / math.tan(0.8 * SPEC.steering_limit_rad))
    arc = away(empty, (-radius, radius, -quarter), (radius, radius, quarter)).tolist()
    # Interpolation makes ways longer, by some two metres where a car comes to the goal out of a bend.
    assert 0.97 * quarter * radius < min(arc) <= max(arc) < quarter * radius + 2.0
    assert arc[0] == pytest.approx(arc[1], abs=0.05)
    spot = away(empty, (0.0, 0.0, math.pi)).item()
    assert 0.97 * math.pi * radius < spot < math.pi * radius + 2.5


def test_beside_the_slot_it_is_far_longer_than_straight_and_no_longer_than_out_and_back(empty):
    for aside in (1.0, 2.0, 3.0):
        # Two arcs ahead, one to each side, and straight back.
        turn = math.acos(1.0 - 0.5 * aside / empty.radius_m)
        out_and_back = 2.0 * empty.radius_m * (turn + math.sin(turn))
        assert 2.0 * aside < away(empty, (0.0, aside, 0.0)).item() < 1.05 * out_and_back


def test_a_change_of_direction_costs_what_is_asked(empty):
    dear = CostToGo(lot_of(turned_rad=0.7), SPEC, replace(FREE, change_m=2.0))
    assert away(dear, (-3.0, 0.0, 0.0)).item() == pytest.approx(3.0, abs=0.05)
    once = away(dear, (0.0, 2.0, 0.0)) - away(empty, (0.0, 2.0, 0.0))
    assert 2.0 - 0.2 < once.item() < 4.0 + 0.2
    goal, lot = dear.goal, torch.zeros(1, dtype=torch.int64)
    behind = goal - 3.0 * torch.tensor([[math.cos(0.7), math.sin(0.7), 0.0]])
    ahead, back = dear.both_ways(behind, lot)[0].tolist()
    assert back - ahead == pytest.approx(2.0, abs=0.05)


def test_no_way_is_shorter_than_the_straight_line_and_all_are_finite(empty):
    draw = torch.Generator().manual_seed(3)
    pose = torch.cat((60.0 * torch.rand(4000, 2, generator=draw) - 30.0, 20.0 * torch.rand(4000, 1, generator=draw)), 1)
    lot = torch.zeros(4000, dtype=torch.int64)
    blocked = CostToGo(lot_of([(6.0, 0.0, 0.0, 4.5, 1.8), (-6.0, 0.0, 0.0, 4.5, 1.8)]), SPEC, FREE)
    for ways in (empty, blocked):
        found = ways.distance_to_go_m(pose, lot)
        apart = torch.linalg.vector_norm(pose[:, :2] - ways.goal[:, :2], dim=1)
        turn = wrapped(pose[:, 2] - ways.goal[0, 2]).abs()
        assert torch.isfinite(found).all()
        assert (found >= apart - 0.1).all()
        # Nor does a car turn faster than along its tightest arc.
        assert (found >= 0.95 * ways.radius_m * turn - 1.0)[apart < 8.0].all()


def test_cars_in_the_way_make_it_longer_and_a_closed_row_lets_nobody_through(empty):
    beside = [(6.6, 0.0, 0.0, 4.5, 1.8), (-6.6, 0.0, 0.0, 4.5, 1.8), (0.0, -1.9, 0.0, 12.0, 0.2)]
    kerb = CostToGo(lot_of(beside), SPEC, FREE)
    places = [(-4.0, 3.0, 0.0), (4.0, 3.0, 0.0), (0.0, 4.0, math.pi)]
    free, between = away(empty, *places), away(kerb, *places)
    assert (between > free - 0.05).all()
    assert (between > free + 0.3).any()
    assert (between < 3.0 * free).all()
    shut = CostToGo(lot_of([*beside, (0.0, 1.9, 0.0, 12.0, 0.2)]), SPEC, FREE)
    straight = torch.tensor([math.hypot(x, y) + 2.0 * abs(turn) for x, y, turn in places])
    assert away(shut, *places).tolist() == pytest.approx((straight + 10.0).tolist(), abs=0.3)
    assert away(shut, (0.5, 0.0, 0.0)).item() == pytest.approx(0.5, abs=0.05)


def test_where_a_car_would_touch_something_there_is_a_value_that_leads_out():
    row = CostToGo(lot_of([(6.6, 0.0, 0.0, 4.5, 1.8)]), SPEC, FREE)
    # The nose comes nearer and nearer to the car ahead, and into it.
    x = torch.arange(1.0, 2.75, 0.1).tolist()
    found = away(row, *[(ahead, 0.0, 0.0) for ahead in x])
    assert (found.diff() > 0.0).all()
    assert found.diff().amax() < 0.5


def test_the_driver_by_rules_comes_nearer_all_the_way_and_parks():
    env = DriveEnv(PLAIN, seed=3)
    env.reset()
    lowest, far = env.scene.distance_to_go_m.clone(), env.scene.distance_to_go_m.clone()
    assert (lowest > 5.0).all()
    going = torch.ones(4, dtype=torch.bool)
    arrived = torch.zeros(4, dtype=torch.bool)
    for _ in range(env.max_episode_steps):
        env.step(env.scene.scripted_actions())
        ended = env.ended["envs"]
        arrived[ended[env.ended["finished"] & going[ended]]] = True
        going[ended] = False
        now = env.scene.distance_to_go_m
        assert (now < lowest + 0.6)[going].all()
        lowest = torch.minimum(lowest, now)
        if not bool(going.any()):
            break
    assert arrived.all()
    assert (lowest < 0.3 * far).all()


def test_the_driver_by_rules_teaches():
    told = DriveEnv(PLAIN, seed=3).expert_action()
    assert torch.equal(told, DriveEnv(PLAIN, seed=3).scene.scripted_actions())
    assert told.abs().max() <= 1.0
    assert find_task("drive-park").require_scripted().teaches


def test_the_straight_distance_is_left_to_whoever_asks_for_it():
    env = DriveEnv(replace(PLAIN, way=None), seed=3)
    env.reset()
    position, heading = env.scene.errors
    assert torch.allclose(env.scene.distance_to_go_m, position + env.cfg.radian_m * heading.abs())
    # The driver by rules looks for the way itself.
    found = drive_episodes(DriveEnv(replace(env.cfg, num_envs=2), seed=3), lambda env, _: env.scene.scripted_actions())
    assert found["finished"].tolist() == [1.0, 1.0]


def test_what_makes_no_sense_is_refused():
    for change, message in (
        ({"headings": 70}, "headings is 70"),
        ({"cell_m": 0.0}, "cell_m is 0.0"),
        ({"margin_m": -0.1}, "margin_m is -0.1"),
    ):
        with pytest.raises(GantryError, match=message):
            replace(FREE, **change)

"""The parts of the walker by rules: legs against MuJoCo, ground and ways made by hand, forces by their laws."""

import math

import mujoco
import numpy as np
import pytest
import torch

from gantry_sim.models import robot_model
from gantry_sim.tasks.goal.rules.forces import foot_forces, skew
from gantry_sim.tasks.goal.rules.ground import Ground
from gantry_sim.tasks.goal.rules.legs import Legs
from gantry_sim.tasks.goal.rules.support import rotation_of
from gantry_sim.tasks.goal.rules.ways import Ways

FEET = ("FR", "FL", "RR", "RL")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def legs():
    return Legs("go2", FEET)


def joints(count, seed=0):
    """Random joint positions of legs below the hips, knees bent neither fully nor not at all, (count, 12)."""
    make = torch.Generator().manual_seed(seed)
    low, high = torch.tensor([-0.7, -0.2, -2.3]), torch.tensor([0.7, 1.4, -0.9])
    return (low + (high - low) * torch.rand(count, 4, 3, generator=make)).flatten(1)


@pytest.mark.parametrize(("shift_m", "within_m"), [(0.002, 1e-6), (0.0, 0.0021)])
def test_feet_are_where_mujoco_has_them(legs, shift_m, within_m):
    """Exactly where the sites would be on the calves' axes, which they are 2 mm behind."""
    spec = robot_model("go2", visuals=False)
    for foot in FEET:
        spec.site(foot).pos[0] += shift_m
    model = spec.compile()
    data = mujoco.MjData(model)
    names = [model.joint(i).name for i in range(1, model.njnt)]
    assert names == [f"{foot}_{part}_joint" for foot in FEET for part in ("hip", "thigh", "calf")]
    for angles, found in zip(joints(10), legs.feet(joints(10))[0], strict=True):
        data.qpos[:7] = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
        data.qpos[7:] = angles.numpy()
        mujoco.mj_kinematics(model, data)
        expected = np.array([data.site(foot).xpos for foot in FEET])
        assert np.linalg.norm(found.numpy() - expected, axis=-1).max() < within_m


def test_joints_of_feet_are_those_that_put_them_there(legs):
    angles = joints(200)
    torch.testing.assert_close(legs.joints(legs.feet(angles)[0]), angles, atol=2e-4, rtol=0.0)


def test_a_place_out_of_reach_is_reached_for(legs):
    foot, wanted = legs.feet(joints(1))[0], legs.feet(joints(1))[0]
    wanted[..., 2] -= 1.0
    leg = (wanted - legs.hip_b)[..., 1:].norm(dim=-1)
    reached = legs.feet(legs.joints(wanted))[0]
    assert bool((reached[..., 2] < foot[..., 2]).all())
    length = (reached - legs.hip_b).square().sum(-1) - legs.side_m**2
    torch.testing.assert_close(length.sqrt(), torch.full_like(leg, 0.981 * 0.426), atol=1e-3, rtol=0.0)


def test_jacobian_is_the_change_of_the_feet(legs):
    angles, step = joints(5), 1e-3
    jacobian = legs.feet(angles)[1]
    for k in range(12):
        shift = torch.zeros(12)
        shift[k] = step
        change = (legs.feet(angles + shift)[0] - legs.feet(angles - shift)[0]) / (2 * step)
        expected = torch.zeros(5, 4, 3)
        expected[:, k // 3] = jacobian[:, k // 3, :, k % 3]
        torch.testing.assert_close(change, expected, atol=2e-4, rtol=0.0)


def test_rotations_turn_as_they_say():
    turn = rotation_of(torch.tensor([0.0, 0.0, 0.3]), torch.tensor([0.0, 0.2, 0.0]), torch.tensor([0.5, 0.0, 0.0]))
    ahead, left = turn[..., 0], turn[..., 1]
    torch.testing.assert_close(ahead[0], torch.tensor([math.cos(0.5), math.sin(0.5), 0.0]))  # to the left
    torch.testing.assert_close(ahead[1], torch.tensor([math.cos(0.2), 0.0, -math.sin(0.2)]))  # nose down
    torch.testing.assert_close(left[2], torch.tensor([0.0, math.cos(0.3), math.sin(0.3)]))  # left side up
    vector = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]])
    torch.testing.assert_close(skew(vector[0]) @ vector[1], torch.linalg.cross(vector[0], vector[1]))


# -- ground and ways -----------------------------------------------------------------------------------------------


def test_unevenness_reaches_so_far_and_no_further():
    height = torch.zeros(20, 30)
    height[10:, :] = 0.5  # a step at x = 1.0 + 10 * 0.02
    ground = Ground(height, (1.0, -2.0))
    x = torch.tensor([1.01, 1.13, 1.15, 1.17, 1.21, 1.23, 1.25, 1.27])
    points = torch.stack((x, torch.full_like(x, -1.7)), -1)
    assert ground.at(points, ground.height).tolist() == [0.0] * 4 + [0.5] * 4
    assert ground.at(points, ground.rough).tolist() == [0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.0, 0.0]
    assert ground.at(points, ground.rough_wide).tolist() == [0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0]
    assert ground.at(points[3], ground.highest) == 0.5
    assert ground.at(points[4], ground.lowest) == 0.0
    beyond = torch.tensor([[-9.0, 0.0], [9.0, 0.0]])
    assert ground.at(beyond, ground.height).tolist() == [0.0, 0.5]


def tile(change):
    """The ways to one goal, at (7, 4), of a tile of 8 x 8 m whose heights ``change`` edits, by (x, y) in 2 cm cells."""
    height = torch.zeros(400, 400)
    change(height)
    return Ways(Ground(height, (0.0, 0.0)), torch.tensor([[[[7.0, 4.0, 0.0]]]]), torch.zeros(1, 1, 2), (8.0, 8.0))


def follow(ways, start, steps=200):
    """Points (steps, 2) of who follows the direction, 10 cm at a time, until 30 cm before the goal."""
    zero, point, points = torch.zeros(1, dtype=torch.long), torch.tensor([start]), []
    for _ in range(steps):
        points.append(point[0])
        if (point[0] - torch.tensor([7.0, 4.0])).norm() < 0.3:
            break
        point = point + 0.1 * ways.direction(point, zero, zero, zero)
    return torch.stack(points)


def test_an_open_tile_is_crossed_straight():
    ways = tile(lambda height: None)
    starts = torch.tensor([[1.0, 4.0], [2.0, 6.0], [3.0, 2.0]])
    zero = torch.zeros(3, dtype=torch.long)
    expected = torch.nn.functional.normalize(torch.tensor([7.0, 4.0]) - starts, dim=-1)
    found = ways.direction(starts, zero, zero, zero)
    assert (found * expected).sum(-1).min() > math.cos(0.2)  # eight neighbours and eight knights' moves
    points = follow(ways, (1.0, 4.0))
    assert len(points) < 60
    assert (points[:, 1] - 4.0).abs().max() < 0.15


def test_a_wall_is_gone_around_through_its_gap():
    def wall(height):
        height[190:210] = 1.0  # x = 3.8 to 4.2
        height[190:210, 250:325] = 0.0  # but from y = 5.0 to 6.5

    points = follow(tile(wall), (1.0, 3.0))
    assert (points[-1] - torch.tensor([7.0, 4.0])).norm() < 0.3
    beside = points[(points[:, 0] > 3.7) & (points[:, 0] < 4.3)]
    assert len(beside) > 3
    assert 5.2 < beside[:, 1].min() < beside[:, 1].max() < 6.3


def test_a_void_is_crossed_where_both_sides_feet_find_ground():
    def void(height):
        height[150:250] = -2.0  # x = 3 to 5
        height[150:250, 290:296] = 0.0  # a beam of 12 cm at y = 5.9
        height[150:250, 80:120] = 0.0  # a bridge of 80 cm at y = 2

    points = follow(tile(void), (1.0, 5.0))
    over = points[(points[:, 0] > 3.2) & (points[:, 0] < 4.8)]
    assert len(over) > 10
    assert 1.7 < over[:, 1].min() < over[:, 1].max() < 2.3


# -- forces --------------------------------------------------------------------------------------------------------

ARMS = torch.tensor([[[0.19, -0.14, -0.28], [0.19, 0.14, -0.28], [-0.19, -0.14, -0.28], [-0.19, 0.14, -0.28]]])


def test_four_feet_give_the_wrench():
    force, torque = torch.tensor([[6.0, -5.0, 150.0]]), torch.tensor([[2.0, -3.0, 1.0]])
    found = foot_forces(force, torque, ARMS, torch.ones(1, 4, dtype=torch.bool), 0.6)
    torch.testing.assert_close(found.sum(1), force, atol=0.2, rtol=0.0)
    torch.testing.assert_close(torch.linalg.cross(ARMS, found).sum(1), torque, atol=0.05, rtol=0.0)


def test_feet_in_the_air_carry_nothing_and_the_others_all():
    on = torch.tensor([[True, False, False, True], [False] * 4])
    force, nothing = torch.tensor([[0.0, 0.0, 150.0]] * 2), torch.zeros(2, 3)
    found = foot_forces(force, nothing, ARMS.expand(2, 4, 3), on, 0.6)
    assert found[~on].abs().max() == 0.0
    torch.testing.assert_close(found[0, [0, 3], 2], torch.tensor([75.0, 75.0]), atol=0.5, rtol=0.0)


def test_feet_push_and_slide_not():
    make = torch.Generator().manual_seed(1)
    force = 200.0 * torch.randn(100, 3, generator=make)
    torque = 60.0 * torch.randn(100, 3, generator=make)
    found = foot_forces(force, torque, ARMS.expand(100, 4, 3), torch.ones(100, 4, dtype=torch.bool), 0.4)
    assert found[..., 2].min() == 0.0
    assert found[..., 2].max() <= 220.0
    assert bool((found[..., :2].norm(dim=-1) <= 0.4 * found[..., 2] + 1e-4).all())

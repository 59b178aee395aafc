"""The parts of the scripted policy: legs against MuJoCo, ground and paths made by hand."""

import math

import mujoco
import numpy as np
import pytest
import torch

from gantry_deploy.footsteps.legs import Legs
from gantry_sim.robots.models import robot_model
from gantry_sim.tasks.goal.contract import goal_contract
from gantry_sim.tasks.goal.scripted.ground import Ground
from gantry_sim.tasks.goal.scripted.paths import Paths
from gantry_sim.tasks.registry import find_task

FEET = ("FR", "FL", "RR", "RL")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("shift_m", "within_m"), [(0.002, 1e-6), (0.0, 0.0021)])
def test_feet_are_where_mujoco_has_them(shift_m, within_m):
    """Exactly where the sites would be on the calves' axes, which they are 2 mm behind."""
    steps = goal_contract(find_task("ame2-go2").preset("cpu").env).gait.steps
    legs, spec = Legs(steps.legs, torch.zeros(1)), robot_model("go2", visuals=False)
    for foot in FEET:
        spec.site(foot).pos[0] += shift_m
    model = spec.compile()
    data = mujoco.MjData(model)
    assert steps.support.mass_kg == pytest.approx(model.body_mass.sum())
    names = [model.joint(i).name for i in range(1, model.njnt)]
    assert names == [f"{foot}_{part}_joint" for foot in FEET for part in ("hip", "thigh", "calf")]
    make = torch.Generator().manual_seed(0)
    low, high = torch.tensor([-0.7, -0.2, -2.3]), torch.tensor([0.7, 1.4, -0.9])
    joints = (low + (high - low) * torch.rand(10, 4, 3, generator=make)).flatten(1)
    for angles, found in zip(joints, legs.feet(joints)[0], strict=True):
        data.qpos[:7] = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
        data.qpos[7:] = angles.numpy()
        mujoco.mj_kinematics(model, data)
        expected = np.array([data.site(foot).xpos for foot in FEET])
        assert np.linalg.norm(found.numpy() - expected, axis=-1).max() < within_m


# -- ground and paths ----------------------------------------------------------------------------------------------


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
    """The paths to one goal, at (7, 4), of a tile of 8 x 8 m whose heights ``change`` edits by (x, y) in 2 cm cells."""
    height = torch.zeros(400, 400)
    change(height)
    goal, corner = torch.tensor([[[[7.0, 4.0, 0.0]]]]), torch.zeros(1, 1, 2)
    return Paths(Ground(height, (0.0, 0.0)), goal, corner, (8.0, 8.0), track_m=0.135)


def follow(paths, start, steps=200):
    """Points (steps, 2) that follow the direction, 10 cm at a time, until 30 cm before the goal."""
    zero, point, points = torch.zeros(1, dtype=torch.long), torch.tensor([start]), []
    for _ in range(steps):
        points.append(point[0])
        if (point[0] - torch.tensor([7.0, 4.0])).norm() < 0.3:
            break
        point = point + 0.1 * paths.direction(point, zero, zero, zero, 0.45)
    return torch.stack(points)


def test_an_open_tile_is_crossed_straight():
    paths = tile(lambda height: None)
    starts = torch.tensor([[1.0, 4.0], [2.0, 6.0], [3.0, 2.0]])
    zero = torch.zeros(3, dtype=torch.long)
    expected = torch.nn.functional.normalize(torch.tensor([7.0, 4.0]) - starts, dim=-1)
    found = paths.direction(starts, zero, zero, zero, 0.45)
    assert (found * expected).sum(-1).min() > math.cos(0.2)  # eight neighbours and eight knights' moves
    points = follow(paths, (1.0, 4.0))
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


def test_a_void_that_is_stepped_over_is_not_gone_around():
    """Planks 3 m long and 20 cm wide, 20 cm apart, over a pit: straight over them, and not along their ends."""

    def planks(height):
        height[100:300] = -1.0
        for x in range(110, 300, 20):
            height[x : x + 10, 125:275] = 0.0

    points = follow(tile(planks), (1.0, 4.0))
    assert float((points[:, 1] - 4.0).abs().max()) < 0.3
    assert float((points[-1] - torch.tensor([7.0, 4.0])).norm()) < 0.3

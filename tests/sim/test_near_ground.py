"""Ground that each simulation holds a part of: motion as on all of it, and heights as MuJoCo's rays see them."""

import mujoco
import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_sim.physics.engine import available_engines, make_engine
from gantry_sim.physics.heightmap import HeightMap
from gantry_sim.physics.near_ground import NearGround, near_model, reach_m

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES = 300
LEG_M = 0.3


def scene(seed, boxes=BOXES):
    """A body on four two-link legs over boxes of all sizes and attitudes, 12 m wide."""
    rng = np.random.default_rng(seed)
    spec = mujoco.MjSpec()
    spec.option.timestep = 0.01
    for number in range(boxes):
        x, y = rng.uniform(-6, 6, 2)
        size = [2.0, 2.0, 0.5] if number % 50 == 0 else [*rng.uniform(0.05, 0.4, 2), 0.5]
        turn = np.zeros(4)
        mujoco.mju_euler2Quat(turn, rng.uniform(-0.3, 0.3, 3) * (number % 2), "XYZ")
        height = rng.uniform(-0.6, -0.4)
        spec.worldbody.add_geom(
            name=f"g{number}", type=mujoco.mjtGeom.mjGEOM_BOX, pos=[x, y, height], size=size, quat=turn
        )
    base = spec.worldbody.add_body(name="base", pos=[0, 0, 1.0])
    base.add_freejoint()
    base.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.2, 0.1, 0.05], mass=5, contype=0)
    for x, y in ((0.2, 0.1), (0.2, -0.1), (-0.2, 0.1), (-0.2, -0.1)):
        leg = base.add_body(pos=[x, y, 0])
        leg.add_joint(axis=[0, 1, 0], stiffness=20, damping=1)
        leg.add_geom(type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=[0.02, 0.1, 0], pos=[0, 0, -0.15], contype=0)
        leg.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.03, 0, 0], pos=[0, 0, -LEG_M], contype=0)
    return spec


@pytest.mark.parametrize("engine", available_engines())
def test_robots_move_as_on_the_whole_ground(engine):
    seed, count = 4, 12
    print("seed", seed)
    spec = scene(seed)
    full = spec.copy().compile()
    near = near_model(spec, full)
    assert near.slots < BOXES / 3
    batch = make_engine(near.model, count, 1, engine)
    ground = NearGround(near, batch, count)
    qpos, qvel = batch.bind("qpos"), batch.bind("qvel")
    rng = np.random.default_rng(seed)
    qpos[:, :2] = rng.uniform(-5, 5, (count, 2))
    qpos[:, 2] = 0.5
    qvel[:, :2] = rng.uniform(-3, 3, (count, 2))
    alone = []
    for row in range(count):
        data = mujoco.MjData(full)
        data.qpos[:], data.qvel[:] = qpos[row], qvel[row]
        alone.append(data)
    touched = 0
    for _ in range(40):
        ground.place(qpos)
        batch.step(None, 2)
        for data in alone:
            mujoco.mj_step(full, data, 2)
            touched += data.ncon
    assert touched > 300
    # The order of contacts, and with it rounding, differs.
    np.testing.assert_allclose(qpos, [data.qpos for data in alone], atol=1e-6)


def test_nothing_of_a_robot_is_farther_than_its_reach():
    model = scene(1, boxes=2).compile()
    data, rng = mujoco.MjData(model), np.random.default_rng(1)
    shapes = [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] > 0]
    farthest = 0.0
    for _ in range(200):
        data.qpos[7:] = rng.uniform(-np.pi, np.pi, 4)
        mujoco.mj_kinematics(model, data)
        away = np.linalg.norm(data.geom_xpos[shapes] - data.qpos[:3], axis=1) + model.geom_rbound[shapes]
        farthest = max(farthest, away.max())
    assert 0.8 * reach_m(model) < farthest <= reach_m(model)
    assert reach_m(model) == pytest.approx(np.hypot(0.2, 0.1) + LEG_M + 0.03)


def test_other_ground_is_refused():
    spec = scene(1, boxes=3)
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
    with pytest.raises(GantryError, match="mjGEOM_PLANE"):
        near_model(spec, spec.compile())
    spec = scene(1, boxes=3)
    spec.geom("g1").margin = 0.01
    with pytest.raises(GantryError, match="'margin'"):
        near_model(spec, spec.compile())


@pytest.mark.parametrize("plane", [False, True])
def test_heights_are_those_of_rays(plane):
    seed = 7
    print("seed", seed)
    spec = scene(seed)
    if plane:
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], pos=[0, 0, -0.8])
    model = spec.compile()
    for geom in range(model.ngeom):
        if model.geom_bodyid[geom] > 0:
            model.geom_group[geom] = 3
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    points = np.random.default_rng(seed).uniform(-7, 7, (800, 2)).astype(np.float32)
    found = HeightMap(model, (0,)).tops(*torch.from_numpy(points).unbind(-1)).numpy()
    groups, geom = np.array([1, 0, 0, 0, 0, 0], np.uint8), np.zeros(1, np.int32)
    down = np.array([0.0, 0.0, -1.0])
    rays = np.array([mujoco.mj_ray(model, data, np.array([x, y, 9.0]), down, groups, 1, -1, geom) for x, y in points])
    expected = np.where(rays < 0, -np.inf, 9.0 - rays)
    assert np.isinf(expected).any() != plane
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    solid = np.isfinite(expected)
    assert np.mean(np.abs(found[solid] - expected[solid]) < 1e-4) > 0.99  # a ray on an edge may go either way

"""Looked-up ground is what MuJoCo's rays find, on every terrain that mjlab makes."""

import warnings
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from mjlab.terrains.config import ALL_TERRAINS_CFG, ROUGH_TERRAINS_CFG
from mjlab.terrains.terrain_entity import TerrainEntity, TerrainEntityCfg

from gantry_sim.physics.ground import EXACT
from gantry_sim.physics.heightmap import HeightMap

GROUND = (0,)


def compiled(body):
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{body}</worldbody></mujoco>")


def points(*rows):
    return torch.tensor(rows, dtype=torch.float32)


def terrain_model(cfg, rows):
    generator = replace(cfg, num_rows=rows, border_width=3.0, curriculum=True, seed=3)
    entity = TerrainEntity(
        TerrainEntityCfg(terrain_type="generator", terrain_generator=generator, num_envs=2), device="cpu"
    )
    return entity.spec.compile(), list(generator.sub_terrains)


def random_points(rng, count, rows, columns, column, height):
    x = rng.uniform(-4 * rows, 4 * rows, count)
    y = rng.uniform(0, 8, count) + 8 * column - 4 * columns
    return torch.tensor(np.stack([x, y, np.full(count, height)], axis=1), dtype=torch.float32)


def edge_points(model, rng, count, height):
    """Points within a centimetre of the edges of boxes."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    boxes = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_BOX)
    picks = rng.choice(boxes, count)
    local = model.geom_size[picks] * rng.uniform(-1, 1, (count, 3))
    rows, axis = np.arange(count), rng.integers(0, 2, count)
    local[rows, axis] = model.geom_size[picks, axis] * rng.choice([-1, 1], count) + rng.uniform(-0.01, 0.01, count)
    world = data.geom_xpos[picks] + np.einsum("nij,nj->ni", data.geom_xmat[picks].reshape(-1, 3, 3), local)
    world[:, 2] = height
    return torch.tensor(world, dtype=torch.float32)


def errors(ground, origin):
    distance, normal = ground.cast_down(origin)
    exact_distance, exact_normal = ground.rays.cast_down(origin)
    assert ((distance < 0) == (exact_distance < 0)).all()
    return (distance - exact_distance).abs(), (normal - exact_normal).abs().amax(dim=1)


def test_plane_distance_normal_and_miss_from_below():
    ground = HeightMap(compiled('<geom type="plane" size="0 0 1" pos="0 0 .5"/>'), GROUND)
    distance, normal = ground.cast_down(points([100.0, -7.0, 2.0], [0.0, 0.0, 0.25]))
    torch.testing.assert_close(distance, torch.tensor([1.5, -1.0]))
    torch.testing.assert_close(normal, points([0, 0, 1], [0, 0, 0]))


def test_tilted_plane_and_box_on_it():
    ground = HeightMap(
        compiled('<geom type="plane" size="0 0 1" euler="30 0 0"/><geom type="box" size="1 1 1" pos="0 0 .5"/>'),
        GROUND,
    )
    distance, normal = ground.cast_down(points([0.0, 0.5, 4.0], [5.0, -3.0, 4.0]))
    slope = np.tan(np.pi / 6)
    torch.testing.assert_close(distance, torch.tensor([2.5, 4.0 + 3.0 * slope], dtype=torch.float32))
    torch.testing.assert_close(normal, points([0, 0, 1], [0, -0.5, np.cos(np.pi / 6)]))


def test_edge_of_a_step_between_cell_borders():
    ground = HeightMap(compiled('<geom type="box" size=".313 1 .1" pos="0 0 .1"/>'), GROUND, cell_m=0.25)
    distance, _ = ground.cast_down(points([0.3129, 0.0, 1.0], [0.3131, 0.0, 1.0]))
    torch.testing.assert_close(distance, torch.tensor([0.8, -1.0]))


def test_inside_a_box_its_underside_is_hit_with_a_normal_that_points_down():
    ground = HeightMap(compiled('<geom type="box" size="1 1 .5"/>'), GROUND)
    distance, normal = ground.cast_down(points([0.2, 0.0, 0.3], [0.2, 0.0, -0.6]))
    torch.testing.assert_close(distance, torch.tensor([0.8, -1.0]))
    torch.testing.assert_close(normal, points([0, 0, -1], [0, 0, 0]))


def test_boxes_inside_boxes_are_left_to_mujoco():
    ground = HeightMap(
        compiled('<geom type="box" size="1 1 .5"/><geom type="box" size=".5 .5 .1" pos="0 0 .1"/>'), GROUND
    )
    distance, normal = ground.cast_down(points([0.0, 0.0, 0.4]))
    torch.testing.assert_close(distance, torch.tensor([0.2]))  # the top of the inner box
    torch.testing.assert_close(normal, points([0, 0, 1]))


def test_only_the_wanted_groups_and_visible_geoms_count():
    model = compiled(
        '<geom type="box" size="1 1 1" group="0"/><geom type="box" size="1 1 2" group="3"/>'
        '<geom type="box" size="1 1 4" rgba="1 1 1 0"/>'
    )
    for groups, top in (((0,), 1.0), ((0, 3), 2.0), (None, 2.0), ((1,), None)):
        distance, _ = HeightMap(model, groups).cast_down(points([0.0, 0.0, 10.0]))
        assert float(distance) == pytest.approx(-1.0 if top is None else 10.0 - top)


def test_other_shapes_are_cast():
    ground = HeightMap(compiled('<geom type="sphere" size="1"/><geom type="box" size="3 3 .1"/>'), GROUND)
    error, normal_error = errors(ground, points([0.5, 0.5, 3.0], [2.0, 0.0, 3.0], [0.99, 0.99, 3.0]))
    assert float(error.max()) < 1e-6
    assert float(normal_error.max()) < 1e-6
    assert (ground.ground.codes == EXACT).any()


def test_an_origin_that_is_not_a_number_is_a_miss():
    ground = HeightMap(compiled('<geom type="box" size="1 1 1"/>'), GROUND)
    distance, normal = ground.cast_down(points([np.nan, np.nan, np.nan], [0.0, 0.0, 2.0]))
    torch.testing.assert_close(distance, torch.tensor([-1.0, 1.0]))
    torch.testing.assert_close(normal, points([0, 0, 0], [0, 0, 1]))


def test_memory_is_bounded_and_coarse_cells_are_as_exact():
    model, names = terrain_model(ROUGH_TERRAINS_CFG, 2)
    ground = HeightMap(model, GROUND, max_cells=5_000)
    assert ground.ground.codes.size <= 5_000
    origin = random_points(np.random.default_rng(0), 300, 2, len(names), 3, 5.0)
    assert float(errors(ground, origin)[0].max()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    "cfg",
    [pytest.param(ROUGH_TERRAINS_CFG, id="rough"), pytest.param(ALL_TERRAINS_CFG, id="all", marks=pytest.mark.soak)],
)
def test_every_terrain_is_exact(cfg):
    rows, count = 3, 2000
    model, names = terrain_model(cfg, rows)
    ground = HeightMap(model, GROUND)
    codes = ground.ground.codes
    mixed, exact = np.mean((codes < 0) & (codes != EXACT)), np.mean(codes == EXACT)
    print(f"\n{codes.size} cells of {ground.ground.cell_m} m, {mixed:.1%} with several geoms, {exact:.1%} cast")
    rng = np.random.default_rng(0)
    for column, name in enumerate(names):
        error, normal_error = errors(ground, random_points(rng, count, rows, len(names), column, 5.0))
        print(
            f"  {name:22s} within 0.1 mm {float((error < 1e-4).float().mean()):.2%}, largest {float(error.max()):.1e} m"
        )
        assert float(error.max()) < 1e-4
        assert float((normal_error < 1e-3).float().mean()) > 0.999  # where two faces meet, either normal is right
    error, _ = errors(ground, edge_points(model, rng, count, 5.0))
    print(f"  {'within 1 cm of edges':22s} within 0.1 mm {float((error < 1e-4).float().mean()):.2%}")
    assert float((error < 1e-4).float().mean()) > 0.999


@pytest.mark.slow
def test_rays_from_under_the_ground_follow_mujoco_where_it_has_an_underside():
    """Boxes and meshes only: MuJoCo C sees a solid below a height field, MuJoCo Warp (which we follow) does not."""
    boxes = {name: cfg for name, cfg in ALL_TERRAINS_CFG.sub_terrains.items() if type(cfg).__name__.startswith("Box")}
    model, names = terrain_model(replace(ALL_TERRAINS_CFG, sub_terrains=boxes), 2)
    ground = HeightMap(model, GROUND)
    rng = np.random.default_rng(1)
    for column in range(len(names)):
        error, _ = errors(ground, random_points(rng, 500, 2, len(names), column, rng.uniform(-1.5, 0.3)))
        assert float((error < 1e-4).float().mean()) > 0.999


def test_sensors_that_cannot_be_looked_up_are_cast_and_say_so():
    from mjlab.sensor import GridPatternCfg, ObjRef, RayCastSensorCfg
    from mjlab.tasks.velocity.config.go1.env_cfgs import unitree_go1_flat_env_cfg

    from gantry_sim.envs.manager_env import GantryEnv

    cfg = unitree_go1_flat_env_cfg()
    trunk = ObjRef(type="body", name="trunk", entity="robot")
    down = GridPatternCfg(size=(0.2, 0.2), resolution=0.1)
    forward = GridPatternCfg(size=(0.0, 0.0), resolution=0.1, direction=(1.0, 0.0, -1.0))
    cfg.scene.sensors += (
        RayCastSensorCfg(name="looked_up", frame=trunk, pattern=down, ray_alignment="yaw", include_geom_groups=(0,)),
        RayCastSensorCfg(name="turning", frame=trunk, pattern=down, ray_alignment="base", include_geom_groups=(0,)),
        RayCastSensorCfg(name="ahead", frame=trunk, pattern=forward, ray_alignment="yaw", include_geom_groups=(0,)),
        RayCastSensorCfg(name="with_robot", frame=trunk, pattern=down, ray_alignment="yaw", include_geom_groups=None),
    )
    cfg.scene.num_envs, cfg.seed = 2, 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = GantryEnv(cfg, "cpu")
        env.reset()
        env.step(torch.zeros(2, 12))
    told = [str(w.message) for w in caught if "Ray sensor" in str(w.message)]
    assert [any(f"'{name}'" in text for text in told) for name in ("looked_up", "turning", "ahead", "with_robot")] == [
        False,
        True,
        True,
        True,
    ]
    assert len(told) == 3  # once each, not once a step
    height = env.robot.data.root_link_pos_w[:, 2]
    looked_up, ahead = env.scene["looked_up"].data, env.scene["ahead"].data
    torch.testing.assert_close(looked_up.distances, height.unsqueeze(-1).expand(-1, 9), atol=1e-5, rtol=0)
    torch.testing.assert_close(ahead.distances, height.unsqueeze(-1) * 2**0.5, atol=1e-5, rtol=0)
    torch.testing.assert_close(env.scene["turning"].data.hit_pos_w[..., 2], torch.zeros(2, 9), atol=1e-5, rtol=0)
    assert (env.scene["with_robot"].data.distances[:, 4] <= height).all()

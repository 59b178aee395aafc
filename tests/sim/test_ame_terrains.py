"""Terrains for goal reaching: where they are solid, how they get harder, and that tests stay out of training."""

from dataclasses import replace
from itertools import pairwise

import mujoco
import numpy as np
import pytest
import torch
from mjlab.terrains import TerrainEntity, TerrainEntityCfg

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.physics.ground import EXACT
from gantry_sim.physics.heightmap import HeightMap
from gantry_sim.tasks.goal.cfg import GoalCfg
from gantry_sim.tasks.goal.ground import terrain_cfg
from gantry_sim.tasks.registry import find_task, task_names
from gantry_sim.terrains import catalogue
from gantry_sim.terrains.catalogue import ANYMAL_D, G1, GO2, GROUPS, SHARES, TESTS, HeldOutTerrainError, training_mix
from gantry_sim.terrains.grid import ame2_terrain, assert_trainable, kind_of, terrain_sites
from gantry_sim.terrains.preview import preview
from gantry_sim.terrains.rasters import rasterize, save_rasters, terrain_rasters, tile_rasters
from gantry_sim.terrains.tile import MAP_GROUPS, SOLID_GROUPS, VIRTUAL_FLOOR_GROUP, Tile

SIZE = (8.0, 8.0)


def tile_of(cfg, difficulty, seed=0):
    """One tile, its corner in the origin."""
    spec = mujoco.MjSpec()
    cfg = replace(cfg)
    cfg.size = SIZE
    output = cfg.function(difficulty, spec, np.random.default_rng(seed))
    return spec.compile(), output


def heights(model, points, groups=SOLID_GROUPS):
    """Height of the ground at (x, y) points, -inf for none."""
    origin = torch.tensor([[x, y, 30.0] for x, y in points], dtype=torch.float32)
    distance = HeightMap(model, groups).cast_down(origin)[0]
    return torch.where(distance < 0, -torch.inf, 30.0 - distance).numpy()


def profile(model, groups=SOLID_GROUPS, y=4.0, spacing=0.005):
    """x and height along a line."""
    x = np.arange(0.5 * spacing, SIZE[0], spacing)
    return x, heights(model, [(a, y) for a in x], groups)


def training_and_tests(robot="go2"):
    return {**training_mix(robot), **catalogue.test_terrains(robot)}


def rest_of_spheres(cfg, entity, seconds=1.0):
    """Spheres dropped at the start and at the goals of every tile: (tiles, 1 + goals) how far each ended from there."""
    sites = terrain_sites(entity)
    points = torch.cat([sites.spawn[:, :, None, :3], sites.goals], dim=2).reshape(-1, 3).double().numpy()
    spec = entity.spec
    for x, y, z in points:
        body = spec.worldbody.add_body(pos=[x, y, z + 0.1])
        body.add_freejoint()
        body.add_geom(
            type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.05, 0, 0], condim=6, friction=[1, 0.01, 0.01], contype=2
        )
    model = spec.compile()
    model.opt.timestep = 0.004
    data = mujoco.MjData(model)
    for _ in range(round(seconds / 0.004)):
        mujoco.mj_step(model, data)
    centers = data.qpos.reshape(-1, 7)[:, :3]
    return np.linalg.norm(centers - points - [0, 0, 0.05], axis=1)


@pytest.mark.parametrize("held_out", [None, ()])
def test_starts_and_goals_are_solid_ground(held_out):
    cfg = ame2_terrain("go2", levels=2, columns=12, held_out=held_out, size=SIZE)
    assert rest_of_spheres(cfg, TerrainEntity(cfg, device="cpu")).max() < 0.02


@pytest.mark.parametrize("robot", ["go2", "g1"])
def test_starts_and_goals_are_level_as_far_as_a_robot_reaches(robot):
    for kind, cfg in training_and_tests(robot).items():
        model, output = tile_of(cfg, 1.0)
        ring = [(0.4 * np.cos(a), 0.4 * np.sin(a)) for a in np.linspace(0, 2 * np.pi, 16)]
        sites = np.vstack([output.origin, output.flat_patches["goal"]])
        around = heights(model, [(x + dx, y + dy) for x, y, _ in sites for dx, dy in [(0, 0), *ring]])
        np.testing.assert_allclose(around.reshape(len(sites), -1), sites[:, 2:] + np.zeros(17), atol=1e-5, err_msg=kind)


def test_goals_lie_ahead_on_the_far_strip():
    for cfg in training_and_tests().values():
        _, output = tile_of(cfg, 0.5)
        goals = output.flat_patches["goal"]
        assert goals.shape == (cfg.goal_count, 3)
        assert (goals[:, 0] > SIZE[0] - cfg.strip_m).all()
        assert (goals[:, 0] < SIZE[0]).all()
        assert (goals[:, 1].min() < 4.0) & (goals[:, 1].max() > 4.0)


def test_floor_is_the_lowest_height_of_the_tile():
    for kind, cfg in training_and_tests().items():
        model, output = tile_of(cfg, 0.6)
        lowest = rasterize(model, (0.0, 0.0), SIZE, 0.1).mapped_m.min()
        assert output.flat_patches["floor"][0, 2] <= lowest + 1e-5, kind
        assert output.flat_patches["floor"][0, 2] >= lowest - 0.15, kind


def test_the_same_seed_makes_the_same_terrain_and_another_seed_another():
    def geoms(seed):
        model = TerrainEntity(ame2_terrain("go2", 2, 12, seed=seed), device="cpu").spec.compile()
        return np.concatenate([model.geom_pos.ravel(), model.geom_size.ravel(), model.hfield_data])

    first = geoms(3)
    np.testing.assert_array_equal(first, geoms(3))
    other = geoms(4)
    assert first.shape != other.shape or not np.array_equal(first, other)


def test_held_out_tiles_do_not_depend_on_the_seed_but_on_the_instance():
    def geoms(seed, difficulty):
        model, output = tile_of(catalogue.test_terrains("go2")["t1_stones"], difficulty, seed)
        return model.geom_pos[:20], output.flat_patches["goal"]

    for a, b in zip(geoms(0, 0.5), geoms(9, 0.5), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(geoms(0, 0.5)[0], geoms(0, 1.0)[0])


def widest_drop(cfg, difficulty):
    """Longest stretch along the middle line that lies on the floor, a metre down: a gap."""
    x, z = profile(tile_of(cfg, difficulty)[0])
    low = np.flatnonzero(np.diff(np.r_[0, (z < -0.9).astype(int), 0]))
    return (low[1::2] - low[::2]).max() * (x[1] - x[0])


LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)


def test_gaps_grow_to_the_robots_range():
    cfg = replace(training_mix("go2")["gap"], edge_jitter=0.0, floor="real", floor_depth_m=(1.0, 1.0))
    widths = [widest_drop(cfg, d) for d in LEVELS]
    assert widths == sorted(widths)
    np.testing.assert_allclose([widths[0], widths[-1]], GO2.gap, atol=0.011)


@pytest.mark.parametrize("robot", ["go2", "g1"])
def test_both_sides_of_a_gap_stay_above_the_floor(robot):
    cfg = training_mix(robot)["gap"]
    for seed in range(30):
        spec = mujoco.MjSpec()
        cfg.size = SIZE
        patches = cfg.function(1.0, spec, np.random.default_rng(seed)).flat_patches
        assert patches["goal"][:, 2].min() >= patches["floor"][0, 2] + 0.2 - 1e-9
        assert abs(patches["goal"][0, 2]) <= 2 * cfg.step * cfg.gap_m[1]


def test_steps_grow_to_the_robots_range():
    mix = training_mix("go2")
    for kind, span in (("climb_up", GO2.climb_up), ("climb_down", GO2.climb_down)):
        tops = [profile(tile_of(mix[kind], d)[0])[1].max() for d in LEVELS]
        np.testing.assert_allclose(tops, np.linspace(*span, 5), atol=1e-5)
    for d in LEVELS:
        rises = np.diff(np.unique(profile(tile_of(mix["stairs_up"], d)[0])[1].round(4)))
        np.testing.assert_allclose(rises, GO2.stair_rise[0] + d * np.diff(GO2.stair_rise)[0], atol=2e-4)


def test_footholds_shrink():
    mix = training_mix("go2")
    for kind in ("pallets", "stones", "beam"):
        solid = []
        for d in (0.0, 0.5, 1.0):
            cfg = replace(mix[kind], floor="virtual")
            raster = rasterize(tile_of(cfg, d)[0], (2.0, 3.4), (6.0, 4.6), 0.03)
            solid.append(np.isfinite(raster.solid_m).mean())
        # Stones that are missing, and edges that fall between cells, make single numbers jump a little.
        assert all(b < a + 0.03 for a, b in pairwise(solid)), (kind, solid)
        assert solid[-1] < 0.7 * solid[0], (kind, solid)


def test_rough_ground_and_obstacles_grow():
    mix = training_mix("go2")
    spread = [np.ptp(rasterize(tile_of(mix["rough"], d)[0], (2, 2.6), (6, 5.4), 0.05).solid_m) for d in LEVELS]
    assert spread[0] == 0.0
    assert spread == sorted(spread)
    assert 0.8 * 2 * GO2.rough[1] < spread[-1] <= 2 * GO2.rough[1]
    counts = [(tile_of(mix["obstacles"], d)[0].geom_type == mujoco.mjtGeom.mjGEOM_BOX).sum() for d in LEVELS]
    assert counts[0] == 4  # two strips and two ramps
    assert counts == sorted(counts)


def test_the_ridge_is_as_steep_as_its_slope_and_has_no_step():
    cfg = replace(training_mix("go2")["obstacles"], density_m2=(0.0, 0.0), slope_rad=(0.2, 0.2))
    model, _ = tile_of(cfg, 0.0)
    heights = rasterize(model, (0.05, 4.0), (7.95, 4.05), 0.05).solid_m[:, 0]
    x = 0.05 + 0.05 * np.arange(len(heights)) + 0.025
    expected = np.tan(0.2) * np.clip(np.minimum(x - 1.6, 6.4 - x), 0.0, None)
    np.testing.assert_allclose(heights, expected, atol=1e-5)


def test_obstacles_leave_room_to_pass():
    model, _ = tile_of(training_mix("go2")["obstacles"], 1.0)
    boxes = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_BOX)[4:]  # without strips and ramps
    centers, reach = model.geom_pos[boxes, :2], np.linalg.norm(model.geom_size[boxes, :2], axis=1)
    distance = np.linalg.norm(centers[:, None] - centers[None], axis=-1) - reach[:, None] - reach[None]
    assert distance[~np.eye(len(centers), dtype=bool)].min() > GO2.clearance[0]


def test_a_hand_made_tile_is_where_it_was_put():
    spec = mujoco.MjSpec()
    tile = Tile(spec, (6.0, 4.0), np.random.default_rng(0), 1.0)
    tile.slab((0.0, 6.0), 0.0)
    tile.box((1.0, 2.0), (1.0, 3.0), 0.3)
    tile.reversed = True
    tile.box((0.0, 0.5), (0.0, 4.0), 0.2)  # lands at the far end
    tile.turned_box((3.0, 2.0, 0.5), (1.0, 0.2, 0.2), (0.0, np.pi / 4, 0.0))  # turned end for end: rises with x
    z = heights(spec.compile(), [(0.25, 2.0), (1.5, 2.0), (1.5, 0.5), (5.75, 2.0), (2.8, 2.0), (3.2, 2.0)])
    np.testing.assert_allclose(z[:4], [0.0, 0.3, 0.0, 0.2], atol=1e-6)
    # The upper face of the plank goes through (3, 0.5 + 0.1 sqrt(2)) with slope 1.
    np.testing.assert_allclose(z[4:], 0.5 + 0.1 * np.sqrt(2) + np.array([-0.2, 0.2]), atol=1e-5)


def test_lookup_agrees_with_mujocos_rays_on_every_tile():
    rng = np.random.default_rng(0)
    for kind, cfg in training_and_tests().items():
        model, _ = tile_of(cfg, 0.8)
        ground = HeightMap(model, MAP_GROUPS)
        origin = torch.tensor(np.column_stack([rng.uniform(0, 8, (300, 2)), np.full(300, 9.0)]), dtype=torch.float32)
        looked, cast = ground.cast_down(origin)[0], ground.rays.cast_down(origin)[0]
        assert (looked - cast).abs().median() < 1e-5, kind
        assert ((looked - cast).abs() > 1e-3).float().mean() < 0.01, kind  # edges, in float32
        if kind in SHARES:
            assert (ground.ground.codes == EXACT).mean() < 0.001, kind  # slow rays are next to never needed


@pytest.mark.parametrize("kind", GROUPS["sparse"])
def test_virtual_floor_is_seen_but_not_touched(kind):
    cfg = replace(training_mix("go2")[kind], floor="virtual")
    model, output = tile_of(cfg, 0.5)
    x, mapped = profile(model, MAP_GROUPS)
    solid = profile(model)[1]
    floor_z = output.flat_patches["floor"][0, 2]
    assert -1.5 <= floor_z <= -0.35
    empty = ~np.isfinite(solid)
    if kind != "beam":
        assert empty.any()
        np.testing.assert_allclose(mapped[empty], floor_z, atol=1e-5)
    np.testing.assert_array_equal(mapped[~empty], solid[~empty])
    assert heights(model, [(4.0, 0.3)] if kind != "gap" else [(x[empty][0], 0.3)])[0] == -np.inf
    spec = mujoco.MjSpec()
    cfg.size = SIZE
    cfg.function(0.5, spec, np.random.default_rng(0))
    body = spec.worldbody.add_body(pos=[x[empty][0] if empty.any() else 4.0, 4.0 if empty.any() else 0.3, 0.5])
    body.add_freejoint()
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.001, 0, 0])
    falling = spec.compile()
    data = mujoco.MjData(falling)
    mujoco.mj_step(falling, data, nstep=600)
    assert data.qpos[2] < floor_z - 0.5


def test_a_real_floor_carries():
    cfg = replace(training_mix("go2")["gap"], floor="real")
    model, output = tile_of(cfg, 1.0)
    assert not (model.geom_group == VIRTUAL_FLOOR_GROUP).any()
    assert profile(model)[1].min() == pytest.approx(output.flat_patches["floor"][0, 2], abs=1e-5)


def test_half_of_the_sparse_columns_have_virtual_floors():
    generator = ame2_terrain("go2", levels=2, columns=40).terrain_generator
    for kind in GROUPS["sparse"]:
        floors = [cfg.floor for name, cfg in generator.sub_terrains.items() if kind_of(name) == kind]
        assert floors.count("virtual") == floors.count("real") == len(floors) // 2
    single = ame2_terrain("go2", levels=40, columns=1, kinds=["gap"])
    assert single.terrain_generator.sub_terrains["gap_00"].floor == "random"
    model = TerrainEntity(single, device="cpu").spec.compile()
    assert 10 <= (model.geom_group == VIRTUAL_FLOOR_GROUP).sum() <= 30


def test_shares_are_the_papers_whatever_the_columns():
    assert sum(SHARES.values()) == pytest.approx(1.0)
    for columns in (12, 17, 31):
        parts = ame2_terrain("go2", levels=1, columns=columns).terrain_generator.sub_terrains
        assert len(parts) == columns
        for kind, share in SHARES.items():
            own = [cfg.proportion for name, cfg in parts.items() if kind_of(name) == kind]
            assert sum(own) == pytest.approx(share)


def test_even_shares_change_no_tile():
    parts, even = (ame2_terrain("go2", levels=1, columns=17, even=on).terrain_generator.sub_terrains for on in (0, 1))
    assert list(even) == list(parts)
    for kind in SHARES:
        own = [cfg.proportion for name, cfg in even.items() if kind_of(name) == kind]
        assert sum(own) == pytest.approx(1.0 / len(SHARES))


def test_sites_are_in_the_world():
    terrain = TerrainEntity(ame2_terrain("go2", levels=3, columns=12, size=(8.0, 6.0)), device="cpu")
    sites = terrain_sites(terrain)
    assert sites.spawn.shape == (3, 12, 4)
    assert sites.goals.shape == (3, 12, 8, 3)
    assert sites.kinds == tuple(SHARES)
    assert sites.groups[:5] == ("dense",) * 5
    # The grid is centred on the world: level 2 covers x in [4, 12], column 7 covers y in [6, 12].
    site = sites.at(2, 7)
    assert site.spawn == pytest.approx((4.8, 9.0, 0.0, 0.0))
    assert ((site.goals[:, 0] > 10.4) & (site.goals[:, 0] < 12.0)).all()
    assert site.goals[:, 1].mean() == pytest.approx(9.0, abs=0.5)


def test_all_ground_belongs_to_the_world_and_the_apron_surrounds_the_grid():
    cfg = ame2_terrain("go2", levels=2, columns=12, border_m=2.0)
    model = TerrainEntity(cfg, device="cpu").spec.compile()
    assert (model.geom_bodyid == model.body("world").id).all()
    z = heights(model, [(-9.9, 0.0), (9.9, 0.0), (0.0, -49.9), (0.0, 49.9), (9.9, 49.9), (10.1, 0.0), (0.0, 50.1)])
    np.testing.assert_allclose(z[:5], 0.0, atol=1e-6)
    assert (z[5:] == -np.inf).all()


def test_other_terrains_have_no_sites():
    with pytest.raises(GantryError, match="no goals"):
        terrain_sites(TerrainEntity(TerrainEntityCfg(), device="cpu"))


def test_ranges_follow_the_legs():
    assert GO2.climb_up[1] / ANYMAL_D.climb_up[1] == pytest.approx(0.426 / 0.634)
    assert G1.climb_up == (0.1, 0.65)


def test_tests_stay_out_of_training():
    for name in TESTS:
        with pytest.raises(HeldOutTerrainError, match=name):
            ame2_terrain("go2", kinds=["dense", name])
    for robot in catalogue.RANGES:
        assert_trainable(ame2_terrain(robot))
        with pytest.raises(HeldOutTerrainError, match="t2_course"):
            assert_trainable(ame2_terrain(robot, held_out=["t2_course"]))
    assert not {type(cfg) for cfg in training_mix("go2").values()} & {
        type(cfg) for cfg in catalogue.test_terrains("go2").values()
    }


def terrain_of(task, preset):
    cfg = task.preset(preset).env
    if isinstance(cfg, GoalCfg):
        return terrain_cfg(cfg, 0)
    env = task.make_env(replace(cfg, num_envs=2), "cpu", 0).env
    env.close()
    return env.scene.terrain.cfg


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in task_names() if not name.startswith(("drive-", "yam-", "rover-"))])
def test_no_task_is_trained_on_held_out_terrain(name):
    task = find_task(name)
    for preset in task.presets:
        assert_trainable(terrain_of(task, preset))


def test_wrong_names_are_answered_with_the_near_miss():
    with pytest.raises(UnknownNameError, match="Did you mean 'stones'"):
        ame2_terrain("go2", kinds=["stone"])
    with pytest.raises(UnknownNameError, match="Did you mean 'go2'"):
        ame2_terrain("go22")
    with pytest.raises(UnknownNameError, match="t1_stones"):
        ame2_terrain("go2", held_out=["t1"])
    with pytest.raises(GantryError, match="too few"):
        ame2_terrain("go2", columns=3)
    with pytest.raises(GantryError, match="at least"):
        TerrainEntity(ame2_terrain("go2", levels=1, columns=12, size=(4.0, 8.0)), device="cpu")


def test_rasters_have_x_in_rows_and_virtual_floors_apart():
    cfg = ame2_terrain("go2", levels=2, columns=1, kinds=["gap"], seed=1)
    cfg.terrain_generator.sub_terrains["gap_00"].floor = "virtual"
    terrain = TerrainEntity(cfg, device="cpu")
    raster = terrain_rasters(cfg, 0.1, margin_m=0.5, terrain=terrain)
    assert raster.solid_m.shape == raster.mapped_m.shape == (170, 90)
    assert raster.solid_m.dtype == np.float32
    assert raster.corner_m == pytest.approx((-8.5, -4.5))
    assert np.isfinite(raster.mapped_m).all()
    gap = ~np.isfinite(raster.solid_m)
    assert gap.any()
    sites = terrain_sites(terrain)
    for level in range(2):
        in_level = raster.mapped_m[5 + 80 * level : 85 + 80 * level][gap[5 + 80 * level : 85 + 80 * level]]
        np.testing.assert_allclose(in_level, float(sites.floor_z_m[level, 0]), atol=1e-5)
        x, y, z = sites.goals[level, 0, 0].tolist()
        cell = int((x - raster.corner_m[0]) / 0.1), int((y - raster.corner_m[1]) / 0.1)
        assert raster.solid_m[cell] == pytest.approx(z, abs=1e-5)


def test_tile_rasters_are_windows_and_survive_a_file(tmp_path):
    cfg = ame2_terrain("go2", levels=2, columns=2, kinds=["gap", "climb_up"])
    tiles = tile_rasters(cfg, 0.1)
    assert sorted(tiles) == ["climb_up_00/0", "climb_up_00/1", "gap_00/0", "gap_00/1"]
    assert all(tile.mapped_m.shape == (80, 80) for tile in tiles.values())
    assert tiles["gap_00/1"].corner_m == pytest.approx((0.0, 0.0))
    assert tiles["climb_up_00/0"].mapped_m[-1, 0] == pytest.approx(GO2.climb_up[0], abs=1e-5)
    save_rasters(tmp_path / "rasters.npz", tiles)
    with np.load(tmp_path / "rasters.npz") as stored:
        assert float(stored["resolution_m"]) == 0.1
        np.testing.assert_array_equal(stored["gap_00/0"], tiles["gap_00/0"].mapped_m)


def test_preview_draws_a_picture(tmp_path):
    preview(tmp_path / "sheet.png", kinds=["gap", "beam"], difficulties=2, resolution_m=0.1)
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")

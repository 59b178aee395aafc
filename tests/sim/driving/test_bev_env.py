"""Cars that see pictures: maps as cells, and that what a robot would draw is what training drew."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.observations.bev import bev_raster
from gantry_deploy.observations.builder import ObservationBuilder
from gantry_deploy.observations.surroundings import NO_ROAD, ROAD, ROAD_BROKEN, ROAD_SOLID
from gantry_deploy.policy.golden import pack_golden, recorded_signals
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import record_drive
from gantry_sim.driving.maps.generate import MapConfig, lane_map
from gantry_sim.driving.maps.graph import LEFT, RIGHT, YAW
from gantry_sim.driving.maps.tiles import road_tiles
from gantry_sim.driving.scenes.road_scene import RoadScene
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg
from gantry_sim.tasks.driving.presets import DRIVE_TRAFFIC
from gantry_sim.tasks.registry import from_flat

PLAIN = DriveCfg(
    num_envs=3,
    maps=MapConfig(blocks={"straight": 1.0, "arc": 1.0}, count=(2, 3), lanes=(2,), min_route_m=120.0),
    map_count=2,
    routes_per_map=2,
    route_m=100.0,
    traffic=TrafficCfg(slots=4),
    bev=BevLayout(24, 2.0, 12.0),
)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


def layout_of(contract):
    assert contract.body is not None
    assert contract.body.bev is not None
    return contract.body.bev


def codes_at(tiles, number, points):
    index = np.floor((points - tiles.corner_m[number].numpy()) / tiles.cell_m).astype(int)
    return tiles.cells[number].numpy()[index[:, 1], index[:, 0]]


def test_cells_hold_road_where_lanes_are_and_markings_at_their_edges():
    drawn = lane_map(3, MapConfig(lanes=(2,), side_lanes=(1,)))
    tiles = road_tiles([lane_map(1, MapConfig()), drawn], 0.5, 20.0)
    lanes = [lane for lane in drawn.lanes if not lane.in_junction]
    inner = [lane for lane in lanes if lane.left >= 0]
    assert inner
    for lane in drawn.lanes:
        assert set(codes_at(tiles, 1, lane.points[:, :2])) <= {ROAD, ROAD_SOLID, ROAD_BROKEN}
    for lane in lanes:
        points = lane.points
        normal = np.stack((-np.sin(points[:, YAW]), np.cos(points[:, YAW])), axis=1)
        left = codes_at(tiles, 1, points[:, :2] + points[:, LEFT, None] * normal)
        right = codes_at(tiles, 1, points[:, :2] - points[:, RIGHT, None] * normal)
        for found, beside in ((left, lane.left), (right, lane.right)):
            # Cells beside ends may belong to another road's edges, too.
            assert np.mean(found == (ROAD_SOLID if beside < 0 else ROAD_BROKEN)) > 0.9
    everywhere = np.concatenate([lane.points[:, :2] for lane in drawn.lanes])
    height, width = tiles.cells.shape[1:]
    rows, columns = np.nonzero(tiles.cells[1].numpy() != NO_ROAD)
    places = tiles.corner_m[1].numpy() + 0.5 * (np.stack((columns, rows), axis=1) + 0.5)
    nearest = np.array([np.hypot(*(everywhere - place).T).min() for place in places[::97]])
    assert nearest.max() < 3.0
    assert 0 < len(rows) < 0.3 * height * width


def test_the_part_around_a_car_is_the_map_at_its_place():
    tiles = road_tiles([lane_map(seed, MapConfig()) for seed in (0, 1)], 1.0, 15.0)
    which = torch.tensor([1, 0, 1])
    corner = tiles.corner_m[which]
    position = corner + torch.tensor([[60.3, 70.9], [55.0, 48.5], [0.0, 1e4]])
    cells, place = tiles.around(which, position)
    assert cells.shape == (3, tiles.window, tiles.window)
    for car in range(3):
        column, row = ((place[car, :2] - corner[car]) / 1.0).round().long().tolist()
        expected = tiles.cells[which[car], row : row + tiles.window, column : column + tiles.window]
        assert torch.equal(cells[car], expected)
    middle = place[:2, :2] + 0.5 * tiles.window
    assert (middle - position[:2]).abs().max() <= 1.0


def scene_of(env):
    assert isinstance(env.scene, RoadScene)
    return env.scene


def test_observations_hold_the_raster_and_critics_leave_it_out():
    env = DriveEnv(PLAIN, seed=1)
    seen = env.observe()
    layout, signals = layout_of(env.contract), env.signals
    assert signals is not None
    assert signals.surroundings is not None
    spec = scene_of(env).spec
    raster = bev_raster(signals.surroundings, signals.pose_in_world, layout)
    assert layout.nose_m == pytest.approx(spec.center_x_in_base_m + 0.5 * spec.length_m)
    assert [term.name for term in env.contract.observations][-1] == "bev"
    assert "objects" not in [term.name for term in env.contract.observations]
    found = (seen["state"][:, -layout.size :] * 255).round().to(torch.uint8)
    assert torch.equal(found.reshape(raster.shape), raster)
    shown = dict(zip(layout.channels, raster.transpose(0, 1), strict=True))
    assert shown["road"].any()
    # Solid lines survive, which a bound below 255 would dim.
    assert shown["markings"].max() == 255
    assert seen["critic"].shape[1] < 200
    alone = DriveEnv(replace(PLAIN, traffic=None), seed=1)
    assert layout_of(alone.contract).channels == ("road", "route", "markings", "speed_limit")


def test_a_robot_repeats_what_training_saw_to_the_bit():
    torch.manual_seed(0)
    env_cfg = replace(PLAIN, num_envs=2)
    golden = record_drive(
        DRIVE_TRAFFIC, env_cfg, from_flat(lambda obs: torch.full((len(obs), 2), 0.1)), seed=3, envs=2, steps=25
    )
    contract = DRIVE_TRAFFIC.contract(env_cfg)
    assert golden["around/road_cells"].dtype == np.uint8
    builder = ObservationBuilder(contract, np.zeros((1, 1), np.float32))
    for row in range(50):
        if golden["episode_start"][row]:
            builder.reset()
        found = builder(recorded_signals(contract, golden, row))[0]
        np.testing.assert_allclose(found, golden["observation"][row], atol=1e-5)
        size = layout_of(contract).size
        np.testing.assert_array_equal(found[-size:], golden["observation"][row, -size:])
    packed = pack_golden(contract, golden)
    assert packed["raster"].nbytes == 50 * layout_of(contract).size


def test_the_preset_with_pictures_has_networks_that_look():
    for name, preset in DRIVE_TRAFFIC.presets.items():
        made = preset()
        assert (made.env.bev is not None) == (name == "gpu-bev") == (made.learner.network == "bev")
        assert made.learner.critic_network == ("bev" if name == "gpu-bev" else "mlp")

"""The picture from above: a hand-made one, laws, and numpy against torch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle, write_bundle
from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError, PolicyError, SurroundingsError
from gantry_deploy.evaluation.gate import check_static
from gantry_deploy.observations.bev import CHANNELS, STOP_CODES, bev_raster, speed_code
from gantry_deploy.observations.bev_colours import EGO, EGO_HIT, GROUND, bev_picture
from gantry_deploy.observations.builder import make_term
from gantry_deploy.observations.surroundings import (
    NO_ROAD,
    PEDESTRIAN,
    ROAD,
    ROAD_BROKEN,
    ROAD_SOLID,
    STATIC,
    VEHICLE,
    Surroundings,
    road_from_occupancy,
)
from gantry_deploy.perception.road import RoadView, Route, needs
from gantry_deploy.policy.golden import golden_arrays, pack_golden
from gantry_deploy.testing.legs import linear_model
from gantry_fixtures.drive import drive_contract_for, drive_golden
from gantry_fixtures.training import torch
from gantry_hardware.backends.state import RobotState
from gantry_hardware.robots import robot_spec

SMALL = BevLayout(pixels=16, behind_m=4.0)
"""12 m ahead, 4 m behind, 8 m to both sides: row r shows x = 11.5 - r, column c shows y = 7.5 - c."""
ORIGIN = np.zeros((1, 3))


def boxes(*rows):
    """Objects (1, K, 7): x, y, yaw, speed, length, width."""
    return np.array([[(*row, 1.0) for row in rows]], dtype=float)


def straight(limit=10.0, points=40):
    xs = np.arange(points) - 6.0
    ones = np.ones((1, points))
    return {
        "route_points_in_world_m": np.stack((xs, 0.0 * xs), axis=-1)[None],
        "route_speed_limit_m_s": limit * ones,
        "route_left_m": 1.75 * ones,
        "route_right_m": 1.75 * ones,
    }


def drawn(layout=SMALL, pose=ORIGIN, **around):
    raster = bev_raster(Surroundings(**around), np.asarray(pose, float), layout)
    return {name: raster[0, i] for i, name in enumerate(layout.channels)}


def as_text(plane):
    return ["".join(".#"[int(value > 0)] for value in row) for row in plane]


def random_world(seed, rows=24, slots=5):
    """Cars anywhere, on bent routes, among objects, on maps of noise."""
    rng = np.random.default_rng(seed)
    pose = rng.uniform(-500.0, 500.0, (rows, 3)) * (1.0, 1.0, 0.02)
    along = np.arange(70.0) - 6.0
    yaw = pose[:, 2:] + rng.uniform(-0.03, 0.03, (rows, 1)) * along
    steps = np.stack((np.cos(yaw), np.sin(yaw)), axis=-1)
    points = np.cumsum(steps, axis=1) - 6.0 * steps[:, :1] + pose[:, None, :2] + rng.uniform(-1, 1, (rows, 1, 2))
    objects = rng.uniform(-1.0, 1.0, (rows, slots, 7)) * (45.0, 45.0, 9.0, 15.0, 2.0, 0.7, 1.0)
    objects += (0.0, 0.0, 0.0, 4.0, 4.0, 1.7, 0.7)
    objects[..., :2] += pose[:, None, :2]
    shape = (rows, 70)
    around = {
        "route_points_in_world_m": points,
        "route_speed_limit_m_s": rng.uniform(5.0, 20.0, shape),
        "route_left_m": rng.uniform(1.5, 2.0, shape),
        "route_right_m": rng.uniform(1.5, 2.0, shape),
        "objects": objects,
        "object_kinds": rng.integers(0, 3, (rows, slots)).astype(float),
        "stop_line": np.stack((rng.uniform(-2.0, 60.0, rows), rng.integers(0, 3, rows) / 2), axis=-1),
        "road_cells": rng.integers(0, 4, (rows, 90, 80)).astype(np.uint8),
        "road_place": np.concatenate((np.floor(pose[:, :2]) - 40.0, np.full((rows, 1), 0.8)), axis=1),
    }
    return pose, around


def test_a_hand_made_picture():
    """A standing car of 4 by 2 m whose middle lies 6 m ahead and 3 m to the left, a person, and a thing behind."""
    seen = drawn(
        objects=boxes((6.0, 3.0, 0.0, 0.0, 4.0, 2.0), (9.5, -5.5, 0.3, 0.0, 0.4, 0.4), (-2.0, 0.0, 0.0, 5.0, 2.0, 6.0)),
        object_kinds=np.array([[VEHICLE, PEDESTRIAN, STATIC]]),
    )
    nothing = "." * 16
    # x from 4 to 8 and y from 2 to 4 are the rows of 7.5 to 4.5 and the columns of 3.5 and 2.5.
    assert as_text(seen["vehicles"]) == [nothing] * 4 + ["....##.........."] * 4 + [nothing] * 8
    # Smaller than a pixel, and yet it shows: the pixel around (9.5, -5.5).
    assert as_text(seen["pedestrians"]) == [nothing] * 2 + ["." * 13 + "#.."] + [nothing] * 13
    # A thing has no speed line, whatever is told of it.
    assert as_text(seen["static"]) == [nothing] * 13 + [".....######....."] * 2 + [nothing]
    assert set(np.unique(seen["vehicles"])) == {0, round(127 + 128 * 2.67 / 36.0)}
    assert set(np.unique(seen["static"])) == {0, 255}


def test_a_diagonal_box_covers_the_pixels_whose_middles_it_holds():
    """Against the definition: a middle is inside if it lies between the four sides."""
    x, y, yaw, length, width = 3.2, 1.1, 0.7, 5.0, 2.2
    plane = drawn(objects=boxes((x, y, yaw, 0.0, length, width)))["vehicles"]
    for row in range(16):
        for column in range(16):
            dx, dy = 11.5 - row - x, 7.5 - column - y
            along, across = dx * math.cos(yaw) + dy * math.sin(yaw), dy * math.cos(yaw) - dx * math.sin(yaw)
            inside = abs(along) <= 0.5 * length and abs(across) <= 0.5 * width
            assert (plane[row, column] > 0) == inside, (row, column)


def test_speeds_show_as_brightness_and_as_a_line_of_a_second():
    assert speed_code(np.array([-10.0, 0.0, 15.33, 33.33, 50.0])).tolist() == [127, 136, 191, 255, 255]
    ahead = drawn(objects=boxes((0.0, 0.5, 0.0, 6.0, 4.0, 2.0)))["vehicles"]
    # The nose is at 2 m, so the line ends at 8 m, in the one column of y = 0.5.
    assert np.flatnonzero(ahead[:, 7]).tolist() == list(range(4, 14))
    assert np.flatnonzero(ahead[4]).tolist() == [7]
    assert set(np.unique(ahead)) == {0, int(speed_code(np.array(6.0)))}
    backwards = drawn(objects=boxes((4.0, 0.5, 0.0, -3.0, 4.0, 2.0)))["vehicles"]
    assert np.flatnonzero(backwards[:, 7]).tolist() == list(range(6, 13))
    bare = drawn(replace(SMALL, speed_lines=False), objects=boxes((0.0, 0.5, 0.0, 6.0, 4.0, 2.0)))["vehicles"]
    assert np.flatnonzero(bare[:, 7]).tolist() == list(range(10, 14))


def test_where_boxes_overlap_the_faster_one_shows():
    both = boxes((4.0, 0.0, 0.0, 2.0, 4.0, 2.0), (4.0, 0.0, 1.0, 20.0, 4.0, 2.0))
    for objects in (both, both[:, ::-1]):
        plane = drawn(objects=objects)["vehicles"]
        assert plane[7, 7] == speed_code(np.array(20.0))


def test_nothing_is_drawn_of_what_lies_outside_is_free_or_unknown():
    away = boxes((30.0, 0.0, 0.0, 0.0, 4.0, 2.0), (-9.0, 0.0, 0.0, 0.0, 4.0, 2.0), (4.0, 12.0, 1.0, 0.0, 4.0, 2.0))
    assert not drawn(objects=away)["vehicles"].any()
    free = boxes((4.0, 0.0, 0.0, 0.0, 4.0, 2.0))
    free[..., 6] = 0.0
    free[..., 0] = np.nan
    assert not drawn(objects=free)["vehicles"].any()
    assert not any(plane.any() for plane in drawn().values())


def test_route_and_limit_lie_ahead_of_the_car():
    seen = drawn(**straight(limit=10.0))
    # The pixels of the line: 1.5 m to both sides, from the rear axle up to the front edge.
    assert as_text(seen["route"])[:12] == ["......####......"] * 12
    assert not seen["route"][14:].any()
    on = seen["route"] > 0
    assert set(np.unique(seen["speed_limit"][on])) == {int(speed_code(np.array(10.0)))}
    assert not seen["speed_limit"][~on].any()


def test_without_a_map_the_lane_is_the_road():
    seen = drawn(**straight())
    assert as_text(seen["road"])[:15] == ["......####......"] * 15
    # Edges lie at y = 1.75 and -1.75, a quarter of a metre outside of the middles of these columns.
    marked = np.flatnonzero(seen["markings"].any(axis=0)).tolist()
    assert marked == [6, 9]
    # Points that are repeated where the route ends have no sides.
    ended = straight()
    ended["route_points_in_world_m"][0, 10:] = ended["route_points_in_world_m"][0, 10]
    marks = drawn(**ended)["markings"]
    assert marks.any()
    assert not marks[:, 7:9].any()


def test_stop_lines_lie_across_the_lane_in_the_colour_of_the_light():
    for state, code in zip((0.0, 0.5, 1.0), STOP_CODES, strict=True):
        plane = drawn(stop_line=np.array([[6.0, state]]), **straight())["stop_line"]
        # From 5.25 to 6.75 m ahead, 1.75 m to both sides.
        assert [row for row in range(16) if plane[row].any()] == [5, 6]
        assert np.flatnonzero(plane[5]).tolist() == [6, 7, 8, 9]
        assert set(np.unique(plane)) == {0, code}
    told_from_nose = drawn(replace(SMALL, nose_m=3.0), stop_line=np.array([[3.0, 1.0]]), **straight())["stop_line"]
    np.testing.assert_array_equal(told_from_nose, plane)
    assert not drawn(stop_line=np.array([[1000.0, 1.0]]), **straight())["stop_line"].any()


def test_cells_of_a_road_map_are_found_by_their_place():
    """A map of 2 m cells with its first corner at (-4, -8): rows along y."""
    cells = np.zeros((1, 8, 8), np.uint8)
    cells[0, 4, 3], cells[0, 5, 3], cells[0, 6, 3] = ROAD, ROAD_SOLID, ROAD_BROKEN
    seen = drawn(road_cells=cells, road_place=np.array([[-4.0, -8.0, 2.0]]))
    road, marks = seen["road"], seen["markings"]
    # Column 3 is x from 2 to 4: rows 8 and 9. Row 4 is y from 0 to 2: columns 6 and 7.
    assert np.argwhere(road > 0).tolist() == [[r, c] for r in (8, 9) for c in range(2, 8)]
    assert marks[8, 2:8].tolist() == [127, 127, 255, 255, 0, 0]
    # Turned by a quarter to the left, the car has what lies to the north ahead of it.
    turned = drawn(pose=np.array([[3.0, 0.0, math.pi / 2]]), road_cells=cells, road_place=np.array([[-4.0, -8.0, 2.0]]))
    assert np.argwhere(turned["road"] > 0).tolist() == [[r, c] for r in range(6, 12) for c in (7, 8)]


def test_turning_and_moving_the_world_with_the_car_changes_nothing():
    """Routes and objects by any angle; a map of cells by quarters, since its cells lie along the world's axes."""
    pose, around = random_world(1)
    layout = BevLayout(48, behind_m=12.0)
    cells = {name: around.pop(name) for name in ("road_cells", "road_place")}
    expected = bev_raster(Surroundings(**around), pose, layout)
    assert expected[:, 1:].any(axis=(0, 2, 3)).all()
    for angle in (0.3, 2.0, -2.9):
        turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        moved = {name: values.copy() for name, values in around.items()}
        for name in ("route_points_in_world_m", "objects"):
            moved[name][..., :2] = moved[name][..., :2] @ turn + (30.0, -20.0)
        moved["objects"][..., 2] += angle
        there = np.concatenate((pose[:, :2] @ turn + (30.0, -20.0), pose[:, 2:] + angle), axis=1)
        found = bev_raster(Surroundings(**moved), there, layout)
        # A middle may lie on an edge to within single precision.
        assert np.mean(found != expected) < 1e-5
    flat = bev_raster(Surroundings(**cells), pose, layout)
    turned, place = np.rot90(cells["road_cells"], axes=(1, 2)), cells["road_place"]
    # A quarter to the right: (x, y) -> (y, -x); the first corner is then that of the largest x.
    corner = np.stack((place[:, 1], -(place[:, 0] + 80 * 0.8), place[:, 2]), axis=1)
    there = np.stack((pose[:, 1], -pose[:, 0], pose[:, 2] - 0.5 * math.pi), axis=1)
    found = bev_raster(Surroundings(road_cells=turned, road_place=corner), there, layout)
    assert flat.any()
    assert np.mean(found != flat) < 1e-4


@pytest.mark.parametrize("without", [(), ("road_cells", "road_place"), ("object_kinds",), ("objects", "stop_line")])
def test_torch_batches_and_single_rows_of_numpy_are_the_same_to_the_bit(without):
    pose, around = random_world(2)
    layout = BevLayout(40, 1.5, behind_m=20.0)
    kept = {name: values for name, values in around.items() if name not in without}
    kept = {name: values if name == "road_cells" else values.astype(np.float32) for name, values in kept.items()}
    pose = pose.astype(np.float32)
    tensors = {name: torch.from_numpy(values) for name, values in kept.items()}
    batch = bev_raster(Surroundings(**tensors), torch.from_numpy(pose), layout)
    assert batch.dtype == torch.uint8
    assert batch.shape == (24, *layout.shape)
    for row in range(24):
        one = Surroundings(**{name: values[row : row + 1] for name, values in kept.items()})
        np.testing.assert_array_equal(bev_raster(one, pose[row : row + 1], layout)[0], batch[row].numpy())


def test_large_batches_are_drawn_in_parts(monkeypatch):
    pose, around = random_world(3, rows=7)
    whole = bev_raster(Surroundings(**around), pose, SMALL)
    monkeypatch.setattr("gantry_deploy.observations.bev._MAX_WORK", 3 * 5 * 16 * 16)
    np.testing.assert_array_equal(bev_raster(Surroundings(**around), pose, SMALL), whole)


def test_colours_tell_road_others_and_the_car_apart():
    layout = BevLayout(32, behind_m=8.0)
    empty = bev_picture(bev_raster(Surroundings(), ORIGIN, layout), layout)
    assert empty.shape == (1, 3, 32, 32)
    assert empty.dtype == np.uint8
    assert empty[0, :, 0, 0].tolist() == list(GROUND)
    # The car's own box: 0.85 m behind the axle to 3.65 m ahead of it, y from -0.9 to 0.9.
    assert empty[0, :, 22, 15].tolist() == list(EGO)
    ahead = bev_raster(Surroundings(objects=boxes((9.0, 0.0, 0.0, 0.0, 4.0, 2.0)), **straight()), ORIGIN, layout)
    hit = bev_raster(Surroundings(objects=boxes((4.0, 0.0, 0.0, 0.0, 4.0, 2.0)), **straight()), ORIGIN, layout)
    colours = [set(map(tuple, bev_picture(raster, layout)[0].reshape(3, -1).T.tolist())) for raster in (ahead, hit)]
    assert EGO_HIT not in colours[0]
    assert EGO_HIT in colours[1]
    assert len(colours[0]) >= 5
    if torch:
        same = bev_picture(torch.from_numpy(hit), layout)
        np.testing.assert_array_equal(same.numpy(), bev_picture(hit, layout))
    with pytest.raises(ContractError, match="shape"):
        bev_picture(hit[:, :3], layout)


def bev_contract(**changes):
    """A small car's contract with a raster as its only term."""
    base = drive_contract_for(robot_spec("bmw_320i"))
    assert base.body is not None
    layout = replace(SMALL, **changes)
    term = make_term("bev", layout.size, scale=1.0 / 255.0)
    return replace(base, body=replace(base.body, bev=layout), observations=(term,))


def test_layouts_survive_json_and_refuse_what_makes_no_sense():
    contract = bev_contract(channels=("road", "vehicles"))
    assert PolicyContract.from_json(contract.to_json()) == contract
    assert needs(contract) == ("objects", "road")
    assert needs(bev_contract(channels=("stop_line",))) == ("route", "stop_line")
    for wrong, text in (
        ({"pixels": 4}, "pixels"),
        ({"metres_per_pixel": 0.0}, "metres_per_pixel"),
        ({"behind_m": 16.0}, "behind_m"),
        ({"channels": ("road", "rain")}, "rain"),
        ({"channels": ("road", "road")}, "once"),
    ):
        with pytest.raises(ContractError, match=text):
            replace(SMALL, **wrong)
    with pytest.raises(SurroundingsError, match="kinds"):
        drawn(objects=boxes((1.0, 0.0, 0.0, 0.0, 4.0, 2.0)), object_kinds=np.zeros((1, 2)))


def test_a_robot_is_told_of_road_route_objects_and_kinds():
    contract = bev_contract(channels=CHANNELS)
    view = RoadView(contract)
    assert view.missing(0.0, 1.0) == "no route received yet."
    told = straight()
    names = ("route_points_in_world_m", "route_speed_limit_m_s", "route_left_m", "route_right_m")
    view.set_route(Route(*(told[name][0] for name in names)))
    view.set_objects(boxes((6.0, 3.0, 0.0, 0.0, 4.0, 2.0))[0], 0.0, kinds=[STATIC])
    view.set_stop_line(5.0, 1.0, 0.0)
    assert view.missing(0.0, 1.0) == "no road received yet."
    occupancy = np.full((8, 8), -1)
    occupancy[3:5] = 0
    occupancy[4, 5] = 100
    cells = road_from_occupancy(occupancy)
    assert cells[2:6, 5].tolist() == [NO_ROAD, ROAD, NO_ROAD, NO_ROAD]
    view.set_road(cells, (-4.0, -8.0), 2.0)
    assert view.missing(100.0, 1.0) is not None
    seen = view.newest(at_origin(), 0.5, 1.0)
    planes = bev_raster(seen, ORIGIN, SMALL)[0]
    shown = dict(zip(CHANNELS, planes, strict=True))
    assert shown["static"].any()
    assert not shown["vehicles"].any()
    # y from -2 to 0 is road all along, from 0 to 2 but for one cell.
    assert (shown["road"] > 0).sum() == 2 * 16 + 2 * 14
    with pytest.raises(SurroundingsError, match="kinds"):
        view.set_objects(np.zeros((2, 7)), 0.0, kinds=[0])
    with pytest.raises(SurroundingsError, match="cells"):
        view.set_road(cells, (0.0, 0.0), 0.0)


def at_origin():
    return RobotState(
        stamp_s=0.0,
        joint_pos_rad=np.zeros(2),
        joint_vel_rad_s=np.zeros(2),
        joint_effort_nm=np.zeros(2),
        quat_base_to_world_wxyz=np.array([1.0, 0.0, 0.0, 0.0]),
        ang_vel_base_in_base_rad_s=np.zeros(3),
        lin_acc_base_in_base_m_s2=np.zeros(3),
        pos_base_in_world_m=np.zeros(3),
        lin_vel_base_in_base_m_s=np.zeros(3),
    )


def test_a_bundle_keeps_pictures_as_bytes_and_repeats_them(tmp_path):
    """Recorded far from the origin, replayed with the car as the origin: the same pixels, checked like all else."""
    base = bev_contract()
    speed = make_term("speed", 1, scale=0.1)
    contract = replace(base, observations=(speed, *base.observations, make_term("last_action", 2)))
    weight = np.random.default_rng(0).normal(0.0, 0.01, (contract.observation_size, 2))
    model = linear_model(contract, weight=weight)
    golden = drive_golden(contract, model)
    packed = pack_golden(contract, golden)
    assert packed["raster"].dtype == np.uint8
    assert packed["raster"].any(axis=0).mean() > 0.1
    assert packed["observation"].shape == (24, 3)
    write_bundle(tmp_path, contract=contract, model_bytes=model, golden=packed)
    found = golden_arrays(load_bundle(tmp_path))
    np.testing.assert_array_equal(found["observation"], golden["observation"])
    stages = []
    check_static(lambda: load_bundle(tmp_path), stages.append)
    differences = {stage.name: stage.value for stage in stages}
    assert differences["observation"] == 0.0
    assert differences["episodes"] < 1e-6

    wrong = dict(packed, raster=packed["raster"][:, 1:])
    write_bundle(tmp_path, contract=contract, model_bytes=model, golden=wrong)
    with pytest.raises(PolicyError, match="raster"):
        golden_arrays(load_bundle(tmp_path))
    torn = dict(golden, observation=golden["observation"] + np.float32(0.001))
    with pytest.raises(PolicyError, match="whole numbers"):
        pack_golden(contract, torn)

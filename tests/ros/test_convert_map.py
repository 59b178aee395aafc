"""Messages of perception: depth, clouds, calibrations, maps and goals, over the wire and malformed."""

from __future__ import annotations

import math
from array import array

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from builtin_interfaces.msg import Time  # noqa: E402
from geometry_msgs.msg import PoseStamped  # noqa: E402
from rclpy.serialization import deserialize_message, serialize_message  # noqa: E402
from sensor_msgs.msg import CameraInfo, Image, PointCloud2, PointField, RegionOfInterest  # noqa: E402

from gantry_deploy.control.goals import Goal  # noqa: E402
from gantry_deploy.depth.messages import depth_image, intrinsics  # noqa: E402
from gantry_hardware.errors import RobotError  # noqa: E402
from gantry_mapping.elevation.snapshot import MapSnapshot  # noqa: E402
from gantry_mapping.errors import MappingError  # noqa: E402
from gantry_mapping.sensing.camera import REALSENSE_LIKE  # noqa: E402
from gantry_ros.convert import map as convert_map  # noqa: E402

STAMP = Time(sec=1_700_000_000, nanosec=123_456_789)


def over_the_wire(message):
    return deserialize_message(serialize_message(message), type(message))


def test_a_depth_image_survives_the_wire():
    depth = np.array([[0.0, 1.25, 2.5], [0.1, 4.0, np.inf]], dtype=np.float32)
    message = over_the_wire(convert_map.depth_image_message(depth, STAMP, "eye"))
    assert (message.height, message.width, message.header.frame_id) == (2, 3, "eye")
    np.testing.assert_array_equal(depth_image(message), depth)


@pytest.mark.parametrize("big", [False, True])
def test_millimetres_padding_and_byte_order(big):
    pixels = np.array([[0, 1500], [65535, 1]], dtype=">u2" if big else "<u2")
    rows = np.concatenate([pixels.view(np.uint8).reshape(2, 4), np.full((2, 3), 255, np.uint8)], axis=1)
    message = Image(height=2, width=2, encoding="16UC1", is_bigendian=int(big), step=7)
    message.data = array("B", rows.tobytes())
    np.testing.assert_allclose(depth_image(message), [[0.0, 1.5], [65.535, 0.001]], rtol=1e-6)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Image(height=1, width=1, encoding="32FC", step=4, data=array("B", bytes(4))), "Did you mean '32FC1'"),
        (Image(height=1, width=1, encoding="rgb8", step=3, data=array("B", bytes(3))), "rgb8"),
        (Image(height=2, width=2, encoding="32FC1", step=8, data=array("B", bytes(15))), "15 bytes"),
        (Image(height=2, width=2, encoding="32FC1", step=4, data=array("B", bytes(16))), "4 per row"),
    ],
)
def test_an_image_that_is_no_depth_is_refused(message, reason):
    with pytest.raises(RobotError, match=reason):
        depth_image(message)


def test_a_calibration_survives_the_wire_and_an_empty_one_is_refused():
    message = over_the_wire(convert_map.camera_info_message(REALSENSE_LIKE, STAMP, "eye"))
    width, height, fx, fy, cx, cy = intrinsics(message)
    assert (width, height, cx, cy) == (48, 27, 23.5, 13.0)
    assert (fx, fy) == pytest.approx((REALSENSE_LIKE.fx, REALSENSE_LIKE.fy))
    raw = CameraInfo(width=4, height=2, k=[3.0, 0.0, 1.5, 0.0, 3.5, 0.5, 0.0, 0.0, 1.0])
    assert intrinsics(raw) == (4, 2, 3.0, 3.5, 1.5, 0.5)
    with pytest.raises(MappingError, match="not calibrated"):
        intrinsics(CameraInfo(width=4, height=2))


def full(**changes):
    """A sensor of 96 x 54 pixels, rectified."""
    message = CameraInfo(width=96, height=54, p=[57.0, 0.0, 48.0, 0.0, 0.0, 58.0, 27.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def test_binning_and_a_region_of_interest_count():
    assert intrinsics(full(binning_x=2, binning_y=2)) == (48, 27, 28.5, 29.0, 24.0, 13.5)
    assert intrinsics(full(binning_x=1, binning_y=0)) == (96, 54, 57.0, 58.0, 48.0, 27.0)
    assert intrinsics(full(binning_x=3, binning_y=2)) == (32, 27, 19.0, 29.0, 16.0, 13.5)
    region = RegionOfInterest(x_offset=16, y_offset=7, width=64, height=40)
    assert intrinsics(full(roi=region)) == (64, 40, 57.0, 58.0, 32.0, 20.0)
    assert intrinsics(full(roi=region, binning_x=2, binning_y=2)) == (32, 20, 28.5, 29.0, 16.0, 10.0)
    whole = RegionOfInterest(do_rectify=True)  # all zero: the whole sensor
    assert intrinsics(full(roi=whole)) == (96, 54, 57.0, 58.0, 48.0, 27.0)
    with pytest.raises(MappingError, match=r"64 x 40 pixels at 40, 7 is not part of its 96 x 54"):
        intrinsics(full(roi=RegionOfInterest(x_offset=40, y_offset=7, width=64, height=40)))


def test_a_point_is_at_the_same_place_in_a_cut_and_binned_image():
    """A point in space, by the full sensor's pixel and by that of the reduced image: cut first, then reduced."""
    _, _, fx, fy, cx, cy = intrinsics(full())
    point = np.array([0.3, -0.2, 1.5])
    u, v = fx * point[0] / point[2] + cx, fy * point[1] / point[2] + cy
    region = RegionOfInterest(x_offset=16, y_offset=7, width=64, height=40)
    _, _, fx, fy, cx, cy = intrinsics(full(roi=region, binning_x=4, binning_y=2))
    assert fx * point[0] / point[2] + cx == pytest.approx((u - 16) / 4)
    assert fy * point[1] / point[2] + cy == pytest.approx((v - 7) / 2)


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        (
            {"p": [0.0] * 12, "k": [3.0, 0.0, 1.0, 0.0, 3.0, 1.0, 0.0, 0.0, 1.0], "d": [0.1, 0.0]},
            RobotError,
            "distorts",
        ),
        ({"p": [0.0] * 12, "k": [3.0, 0.0, 1.0, 0.0, 3.0, 1.0, 0.0, 0.0, 1.0], "d": [np.nan]}, RobotError, "distorts"),
        ({"p": [57.0, 9.0, 48.0, 0.0, 0.0, 58.0, 27.0, 0.0, 0.0, 0.0, 1.0, 0.0]}, MappingError, "skewed by 9"),
        ({"p": [57.0, 0.0, np.nan, 0.0, 0.0, 58.0, 27.0, 0.0, 0.0, 0.0, 1.0, 0.0]}, MappingError, "not calibrated"),
        ({"p": [57.0, 0.0, 48.0, 0.0, 0.0, -58.0, 27.0, 0.0, 0.0, 0.0, 1.0, 0.0]}, MappingError, "not calibrated"),
    ],
)
def test_what_is_no_calibration_of_a_straight_picture_is_refused(changes, error, reason):
    with pytest.raises(error, match=reason):
        intrinsics(full(**changes))


def test_a_rectified_cameras_distortion_is_that_of_its_raw_pictures():
    assert intrinsics(full(d=[0.1, -0.2, 0.0, 0.0, 0.0]))[2] == 57.0


def test_depth_in_another_unit_than_its_encoding_says_is_refused():
    pixels = np.array([[0.0, 1500.0], [np.nan, 2500.0]], dtype="<f4")
    message = Image(height=2, width=2, encoding="32FC1", step=8, data=array("B", pixels.tobytes()))
    with pytest.raises(RobotError, match=r"are 1500 or more, expected metres"):
        depth_image(message)
    pixels = np.array([[0.0, 1.5], [np.inf, 5000.0]], dtype="<f4")  # one wild pixel among good ones
    message.data = array("B", pixels.tobytes())
    assert depth_image(message)[0, 1] == 1.5
    message = Image(height=1, width=2, encoding="mono16", step=4, data=array("B", np.array([0, 750], "<u2").tobytes()))
    np.testing.assert_allclose(depth_image(message), [[0.0, 0.75]])


@pytest.mark.parametrize("seed", range(20))
def test_a_cloud_of_any_layout_is_read(seed):
    """Order, offsets, types and padding of fields and rows, both byte orders, against numpy's own view."""
    rng = np.random.default_rng(seed)
    order = ">" if rng.random() < 0.5 else "<"
    names = rng.permutation(["x", "y", "z", "intensity", "ring", "time"]).tolist()
    kinds = {"intensity": ("f4", 7), "ring": ("u2", 4), "time": ("u4", 6)}
    kinds |= {name: (("f4", 7), ("f8", 8))[int(rng.integers(2))] for name in "xyz"}
    offsets, end = [], 0
    for name in names:
        end += int(rng.integers(0, 5))
        offsets.append(end)
        end += int(kinds[name][0][1])
    step = end + int(rng.integers(0, 7))
    rows, cols, pad = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(0, 9))
    formats = [order + kinds[name][0] for name in names]
    dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": step})
    points = np.zeros((rows, cols), dtype)
    for name in names:
        points[name] = rng.integers(0, 9, (rows, cols))
    raw = points.view(np.uint8).reshape(rows, cols * step)
    raw = np.concatenate([raw, np.full((rows, pad), 255, np.uint8)], axis=1)
    message = PointCloud2(height=rows, width=cols, point_step=step, row_step=cols * step + pad)
    message.is_bigendian, message.data = order == ">", array("B", raw.tobytes())
    message.fields = [
        PointField(name=name, offset=offset, datatype=kinds[name][1], count=1)
        for name, offset in zip(names, offsets, strict=True)
    ]
    expected = np.stack([points[name].astype(float).ravel() for name in "xyz"], axis=-1)
    np.testing.assert_array_equal(convert_map.cloud_points(message), expected, err_msg=f"seed {seed}")
    message.data = message.data[: len(message.data) - pad - 1]  # a byte of the last point is missing
    with pytest.raises(RobotError, match="bytes"):
        convert_map.cloud_points(message)


def test_an_empty_cloud_holds_no_point_and_one_of_integers_is_refused():
    message = convert_map.map_message(MapSnapshot(np.zeros((2, 2)), np.ones((2, 2)), (0.0, 0.0), 0.1), STAMP, "odom")
    for height, width in ((0, 0), (1, 0), (0, 5)):
        message.height, message.width, message.row_step, message.data = height, width, 16 * width, array("B")
        assert convert_map.cloud_points(message).shape == (0, 3)
    message.fields[0].datatype = PointField.INT16
    with pytest.raises(RobotError, match="no floating-point field x"):
        convert_map.cloud_points(message)


@pytest.mark.parametrize("far_m", [0.0, 123.4, -2000.0])
def test_a_map_survives_the_wire_even_far_from_the_origin(far_m):
    rng = np.random.default_rng(0)
    corner = (round(far_m / 0.08) * 0.08, round(0.5 * far_m / 0.08) * 0.08)
    sent = MapSnapshot(rng.normal(size=(25, 25)), rng.uniform(0.01, 10.0, (25, 25)), corner, 0.08, 1e9 + 0.25)
    stamp = convert_map.stamp_from_s(sent.stamp_s)
    message = over_the_wire(convert_map.map_message(sent, stamp, "odom"))
    got = convert_map.map_snapshot(message)
    np.testing.assert_allclose(got.elevation_m, sent.elevation_m, atol=1e-6)
    np.testing.assert_allclose(got.variance_m2, sent.variance_m2, rtol=1e-6)
    assert (got.resolution_m, got.stamp_s) == (0.08, sent.stamp_s)
    np.testing.assert_array_equal(np.round(np.array(got.corner_in_world_m) / 0.08), np.round(np.array(corner) / 0.08))


def test_the_points_of_a_map_are_its_cells():
    heights = np.arange(9.0).reshape(3, 3)
    message = convert_map.map_message(MapSnapshot(heights, heights + 1.0, (1.0, 2.0), 0.5), STAMP, "odom")
    points = convert_map.cloud_points(message)
    np.testing.assert_allclose(points[1], [1.25, 2.75, 1.0])  # the second column lies further along y
    np.testing.assert_allclose(points[3], [1.75, 2.25, 3.0])  # the second row further along x


def map_like(**changes):
    message = convert_map.map_message(MapSnapshot(np.zeros((3, 3)), np.ones((3, 3)), (0.0, 0.0), 0.1), STAMP, "odom")
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def with_cell(column, value):
    cells = np.frombuffer(map_like().data, "<f4").reshape(9, 4).copy()
    cells[4, column] = value
    return map_like(data=array("B", cells.tobytes()))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (map_like(height=1, width=9), "expected a square"),
        (map_like(fields=[PointField(name="x", offset=0, datatype=PointField.FLOAT32, count=1)]), "field y, z"),
        (map_like(data=array("B", bytes(100))), "100 bytes"),
        (map_like(data=array("B", bytes(144))), "0.0 m apart"),
        (with_cell(2, np.nan), "not finite"),
        (with_cell(0, 0.3), "off a grid"),
        (map_like(point_step=8), "of 8 bytes"),
    ],
)
def test_a_cloud_that_is_no_map_is_refused(message, reason):
    with pytest.raises(RobotError, match=reason):
        convert_map.map_snapshot(message)


def test_a_lidars_cloud_with_other_fields_and_doubles_is_read():
    dtype = np.dtype({"names": ["i", "x", "y", "z"], "formats": ["<u2", "<f8", "<f4", "<f4"], "offsets": [0, 4, 12, 16],
                      "itemsize": 24})  # fmt: skip
    points = np.zeros(5, dtype)
    points["x"], points["y"], points["z"] = np.arange(5), 10.0, np.nan
    message = PointCloud2(height=1, width=5, point_step=24, row_step=120, data=array("B", points.tobytes()))
    message.fields = [
        PointField(name="x", offset=4, datatype=PointField.FLOAT64, count=1),
        PointField(name="y", offset=12, datatype=PointField.FLOAT32, count=1),
        PointField(name="z", offset=16, datatype=PointField.FLOAT32, count=1),
    ]
    got = convert_map.cloud_points(message)
    np.testing.assert_array_equal(got[:, :2], np.stack([np.arange(5), np.full(5, 10.0)], axis=1))
    assert np.isnan(got[:, 2]).all()


def test_a_grid_maps_layer_starts_at_the_largest_corner_and_runs_down_its_columns():
    layer = convert_map.grid_layer(np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))  # rows along x
    # Grid map: index (0, 0) is the largest x and y, rows run against x; storage is column-major.
    assert list(layer.data) == [5.0, 3.0, 1.0, 4.0, 2.0, 0.0]
    assert [(dim.label, dim.size, dim.stride) for dim in layer.layout.dim] == [
        ("column_index", 2, 6),
        ("row_index", 3, 3),
    ]


def test_a_goal_survives_the_wire_and_other_frames_are_refused():
    sent = Goal(3.0, -2.0, -2.5)
    message = over_the_wire(convert_map.goal_message(sent, STAMP, "odom"))
    got = convert_map.goal(message, "odom")
    assert (got.x_in_world_m, got.y_in_world_m) == (3.0, -2.0)
    assert got.yaw_in_world_rad == pytest.approx(-2.5)
    with pytest.raises(RobotError, match="'odom', expected 'map'"):
        convert_map.goal(message, "map")
    with pytest.raises(RobotError, match="norm 0"):
        convert_map.goal(
            PoseStamped(pose=type(message.pose)(orientation=type(message.pose.orientation)(w=0.0))), "odom"
        )
    message.pose.position.x = math.nan
    with pytest.raises(RobotError, match="nan"):
        convert_map.goal(message, "odom")


def test_stamps_in_seconds():
    assert convert_map.seconds(Time(sec=3, nanosec=500_000_000)) == 3.5
    assert convert_map.stamp_from_s(3.25) == Time(sec=3, nanosec=250_000_000)

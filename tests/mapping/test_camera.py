"""Depth cameras against geometry by hand."""

import math

import numpy as np
import pytest

from gantry_mapping.errors import MappingError
from gantry_mapping.sensing.camera import REALSENSE_FULL, REALSENSE_LIKE, DepthCamera, pitched_down_quat_wxyz
from gantry_mapping.sensing.frames import base_to_base_yaw, rotation_matrix, yaw_of

LEVEL = [[1.0, 0.0, 0.0, 0.0]]


def axis_matrix(axis, angle):
    """Rodrigues' formula, as an oracle."""
    x, y, z = axis
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + math.sin(angle) * skew + (1 - math.cos(angle)) * skew @ skew


def quat(axis, angle):
    return np.array([math.cos(angle / 2), *(math.sin(angle / 2) * np.asarray(axis))])


def multiply(a, b):
    w, v = a[0] * b[0] - a[1:] @ b[1:], a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.array([w, *v])


def yaw_pitch_roll(yaw, pitch, roll):
    return multiply(multiply(quat([0, 0, 1], yaw), quat([0, 1, 0], pitch)), quat([1, 0, 0], roll))


def floor_depth(camera, height_m, matrix):
    """Depth image of a floor at world height 0, pixel by pixel, from a base at ``height_m`` turned by ``matrix``."""
    mount = rotation_matrix(np.asarray([camera.quat_camera_to_base_wxyz]))[0]
    image = np.zeros((camera.height, camera.width))
    for v in range(camera.height):
        for u in range(camera.width):
            ray = matrix @ mount @ [(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy, 1.0]
            start = height_m + (matrix @ np.asarray(camera.pos_camera_in_base_m))[2]
            image[v, u] = -start / ray[2] if ray[2] < -1e-6 else math.inf
    return image


@pytest.mark.parametrize("axis", [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.0, 0.8]])
def test_rotation_matrix_against_rodrigues(axis):
    np.testing.assert_allclose(rotation_matrix(quat(axis, 0.7)[None])[0], axis_matrix(axis, 0.7), atol=1e-12)


def test_base_yaw_undoes_yaw_alone(wide):
    orientation = yaw_pitch_roll(2.5, 0.3, -0.2)
    assert float(yaw_of(wide([orientation]))[0]) == pytest.approx(2.5)
    expected = axis_matrix([0, 1, 0], 0.3) @ axis_matrix([1, 0, 0], -0.2)
    np.testing.assert_allclose(np.asarray(base_to_base_yaw(wide([orientation])))[0], expected, atol=1e-12)


def test_a_forward_camera_by_hand(array):
    """Right in the image is right of the robot, down is down; depth is along the axis, not along the ray."""
    camera = DepthCamera(3, 3, 2.0, 2.0, 1.0, 1.0, pos_camera_in_base_m=(0.1, 0.0, 0.2))
    points, valid = camera.points_in_base_yaw(array(np.full((1, 3, 3), 2.0)), array(LEVEL))
    points = np.asarray(points)[0].reshape(3, 3, 3)
    np.testing.assert_allclose(points[1, 1], [2.1, 0.0, 0.2], atol=1e-6)
    np.testing.assert_allclose(points[1, 2], [2.1, -1.0, 0.2], atol=1e-6)
    np.testing.assert_allclose(points[2, 1], [2.1, 0.0, -0.8], atol=1e-6)
    assert bool(valid.all())


def test_pitched_down():
    turned = rotation_matrix(np.array([pitched_down_quat_wxyz(math.radians(30))]))[0] @ [0, 0, 1]
    np.testing.assert_allclose(turned, [math.cos(math.radians(30)), 0, -0.5], atol=1e-12)


def test_what_is_no_measurement(array):
    camera = DepthCamera(7, 1, 5.0, 5.0, 3.0, 0.0)
    depth = array([[[0.0, math.nan, math.inf, -1.0, 0.1, 4.1, 1.0]]])
    points, valid = camera.points_in_base_yaw(depth, array(LEVEL))
    np.testing.assert_array_equal(np.asarray(valid), [[False] * 6 + [True]])
    assert np.isfinite(np.asarray(points)).all()


def test_zero_depth_is_invalid_even_for_a_camera_that_sees_from_zero(array):
    camera = DepthCamera(2, 1, 5.0, 5.0, 0.5, 0.0, min_range_m=0.0)
    np.testing.assert_array_equal(np.asarray(camera.valid_depth(array([0.0, 0.01]))), [False, True])


@pytest.mark.parametrize(("yaw", "pitch", "roll"), [(0, 0, 0), (1.0, 0.2, 0.1), (-2.8, -0.15, 0.3)])
def test_a_floor_is_flat_from_any_attitude(yaw, pitch, roll, wide):
    camera, height = DepthCamera.from_fov(12, 8, 1.4, pos_camera_in_base_m=(0.3, 0.05, 0.1), pitch_down_rad=0.5), 0.4
    matrix = axis_matrix([0, 0, 1], yaw) @ axis_matrix([0, 1, 0], pitch) @ axis_matrix([1, 0, 0], roll)
    depth = floor_depth(camera, height, matrix)
    points, valid = camera.points_in_base_yaw(wide([depth]), wide([yaw_pitch_roll(yaw, pitch, roll)]))
    points, valid = np.asarray(points)[0], np.asarray(valid)[0]
    assert valid.sum() > 40
    np.testing.assert_allclose(points[valid][:, 2], -height, atol=1e-9)
    # What is left of the camera's axis in a level image is left of the robot, whatever its heading.
    assert points[valid][:, 0].min() > 0.2


def test_environments_do_not_mix(array):
    rng = np.random.default_rng(0)
    depth, turns = rng.uniform(0.2, 3.0, (4, 27, 48)), rng.normal(size=(4, 4))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    together, _ = REALSENSE_LIKE.points_in_base_yaw(array(depth), array(turns))
    for i in range(4):
        alone, _ = REALSENSE_LIKE.points_in_base_yaw(array(depth[i : i + 1]), array(turns[i : i + 1]))
        np.testing.assert_allclose(np.asarray(together)[i], np.asarray(alone)[0], atol=1e-5)


def test_presets_see_the_same_field():
    for camera in (REALSENSE_LIKE, REALSENSE_FULL):
        assert 2 * math.degrees(math.atan(camera.width / 2 / camera.fx)) == pytest.approx(80.0)
        assert camera.cx == (camera.width - 1) / 2


@pytest.mark.parametrize("stride", [1, 2, 5, 7])
def test_a_strided_image_gives_the_same_points(stride, wide):
    rng = np.random.default_rng(stride)
    depth = rng.uniform(0.2, 3.0, (1, 27, 48))
    points, _ = REALSENSE_LIKE.points_in_base_yaw(wide(depth), wide(LEVEL))
    expected = np.asarray(points).reshape(27, 48, 3)[::stride, ::stride].reshape(-1, 3)
    fewer, _ = REALSENSE_LIKE.strided(stride).points_in_base_yaw(wide(depth[:, ::stride, ::stride].copy()), wide(LEVEL))
    np.testing.assert_allclose(np.asarray(fewer)[0], expected, atol=1e-9)


def test_refusals():
    with pytest.raises(MappingError, match="stride is 0"):
        REALSENSE_LIKE.strided(0)
    with pytest.raises(MappingError, match=r"\(1, 3, 2\), expected \(N, 27, 48\)"):
        REALSENSE_LIKE.points_in_base_yaw(np.zeros((1, 3, 2)), np.array(LEVEL))
    with pytest.raises(MappingError, match="near < far"):
        DepthCamera(1, 1, 1.0, 1.0, 0.0, 0.0, min_range_m=2.0, max_range_m=1.0)
    with pytest.raises(MappingError, match="length 2, expected 1"):
        DepthCamera(1, 1, 1.0, 1.0, 0.0, 0.0, quat_camera_to_base_wxyz=(2.0, 0.0, 0.0, 0.0))

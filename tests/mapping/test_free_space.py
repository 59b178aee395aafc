"""Where a camera looks past: against trenches and random ground whose depth is rendered without approximation."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.free_space import DEPTHS_M, FreeSpace, lowest_within
from gantry_mapping.elevation.fusion import FIRST_RATIO, fusion_variances, lowered
from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.pipeline import MappingPipeline
from gantry_mapping.sensing.camera import REALSENSE_LIKE
from gantry_mapping.sensing.frames import base_to_base_yaw

torch = pytest.importorskip("torch")
from gantry_mapping.learn.march import march_depth  # noqa: E402
from gantry_mapping.learn.samples import sample_ground  # noqa: E402

HEIGHT = 0.3
GRID = GridSpec(28, 24, 0.04, 0.94, 0.0)
CFG = MappingCfg(local_grid=GRID, map_size_m=4.0, map_resolution_m=0.04, nominal_base_height_m=HEIGHT)
LEVEL = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
TRENCH = (2.76, 3.08)
"""From where to where it goes along x, m; the robot stands at 2 m and sees from 2.58 m on."""


def trench(depth_m=1.0):
    """A floor at 0 (150 x 100 cells of 4 cm) with a trench across."""
    ground = torch.zeros(150, 100)
    ground[69:77] = -depth_m
    return ground


def depth_of(ground, pos, quat=LEVEL, camera=REALSENSE_LIKE):
    return march_depth(ground, 0.04, (0.0, 0.0), camera, pos, quat)


def standing(x=2.0):
    return torch.tensor([[x, 2.0, HEIGHT]])


def test_a_trench_is_looked_past_and_the_floor_is_not(array):
    sight = FreeSpace(REALSENSE_LIKE, GRID, HEIGHT, array([0.0]))
    past = np.asarray(sight(array(depth_of(trench(), standing())), base_to_base_yaw(array(LEVEL))))[0]
    x = 2.0 + GRID.row_centers(np.zeros(1))
    inside = (x > TRENCH[0]) & (x < TRENCH[1])
    assert np.isinf(past[~inside]).all()
    middle = past[inside][:, 6:18]
    allowed = [-HEIGHT - depth for depth in DEPTHS_M]
    assert all(any(abs(value - height) < 1e-6 for height in allowed) for value in middle[np.isfinite(middle)])
    # The ray over the near edge falls by 0.36 m on 0.44 m from the camera: it is 0.21 m deep 0.26 m further on.
    assert middle[-2].min() == middle[-2].max() == pytest.approx(-HEIGHT - 0.16)
    assert (np.diff(np.where(np.isinf(middle), 0.0, middle), axis=0) <= 1e-6).all()  # deeper towards the far wall


def test_ground_is_nowhere_higher_than_what_was_looked_past():
    """Beside edges by a little: a pixel is as wide as a cell."""
    generator = torch.Generator().manual_seed(4)
    coarse = -0.6 * torch.rand((10, 5, 5), generator=generator)
    ground = coarse.repeat_interleave(30, 1).repeat_interleave(20, 2)
    ground[:, 40:60, 40:60] = 0.0
    yaw = 2 * math.pi * torch.rand(10, generator=generator)
    quat = torch.stack((torch.cos(yaw / 2), 0 * yaw, 0 * yaw, torch.sin(yaw / 2)), dim=1)
    pos = standing().repeat(10, 1)
    index = torch.arange(10)
    depth = march_depth(ground, 0.04, (0.0, 0.0), REALSENSE_LIKE, pos, quat, raster_index=index)
    past = FreeSpace(REALSENSE_LIKE, GRID, HEIGHT, pos)(depth, base_to_base_yaw(quat))
    true = sample_ground(ground, 0.04, GRID, pos, yaw, index) - HEIGHT
    looked = torch.isfinite(past)
    assert looked.float().mean() > 0.1
    assert (true[looked] < past[looked]).float().mean() > 0.97


def test_a_single_far_pixel_is_no_sight(array):
    sight = FreeSpace(REALSENSE_LIKE, GRID, HEIGHT, array([0.0]))
    turn = base_to_base_yaw(array(LEVEL))
    depth = depth_of(torch.zeros(150, 100), standing()).numpy()
    depth[0, 20, 20] = 3.0
    assert np.isinf(np.asarray(sight(array(depth), turn))).all()
    depth[0, 20, 21] = 3.0
    assert np.isfinite(np.asarray(sight(array(depth), turn))).any()


@pytest.mark.parametrize("nothing", [0.0, math.nan, math.inf])
def test_what_is_no_measurement_looks_past_nothing(array, nothing):
    sight = FreeSpace(REALSENSE_LIKE, GRID, HEIGHT, array([0.0]))
    image = array(np.full((1, REALSENSE_LIKE.height, REALSENSE_LIKE.width), nothing))
    assert np.isinf(np.asarray(sight(image, base_to_base_yaw(array(LEVEL))))).all()


def test_points_give_back_the_image_that_they_came_from(wide):
    sight = FreeSpace(REALSENSE_LIKE, GRID, HEIGHT, wide([0.0]))
    depth = depth_of(trench(), standing()).numpy().astype(np.float64)
    rays, origin = REALSENSE_LIKE.rays_in_base(np.zeros(1))
    points = depth.reshape(1, -1, 1) * rays + origin
    image = np.asarray(sight.image(wide(points), wide(depth.reshape(1, -1)) > 0))
    np.testing.assert_allclose(image, depth, atol=1e-9)


def test_guesses_and_measurements_by_hand(array):
    prior, new = array([0.01, 0.01, 0.01, 0.01]), array([0.04, 0.04, 0.04, 0.001])
    looked, known = array([0, 1, 1, 1]) > 0, array([1, 1, 0, 0]) > 0
    was, comes = fusion_variances(prior, new, looked, known)
    np.testing.assert_allclose(np.asarray(was), [0.01, 0.01, FIRST_RATIO * 0.04, 0.01])
    np.testing.assert_allclose(np.asarray(comes), [math.inf, 0.04, 0.04, 0.001])


def test_cells_are_lowered_by_hand(array):
    mean, variance = array([0.0, 0.0, -0.5, -0.5, 0.0]), array([0.01, 0.01, 0.01, 0.01, 0.01])
    here, bound = array([0.0, -0.7, 0.0, 0.0, 0.0]), array([-0.3, -0.3, -0.3, -0.3, math.inf])
    known = array([1, 0, 1, 0, 0]) > 0
    low, after = lowered(mean, variance, here, bound, 0.2, known)
    np.testing.assert_allclose(np.asarray(low), [-0.3, -0.7, -0.5, -0.5, 0.0])
    np.testing.assert_allclose(np.asarray(after), [0.04, 0.04, 0.01, 0.04, 0.01])


def test_what_was_looked_past_goes_on_down_and_what_was_measured_does_not_by_hand(array):
    """The first was measured, the second looked past; the third lies deeper already, the fourth is above the ray."""
    mean, variance = array([-0.1, -0.1, -0.6, 0.2]), array([0.01, 0.04, 0.04, 0.01])
    here, bound = array([-0.4, -0.4, -0.4, -0.4]), array([-0.08, -0.08, -0.08, -0.08])
    low, after = lowered(mean, variance, here, bound, 0.2, array([1, 1, 1, 1]) > 0)
    np.testing.assert_allclose(np.asarray(low), [-0.1, -0.4, -0.6, -0.08])
    np.testing.assert_allclose(np.asarray(after), [0.01, 0.04, 0.04, 0.04])


def test_what_is_measured_takes_the_place_of_a_sure_guess_that_was_looked_past(array):
    """Fifty frames of a sure guess of how deep the trench is; then it is filled."""

    class Deep:
        def __call__(self, z):
            return z * (z > -1.9) - 1.2 * (z < -1.9), 0.0 * z - 9.0

    pipeline = MappingPipeline(CFG, Deep(), array([0.0]))
    for _ in range(50):
        pipeline.update(array(depth_of(trench(), standing())), array(standing()), array(LEVEL))
    view = GridSpec(4, 12, 0.04, 0.92, 0.0)
    deep, variance = pipeline.map.query(view, array(standing()), array([0.0]))
    looked = np.asarray(deep) < -0.7
    assert looked.any()
    np.testing.assert_allclose(np.asarray(variance)[looked], CFG.carving_std_m**2, rtol=1e-4)
    for _ in range(10):
        pipeline.update(array(depth_of(trench(0.0), standing())), array(standing()), array(LEVEL))
    floor = np.asarray(pipeline.map.query(view, array(standing()), array([0.0]))[0])
    assert (np.abs(floor[looked]) < 0.02).mean() > 0.5


class Flat:
    """A network that takes all ground that it does not see for a floor, and is sure of it."""

    def __call__(self, z):
        empty = z < -1.9
        return z * ~empty + -HEIGHT * empty, 0.0 * z - 6.0


@pytest.mark.parametrize(("carve_free_space", "height_m"), [(True, -0.16), (False, 0.0)])
def test_a_trench_stays_in_the_map_when_it_is_out_of_sight(array, carve_free_space, height_m):
    """Guesses about the ground in front of the feet do not fill what was seen from farther away."""
    ground = trench()
    pipeline = MappingPipeline(replace(CFG, carve_free_space=carve_free_space), Flat(), array([0.0]))
    for step in range(30):
        pos = standing(1.6 + 0.03 * step)
        pipeline.update(array(depth_of(ground, pos)), array(pos), array(LEVEL))
        pipeline.advance(0.1)
    view = GridSpec(4, 12, 0.04, 2.96 - float(pos[0, 0]), 0.0)
    elevation, _ = pipeline.map.query(view, array(pos), array([0.0]))
    beyond, _ = pipeline.map.query(replace(view, center_x_m=view.center_x_m + 0.24), array(pos), array([0.0]))
    assert np.asarray(elevation).max() <= height_m + 0.02
    np.testing.assert_allclose(np.asarray(beyond), 0.0, atol=0.01)


def test_a_kalman_filter_takes_no_guess_of_what_was_looked_past(array):
    """A network's height below the bound is a guess; the cell gets no surer than the bound makes it."""

    class Deep:
        def __call__(self, z):
            return z * (z > -1.9) - 1.0 * (z < -1.9), 0.0 * z - 6.0

    pipeline = MappingPipeline(replace(CFG, fusion="kalman"), Deep(), array([0.0]))
    pos = standing()
    for _ in range(20):
        pipeline.update(array(depth_of(trench(), pos)), array(pos), array(LEVEL))
    _, variance = pipeline.map.query(GridSpec(4, 12, 0.04, 2.96 - 2.0, 0.0), array(pos), array([0.0]))
    looked = np.asarray(variance) < 1.0
    assert looked.any()
    assert np.asarray(variance)[looked].min() >= CFG.carving_std_m**2 - 1e-6


def test_a_drop_beyond_all_points_is_seen_all_the_same(array):
    ground = torch.zeros(150, 100)
    ground[60:] = -3.0
    pipeline = MappingPipeline(CFG, Flat(), array([0.0]))
    pos = standing()
    pipeline.update(array(depth_of(ground, pos)), array(pos), array(LEVEL))
    elevation, _ = pipeline.map.query(GRID, array(pos), array([0.0]))
    assert (np.asarray(elevation) < -0.05).sum() > 10  # most of the image is out of range
    assert float(pipeline.since_frame_s[0]) == 0.0


def test_a_loaded_map_keeps_what_was_measured(array):
    made, loaded = (MappingPipeline(CFG, Flat(), array([0.0])) for _ in range(2))
    for step in range(20):
        pos = standing(1.8 + 0.03 * step)
        made.update(array(depth_of(trench(), pos)), array(pos), array(LEVEL))
    loaded.map.load(*made.map.layers())
    pos = standing(2.7)
    for _ in range(10):
        loaded.update(array(depth_of(trench(), pos)), array(pos), array(LEVEL))
    elevation, _ = loaded.map.query(GridSpec(4, 12, 0.04, 2.96 - 2.7, 0.0), array(pos), array([0.0]))
    assert np.asarray(elevation).max() <= -0.14


def test_wider_images_than_the_map_are_taken(wide):
    pipeline = MappingPipeline(CFG, Flat(), torch.zeros(1))
    pos = standing()
    pipeline.update(torch.as_tensor(np.asarray(wide(depth_of(trench(), pos)))), pos, LEVEL)
    assert pipeline.map.layers()[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("reach", "row"),
    [
        (0, [math.inf, -0.1, -0.2, math.inf, -0.2, -0.3, -0.2]),
        (1, [math.inf, -0.2, -0.2, math.inf, -0.3, -0.3, -0.3]),
        (3, [math.inf, -0.2, -0.3, math.inf, -0.3, -0.3, -0.3]),
        (40, [math.inf, -0.3, -0.3, math.inf, -0.3, -0.3, -0.3]),
    ],
)
def test_behind_an_edge_it_is_as_deep_as_nearby_by_hand(array, reach, row):
    past = np.array([math.inf, -0.1, -0.2, math.inf, -0.2, -0.3, -0.2])
    assert np.asarray(lowest_within(array([[past]]), reach))[0, 0].tolist() == pytest.approx(row)
    assert np.asarray(lowest_within(array([past[:, None]]), reach))[0, :, 0].tolist() == pytest.approx(row)


@pytest.mark.parametrize("reach", [1, 2, 3, 5, 8])
def test_the_deepest_nearby_is_the_minimum_over_a_square(array, reach):
    past = np.random.default_rng(reach).uniform(-0.5, 0.0, (2, 11, 9))
    past[past > -0.1] = math.inf
    padded = np.pad(past, ((0, 0), (reach, reach), (reach, reach)), constant_values=math.inf)
    lowest = np.lib.stride_tricks.sliding_window_view(padded, (2 * reach + 1,) * 2, axis=(1, 2)).min(axis=(3, 4))
    np.testing.assert_allclose(
        np.asarray(lowest_within(array(past), reach)), np.where(np.isinf(past), past, lowest), rtol=1e-6
    )


@pytest.mark.parametrize("mapper", [Flat(), None])
def test_the_near_edge_of_a_trench_is_no_ramp(array, mapper):
    """Whoever walks up to it looks past its first cells by 8 cm at first, and by more from nearer."""
    depths = {}
    for reach_m in (0.0, 0.32):
        pipeline = MappingPipeline(replace(CFG, carving_reach_m=reach_m), mapper, array([0.0]))
        for step in range(30):
            pos = standing(1.2 + 0.03 * step)
            pipeline.update(array(depth_of(trench(), pos)), array(pos), array(LEVEL))
        view = GridSpec(4, 8, 0.04, TRENCH[0] + 0.16 - float(pos[0, 0]), 0.0)
        depths[reach_m] = np.asarray(pipeline.map.query(view, array(pos), array([0.0]))[0])
    assert depths[0.0].max() > -0.13
    assert depths[0.32].max() < -0.15

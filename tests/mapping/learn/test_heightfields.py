"""Random ground: repeatable, finite, of the families it says; rasters survive a file."""

import numpy as np
import pytest

from gantry_hardware.errors import UnknownNameError
from gantry_mapping.learn.heightfields import FAMILIES, cut_patch, load_rasters, make_patch, save_rasters
from gantry_mapping.learn.rays import RasterError


@pytest.mark.parametrize("family", FAMILIES)
def test_patches_are_finite_uneven_and_repeatable(family):
    first, again = (make_patch(family, np.random.default_rng(5), 100, 0.04) for _ in range(2))
    assert first.ground_m.shape == (100, 100)
    assert first.ground_m.dtype == np.float32
    assert np.isfinite(first.ground_m).all()
    assert np.ptp(first.ground_m) > 0.01
    assert np.array_equal(first.surface_m, again.surface_m)
    other = make_patch(family, np.random.default_rng(6), 100, 0.04)
    assert not np.array_equal(first.ground_m, other.ground_m)


def test_only_floating_boxes_float_and_they_float_above_the_ground():
    for family in FAMILIES:
        patches = [make_patch(family, np.random.default_rng(seed), 100, 0.04) for seed in range(5)]
        floating = [np.isfinite(patch.roof_m) for patch in patches]
        assert any(area.any() for area in floating) == (family == "floating_boxes")
        for patch, area in zip(patches, floating, strict=True):
            assert (patch.underside_m[area] >= patch.ground_m[area] + 0.15 - 1e-6).all()
            assert (patch.roof_m[area] > patch.underside_m[area]).all()
            assert np.array_equal(patch.surface_m[area], patch.roof_m[area])
            assert np.array_equal(patch.surface_m[~area], patch.ground_m[~area])


def test_an_unknown_family_is_answered_with_the_near_miss():
    with pytest.raises(UnknownNameError, match="Did you mean 'stones'"):
        make_patch("stone", np.random.default_rng(0), 10, 0.04)


def test_a_cut_patch_is_a_part_of_its_raster():
    raster = np.arange(35, dtype=np.float32).reshape(5, 7)
    for seed in range(20):
        ground = cut_patch([raster], np.random.default_rng(seed), 3).ground_m
        row, column = divmod(int(ground.min()), 7)
        assert sorted(ground.flatten()) == sorted(raster[row : row + 3, column : column + 3].flatten())
    with pytest.raises(RasterError, match="5 x 7 cells, expected at least 6"):
        cut_patch([raster], np.random.default_rng(0), 6)


def test_rasters_come_back_from_a_file(tmp_path):
    rasters = {"one": np.random.default_rng(0).random((4, 5), np.float32), "two": np.ones((3, 3), np.float32)}
    save_rasters(tmp_path / "ground.npz", rasters, 0.05)
    back, resolution_m = load_rasters(tmp_path / "ground.npz")
    assert resolution_m == 0.05
    assert back.keys() == rasters.keys()
    assert all(np.array_equal(back[name], rasters[name]) for name in rasters)


def test_files_that_hold_something_else_are_refused(tmp_path):
    with pytest.raises(RasterError, match="Cannot read rasters"):
        load_rasters(tmp_path / "nothing.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(RasterError, match="Cannot read rasters"):
        load_rasters(tmp_path / "text.npz")
    np.savez(tmp_path / "bare.npz", ground=np.zeros((3, 3)))
    with pytest.raises(RasterError, match="no entry 'resolution_m'"):
        load_rasters(tmp_path / "bare.npz")
    np.savez(tmp_path / "flat.npz", ground=np.zeros(3), resolution_m=0.04)
    with pytest.raises(RasterError, match="Raster 'ground'"):
        load_rasters(tmp_path / "flat.npz")

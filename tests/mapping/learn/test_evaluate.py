"""The comparison of mappers: perfect where all is flat, and honest about what is not seen."""

import math

import numpy as np
import pytest
import torch

from gantry_mapping.config import GO2_SMALL
from gantry_mapping.elevation.grid import WINDOW_SMALL, GridSpec
from gantry_mapping.errors import MappingError
from gantry_mapping.learn.evaluate import Condition, Entrant, EvalCfg, classical, compare, evaluate, in_sight
from gantry_mapping.learn.noise import CLEAN, DriftCfg
from gantry_mapping.learn.samples import sample_ground
from gantry_mapping.sensing.camera import REALSENSE_LIKE

WALK = EvalCfg(window=WINDOW_SMALL, robots_per_raster=1, seconds=2.0)
FLAWLESS = {"none": Condition(noise=CLEAN)}


class Oracle:
    """Says that all is flat ground under a standing robot, and how sure it is of that."""

    def __init__(self, std_m=0.1):
        self.std_m = std_m

    def __call__(self, z):
        flat = torch.full_like(z, -GO2_SMALL.nominal_base_height_m)
        return flat, torch.full_like(z, 2 * math.log(self.std_m))


def flat(height=0.0):
    return np.full((100, 100), height, np.float32)


def test_flat_ground_is_mapped_to_the_centimetre():
    scores = evaluate({"classical": classical()}, {"flat/0": flat()}, 0.04, WALK, FLAWLESS)
    scores = scores["conditions"]["none"]["classical"]["all"]
    assert scores["cells"] > 500
    assert scores["mae_seen_cm"] < 0.5
    assert 0.2 < scores["coverage"] <= 1.0


def test_what_was_seen_does_not_depend_on_who_maps():
    """The oracle's window counts the same cells as seen and scores the bob of its body as its error."""
    entrants = {"oracle": Entrant(GO2_SMALL, Oracle()), "classical": classical()}
    result = evaluate(entrants, {"flat/0": flat(), "flat/1": flat()}, 0.04, WALK, FLAWLESS)["conditions"]["none"]
    assert result["oracle"]["all"]["cells"] == result["classical"]["all"]["cells"]
    assert result["oracle"]["all"]["coverage"] == pytest.approx(1.0, abs=0.1)
    assert result["oracle"]["all"]["mae_occluded_cm"] < 2.0
    assert set(result["oracle"]) == {"flat", "all"}


def test_a_box_hides_what_is_behind_it():
    """A wall across the path, 0.3 m high: of the ground behind it the classical map has its prior alone."""
    ground = flat()
    ground[60:64] = 0.3
    result = evaluate({"classical": classical()}, {"wall/0": ground}, 0.04, WALK, FLAWLESS)
    scores = result["conditions"]["none"]["classical"]["all"]
    assert scores["mae_seen_cm"] < 6.0
    assert scores["coverage"] < 0.99


def test_a_cell_is_in_sight_only_if_its_ground_is():
    """A wall 0.2 m high from x = 1.2 to 1.4 m ahead of the camera hides the ground behind it as far as lines through
    its far edge reach; 0.36 m up, that is 1.08 / (0.38 - 0.2) * 0.38 = 2.28 m ahead of the camera."""
    ground = torch.zeros(1, 250, 250)
    ground[:, 130:135] = 0.2
    grid = GridSpec(60, 1, 0.04, 1.2, 0.02)
    pos, quat = torch.tensor([[4.0, 5.0, 0.32]]), torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    heights = sample_ground(ground, 0.04, grid, pos, torch.zeros(1), torch.zeros(1, dtype=torch.long))
    sight = in_sight(ground, 0.04, REALSENSE_LIKE, grid, heights, pos, quat, torch.zeros(1, dtype=torch.long))
    x = grid.row_centers(pos)
    sight = sight[0, :, 0]
    assert not sight[x < 0.5].any()  # below the image
    assert sight[(x > 0.65) & (x < 1.2)].all()
    assert sight[(x > 1.2) & (x < 1.4)].all()
    assert not sight[(x > 1.4) & (x < 2.4)].any()
    nothing = torch.full_like(heights, -math.inf)
    assert not in_sight(ground, 0.04, REALSENSE_LIKE, grid, nothing, pos, quat, torch.zeros(1, dtype=torch.long)).any()


def test_drift_and_noise_make_maps_worse():
    rng = np.random.default_rng(0)
    ground = np.kron(rng.uniform(-0.15, 0.15, (10, 10)), np.ones((10, 10))).astype(np.float32)
    conditions = {"none": Condition(noise=CLEAN), "drift": Condition(CLEAN, DriftCfg(0.1, 0.05, 0.1))}
    result = evaluate({"classical": classical()}, {"blocks/0": ground}, 0.04, WALK, conditions)["conditions"]
    none, drift = (result[name]["classical"]["all"]["mae_seen_cm"] for name in ("none", "drift"))
    assert drift > 1.2 * none


def test_no_ground_is_no_error():
    ground = flat()
    ground[50:] = -np.inf
    scores = evaluate({"classical": classical()}, {"ledge/0": ground}, 0.04, WALK, FLAWLESS)["conditions"]["none"]
    assert math.isfinite(scores["classical"]["all"]["mae_seen_cm"])


def test_columns_are_compared_each_its_own_way():
    def entry(mae, occluded, coverage, nll, within):
        names = ("mae_seen_cm", "mae_occluded_cm", "coverage", "nll", "within_1_sigma")
        return {"all": dict(zip(names, (mae, occluded, coverage, nll, within), strict=True))}

    result = {"conditions": {"c": {"a": entry(1, 5, 0.9, -1, 0.75), "b": entry(2, 4, 0.8, -2, 0.6)}}}
    assert compare(result, "a", "b") == {
        "c": {"mae_seen_cm": True, "mae_occluded_cm": False, "coverage": True, "nll": False, "within_1_sigma": True}
    }


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(MappingError, match="No entrant"):
        evaluate({}, {"a": flat()}, 0.04)
    with pytest.raises(MappingError, match="expected one shape"):
        evaluate({"classical": classical()}, {"a": flat(), "b": flat()[:50]}, 0.04)

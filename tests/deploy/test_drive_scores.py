"""Scores of driven routes, against numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.evaluation.drive_metrics import DriveEpisodes, drive_scores, infraction_scores
from gantry_hardware.errors import GantryError, UnknownNameError

THREE = DriveEpisodes(
    completion=np.array([1.0, 0.5, 1.0]),
    driven_m=np.array([1000.0, 500.0, 1000.0]),
    duration_s=np.array([100.0, 60.0, 90.0]),
    infractions={"vehicle": np.array([0, 2, 0]), "red_light": np.array([0, 1, 0])},
    off_route_share=np.array([0.0, 0.0, 0.1]),
    lateral_rmse_m=np.array([0.1, 0.2, 0.3]),
    discomfort_share=np.array([0.0, 0.5, 0.1]),
)


def test_penalties_multiply_and_every_hit_counts():
    # 0.36 is what the leaderboard leaves after two vehicles.
    assert infraction_scores(THREE).tolist() == pytest.approx([1.0, 0.36 * 0.7, 0.9])


def test_scores_by_hand():
    scores = drive_scores(THREE)
    assert scores.coefficients == "carla-2.0"
    assert scores.driving_score.mean == pytest.approx((100.0 + 50.0 * 0.252 + 90.0) / 3)
    assert scores.completion.mean == pytest.approx(250.0 / 3)
    assert (scores.finished.mean, scores.collided.mean) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert scores.per_km == {"vehicle": pytest.approx(0.8), "red_light": pytest.approx(0.4)}
    assert scores.km == 2.5
    assert scores.lateral_rmse_m.low <= 0.2 <= scores.lateral_rmse_m.high


def test_what_nobody_defined_is_refused():
    with pytest.raises(UnknownNameError, match=r"carla-2\.0"):
        drive_scores(THREE, "carla-2")
    with pytest.raises(UnknownNameError, match="Did you mean 'vehicle'"):
        drive_scores(replace(THREE, infractions={"vehicles": np.zeros(3, int)}))
    with pytest.raises(GantryError, match=r"3 episodes, but of \{.vehicle.: 2\}"):
        replace(THREE, infractions={"vehicle": np.zeros(2, int)})
    with pytest.raises(GantryError, match="no finished episode"):
        DriveEpisodes(*(np.zeros(0),) * 3, {}, *(np.zeros(0),) * 3)

"""The small scorer: held-out pictures, who drives behind somebody, being taught anew, and its file."""

from dataclasses import replace

import pytest
import torch

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.observations.surroundings import Surroundings
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_language_reward.cfg import BAD_GOAL, GOOD_GOAL, PICTURE, LanguageCfg
from gantry_language_reward.lessons import (
    BAD,
    GOOD,
    LessonCfg,
    Lessons,
    area_under_curve,
    labels,
    other_maps,
    take_lessons,
    teach,
)
from gantry_language_reward.pictures import pictures
from gantry_language_reward.scorer import clear_share, make_scorer
from gantry_language_reward.small import SMALL_FILE, SmallScorer, load_small
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg

GOALS = (BAD_GOAL, GOOD_GOAL)
LESSONS = LessonCfg(
    env=DriveCfg(num_envs=48, map_count=3, noise=None, traffic=TrafficCfg()), count=120, each=16, blind_share=0.7
)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


@pytest.fixture(scope="module")
def held():
    """Pictures of maps that no training sees."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    found = take_lessons(other_maps(LESSONS), seed=11)
    torch.set_num_threads(before)
    return found


def lead(scorer, frames):
    found = scorer(frames)
    return found[:, 0] - found[:, 1]


def straight(gap_m=None, side_m=0.0):
    """A straight road of one lane each way, and perhaps a car with its tail so far ahead of one's nose."""
    points = torch.stack((torch.arange(-6.0, 64.0), torch.zeros(70)), dim=1)[None]
    half = torch.full((1, 70), 1.75)
    objects = torch.zeros(1, 8, 7)
    if gap_m is not None:
        objects[0, 0] = torch.tensor([3.7 + gap_m + 2.3, side_m, 0.0, 0.0, 4.6, 1.8, 1.0])
    around = Surroundings(
        route_points_in_world_m=points,
        route_speed_limit_m_s=torch.full((1, 70), 12.0),
        route_left_m=half,
        route_right_m=half,
        objects=objects,
        stop_line=torch.tensor([[1000.0, 0.0]]),
    )
    return pictures(lambda: (around, torch.zeros(1, 3)), torch.tensor([0]), PICTURE)


def test_held_out_pictures_are_told_apart(held):
    scorer = make_scorer(LanguageCfg())
    assert held.frames.shape == (240, 3, 64, 64)
    assert area_under_curve(lead(scorer, held.frames), held.label) > 0.93
    # Speeds that come of it: most of the limit where it is clear, little where it is not.
    clear = clear_share(scorer(held.frames), scorer.margin)
    assert clear[held.label == GOOD].mean() > 0.85
    assert clear[held.label == BAD].mean() < 0.35


def test_who_is_behind_somebody_shall_drive_slower_than_who_is_alone():
    scorer = make_scorer(LanguageCfg())

    def share(*where):
        return float(clear_share(scorer(straight(*where)), scorer.margin))

    assert share() > 0.9
    assert share(2.0) < 0.3
    assert share(2.0) < share(12.0) + 1e-6 <= share(40.0) + 2e-6
    assert share(2.0, 30.0) > 0.9  # Somebody far beside is nobody.


@pytest.mark.soak
def test_it_is_taught_in_seconds(held):
    """From scratch with few pictures; the same twice; and its margin is what the bad ones lead by."""
    lessons = take_lessons(replace(LESSONS, count=450, each=8), seed=3)
    losses = []
    scorer = teach(lessons, epochs=8, batch=32, on_epoch=lambda epoch, loss: losses.append(loss))
    assert losses[-1] < 0.5 * losses[0]
    assert area_under_curve(lead(scorer, held.frames), held.label) > 0.8
    assert scorer.margin == pytest.approx(float(lead(scorer, lessons.frames[lessons.label == BAD]).median()))
    few = Lessons(lessons.frames[::8], lessons.label[::8])
    assert torch.equal(*(teach(few, epochs=2).table.weight for _ in range(2)))


def test_cosines_come_in_the_order_of_the_goals():
    frames = straight(3.0)
    bad, good = load_small("", GOALS)(frames)[0].tolist()
    assert load_small("", GOALS[::-1])(frames)[0].tolist() == pytest.approx([good, bad], abs=1e-6)
    assert max(abs(bad), abs(good)) <= 1.0
    assert load_small("", GOALS)(frames[:0]).shape == (0, 2)


def test_labels_are_what_the_simulator_knows():
    """Cars that stand in their place: whoever is moved into another one is bad, who has nobody around is clear."""
    env = DriveEnv(replace(LESSONS.env, num_envs=4), seed=1)
    traffic = env.scene.traffic
    traffic.state[:] = 0.0
    traffic.car.gap_m = torch.tensor([torch.inf, 3.0, 10.0, 30.0])
    env.cars.state[:, 3] = 0.0
    assert labels(env, LESSONS).tolist() == [GOOD, BAD, -1, GOOD]
    with pytest.raises(GantryError, match="traffic is none"):
        labels(DriveEnv(replace(LESSONS.env, num_envs=2, traffic=None), seed=1), LESSONS)


def test_the_area_under_the_curve_by_hand():
    """Of four pairs three are in order and one is a tie."""
    assert area_under_curve(torch.tensor([3.0, 1.0, 1.0, 0.0]), torch.tensor([BAD, BAD, GOOD, GOOD])) == 0.875


def test_a_file_is_read_as_it_was_written(tmp_path):
    scorer = SmallScorer(margin=0.7)
    scorer.save(tmp_path / "own.safetensors")
    found = load_small(str(tmp_path / "own.safetensors"), GOALS)
    frames = straight(5.0)
    assert torch.equal(found(frames), scorer(frames))
    assert found.margin == 0.7
    assert make_scorer(LanguageCfg(path=str(tmp_path / "own.safetensors"))).margin == 0.7


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(GantryError, match="no small scorer"):
        load_small(str(tmp_path / "none"), GOALS)
    (tmp_path / "wrong").write_bytes(b"\x00" * 100)
    with pytest.raises(GantryError, match="is no small scorer"):
        load_small(str(tmp_path / "wrong"), GOALS)
    cut = tmp_path / "cut"
    cut.write_bytes(SMALL_FILE.read_bytes()[:-4])
    with pytest.raises(GantryError, match="is no small scorer"):
        load_small(str(cut), GOALS)
    with pytest.raises(UnknownNameError, match="The road is clear"):
        make_scorer(LanguageCfg(good="The road is free"))
    with pytest.raises(GantryError, match="taught with other pictures"):
        make_scorer(LanguageCfg(picture=BevLayout(pixels=64)))
    with pytest.raises(GantryError, match="32 x 32 pixels, the scorer knows 64"):
        load_small("", GOALS)(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))

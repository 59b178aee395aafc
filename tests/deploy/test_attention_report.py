"""Pictures of a policy's map: places and pixels, colours of known cells, shading, frames, and the report."""

import base64
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.evaluation.metrics import goal_scores
from gantry_deploy.report import Report, encode_mp4, maps
from gantry_deploy.report.attention import (
    AttentionFilm,
    AttentionRollout,
    ReportFrame,
    add_attention,
    describe_attention,
    film_frames,
    seen_share,
)
from gantry_deploy.report.maps import UNSEEN, Panel
from gantry_deploy.report.success import add_success
from gantry_fixtures.training import needs
from gantry_hardware.errors import GantryError
from gantry_mapping.elevation.grid import GridSpec

WINDOW = GridSpec(7, 4, 0.2, 0.6, 0.0)
AROUND = GridSpec(64, 64, 0.03, 0.6, 0.0)
GROUND = GridSpec(60, 40, 0.1, 2.0, 0.5)
NOMINAL_M, PRIOR_M2 = 0.3, 10.0
STEP_M, LOW_M = 0.4, -0.6
"""Height of the marked cell of the policy's view, and of the drop to the right of the robot."""
MARKED = (5, 3)
"""A cell ahead on the left."""


def places(grid):
    return grid.cell_centers(np.zeros(1))


def moment(time_s=0.0, x=0.0, yaw=0.0, z=NOMINAL_M, overview=True):
    """A drop on the right, unseen ground behind; the policy sees one high cell and attends to it, mostly."""
    spots = places(AROUND)
    elevation = np.where(spots[..., 1] < -0.5, LOW_M, 0.0)
    variance = np.where(spots[..., 0] < 0.0, PRIOR_M2, 0.04)
    seen = np.zeros((*WINDOW.shape, 2))
    seen[(*MARKED, 0)] = STEP_M
    attention = np.full(WINDOW.shape, 0.5 / (WINDOW.size - 1))
    attention[MARKED] = 0.5
    taken = np.zeros(WINDOW.shape)
    taken[0, 0] = 1.0
    return ReportFrame(
        time_s=time_s,
        pos_base_in_world_m=np.array([x, 0.0, z]),
        yaw_rad=yaw,
        elevation_in_world_m=elevation,
        variance_m2=variance,
        seen=seen,
        attention=attention,
        overview=taken if overview else None,
        command=np.array([4.0 - x, 0.0, math.sin(0.2), math.cos(0.2)]),
    )


def walk(*moments, **changes):
    heights = np.where(places(GROUND)[..., 0] > 3.0, 0.3, 0.0)
    given = {
        "title": "A robot on <stones>",
        "map_source": "a test",
        "ground": GROUND,
        "ground_in_world_m": heights,
        "around": AROUND,
        "window": WINDOW,
        "nominal_base_height_m": NOMINAL_M,
        "prior_variance_m2": PRIOR_M2,
        "goal_in_world": (4.0, 0.0, 0.2),
        "moments": moments or (moment(),),
        "fps": 5.0,
        "reached": False,
    }
    return AttentionRollout(**(given | changes))


def at(picture, panel, xy):
    row, col = np.round(panel.pixel(np.array(xy))).astype(int)
    return picture[row, col]


# -- places and colours ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [False, True])
def test_pixels_and_places_are_each_others_inverse(turned):
    panel = Panel((-1.0, -0.5), (2.0, 1.5), 40.0, turned)
    assert panel.shape == ((120, 80) if turned else (80, 120))
    rows, cols = panel.shape
    index = np.stack(np.meshgrid(np.arange(rows), np.arange(cols), indexing="ij"), axis=-1)
    np.testing.assert_allclose(panel.pixel(panel.places()), index, atol=1e-9)


def test_a_robot_looks_up_and_its_left_is_left_while_the_world_looks_right():
    low, high = (-1.0, -1.0), (1.0, 1.0)
    robot, world = Panel(low, high, 50.0, turned=True), Panel(low, high, 50.0)
    row, col = robot.pixel(np.array([0.8, 0.6]))  # ahead, and to the left
    assert row < 20
    assert col < 30
    row, col = world.pixel(np.array([0.8, 0.6]))  # far along x, and up along y
    assert row < 30
    assert col > 80


@pytest.mark.parametrize("turned", [False, True])
def test_every_cell_is_painted_where_it_is(turned):
    grid = GridSpec(5, 3, 0.2, 0.3, -0.1)
    panel = Panel((-0.6, -0.8), (1.2, 0.6), 50.0, turned)
    colours = np.random.default_rng(0).uniform(0.4, 1.0, (5, 3, 3))
    picture = maps.paint(panel, grid, colours)
    for i in range(5):
        for j in range(3):
            np.testing.assert_array_equal(at(picture, panel, places(grid)[i, j]), colours[i, j])
    np.testing.assert_array_equal(at(picture, panel, (1.1, 0.5)), UNSEEN)


def test_colours_are_those_of_their_tables_at_the_knots():
    span, table = maps.HEIGHT_SPAN_M, maps.HEIGHT_COLOURS
    np.testing.assert_allclose(
        maps.height_colours(np.array([-9.0, -span, 0.0, span, 9.0])), np.array(table)[[0, 0, 2, 4, 4]]
    )
    low, high = maps.SIGMA_RANGE_M
    ends = maps.sigma_colours(np.array([0.0, low**2, high**2, 100.0]))
    np.testing.assert_allclose(ends, np.array(maps.SIGMA_COLOURS)[[0, 0, -1, -1]], atol=1e-12)


def test_an_even_spread_looks_dull_and_a_peak_bright():
    even, peak = np.full((5, 8), 1.0 / 40), np.zeros((5, 8))
    peak[1, 1] = 1.0
    np.testing.assert_allclose(maps.share_colours(even)[0, 0], maps.ramp(np.array(0.25), maps.SHARE_COLOURS))
    np.testing.assert_allclose(maps.share_colours(peak)[1, 1], maps.SHARE_COLOURS[-1])


def test_slopes_that_face_the_light_are_brighter_than_level_ground_and_others_darker():
    x = np.arange(20) * 0.1
    level, falls, rises = np.zeros((20, 6)), np.tile(-0.5 * x[:, None], (1, 6)), np.tile(0.5 * x[:, None], (1, 6))
    np.testing.assert_allclose(maps.hillshade(level, 0.1), 1.0)
    assert (maps.hillshade(falls, 0.1) > 1.0).all()  # Light comes from ahead.
    assert (maps.hillshade(rises, 0.1) < 1.0).all()


def test_a_line_covers_its_own_pixels_and_no_others():
    panel = Panel((0.0, 0.0), (1.0, 1.0), 100.0)
    picture = np.zeros((100, 100, 3))
    maps.draw_line(picture, panel, np.array([[0.2, 0.505], [0.8, 0.505], [9.0, 0.505]]), (1.0, 0.5, 0.0), 2.0)
    np.testing.assert_array_equal(at(picture, panel, (0.505, 0.505)), (1.0, 0.5, 0.0))
    assert picture[:40].sum() == picture[60:].sum() == picture[:, :15].sum() == 0.0
    before = picture.copy()
    maps.draw_line(picture, panel, np.array([[5.0, 5.0], [6.0, 6.0]]), (1.0, 1.0, 1.0))
    np.testing.assert_array_equal(picture, before)


@needs("matplotlib")
def test_a_png_holds_the_picture():
    from matplotlib.image import imread

    frame = np.random.default_rng(1).integers(0, 256, (11, 7, 3), dtype=np.uint8)
    read = imread(io.BytesIO(maps.encode_png(frame)), format="png")
    np.testing.assert_array_equal(np.round(255 * read[..., :3]).astype(np.uint8), frame)


# -- frames ------------------------------------------------------------------------------------------------------------


@needs("matplotlib")
def test_the_drawn_numbers_are_those_of_the_map():
    film = AttentionFilm(walk())
    frame = film.still(0).astype(float) / 255.0

    def panel(name):
        row, col = film.corner(name)
        return frame[row : row + film.side.shape[0], col : col + film.side.shape[1]]

    marked, plain = places(WINDOW)[MARKED], places(WINDOW)[4, 2]
    shares = maps.share_colours(film.walk.moments[0].attention)
    tolerance = {"atol": 0.5 / 255 + 1e-9}
    np.testing.assert_allclose(at(panel("seen"), film.side, marked), maps.height_colours(np.array(STEP_M)), **tolerance)
    np.testing.assert_allclose(at(panel("seen"), film.side, plain), maps.height_colours(np.array(0.0)), **tolerance)
    np.testing.assert_allclose(at(panel("attention"), film.side, marked), shares[MARKED], **tolerance)
    np.testing.assert_allclose(at(panel("attention"), film.side, plain), shares[4, 2], **tolerance)
    taken = at(panel("overview"), film.side, places(WINDOW)[0, 0] + 0.04)
    np.testing.assert_allclose(taken, maps.SHARE_COLOURS[-1], **tolerance)
    low, level, unseen = (1.2, -0.8), (1.2, 0.6), (-0.2, 0.6)
    np.testing.assert_allclose(at(panel("map"), film.side, low), maps.height_colours(np.array(LOW_M)), **tolerance)
    np.testing.assert_allclose(at(panel("map"), film.side, level), maps.height_colours(np.array(0.0)), **tolerance)
    np.testing.assert_allclose(at(panel("sigma"), film.side, level), maps.sigma_colours(np.array(0.04)), **tolerance)
    for name in ("map", "sigma"):
        np.testing.assert_allclose(at(panel(name), film.side, unseen), UNSEEN, **tolerance)


@needs("matplotlib")
def test_heights_are_over_the_ground_that_the_robot_stands_on():
    """A robot two metres up the same stairs sees the same picture."""
    here, there = moment(), moment(z=NOMINAL_M + 2.0)
    there = replace(there, elevation_in_world_m=here.elevation_in_world_m + 2.0)
    film = AttentionFilm(walk(here, there))
    for name, picture in film.around_robot(here).items():
        np.testing.assert_allclose(picture, film.around_robot(there)[name], atol=1e-9)


@needs("matplotlib")
def test_the_view_from_above_shows_ground_robot_and_what_it_attends_to():
    film = AttentionFilm(walk(moment(x=1.0, yaw=math.pi / 2)))
    row, col = film.corner("top")
    top = film.still(0)[row : row + film.top.shape[0], col : col + film.top.shape[1]].astype(float) / 255.0
    high = maps.height_colours(np.array(0.3))
    np.testing.assert_allclose(at(top, film.top, (4.8, 1.8)), high, atol=0.003)
    # Ahead is along y and left along -x after a quarter turn.
    x, y = places(WINDOW)[MARKED]
    np.testing.assert_allclose(at(top, film.top, (1.0 - y, x)), maps.SHARE_COLOURS[-1], atol=0.003)


@needs("matplotlib")
@needs("av")
def test_frames_make_a_film_that_follows_the_robot():
    film = [frame.astype(float) for frame in film_frames(walk(moment(), moment(0.2, 0.5), moment(0.4, 1.0)))]
    assert len(film) == 3
    assert encode_mp4((frame.astype(np.uint8) for frame in film), 5.0)[4:8] == b"ftyp"
    shown = AttentionFilm(walk(moment(), moment(0.2, 0.5), moment(0.4, 1.0))).still(2)
    np.testing.assert_array_equal(shown, film[2].astype(np.uint8))
    assert np.abs(film[0] - film[1]).max() > 100


@needs("matplotlib")
def test_a_network_without_a_global_feature_is_said_to_have_none():
    frame = AttentionFilm(walk(moment(overview=False))).still(0)
    film = AttentionFilm(walk())
    row, col = film.corner("overview")
    part = frame[row : row + film.side.shape[0], col : col + film.side.shape[1]]
    colours = {tuple(pixel) for pixel in part[:40].reshape(-1, 3)}
    assert colours == {tuple(np.round(255 * np.array(UNSEEN)).astype(int))}


@needs("matplotlib")
def test_a_network_without_attention_is_drawn_without():
    blind = replace(moment(), attention=None)
    film = AttentionFilm(walk(blind))
    assert set(film.around_robot(blind)) == {"map", "sigma", "seen", "overview"}
    assert film.still(0).shape == AttentionFilm(walk()).still(0).shape
    assert describe_attention(walk(), blind) == "The network shows no attention."


def test_a_walk_without_a_moment_says_why():
    with pytest.raises(GantryError, match="never ran: tilted"):
        replace(walk(), moments=(), trouble="tilted")


# -- the report --------------------------------------------------------------------------------------------------------


def test_where_the_attention_lies_in_words():
    mass = np.zeros(WINDOW.shape)
    mass[MARKED], mass[0, 0] = 0.6, 0.4
    words = describe_attention(walk(), replace(moment(), attention=mass))
    x, y = 0.6 * places(WINDOW)[MARKED] + 0.4 * places(WINDOW)[0, 0]
    assert f"{abs(x):.2f} m ahead and {abs(y):.2f} m to the {'left' if y >= 0 else 'right'}" in words
    assert "on 1 of 28 cells" in words
    assert "16.8 times an even share" in words  # 0.6 * 28.


def test_share_of_the_window_that_was_seen():
    half = replace(moment(), variance_m2=np.where(places(AROUND)[..., 0] < 0.1, PRIOR_M2, 0.04))
    assert seen_share(walk(), half) == pytest.approx(6.0 / 7.0)  # The first of seven rows lies at x = 0.
    blind = replace(moment(), variance_m2=np.full(AROUND.shape, PRIOR_M2))
    assert seen_share(walk(), blind) == 0.0


@needs("matplotlib")
@needs("av")
def test_the_report_has_the_outcome_the_film_and_stills():
    frames = list(film_frames(walk()))
    mp4 = encode_mp4(frames, 5.0)
    text = add_attention(Report("r"), walk(moment(), moment(0.2, 3.9), reached=True), mp4).html()
    assert "<h2>A robot on &lt;stones&gt;</h2>" in text
    assert "yes" in text
    assert "0.10 m" in text  # From the goal.
    assert text.count("data:video/mp4") == 1
    images = re.findall(r"data:image/png;base64,([^\"]+)", text)
    assert base64.b64decode(images[-1]) == maps.encode_png(AttentionFilm(walk(moment(), moment(0.2, 3.9))).still(1))


def test_success_is_shown_by_terrain_with_intervals_and_trials():
    from dataclasses import asdict

    def scored(hits, count):
        good = np.arange(count) < hits
        return asdict(goal_scores(good, ~good))

    part = scored(3, 4) | {"kind": {"gap": scored(1, 2), "beam": scored(2, 2)}}
    text = add_success(Report("r"), {"seed": 1, "easier_half": part, "held_out": scored(0, 10)}).html()
    assert "easier half" in text
    assert re.search(r"kind: gap</th><td[^>]*>50 %</td><td[^>]*>9 to 91 %</td><td[^>]*>50 %</td><td[^>]*>2<", text)
    assert re.search(r"all</th><td[^>]*>75 %</td><td[^>]*>30 to 95 %", text)
    assert re.search(r"all</th><td[^>]*>0 %</td><td[^>]*>0 to 28 %</td><td[^>]*>100 %</td><td[^>]*>10<", text)
    with pytest.raises(GantryError, match=r"hold seed; expected"):
        add_success(Report("r"), {"seed": 1})

"""Map input and attention of a policy that walks over terrain: a film from above, stills, and a part of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.evaluation.metrics import GOAL_HEADING_RAD, GOAL_POS_M
from gantry_deploy.report import maps
from gantry_deploy.report.html import Report
from gantry_deploy.report.maps import Panel, Picture, Rgb
from gantry_hardware.errors import GantryError
from gantry_mapping.elevation.grid import GridSpec

FloatArray = NDArray[np.floating]

TRACK: Rgb = (0.62, 0.10, 0.55)
"""Colour of the robot's path."""
ROBOT: Rgb = (0.98, 0.98, 0.98)
"""Outlines of the robot and of what the policy sees."""
GOAL: Rgb = (0.10, 0.85, 0.95)
"""Colour of the goal pose."""
WINDOW: Rgb = (0.05, 0.05, 0.05)
"""Beside the outlines of the robot and of what the policy sees, for light ground."""
INK: Rgb = (0.11, 0.15, 0.20)
"""Text."""

TOP_PX = (470, 1092)
"""Largest height and width of the view from above."""
SIDE_PX = 172
"""Edge of a view around the robot."""
SIDES = ("map", "sigma", "seen", "attention", "overview", "legend")
"""Panels below the view from above, from the left to the right."""
GAP_PX = 12
"""Between panels."""
TITLE_PX = 22
"""Line over a panel."""
HEAD_PX = 32
"""Line over everything."""
ATTENDED = 1.5
"""Cells with more than so many times an even share of the attention are dots in the view from above."""
_ROBOT_M = (0.34, 0.16)  # Half length and half width of the drawn robot.
_ARROW_M = 0.45


@dataclass(frozen=True)
class ReportFrame:
    """One moment of a walk."""

    time_s: float
    """Since the policy started."""
    pos_base_in_world_m: FloatArray
    """Shape (3,), where the robot is."""
    yaw_rad: float
    """Heading."""
    elevation_in_world_m: FloatArray
    """Shape (V, V), its map on the walk's ``around``; not finite where there is nothing."""
    variance_m2: FloatArray
    """Shape (V, V), of the map."""
    seen: FloatArray
    """Shape (rows, cols, channels), what of it the policy was given."""
    attention: FloatArray | None
    """Shape (rows, cols), weights of attention; they add up to 1. None for a network that shows none."""
    overview: FloatArray | None
    """Shape (rows, cols), the share of the global feature's channels that each cell has won; None if unknown."""
    command: FloatArray
    """Shape (4,), :func:`gantry_deploy.actions.commands.goal_command`."""


@dataclass(frozen=True)
class AttentionRollout:
    """A walk and everything that is drawn of it."""

    title: str
    """Robot and terrain, for people."""
    map_source: str
    """Origin of the map, for people."""
    ground: GridSpec
    """Cells of the ground, in the world."""
    ground_in_world_m: FloatArray
    """Shape (rows, cols), the true ground with its virtual floors; not finite where there is none."""
    around: GridSpec
    """Cells of the map around the robot, V x V, in its ``base_yaw`` frame."""
    window: GridSpec
    """Cells that the policy sees, likewise."""
    nominal_base_height_m: float
    """Height of the standing base over level ground."""
    prior_variance_m2: float
    """Variance of a cell that was never seen."""
    goal_in_world: tuple[float, float, float]
    """x, y in m and yaw in rad."""
    moments: tuple[ReportFrame, ...]
    """In order, evenly spaced."""
    fps: float
    """Moments per second."""
    reached: bool
    """Whether the robot stood at the goal, in its heading, at the end."""
    trouble: str = ""
    """Reason for an early end of the walk; empty if there was none."""

    def __post_init__(self) -> None:
        if not self.moments:
            reason = f": {self.trouble}" if self.trouble else ""
            raise GantryError(f"There is nothing to draw: the policy never ran{reason}")


class AttentionFilm:
    """Draws the moments of a walk.

    Args:
        walk: The walk.
    """

    def __init__(self, walk: AttentionRollout) -> None:
        self.walk = walk
        grid = walk.ground
        low = (grid.corner_x_m, grid.corner_y_m)
        high = (low[0] + grid.rows * grid.resolution_m, low[1] + grid.cols * grid.resolution_m)
        self.top = Panel(low, high, min(TOP_PX[0] / (high[1] - low[1]), TOP_PX[1] / (high[0] - low[0])))
        """The view from above, in the world."""
        grid = walk.around
        low = (grid.corner_x_m, grid.corner_y_m)
        high = (low[0] + grid.rows * grid.resolution_m, low[1] + grid.cols * grid.resolution_m)
        self.side = Panel(low, high, SIDE_PX / (high[0] - low[0]), turned=True)
        """A view around the robot, in its ``base_yaw`` frame."""
        zero_m = float(walk.moments[0].pos_base_in_world_m[2] - walk.nominal_base_height_m)
        colours = maps.shaded(walk.ground_in_world_m, walk.ground.resolution_m, zero_m)
        self._ground = maps.paint(self.top, walk.ground, colours)
        self._page = self._empty_page()

    def corner(self, name: str) -> tuple[int, int]:
        """Row and column of a panel's upper left pixel: ``top``, or one of :data:`SIDES`."""
        if name == "top":
            return HEAD_PX + TITLE_PX, GAP_PX
        top = HEAD_PX + TITLE_PX + self.top.shape[0] + TITLE_PX + 4
        return top, GAP_PX + SIDES.index(name) * (self.side.shape[1] + GAP_PX)

    def frames(self) -> Iterator[NDArray[np.uint8]]:
        """Pictures of all moments, uint8 (height, width, 3) each."""
        ground = self._ground.copy()
        before: ReportFrame | None = None
        for moment in self.walk.moments:
            if before is not None:
                places = np.stack((before.pos_base_in_world_m[:2], moment.pos_base_in_world_m[:2]))
                maps.draw_line(ground, self.top, places, TRACK, 2.5)
            before = moment
            yield self._frame(moment, ground)

    def still(self, index: int) -> NDArray[np.uint8]:
        """Picture of one moment with the way to it, uint8 (height, width, 3)."""
        ground = self._ground.copy()
        way = np.array([moment.pos_base_in_world_m[:2] for moment in self.walk.moments[: index + 1]])
        maps.draw_line(ground, self.top, way, TRACK, 2.5)
        return self._frame(self.walk.moments[index], ground)

    def _frame(self, moment: ReportFrame, ground: Picture) -> NDArray[np.uint8]:
        page = self._page.copy()
        distance, heading = float(np.hypot(*moment.command[:2])), math.degrees(math.atan2(*moment.command[2:4]))
        words = f"{moment.time_s:4.1f} s     {distance:.1f} m to the goal, {abs(heading):.0f}° off its heading"
        maps.write(page, 8, self.corner("attention")[1], words, colour=INK)
        self._put(page, "top", self._from_above(moment, ground))
        for name, picture in self.around_robot(moment).items():
            self._put(page, name, picture)
        return maps.as_frame(page)

    def around_robot(self, moment: ReportFrame) -> dict[str, Picture]:
        """The views around the robot by name, before they are put into a frame."""
        walk, side = self.walk, self.side
        zero_m = float(moment.pos_base_in_world_m[2] - walk.nominal_base_height_m)
        known = (moment.variance_m2 < 0.5 * walk.prior_variance_m2) & np.isfinite(moment.elevation_in_world_m)
        heights = np.where(known, moment.elevation_in_world_m, np.nan)
        colours = maps.shaded(heights, walk.around.resolution_m, zero_m)
        backdrop = maps.paint(side, walk.around, 0.35 + 0.3 * colours.mean(axis=-1, keepdims=True) * np.ones(3))
        sigma = np.where(known[..., None], maps.sigma_colours(moment.variance_m2), maps.UNSEEN)
        pictures = {
            "map": maps.paint(side, walk.around, colours),
            "sigma": maps.paint(side, walk.around, sigma),
            "seen": maps.paint(side, walk.window, maps.height_colours(moment.seen[..., 0]), backdrop),
        }
        for name in ("attention", "overview"):
            share = getattr(moment, name)
            if share is not None:
                pictures[name] = maps.paint(side, walk.window, maps.share_colours(share), backdrop)
        goal = np.array([moment.command[:2]])
        for picture in pictures.values():
            _draw_window(picture, side, _corners(walk.window))
            _draw_robot(picture, side, np.zeros(2), 0.0)
            self._goal(picture, side, goal[0], math.atan2(moment.command[2], moment.command[3]))
        return pictures

    def _from_above(self, moment: ReportFrame, ground: Picture) -> Picture:
        picture, place = ground.copy(), moment.pos_base_in_world_m[:2]
        cos, sin = math.cos(moment.yaw_rad), math.sin(moment.yaw_rad)
        turn = np.array([[cos, sin], [-sin, cos]])
        window = self.walk.window
        if moment.attention is not None:
            centers = window.cell_centers(np.zeros(1)).reshape(-1, 2) @ turn + place
            dots = maps.share_colours(moment.attention).reshape(-1, 3)
            radius_px = 0.3 * window.resolution_m * self.top.px_per_m
            for index in np.flatnonzero(moment.attention.ravel() > ATTENDED / window.size):
                maps.draw_dot(picture, self.top, centers[index], tuple(dots[index].tolist()), radius_px)
        _draw_window(picture, self.top, _corners(window) @ turn + place)
        _draw_robot(picture, self.top, place, moment.yaw_rad)
        x, y, yaw = self.walk.goal_in_world
        self._goal(picture, self.top, np.array([x, y]), yaw)
        return picture

    def _goal(self, picture: Picture, panel: Panel, place: FloatArray, yaw_rad: float) -> None:
        angle = np.linspace(0.0, 2.0 * math.pi, 25)[:-1]
        circle = place + GOAL_POS_M * np.stack((np.cos(angle), np.sin(angle)), axis=-1)
        tip = place + _ARROW_M * np.array([math.cos(yaw_rad), math.sin(yaw_rad)])
        maps.draw_outline(picture, panel, circle, GOAL, 1.5)
        maps.draw_line(picture, panel, np.stack((place, tip)), GOAL, 2.0)
        maps.draw_dot(picture, panel, place, GOAL, 3.0)

    def _put(self, page: Picture, name: str, picture: Picture) -> None:
        row, col = self.corner(name)
        page[row : row + picture.shape[0], col : col + picture.shape[1]] = picture

    def _empty_page(self) -> Picture:
        row, col = self.corner("legend")
        height = row + self.side.shape[0] + GAP_PX
        width = max(col + self.side.shape[1], self.top.shape[1] + GAP_PX) + GAP_PX
        page = np.full((height + height % 2, width + width % 2, 3), 1.0)
        maps.write(page, 8, GAP_PX, self.walk.title, 15.0, INK, bold=True)
        titles = {
            "top": f"true ground, the robot's way, what it attends to   (map: {self.walk.map_source})",
            "map": "its map",
            "sigma": "how unsure the map is",
            "seen": "what the policy sees",
            "attention": "attention",
            "overview": "cells of global feature",
        }
        for name, title in titles.items():
            maps.write(page, self.corner(name)[0] - TITLE_PX + 2, self.corner(name)[1], title, 12.5, INK)
        for name in ("attention", "overview"):
            row, col = self.corner(name)
            page[row : row + self.side.shape[0], col : col + self.side.shape[1]] = maps.UNSEEN
            maps.write(page, row + 75, col + 20, "none in this network", 12.5, (0.9, 0.9, 0.9))
        self._legend(page)
        return page

    def _legend(self, page: Picture) -> None:
        row, col = self.corner("legend")
        width = self.side.shape[1] - 8
        share = np.linspace(0.0, 1.0, width)[None, :].repeat(10, axis=0)
        unit = f"{maps.HEIGHT_SPAN_M:g} m"
        low, high = maps.SIGMA_RANGE_M
        most = f"≥ {maps.MANY_TIMES_EVEN:g} x even"
        bars = (
            ("height, 0: below the robot", maps.HEIGHT_COLOURS, (f"-{unit}", "", f"+{unit}")),
            ("standard deviation", maps.SIGMA_COLOURS, (f"{low:g}", f"{math.sqrt(low * high):g}", f"{high:g} m")),
            ("share of the window", maps.SHARE_COLOURS, ("0", "", most)),
        )
        for title, colours, words in bars:
            maps.write(page, row, col, title, 11.5, INK)
            page[row + 15 : row + 25, col : col + width] = maps.ramp(share, colours)
            for word, place in zip(words, (0.0, 0.5, 1.0), strict=True):
                size = maps.text_mask(word, 11.0).shape[1]
                maps.write(page, row + 25, col + round(place * (width - size)), word, 11.0, INK)
            row += 46
        page[row : row + 12, col : col + 12] = maps.UNSEEN
        maps.write(page, row - 3, col + 18, "never seen", 11.5, INK)
        page[row + 16 : row + 28, col : col + 12] = GOAL
        maps.write(page, row + 13, col + 18, f"goal: {GOAL_POS_M:g} m, heading", 11.5, INK)


def film_frames(walk: AttentionRollout) -> Iterator[NDArray[np.uint8]]:
    """The walk's frames for :func:`~gantry_deploy.report.video.encode_mp4`."""
    return AttentionFilm(walk).frames()


def add_attention(
    report: Report, walk: AttentionRollout, film: bytes | None, *, moments: Sequence[int] | None = None
) -> Report:
    """Add a walk to a report: how it ended, the film, and stills.

    Args:
        report: Where to add it.
        walk: The walk.
        film: MP4 of :func:`film_frames`; None to leave it out.
        moments: Indices of the moments to show; three, evenly spread, if not given.
    """
    last = walk.moments[-1]
    distance, heading = float(np.hypot(*last.command[:2])), abs(math.atan2(*last.command[2:4]))
    report.section(walk.title)
    report.tiles(
        {
            "at the goal": "yes" if walk.reached else "no",
            f"from the goal (asked: {GOAL_POS_M:g} m)": f"{distance:.2f} m",
            f"off its heading (asked: {GOAL_HEADING_RAD:g} rad)": f"{heading:.2f} rad",
            "under the policy": f"{last.time_s:.1f} s",
            "of the window seen at the end": f"{100.0 * seen_share(walk, last):.0f} %",
        }
    )
    if walk.trouble:
        report.text(f"The walk ended early: {walk.trouble}")
    if film is not None:
        report.video(
            film,
            "The walk in real time. Above: the true ground lit from the upper right, with the robot, its "
            "way, the outline of what the policy sees, and the cells it attends to. Below, around the robot with its "
            f"front up: its map ({walk.map_source}), how unsure the map is, what of it the policy is given, where its "
            "attention lies and which cells its global feature was taken from. Cyan: the goal.",
        )
    film_of = AttentionFilm(walk)
    chosen = moments
    if chosen is None:
        count = len(walk.moments)
        chosen = sorted({round(share * (count - 1)) for share in (0.15, 0.5, 0.85)})
    for index in chosen:
        moment = walk.moments[index]
        report.image(
            maps.encode_png(film_of.still(index)), f"After {moment.time_s:.1f} s. {describe_attention(walk, moment)}"
        )
    return report


def describe_attention(walk: AttentionRollout, moment: ReportFrame) -> str:
    """Describe the attention in words: its middle, the number of cells that hold half of it, and the largest weight."""
    if moment.attention is None:
        return "The network shows no attention."
    centers = walk.window.cell_centers(np.zeros(1)).reshape(-1, 2)
    weights = moment.attention.ravel()
    x, y = (weights[:, None] * centers).sum(axis=0) / weights.sum()
    ordered = np.sort(weights)[::-1].cumsum() / weights.sum()
    half = int(np.searchsorted(ordered, 0.5)) + 1
    side = "left" if y >= 0.0 else "right"
    ahead = "ahead" if x >= 0.0 else "behind"
    return (
        f"The middle of the attention is {abs(x):.2f} m {ahead} and {abs(y):.2f} m to the {side}; half of it lies on "
        f"{half} of {len(weights)} cells. The largest is {weights.max() / weights.mean():.3g} times an even share."
    )


def seen_share(walk: AttentionRollout, moment: ReportFrame) -> float:
    """Share of the policy's window whose map is surer than half the prior, 0 to 1."""
    row, col, inside = walk.around.index_of(walk.window.cell_centers(np.zeros(1)))
    known = moment.variance_m2[row, col] < 0.5 * walk.prior_variance_m2
    return float(np.mean(known & inside))


def _corners(grid: GridSpec) -> NDArray[np.float64]:
    x, y = grid.corner_x_m, grid.corner_y_m
    far_x, far_y = x + grid.rows * grid.resolution_m, y + grid.cols * grid.resolution_m
    return np.array([[x, y], [far_x, y], [far_x, far_y], [x, far_y]])


def _draw_window(picture: Picture, panel: Panel, corners: FloatArray) -> None:
    maps.draw_outline(picture, panel, corners, WINDOW, 3.0)
    maps.draw_outline(picture, panel, corners, ROBOT, 1.0)


def _draw_robot(picture: Picture, panel: Panel, place: FloatArray, yaw_rad: float) -> None:
    """A house seen from above, its gable in front."""
    length, width = _ROBOT_M
    front = 0.6 * length
    shape = np.array([[-length, -width], [front, -width], [length, 0.0], [front, width], [-length, width]])
    cos, sin = math.cos(yaw_rad), math.sin(yaw_rad)
    corners = shape @ np.array([[cos, sin], [-sin, cos]]) + place
    maps.draw_outline(picture, panel, corners, WINDOW, 4.0)
    maps.draw_outline(picture, panel, corners, ROBOT, 2.0)

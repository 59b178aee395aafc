"""Whole maps, lots or tracks from above, with the way of every episode and a mark where it went wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from gantry_sim.driving.film.canvas import Camera, Canvas, Rgb, frame, write
from gantry_sim.driving.film.panel import ENDINGS, INK, MUTED, PAPER
from gantry_sim.driving.film.scenery import GROUND, OUTLINE, Scenery, scenery_of
from gantry_sim.driving.film.watched import TIME_UP, Episode

MARKS: dict[str, Rgb] = {
    "vehicle": (66, 128, 245),
    "pedestrian": (252, 222, 40),
    "static": (235, 110, 30),
    "red_light": (225, 30, 40),
    "off_road": (120, 66, 30),
    "wrong_way": (120, 66, 30),
    "blocked": (150, 70, 200),
    TIME_UP: (245, 245, 245),
}
"""Colours of how episodes end that do not end well."""
WAY: Rgb = (20, 225, 170)
"""Colour of the paths that cars drove."""
TILE_PX = 420
"""Edge of one map."""
LEGEND_PX = 26
"""Height of a line of the legend."""


def where_it_went_wrong(scene: Any, episodes: Sequence[Episode], most: int = 6) -> NDArray[np.uint8] | None:
    """A sheet of the places with the most episodes that did not finish.

    Args:
        scene: Of the environment in which they happened.
        episodes: All of them.
        most: Places on the sheet.

    Returns:
        A picture, uint8 (height, width, 3); None if every episode finished.
    """
    grounds: dict[str, tuple[Scenery, list[Episode]]] = {}
    drawn: dict[int, Scenery] = {}
    for episode in episodes:
        scenery = drawn.setdefault(episode.place, scenery_of(scene, episode.place))
        grounds.setdefault(scenery.title, (scenery, []))[1].append(episode)
    faults = {title: sum(one.ended in MARKS for one in own) for title, (_, own) in grounds.items()}
    chosen = sorted((title for title in grounds if faults[title]), key=lambda title: -faults[title])[:most]
    if not chosen:
        return None
    columns = min(3 if len(chosen) > 4 or len(chosen) == 3 else 2, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    sheet = Image.new("RGB", (columns * TILE_PX, rows * TILE_PX + 2 * LEGEND_PX), PAPER)
    for number, title in enumerate(chosen):
        scenery, own = grounds[title]
        row, column = divmod(number, columns)
        sheet.paste(_tile(scenery, own, faults[title]), (column * TILE_PX, row * TILE_PX))
    _legend(sheet, rows * TILE_PX, {one.ended for one in episodes})
    return frame(sheet)


def whole(scenery: Scenery, size_px: tuple[int, int] = (TILE_PX, TILE_PX)) -> Camera:
    """A camera that shows all of a place, north up."""
    (low_x, low_y), (high_x, high_y) = scenery.low_m, scenery.high_m
    scale = min(size_px[0] / max(high_x - low_x, 1.0), size_px[1] / max(high_y - low_y, 1.0)) / 1.08
    return Camera((0.5 * (low_x + high_x), 0.5 * (low_y + high_y)), 0.5 * math.pi, scale, size_px)


def _tile(scenery: Scenery, episodes: Sequence[Episode], faults: int) -> Image.Image:
    canvas = Canvas(whole(scenery), GROUND)
    scenery.draw(canvas)
    for episode in episodes:
        canvas.line(episode.seen["pose"][:, :2], WAY, 2.5)
    for episode in episodes:
        if episode.ended in MARKS:
            canvas.discs(episode.seen["pose"][-1:, :2], MARKS[episode.ended], 5.0, OUTLINE)
    tile = canvas.picture()
    draw = ImageDraw.Draw(tile)
    draw.rectangle((0, 0, TILE_PX - 1, TILE_PX - 1), outline=PAPER, width=2)
    draw.rectangle((2, 2, 250, 24), fill=PAPER)
    write(draw, (8, 13), f"{scenery.title}: {faults} of {len(episodes)} did not finish", 12, INK)
    return tile


def _legend(sheet: Image.Image, top_px: int, ended: set[str]) -> None:
    draw = ImageDraw.Draw(sheet)
    x, y = 12.0, top_px + LEGEND_PX // 2 + 2
    for name, colour in MARKS.items():
        if name not in ended:
            continue
        text = ENDINGS[name]
        if x + 7 * len(text) + 24 > sheet.width:
            x, y = 12.0, y + LEGEND_PX - 4
        draw.ellipse((x, y - 5, x + 10, y + 5), fill=colour, outline=MUTED)
        write(draw, (x + 16, y), text, 12, INK)
        x += 34 + 7 * len(text)

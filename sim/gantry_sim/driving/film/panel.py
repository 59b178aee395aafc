"""Numbers beside the view: how far, how fast, what was asked of the car, what the step was worth, how it ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from PIL import Image, ImageDraw

from gantry_sim.driving.film.canvas import FloatArray, Rgb, write
from gantry_sim.driving.film.scenery import LIGHTS, ROUTE_LINE
from gantry_sim.driving.film.view import AIM, EGO, KINDS, RETURN
from gantry_sim.driving.film.watched import INFRACTIONS, TIME_UP, Episode
from gantry_sim.driving.reward import FACTORS
from gantry_sim.driving.scenes.lot_scene import NO_LIMIT_M_S

WIDTH_PX = 320
"""Of the panel."""
PAPER: Rgb = (247, 248, 250)
INK: Rgb = (29, 39, 51)
MUTED: Rgb = (93, 104, 117)
EMPTY: Rgb = (222, 226, 232)
"""Of a bar where it is not filled."""
GOOD: Rgb = (47, 158, 104)
WORSE: Rgb = (226, 138, 32)
BAD: Rgb = (201, 55, 44)
BLUE: Rgb = (47, 111, 222)
MARGIN_PX, ROW_PX, BAR_PX, LABEL_PX = 18, 23, 10, 92
"""Left and right of everything; height of a row and of a bar; width of the words before a bar."""

ENDINGS = {
    "finished": "finished",
    "vehicle": "hit a vehicle",
    "pedestrian": "hit a pedestrian",
    "static": "hit something that stands still",
    "red_light": "drove past a red light",
    "off_road": "left the road",
    "wrong_way": "stood across the track",
    "blocked": "did not move any more",
    TIME_UP: "time was up",
    "": "still driving",
}
"""Ends of episodes, in words."""
FACTOR_WORDS = {
    "on_route": "on the route",
    "ttc": "no near miss",
    "lane": "lane's middle",
    "steering": "smoothness",
    "infraction": "infraction",
}
"""Names of what rewards are made of, where they do not say it themselves."""


@dataclass(frozen=True)
class Words:
    """Texts of a panel that no episode knows."""

    title: str
    """First line: the task."""
    driver: str
    """Second line: the driver."""
    place: str
    """Third line: where, and which of the episodes."""
    speed_m_s: float = 20.0
    """The highest speed that the car's bar shows."""


class Panel:
    """Draws the numbers of an episode.

    Args:
        episode: What happened.
        words: What else it says.
        height_px: Of the panel.
        left_out: Names of factors that are not shown, since they never change.
    """

    def __init__(self, episode: Episode, words: Words, height_px: int, left_out: frozenset[str] = frozenset()) -> None:
        self.episode, self.words = episode, words
        self._height = height_px
        self._left_out = left_out if set(episode.factors) <= set(FACTORS) else frozenset()
        # Multiplied factors lie between 0 and 1; terms of a sum may be below.
        self._shares = set(episode.factors) <= set(FACTORS)
        self._top_m_s = max(1.0, words.speed_m_s)

    def draw(self, index: int) -> Image.Image:
        """The panel at a moment."""
        image = Image.new("RGB", (WIDTH_PX, self._height), PAPER)
        draw = ImageDraw.Draw(image)
        seen = self.episode.seen
        right = WIDTH_PX - MARGIN_PX
        write(draw, (MARGIN_PX, 24), self.words.title, 18, INK, bold=True)
        write(draw, (right, 24), f"{seen['time_s'][index]:.1f} s", 18, INK, align="right", bold=True)
        write(draw, (MARGIN_PX, 47), self.words.driver, 12, MUTED)
        write(draw, (MARGIN_PX, 64), self.words.place, 12, MUTED)
        y = self._driving(draw, index, 92)
        y = self._worth(draw, index, y + 12)
        self._notes(draw, index, y + 10)
        self._legend(draw)
        return image

    def _driving(self, draw: ImageDraw.ImageDraw, index: int, y: int) -> int:
        seen = self.episode.seen
        share = float(seen["completion"][index])
        self._bar(draw, y, "completion", f"{100.0 * share:.0f} %", share, GOOD if share >= 1.0 else BLUE)
        speed, limit = float(seen["speed_m_s"][index]), _at(seen, "limit_m_s", index)
        limited = math.isfinite(limit) and limit < min(NO_LIMIT_M_S, 2.0 * self._top_m_s)
        text = f"{speed:.1f} / {limit:.1f}" if limited else f"{speed:.1f}"
        over = limited and speed > limit + 0.05
        colour = BAD if over else BLUE if speed >= 0.0 else WORSE
        mark = limit / self._top_m_s if limited else None
        self._bar(draw, y + ROW_PX, "speed, m/s", text, abs(speed) / self._top_m_s, colour, mark)
        action = seen["action"][index]
        self._centred(
            draw,
            y + 2 * ROW_PX,
            "steering",
            -float(action[0]),
            f"{abs(float(action[0])):.2f} {_side(float(action[0]))}",
        )
        self._centred(draw, y + 3 * ROW_PX, "acceleration", float(action[1]), f"{float(action[1]):+.2f}")
        return y + 4 * ROW_PX

    def _worth(self, draw: ImageDraw.ImageDraw, index: int, y: int) -> int:
        write(draw, (MARGIN_PX, y), "reward of the step", 12, INK, bold=True)
        reward = float(self.episode.seen["reward"][index])
        write(draw, (WIDTH_PX - MARGIN_PX, y), f"{reward:+.2f}", 12, INK, align="right", bold=True)
        y += ROW_PX
        for name, values in self.episode.factors.items():
            if name in self._left_out:
                continue
            value, label = float(values[index]), FACTOR_WORDS.get(name, name.replace("_", " "))
            if not math.isfinite(value):
                self._bar(draw, y, label, "", 0.0, EMPTY)
            elif self._shares:
                self._bar(
                    draw, y, label, f"{value:.2f}", value, GOOD if value > 0.95 else WORSE if value > 0.4 else BAD
                )
            else:
                self._centred(draw, y, label, value, f"{value:+.2f}")
            y += ROW_PX
        write(draw, (MARGIN_PX, y), "reward so far", 12, MUTED)
        write(draw, (WIDTH_PX - MARGIN_PX, y), f"{self.episode.seen['earned'][index]:.1f}", 12, INK, align="right")
        return y + ROW_PX

    def _notes(self, draw: ImageDraw.ImageDraw, index: int, y: int) -> None:
        """Draw the remarks of this moment, each with a dot of its colour."""
        seen, notes = self.episode.seen, []
        if "stop_line" in seen and seen["stop_line"][index][0] < 60.0:
            away, state = (float(value) for value in seen["stop_line"][index])
            shown = {0.0: "free", 0.5: "yellow", 1.0: "red"}[state]
            notes.append((LIGHTS[state], f"stop line in {max(away, 0.0):.0f} m: {shown}"))
        if _at(seen, "near", index) > 0.5:
            notes.append((BAD, "near collision"))
        if _at(seen, "off_route", index) > 0.5:
            notes.append((WORSE, "outside the lane"))
        if "goal" in seen:
            away_x, away_y, turn = (float(value) for value in seen["goal"][index] - seen["pose"][index])
            turned = math.degrees(abs(math.remainder(turn, 2.0 * math.pi)))
            notes.append((EGO, f"{math.hypot(away_x, away_y):.2f} m and {turned:.0f}° from the goal"))
        for colour, text in notes:
            draw.ellipse((MARGIN_PX, y - 5, MARGIN_PX + 10, y + 5), fill=colour)
            write(draw, (MARGIN_PX + 18, y), text, 13, INK)
            y += ROW_PX
        if index >= self.episode.steps and self.episode.ended:
            draw.rectangle((MARGIN_PX, y, WIDTH_PX - MARGIN_PX, y + 36), fill=end_colour(self.episode.ended))
            text = ENDINGS.get(self.episode.ended, self.episode.ended)
            write(draw, (0.5 * WIDTH_PX, y + 18), text, 15, PAPER, align="middle", bold=True)

    def _legend(self, draw: ImageDraw.ImageDraw) -> None:
        seen = self.episode.seen
        items: list[tuple[Rgb, str]] = [(EGO, "the car")]
        if "objects" in seen:
            items += [
                (colour, name) for colour, name in zip(KINDS.values(), ("vehicle", "pedestrian", "thing"), strict=True)
            ]
        if "route_m" in seen and "scan" not in seen:
            items += [(ROUTE_LINE, "route"), (AIM, "looked at")]
        if "scan" in seen:
            items.append((RETURN, "scan"))
        x, y = MARGIN_PX, self._height - 18 - 18 * ((len(items) - 1) // 3)
        for number, (colour, text) in enumerate(items):
            row, column = divmod(number, 3)
            left, middle = x + 98 * column, y + 18 * row
            draw.ellipse((left, middle - 4, left + 8, middle + 4), fill=colour, outline=MUTED)
            write(draw, (left + 13, middle), text, 11, MUTED)

    def _bar(
        self,
        draw: ImageDraw.ImageDraw,
        y: int,
        label: str,
        text: str,
        share: float,
        colour: Rgb,
        mark: float | None = None,
    ) -> None:
        """A row with a bar from the left; ``mark`` is where a line crosses it."""
        low, high = self._row(draw, y, label, text)
        draw.rectangle((low, y - BAR_PX // 2, high, y + BAR_PX // 2), fill=EMPTY)
        filled = low + (high - low) * min(max(share, 0.0), 1.0)
        if filled >= low + 0.5:
            draw.rectangle((low, y - BAR_PX // 2, filled, y + BAR_PX // 2), fill=colour)
        if mark is not None:
            at = low + (high - low) * min(mark, 1.0)
            draw.line((at, y - BAR_PX // 2 - 3, at, y + BAR_PX // 2 + 3), fill=INK, width=2)

    def _centred(self, draw: ImageDraw.ImageDraw, y: int, label: str, value: float, text: str) -> None:
        """A row with a bar from the middle, -1 at the left and 1 at the right."""
        low, high = self._row(draw, y, label, text)
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        draw.rectangle((low, y - BAR_PX // 2, high, y + BAR_PX // 2), fill=EMPTY)
        end = middle + half * min(max(value, -1.0), 1.0)
        draw.rectangle((min(middle, end), y - BAR_PX // 2, max(middle, end), y + BAR_PX // 2), fill=BLUE)
        draw.line((middle, y - BAR_PX // 2 - 2, middle, y + BAR_PX // 2 + 2), fill=MUTED)

    @staticmethod
    def _row(draw: ImageDraw.ImageDraw, y: int, label: str, text: str) -> tuple[int, int]:
        """Words left and right of a bar; from where to where it reaches."""
        write(draw, (MARGIN_PX, y), label, 12, MUTED)
        write(draw, (WIDTH_PX - MARGIN_PX, y), text, 12, INK, align="right")
        return MARGIN_PX + LABEL_PX, WIDTH_PX - MARGIN_PX - 72


def end_colour(ended: str) -> Rgb:
    """Of an end by its name: good, an infraction, or neither."""
    bad = ended in (*INFRACTIONS, "off_road", "wrong_way")
    return GOOD if ended == "finished" else BAD if bad else WORSE


def _at(seen: Mapping[str, FloatArray], name: str, index: int) -> float:
    """A number of a moment, not a number where it is not known."""
    values = seen.get(name)
    return math.nan if values is None else float(values[index])


def _side(steering: float) -> str:
    return "left" if steering > 0.005 else "right" if steering < -0.005 else ""

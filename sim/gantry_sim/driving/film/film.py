"""Films of episodes: drivers, choice of the episode, and its frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gantry_deploy.evaluation.drive_metrics import COEFFICIENTS
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.driving.film.canvas import contact_sheet, frame
from gantry_sim.driving.film.panel import ENDINGS, WIDTH_PX, Panel, Words
from gantry_sim.driving.film.scenery import Scenery, scenery_of
from gantry_sim.driving.film.view import Look, View
from gantry_sim.driving.film.watched import COLLIDED, Episode, WatchedEnv
from gantry_sim.driving.reward import FACTORS

Frame = NDArray[np.uint8]
HOLD_S = 1.5
"""Time for which the end of an episode is shown."""
CHOICES = ("first", "collision", "worst")
"""Choices of one episode of several: the first one, the first that ended with a collision, the one with the
lowest driving score."""
SHEET = 6
"""Pictures on a contact sheet."""


@dataclass(frozen=True)
class Shown:
    """An episode, and everything that is needed to draw it."""

    view: View
    """The view from above."""
    panel: Panel
    """The numbers beside it."""
    rate_hz: float
    """Moments per second."""

    @property
    def episode(self) -> Episode:
        """Episode that is shown."""
        return self.view.episode

    @property
    def frames(self) -> int:
        """Number of pictures of the film."""
        return self.episode.steps + 1 + self._held

    @property
    def _held(self) -> int:
        return round(HOLD_S * self.rate_hz) if self.episode.ended else 0

    def picture(self, index: int) -> Frame:
        """One moment, (height, width, 3)."""
        left, right = self.view.draw(index), self.panel.draw(index)
        whole = Image.new("RGB", (left.width + WIDTH_PX, left.height))
        whole.paste(left, (0, 0))
        whole.paste(right, (left.width, 0))
        return frame(whole)

    def pictures(self, on_progress: Callable[[float], None] = lambda _: None) -> Iterator[Frame]:
        """All of them in real time, the last one for a while."""
        count, last = self.frames, None
        for index in range(self.episode.steps + 1):
            last = self.picture(index)
            yield last
            on_progress((index + 1) / count)
        assert last is not None
        for _ in range(self._held):
            yield last
        on_progress(1.0)

    def sheet(self, count: int = SHEET) -> Frame:
        """A few moments beside each other, the first and the last one among them."""
        chosen = np.unique(np.linspace(0, self.episode.steps, count).round().astype(int))
        return contact_sheet([self.picture(int(index)) for index in chosen])


def show(
    env: WatchedEnv,
    episode: Episode,
    title: str,
    driver: str,
    look: Look | None = None,
    scenery: Scenery | None = None,
) -> Shown:
    """Make an episode ready to be drawn.

    Args:
        env: Environment of the episode.
        episode: The recorded episode.
        title: The task, for people.
        driver: Name of the driver, for people.
        look: From where the film looks; the usual if not given.
        scenery: Where it happened, if that has been drawn before.
    """
    layout, car, look = env.drive, env.cfg.driver, look or Look()
    scenery = scenery_of(env.scene, episode.place) if scenery is None else scenery
    place = f"{scenery.title}, car {episode.car + 1} of {env.num_envs}"
    ahead = layout.lookahead_m if scenery.line is not None else ()
    view = View(episode, scenery, car, ahead, layout.lidar, look)
    limits = np.nan_to_num(episode.seen.get("limit_m_s", np.zeros(1)), nan=0.0)
    fastest = float(np.abs(episode.seen["speed_m_s"]).max())
    posted = float(limits[limits < car.speed_limit_m_s].max(initial=0.0))
    words = Words(title, driver, place, min(car.speed_limit_m_s, max(1.2 * posted, 1.1 * fastest)))
    return Shown(view, Panel(episode, words, look.size_px[1], _constant(env)), env.cfg.rate_hz)


def _constant(env: WatchedEnv) -> frozenset[str]:
    """Factors of the reward that are always 1 in this task."""
    cfg, found = env.cfg.reward, set()
    if not cfg.lane:
        found.add("lane")
    if cfg.discomfort == 0.0:
        found.add("comfort")
    if cfg.steering_smoothness == 0.0:
        found.add("steering")
    if cfg.near_collision == 1.0:
        found.add("ttc")
    return (env.scene.constant_factors | found) & frozenset(FACTORS)


def score_of(episode: Episode) -> float:
    """Driving score, 0 to 100: completion times the penalty of how it ended, the way off the route taken off."""
    result = episode.result
    kept = COEFFICIENTS["carla-2.0"].get(episode.ended, 1.0) * (1.0 - result.get("off_route_share", 0.0))
    return 100.0 * float(episode.seen["completion"][-1]) * kept


def choose(episodes: Sequence[Episode], which: str) -> Episode:
    """The episode that a name of :data:`CHOICES` asks for.

    Raises:
        UnknownNameError: If it is none of them.
        GantryError: If there is no such episode.
    """
    if which not in CHOICES:
        raise UnknownNameError("choice of an episode", which, CHOICES)
    if which == "first":
        return episodes[0]
    if which == "worst":
        return min(episodes, key=score_of)
    found = next((episode for episode in episodes if episode.ended in COLLIDED), None)
    if found is None:
        raise GantryError(
            f"None of {len(episodes)} episodes ended with a collision: {how_they_ended(episodes)}. Ask for more with "
            "--episodes, for another --seed, or for --episode worst."
        )
    return found


def how_they_ended(episodes: Sequence[Episode]) -> str:
    """In words, the most common first, for example "3 finished, 1 hit a vehicle"."""
    names = [episode.ended for episode in episodes]
    often = sorted(set(names), key=lambda name: (-names.count(name), name))
    return ", ".join(f"{names.count(name)} {ENDINGS.get(name, name)}" for name in often)

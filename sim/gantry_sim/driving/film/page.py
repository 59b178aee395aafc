"""A report about how a policy drives: scores, infractions and where, distributions, and a film."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gantry_deploy.report import Report
from gantry_deploy.report.maps import encode_png
from gantry_sim.driving.bench.drivers import lane_width_m
from gantry_sim.driving.bench.report import infraction_rows, score_rows
from gantry_sim.driving.bench.scoring import scores as scores_of
from gantry_sim.driving.evaluation import COUNTED, ENDS
from gantry_sim.driving.film.figures import endings, histograms
from gantry_sim.driving.film.film import Shown, how_they_ended
from gantry_sim.driving.film.overview import where_it_went_wrong
from gantry_sim.driving.film.panel import ENDINGS
from gantry_sim.driving.film.playing import Driven
from gantry_sim.driving.film.watched import TIME_UP


def drive_page(task: str, summary: str, drivers: Sequence[Driven], shown: Shown, film: bytes | None) -> Report:
    """The report.

    Args:
        task: Name of the task.
        summary: What it is about.
        drivers: Drivers of the same episodes, the one that it is about first.
        shown: The episode that the film shows.
        film: Its film as MP4; stills alone if there is none.
    """
    first = drivers[0]
    width_m = lane_width_m(first.env)
    scores = {one.driver: scores_of(one.found, width_m) for one in drivers}
    own, env = scores[first.driver], first.env
    report = Report(f"How {first.driver.split(',')[0]} drives: {task}", f"{summary}; {first.driver}")
    report.tiles(
        {
            f"driving score ({own['coefficients']})": f"{own['driving_score']['mean']:.1f}",
            "of the way": f"{own['completion_percent']['mean']:.1f} %",
            "finished": f"{100.0 * own['finished']['mean']:.0f} %",
            "with a collision": f"{100.0 * own['collided']['mean']:.0f} %",
            "driven": f"{own['km']:.2f} km",
        }
    )
    report.text(
        f"{env.num_envs} held-out episodes on procedural {env.scene.grounds} of the `{env.cfg.map_split}` split, model "
        f"`{env.cfg.model}`. Policies are run by the runtime's own runner, one for each car, on noisy observations."
    )
    _scores(report, scores)
    _ends(report, drivers, scores)
    _spread(report, drivers)
    _film(report, shown, film)
    picture = where_it_went_wrong(env.scene, first.episodes)
    report.section("Where episodes did not finish")
    if picture is None:
        return report.text("Every episode finished.")
    return report.image(
        encode_png(picture),
        f"North is up. Light lines: where cars drove. Dots: where an episode ended otherwise than finished, of "
        f"{first.driver}; those places with most of them.",
    )


def _scores(report: Report, scores: Mapping[str, dict[str, Any]]) -> None:
    own, rows = next(iter(scores.values())), [{"driver": name, "scores": values} for name, values in scores.items()]
    note = (
        f"Means with their 95 % intervals. Penalties of the driving score: {own['coefficients']}, on procedural "
        "routes; it is not a score of CARLA's leaderboard."
    )
    report.section("Scores")
    head, *body = score_rows(rows)
    report.table(body, head, note)
    if found := infraction_rows(rows):
        report.table(found[1:], found[0], "An episode ends with its first collision or red light.")


def _ends(report: Report, drivers: Sequence[Driven], scores: Mapping[str, dict[str, Any]]) -> None:
    report.section("How episodes ended")
    shares = {}
    for name, values in scores.items():
        own = {end: values["ends"].get(end, 0.0) for end in ("finished", *COUNTED, *ENDS)}
        own[TIME_UP] = max(0.0, 1.0 - sum(values["ends"].values()))
        shares[name.split(",")[0]] = own
    report.figure(endings(shares, ENDINGS), f"Of {drivers[0].driver}: {how_they_ended(drivers[0].episodes)}.")


def _spread(report: Report, drivers: Sequence[Driven]) -> None:
    first = drivers[0].env
    report.section("How exactly, and how fast")

    def of_each(values: Callable[[Driven], np.ndarray]) -> dict[str, np.ndarray]:
        return {one.driver.split(",")[0]: values(one) for one in drivers}

    speed = of_each(lambda one: _every(one, "speed_m_s"))
    if "position_error_m" in drivers[0].found:
        place, heading = "distance from the slot's middle at the end, m", "heading error at the end, degrees"
        found = {
            place: of_each(lambda one: one.found["position_error_m"]),
            heading: of_each(lambda one: np.degrees(one.found["heading_error_rad"])),
            "speed, m/s": speed,
        }
        limits = {place: (first.cfg.position_m,), heading: (float(np.degrees(first.cfg.heading_rad)),)}
        text = "Dashed: what counts as arrived."
    else:
        over = "speed above the limit, m/s"
        found = {
            "distance from the lane's middle, m, left positive": of_each(lambda one: _every(one, "lateral_m")),
            "speed, m/s": speed,
        }
        if first.cfg.driver.speed_limit_m_s > float(np.nanmin(_every(drivers[0], "limit_m_s"))):
            found[over] = of_each(lambda one: _every(one, "speed_m_s") - _every(one, "limit_m_s"))
        limits = {over: (0.0,)}
        text = "Every decision of every episode."
    report.figure(histograms(found, limits), text)


def _film(report: Report, shown: Shown, film: bytes | None) -> None:
    episode = shown.episode
    report.section("An episode")
    ended = ENDINGS.get(episode.ended, episode.ended)
    words = (
        f"{shown.panel.words.place}: {ended} after {episode.seen['time_s'][-1]:.1f} s, "
        f"{100.0 * episode.seen['completion'][-1]:.0f} % of the way. Green: the car. Lines ahead of road users "
        "show where they will be in a second; stop lines have the colour of their light, white ones have none."
    )
    if film is not None:
        report.video(film, words)
    report.image(encode_png(shown.sheet()), "Moments of it." if film is not None else words)


def _every(driven: Driven, name: str) -> np.ndarray:
    """Of all decisions of all episodes."""
    return np.concatenate([episode.seen[name][1:] for episode in driven.episodes])

"""A bundle in MetaDrive, map by map, with and without traffic, beside what it scores in its task's own simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.evaluation.drive_metrics import drive_scores
from gantry_deploy.evaluation.metrics import bootstrap_mean, rate_interval
from gantry_hardware.errors import GantryError
from gantry_sim.benchmarks.text import interval_text
from gantry_sim.benchmarks.text import table_lines as aligned
from gantry_sim.driving.external_sims.metadrive import FIRST_SEED, LIMIT_M_S, VERSION, MetaDriveWorld
from gantry_sim.driving.external_sims.meter import ENDS, Ride, episodes_of
from gantry_sim.driving.external_sims.riding import refuse_other_senses, ride, watched

SHOWN = (
    ("driving_score", "driving score", 1.0, 1),
    ("completion", "completion, %", 1.0, 1),
    ("finished", "finished, %", 100.0, 1),
    ("crashed", "crashed, %", 100.0, 1),
    ("off_road", "off the road, %", 100.0, 1),
    ("lateral_rmse_m", "lateral error, m", 1.0, 2),
    ("discomfort", "discomfort, % of time", 100.0, 1),
    ("strict_completion", "completion by MetaDrive's rule, %", 1.0, 1),
    ("steering_reversals_per_s", "steering turns back, 1/s", 1.0, 1),
)
"""Key, name, factor and digits of the rows of the table."""
_OWN = {"completion": "completion_percent", "crashed": "collided"}
"""Names of our own evaluation that differ."""


@dataclass(frozen=True)
class HeldOutCfg:
    """Settings of the rides."""

    maps: int = 20
    """Maps, from seed ``first_seed`` on, one episode on each."""
    traffic: tuple[float, ...] = (0.0, 0.1)
    """Densities of MetaDrive's traffic, one after the other on the same maps."""
    first_seed: int = FIRST_SEED
    """See above."""
    limit_m_s: float = LIMIT_M_S
    """Speed limit of MetaDrive's roads."""
    baseline: bool = False
    """Whether MetaDrive's own driver drives the same maps, too."""


@dataclass
class Found:
    """Rides of one driver under one condition, as far as they have come."""

    traffic: float
    """Density."""
    driver: str
    """``bundle`` or ``metadrive``."""
    rides: list[Ride] = field(default_factory=list)
    """In the order of the maps."""


OnRide = Callable[[Found], None]


def drive_maps(bundle: Bundle, cfg: HeldOutCfg, found: list[Found], on_ride: OnRide = lambda _: None) -> None:
    """Drive all maps under all conditions.

    Args:
        bundle: Of a car of full size.
        cfg: What.
        found: Where rides go as they are driven, so that they are there after an interruption.
        on_ride: Told after every ride.

    Raises:
        GantryError: If MetaDrive is not installed, the car is none for its roads, or the policy sees more than
            MetaDrive tells.
    """
    refuse_other_senses(bundle.contract, "MetaDrive")
    for traffic in cfg.traffic:
        for driver in ("bundle", "metadrive") if cfg.baseline else ("bundle",):
            found.append(Found(traffic, driver))
            own = driver == "metadrive"
            place = (bundle.contract.robot, bundle.contract.dt_s, traffic, cfg.maps, cfg.first_seed, cfg.limit_m_s)
            world = MetaDriveWorld(*place, own_driver=own)
            try:
                for index in range(cfg.maps):
                    scene = world.scene(index)
                    found[-1].rides.append(watched(scene) if own else ride(bundle, scene))
                    on_ride(found[-1])
            finally:
                world.close()


def condition_scores(found: Found) -> dict[str, Any]:
    """Scores of rides, with 95 % intervals, and how they ended."""
    rides = found.rides
    scores = asdict(drive_scores(episodes_of(rides)))
    crashed, off = (sum(item.end == end for item in rides) for end in ("crashed", "off_road"))
    more = {
        "crashed": rate_interval(crashed, len(rides)),
        "off_road": rate_interval(off, len(rides)),
        "strict_completion": bootstrap_mean(np.array([100.0 * item.strict_completion for item in rides])),
        "steering_reversals_per_s": bootstrap_mean(np.array([item.steering_reversals_per_s for item in rides])),
    }
    return scores | {name: asdict(score) for name, score in more.items()} | {"ends": count_ends(rides)}


def count_ends(rides: Sequence[Ride]) -> dict[str, int]:
    """Count the rides by their ends; ends that none had are left out."""
    counts = {end: sum(item.end == end for item in rides) for end in ENDS}
    return {end: count for end, count in counts.items() if count}


def own_scores(path: Path, episodes: int, on_progress: Callable[[float], None]) -> dict[str, Any]:
    """Scores of the same bundle in the simulator of its task, on held-out maps, with tyres.

    Args:
        path: Of the bundle.
        episodes: How many.
        on_progress: Called with the share that is done.

    Raises:
        GantryError: If the task is not installed, or has changed since.
    """
    from gantry_sim.training.evaluate import evaluate_policy
    from gantry_sim.training.policies import open_source

    try:
        source = open_source(path)
    except GantryError as error:
        raise GantryError(f"{error}\nWith --own-episodes 0 MetaDrive alone is driven in.") from error
    scores = evaluate_policy(
        source.task, source.env_cfg, source.make_policy, episodes=episodes, full_model=True, on_progress=on_progress
    )
    end = round(scores["ends"].get("off_road", 0.0) * episodes)
    renamed = {name: scores[theirs] for name, theirs in _OWN.items() if theirs in scores}
    return scores | renamed | {"off_road": asdict(rate_interval(end, episodes)), "task": source.task.name}


def result_of(bundle: Bundle, cfg: HeldOutCfg, found: Sequence[Found], own: dict[str, Any] | None) -> dict[str, Any]:
    """Everything, as plain data."""
    conditions = [
        {
            "traffic": item.traffic,
            "driver": item.driver,
            "scores": condition_scores(item),
            "rides": [asdict(one) for one in item.rides],
        }
        for item in found
        if item.rides
    ]
    result: dict[str, Any] = {
        "bundle": str(bundle.path),
        "robot": bundle.contract.robot,
        "simulator": f"metadrive-simulator, written against {VERSION}",
        "asked": asdict(cfg),
        "conditions": conditions,
        "own": own,
    }
    if own is not None:
        mine = own["driving_score"]["mean"]
        result["lost"] = {
            f"{item['traffic']:g}": mine - item["scores"]["driving_score"]["mean"]
            for item in conditions
            if item["driver"] == "bundle"
        }
    return result


def table_lines(result: dict[str, Any]) -> list[str]:
    """The result as a table: a column for each condition, the last one our own simulator."""
    columns = [(_heading(item), item["scores"]) for item in result["conditions"]]
    if result["own"] is not None:
        columns.append((f"own: {result['own']['task']}", result["own"]))
    rows = [["", *(title for title, _ in columns)]]
    for key, name, factor, digits in SHOWN:
        cells = (interval_text(scores[key], factor, digits) if key in scores else "-" for _, scores in columns)
        rows.append([name, *cells])
    rows.append(["episodes", *(str(scores["episodes"]) for _, scores in columns)])
    lines = aligned(rows)
    version = result["conditions"][0]["scores"]["coefficients"]
    lines.append(f"Mean [95 % interval]. Driving score: completion times penalties {version}, on these routes.")
    for traffic, lost in result.get("lost", {}).items():
        lines.append(f"Lost against our own simulator, traffic {traffic}: {lost:.1f} points of driving score.")
    return lines


def _heading(item: dict[str, Any]) -> str:
    driver = "" if item["driver"] == "bundle" else ", MetaDrive's driver"
    return f"traffic {item['traffic']:g}{driver}"

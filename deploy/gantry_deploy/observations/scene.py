"""Terms of a scene with several things and zones on the table before an arm, for policies that are told in words."""

from __future__ import annotations

from typing import Any

from gantry_deploy.observations.signals import Signals, TermConstants, TermInfo, ee_pose_of, given
from gantry_mapping.elevation.ops import namespace

Array = Any

THINGS_SIGNAL, ZONES_SIGNAL = "things_pos_m", "zones_pos_m"
"""Signals of the scene: the middle of each thing, and of each zone, in the arm's base frame, three numbers each, m."""
THINGS, ZONES = 3, 2
"""Things and zones of a scene; the order is that of the bench, whatever is asked for."""
THINGS_SIZE, ZONES_SIZE = 3 * THINGS, 3 * ZONES
"""Numbers of both signals."""
SCENE_SIGNALS = {THINGS_SIGNAL: THINGS_SIZE, ZONES_SIGNAL: ZONES_SIZE}
"""Both signals with the number of values of each."""


def things_from_ee(signals: Signals, constants: TermConstants) -> Array:
    """From the end effector to each thing, along the base's axes, (N, 9), m."""
    return _from_ee(signals, constants, "things_from_ee", THINGS_SIGNAL)


def zones_from_ee(signals: Signals, constants: TermConstants) -> Array:
    """From the end effector to each zone, along the base's axes, (N, 6), m."""
    return _from_ee(signals, constants, "zones_from_ee", ZONES_SIGNAL)


def _from_ee(signals: Signals, constants: TermConstants, term: str, name: str) -> Array:
    places = given(signals.extra.get(name), term, f"the signal '{name}'")
    ee_pos = ee_pose_of(signals, constants)[0]
    return places - namespace(places).concat([ee_pos] * (places.shape[1] // 3), axis=-1)


SCENE_TERMS: dict[str, TermInfo] = {
    "things_from_ee": TermInfo(
        things_from_ee, "state/body/position", "base", "m", signals={THINGS_SIGNAL: THINGS_SIZE}
    ),
    "zones_from_ee": TermInfo(zones_from_ee, "state/body/position", "base", "m", signals={ZONES_SIGNAL: ZONES_SIZE}),
}
"""Terms by name, for the registry in :mod:`gantry_deploy.observations.builder`."""

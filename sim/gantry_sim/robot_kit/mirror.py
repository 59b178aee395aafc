"""Left and right of a robot told from its geometry: joints that are mirror images in the plane y = 0 of the base."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.observations.sides import partners
from gantry_hardware.errors import GantryError
from gantry_sim.robot_kit.geometry import posed

TOLERANCE_M = 0.01
"""Distance up to which two places are mirror images."""
PARALLEL = 0.99
"""Cosine from which on two axes are parallel."""

FloatArray = NDArray[np.float64]


def mirrored_joints(model: mujoco.MjModel, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """For every joint its partner on the other side, itself for one in the plane of symmetry, and the factor on its
    angle in the mirror image; empty if some joint has no partner.

    A rotation vector (x, y, z) has the mirror image (-x, y, -z), as angular velocities have.

    Args:
        model: With a free base whose x axis points forward.
        names: Of the joints.
    """
    data = posed(model, {})
    ids = [model.joint(name).id for name in names]
    places, axes = data.xanchor[ids], data.xaxis[ids]
    by_name = _partners_by_name(names)
    found = []
    for index, name in enumerate(names):
        distances = np.linalg.norm(places - places[index] * (1.0, -1.0, 1.0), axis=1)
        cosines = axes @ (axes[index] * (-1.0, 1.0, -1.0))
        fits = [i for i in range(len(names)) if distances[i] < TOLERANCE_M and abs(cosines[i]) > PARALLEL]
        named = [i for i in fits if names[i] == by_name.get(name)]
        if not fits:
            return ()
        best = (named or sorted(fits, key=lambda i: distances[i]))[0]
        found.append((names[best], float(np.sign(cosines[best]))))
    partner = {name: other for name, (other, _) in zip(names, found, strict=True)}
    return tuple(found) if all(partner[partner[name]] == name for name in names) else ()


def mirrored_places(names: Sequence[str], places_m: FloatArray) -> tuple[str, ...]:
    """For every named place, such as a foot, that on the other side; empty if some has none.

    Args:
        names: Of the places.
        places_m: Shape (n, 3), in the base's frame.
    """
    found = []
    for place in places_m:
        distances = np.linalg.norm(places_m - place * (1.0, -1.0, 1.0), axis=1)
        if distances.min() > 5.0 * TOLERANCE_M:
            return ()
        found.append(names[int(np.argmin(distances))])
    return tuple(found) if len(set(found)) == len(names) else ()


def _partners_by_name(names: Sequence[str]) -> dict[str, str]:
    try:
        return dict(zip(names, partners(names), strict=True))
    except GantryError:  # Names without sides; the geometry decides alone.
        return {}

"""The feet of a robot: the ends of its legs that reach lowest, and the shapes that touch the ground."""

from __future__ import annotations

import re
from dataclasses import dataclass

import mujoco

from gantry_sim.robot_kit.geometry import ancestors, is_solid, lowest_point_m
from gantry_sim.robot_kit.preparing import Prepared
from gantry_sim.robots.model_conventions import base_body

FOOT_WORD = re.compile(r"foot|feet|toe|sole", re.IGNORECASE)
"""Part of the names of feet."""
LOW_SHARE = 0.3
"""An end is a foot if it reaches down to this share of the robot's height above the lowest one."""


@dataclass(frozen=True)
class Foot:
    """One foot."""

    name: str
    """Name of the site, shape or body that is the foot for Gantry."""
    body: str
    """Body that touches the ground."""
    geom: int
    """Its lowest shape in the compiled model."""
    found_by: str
    """Evidence that it is a foot, for the report."""
    site_pos_m: tuple[float, float, float] | None = None
    """Position in the body's frame at which a site of that name is to be added; None if the model has the name."""


def find_feet(prepared: Prepared, data: mujoco.MjData) -> list[Foot]:
    """The feet in the order of the model; empty where the robot ends nowhere below its base.

    Args:
        prepared: The robot.
        data: In a pose in which it may stand.
    """
    model = prepared.model
    moved = {int(model.jnt_bodyid[model.joint(name).id]) for name in prepared.joints}
    carried = {above for body in moved for above in ancestors(model, body)[1:]}
    base = model.body(base_body(prepared.spec).name).id
    ends = []
    for end in sorted(moved - carried):
        shapes = _shapes_below(model, end)
        if shapes and base in ancestors(model, end)[1:]:
            lowest = min(shapes, key=lambda geom: lowest_point_m(model, data, geom))
            ends.append((end, shapes, lowest, lowest_point_m(model, data, lowest)))
    if not ends:
        return []
    bottom = min(low for *_, low in ends)
    top = float(data.xpos[base, 2])
    limit = bottom + LOW_SHARE * max(top - bottom, 0.0)
    return [_foot(prepared, end, shapes, lowest) for end, shapes, lowest, low in ends if low <= limit and low < top]


def _shapes_below(model: mujoco.MjModel, end: int) -> list[int]:
    """Shapes that collide on a body and on those that are fixed to it."""
    return [
        geom
        for geom in range(model.ngeom)
        if is_solid(model, geom) and end in ancestors(model, int(model.geom_bodyid[geom]))
    ]


def _foot(prepared: Prepared, end: int, shapes: list[int], lowest: int) -> Foot:
    model = prepared.model
    solid_bodies = {int(model.geom_bodyid[geom]) for geom in shapes}
    for index in range(model.nsite):
        name, body = model.site(index).name, int(model.site_bodyid[index])
        if body in solid_bodies and FOOT_WORD.search(name):
            return Foot(name, model.body(body).name, lowest, "site")
    named = [geom for geom in shapes if FOOT_WORD.search(model.geom(geom).name)]
    if len(named) == 1:
        return Foot(model.geom(named[0]).name, _body_of(model, named[0]), named[0], "name of the shape")
    for body in sorted(solid_bodies - {end}):
        if FOOT_WORD.search(model.body(body).name):
            return Foot(model.body(body).name, model.body(body).name, lowest, "name of the body")
    body = _body_of(model, lowest)
    if model.geom(lowest).name:
        return Foot(model.geom(lowest).name, body, lowest, "lowest shape at the end of a leg")
    pos = tuple(float(value) for value in _geom_pos_in_body_m(prepared, lowest))
    name = body if FOOT_WORD.search(body) else f"{body}_foot"
    return Foot(name, body, lowest, "lowest shape at the end of a leg", (pos[0], pos[1], pos[2]))


def _body_of(model: mujoco.MjModel, geom: int) -> str:
    return model.body(int(model.geom_bodyid[geom])).name


def _geom_pos_in_body_m(prepared: Prepared, geom: int) -> list[float]:
    return list(prepared.model.geom_pos[geom])

"""Swing legs: the way of feet in the air to their places, as joint targets (Array API standard)."""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.footstep_spec import SwingSpec
from gantry_deploy.contract.parts import GaitSpec
from gantry_deploy.footsteps.forces import skew
from gantry_deploy.footsteps.legs import Legs
from gantry_deploy.footsteps.state import StepCommand, StepState
from gantry_mapping.elevation.ops import namespace

Array = Any

LIFT_SHARE = 0.08
"""Share of a swing at which a foot begins to move ahead; at its end it is above its place."""
RISE_SHARE, APEX_SHARE = 0.4, 0.5
"""Shares of a swing at which a foot has risen, and at which it begins to come down."""
CREST_M = 0.25
"""Ground on a foot's way counts up to this height over its ends."""
LEAD_S = 0.04
"""Time that a foot is sent ahead of the clock, since joints lag."""
TURN_LEAD_S, MOVE_LEAD_S = 0.0154, 0.05
"""Times by which the base's attitude and its place are predicted ahead."""


class SwingLegs:
    """Joint targets of feet in the air.

    Args:
        gait: Clock.
        spec: Clearance, and how far targets may lead.
        legs: Kinematics.
        count: Number of legs.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, gait: GaitSpec, spec: SwingSpec, legs: Legs, count: int, like: Array) -> None:
        self._xp = xp = namespace(like)
        self._spec, self._legs = spec, legs
        self._ahead_share = LEAD_S * gait.frequency_hz / (1.0 - gait.duty)
        self._lead = xp.asarray([spec.most_lead_rad * count], dtype=like.dtype, device=device(like))

    def __call__(self, body: StepState, plan: StepCommand) -> Array:
        """Targets of all joints as if all feet were in the air, (N, 3 f), rad."""
        xp = self._xp
        now, soon = body.progress, body.progress + self._ahead_share
        # Of what is left of its way a foot goes the share that is due: where it is says what it has done so far.
        ahead = _due(ease(now), ease(soon))
        to_go = plan.places[..., :2] - body.feet[..., :2]
        flat = body.feet[..., :2] + ahead[..., None] * to_go
        apex = self._apex(body, plan)
        risen = _due(*(xp.sin(0.5 * math.pi * limited(at / RISE_SHARE, 0.0, 1.0)) for at in (now, soon)))
        down = 0.5 + 0.5 * xp.cos(math.pi * limited((soon - APEX_SHARE) / (1.0 - APEX_SHARE), 0.0, 1.0))
        rises = body.feet[..., 2] + risen * (apex - body.feet[..., 2])
        falls = plan.places[..., 2] + down * (apex - plan.places[..., 2])
        place = xp.concat((flat, xp.where(soon < APEX_SHARE, rises, falls)[..., None]), axis=-1)
        later = body.level + TURN_LEAD_S * (body.level @ skew(body.ang_vel_b))
        place_b = (place - MOVE_LEAD_S * body.vel[:, None]) @ later
        joints, lead = self._legs.joints(place_b), self._lead
        return xp.minimum(xp.maximum(joints, body.joint_pos - lead), body.joint_pos + lead)

    def _apex(self, body: StepState, plan: StepCommand) -> Array:
        """Apex height of feet, (N, f), m over the base."""
        xp, radius, end = self._xp, self._spec.foot_radius_m, plan.places[..., 2]
        most = xp.maximum(end, body.highest + radius) + CREST_M
        return xp.maximum(end, xp.minimum(xp.max(plan.ways, axis=-1) + radius, most)) + self._spec.clearance_m


def ease(share: Array) -> Array:
    """Share of the way ahead that is done at shares of a swing, of any shape, both from 0 to 1."""
    turned = math.pi * limited((share - LIFT_SHARE) / (1.0 - LIFT_SHARE), 0.0, 1.0)
    return 0.5 - 0.5 * namespace(share).cos(turned)


def _due(now: Array, soon: Array) -> Array:
    """Of what is left of something from 0 to 1, the share that is done between two values of it."""
    return limited((soon - now) / limited(1.0 - now, 1e-2, None), 0.0, 1.0)

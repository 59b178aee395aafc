"""Footstep controller: footholds and a speed of the body, turned into joint targets, from what a robot measures.

A trot whose feet land half a stance ahead of where they stand and after a wrong velocity (Raibert, Legged Robots That
Balance, 1986), moved as the policy says: :mod:`~gantry_deploy.footsteps.sensing` finds the state, this module the
places, :mod:`~gantry_deploy.footsteps.swing` moves feet there, and :mod:`~gantry_deploy.footsteps.support` holds the
base on the others.

Written once for training and robot (Array API standard). Level frame: the base's origin and heading, z
up, the ``base_yaw`` of :mod:`gantry_mapping.sensing.frames`.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.footsteps.legs import Legs
from gantry_deploy.footsteps.map_search import FootholdSearch
from gantry_deploy.footsteps.sensing import StepSensor
from gantry_deploy.footsteps.state import StepCommand, StepState
from gantry_deploy.footsteps.support import BaseSupport
from gantry_deploy.footsteps.swing import SwingLegs
from gantry_deploy.footsteps.terrain_lookup import solid_heights_at
from gantry_mapping.elevation.ops import namespace

Array = Any

STEP_UP_M = 0.4
"""Ground that a foot is sent to counts to this height above the highest standing foot."""
UPRIGHT_1_S = 2.0
"""Rate at which the base comes back over its feet at rest, m/s per m."""
FOLLOW_1_S = 3.0
"""Velocity of the base added to where feet were moved, m/s per m of their mean."""
CRESTS = tuple(i / 5.0 for i in range(6))
"""Points on a foot's way at which the ground is looked at: its start is 0, its end 1."""


class Stepper:
    """Joint targets from footstep actions (kind :data:`~gantry_deploy.contract.footstep_spec.STEP_TARGET`).

    Its places are added to where the feet would land on a plane, their z to the ground of the map; its velocity is
    added to the one that the goal amounts to (``command.goal_velocity``). Where that is at rest, neither counts.

    Args:
        contract: With ``gait.steps``, a clock and a map window.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, contract: PolicyContract, like: Array) -> None:
        gait, window = contract.gait, contract.map_window
        if gait is None or gait.steps is None or window is None:
            raise ContractError("Legs that are told where to step need 'gait.steps' and 'map_window'.")
        self._xp = xp = namespace(like)
        spec = gait.steps
        self._gait, self._window, self._way = gait, window, spec.swing

        def asarray(values: Any) -> Array:
            return xp.asarray(values, dtype=like.dtype, device=device(like))

        self.end_of = xp.asarray(
            [0 if leg.hip_in_base_m[0] > 0.0 else 1 for leg in spec.legs], dtype=xp.int64, device=device(like)
        )
        """(f,) 0 for a front foot, 1 for a rear one."""
        self._stand = asarray([(leg.stand_x_m, leg.stand_y_m) for leg in spec.legs])
        self._along = asarray(CRESTS)
        self._capture = asarray([spec.swing.capture_s, spec.swing.capture_aside_s])
        legs = Legs(spec.legs, like)
        self.sense = StepSensor(contract, (gait, spec, window), legs, like)
        """State of the body and its feet from what the robot measures."""
        self.support = BaseSupport(spec, window, (contract.stiffness_nm_rad, contract.effort_limit_nm), like)
        """Targets of the feet on the ground."""
        self._swing = SwingLegs(gait, spec.swing, legs, len(spec.legs), like)
        self._search = FootholdSearch(spec.legs, spec.swing.search_m, like)

    def __call__(self, steps: Array, body: StepState) -> Array:
        """Joint targets (N, 3 f), rad, within no limits.

        Args:
            steps: (N, 12) as in :data:`~gantry_deploy.contract.footstep_spec.STEP_NAMES`, in their units.
            body: Of :attr:`sense`.
        """
        xp = self._xp
        plan = self.plan(steps, body)
        swinging, standing = self._swing(body, plan), self.support(body, plan)
        return xp.where(xp.repeat(body.stands, 3, axis=1), standing, swinging)

    def plan(self, steps: Array, body: StepState) -> StepCommand:
        """Command for N bodies and their feet, in the level frame [m]; ``steps`` (N, 12) as in :meth:`__call__`."""
        xp, drive = self._xp, body.drive
        # A robot that rests and only tries not to move leans further and further off its feet with every push.
        upright = UPRIGHT_1_S * xp.mean(body.feet[..., :2], axis=1)
        vel = xp.where(body.rests, upright, body.goes * (drive[:, :2] + steps[:, 6:8]))
        turn = xp.where(body.rests, xp.zeros_like(drive[:, 2:]), drive[:, 2:] + steps[:, 8:9])
        shift = xp.take(xp.reshape(steps[:, :6], (-1, 2, 3)), self.end_of, axis=1)
        land = self.landing(body, vel, turn) + shift[..., :2]
        limits = body.void, body.highest + STEP_UP_M
        moved = self._search.on_map(
            self._window, body.ground, land, vel, limits, body.predicted_touchdown, body.progress
        )
        land = land + moved
        # A body that goes on as it was leaves the feet behind that were moved.
        along = xp.mean(moved * xp.astype(body.swings, moved.dtype)[..., None], axis=1)
        vel = xp.where(body.rests, vel, vel + FOLLOW_1_S * along)
        ways = self._ways(body, land)
        height = self._stepped_on(body, ways[..., -1]) + shift[..., 2] + self._way.foot_radius_m
        return StepCommand(vel, turn, xp.concat((land, height[..., None]), axis=-1), ways, steps[:, 9:])

    def landing(self, body: StepState, vel: Array, turn: Array) -> Array:
        """Places where feet would land on a plane, (N, f, 2), m in the level frame, at this velocity of the base."""
        xp, way = self._xp, self._way
        stance_s = self._gait.duty / self._gait.frequency_hz
        yaw = turn * (body.left_s + 0.5 * stance_s)
        c, s, x, y = xp.cos(yaw), xp.sin(yaw), self._stand[:, 0], self._stand[:, 1]
        below = xp.stack((c * x - s * y, s * x + c * y), axis=-1) + vel[:, None] * body.left_s[..., None]
        away = 0.5 * stance_s * vel + self._capture * (body.vel[:, :2] - vel)
        ahead, aside = limited(away[:, 0], -way.ahead_m, way.ahead_m), limited(away[:, 1], -way.aside_m, way.aside_m)
        return below + xp.stack((ahead, aside), axis=-1)[:, None]

    def heights(self, body: StepState, places: Array) -> Array:
        """The map's heights over the base (N, k), m, at places (N, k, 2)."""
        return solid_heights_at(self._window, body.ground, places[..., 0], places[..., 1], body.void)

    def _ways(self, body: StepState, land: Array) -> Array:
        """The map's heights over the base on the ways of feet to places (N, f, 2): at :data:`CRESTS`, (N, f, 6), m."""
        start, shape = body.feet[:, :, None, :2], (*land.shape[:2], len(CRESTS))
        between = start + self._along[:, None] * (land[:, :, None] - start)
        over = self.heights(body, self._xp.reshape(between, (shape[0], shape[1] * shape[2], 2)))
        return self._xp.reshape(over, shape)

    def stepped_on(self, body: StepState, places: Array) -> Array:
        """Heights over the base (N, f), m, that feet are sent to at places (N, f, 2) as the map has them; beside a void
        the map's are those of neither side, and count no deeper than the void and no higher than :data:`STEP_UP_M`."""
        return self._stepped_on(body, self.heights(body, places))

    def _stepped_on(self, body: StepState, heights: Array) -> Array:
        return self._xp.minimum(self._xp.maximum(heights, body.void), body.highest + STEP_UP_M)

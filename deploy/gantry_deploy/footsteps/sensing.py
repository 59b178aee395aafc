"""Step sensing: the state of body and feet from clock, command, joints, attitude and map (Array API standard).

Nothing is remembered from one step to the next: the clock says which feet are in the air, and the base's velocity is
that of the standing feet, seen from the base.
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.footstep_spec import LegSpec, StepsSpec
from gantry_deploy.contract.parts import GaitSpec, MapWindow
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.footsteps import gait as gait_clock
from gantry_deploy.footsteps.forces import skew
from gantry_deploy.footsteps.legs import Legs
from gantry_deploy.footsteps.path_selector import PathSelector
from gantry_deploy.footsteps.state import StepState
from gantry_deploy.footsteps.swing import LIFT_SHARE
from gantry_deploy.footsteps.terrain_lookup import solid_heights_at
from gantry_mapping.elevation.ops import namespace
from gantry_mapping.sensing.frames import base_to_base_yaw

Array = Any

STEP_DOWN_M = 0.15
"""Ground that a foot is sent to counts to this depth below the lowest standing foot."""
DRIFT_M = 0.05
"""A map that is not as high as the standing feet is raised or lowered by up to this."""
NEAR_M = 0.06
"""A sole that is not higher than this over the map's ground may stand on it: its drift and noise."""
SURE, UNSURE = 0.35, 0.85
"""Uncertainties (:mod:`gantry_mapping.pipeline`) of which a cell's height counts in full and not at all: it has won
twice, and never."""
BEGUN_SHARE = 0.2
"""Share of its way before which a foot does not say yet where it goes."""
EARLY_SHARE, EARLY_M_S = 0.6, 0.3
"""A foot that falls more slowly than the second after the first share of its swing has landed, and carries."""
NARROW_SHARE = 0.6
"""At the goal the robot keeps stepping while its front or its rear feet are less than this share of their stance apart
sideways: on feet that have come together it sways until it falls."""


def apply(matrix: Array, vectors: Array) -> Array:
    """Vectors (N, ..., f, 3) times matrices (N, 3, 3), one for all f."""
    return vectors @ namespace(matrix).matrix_transpose(matrix)


class StepSensor:
    """State of the body and its feet, from what a robot measures.

    Args:
        contract: With a command.
        parts: Its gait, the gait's steps, and its map window.
        legs: Kinematics.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(
        self, contract: PolicyContract, parts: tuple[GaitSpec, StepsSpec, MapWindow], legs: Legs, like: Array
    ) -> None:
        self._xp = xp = namespace(like)
        self._command, self._legs = contract.command, legs
        self._gait, spec, self._window = parts
        self._radius = spec.swing.foot_radius_m
        self._offset = xp.asarray(self._gait.foot_offset, dtype=like.dtype, device=device(like))
        across = [_across(spec.legs, end) for end in (True, False)]
        self._across = xp.asarray(across, dtype=like.dtype, device=device(like))
        self._paths = None if spec.path is None else PathSelector(spec.path, self._window, like)

    def __call__(
        self,
        time_s: Array,
        command: Array,
        quat_wxyz: Array,
        ang_vel_b: Array,
        joint_pos: Array,
        joint_vel: Array,
        elevation_map: Array,
    ) -> StepState:
        """The body by clock (N,) [s], shaped command (N, 4), attitude (N, 4), turning rate in the base frame (N, 3),
        joints (N, 3 f) [rad, rad/s] and map (N, rows, cols, channels).

        Raises:
            ContractError: If one of them is None, naming it.
        """
        seen = {"attitude": quat_wxyz, "turning rate": ang_vel_b, "joint angles": joint_pos, "map": elevation_map}
        missing = [name for name, value in (seen | {"joint velocities": joint_vel}).items() if value is None]
        if missing:
            raise ContractError(f"A policy that says where to step is told no {', no '.join(missing)}.")
        xp, gait = self._xp, self._gait
        norm = xp.sqrt(xp.sum(quat_wxyz * quat_wxyz, axis=1, keepdims=True))
        level = base_to_base_yaw(quat_wxyz / limited(norm, 1e-6, None))
        feet_b, jacobian = self._legs.feet(joint_pos)
        feet = apply(level, feet_b)
        phase = gait_clock.foot_phase(gait, time_s, self._offset)
        drive = gait_clock.drive_command(self._command, command)
        rests = (gait_clock.moving(gait, drive)[:, None] == 0.0) & self._wide(feet)
        due = phase >= gait.duty
        ground, void, near = self._settled(elevation_map, feet, due, rests)
        goes = xp.ones_like(drive[:, :1])
        if self._paths is not None:
            goes, drive = self._on_path(command, ground, feet[..., 2] - self._radius, due)
        # A robot that comes to rest puts a foot down that is in the air, as at the end of a swing.
        swings = xp.where(rests, ~near & xp.any(near, axis=1, keepdims=True), due)
        zero = xp.zeros_like(phase)
        progress = xp.where(swings, xp.where(rests, zero + 1.0, (phase - gait.duty) / (1.0 - gait.duty)), zero)
        left_s = xp.where(swings & ~rests, (1.0 - phase) / gait.frequency_hz, zero)
        moves_b = (jacobian @ xp.reshape(joint_vel, (*feet_b.shape, 1)))[..., 0] + apply(skew(ang_vel_b), feet_b)
        moves = apply(level, moves_b)
        on = xp.astype(~swings, moves.dtype)[..., None]
        vel = -xp.sum(moves * on, axis=1) / limited(xp.sum(on, axis=1), 1.0, None)
        falls = vel[:, None, 2] + moves[..., 2] < -EARLY_M_S
        stands = ~swings | (near & (progress > EARLY_SHARE) & ~falls)
        touchdown = self.predicted_touchdown(feet[..., :2], (vel[:, None] + moves)[..., :2], progress)
        soles = _extremes(feet[..., 2] - self._radius, swings)
        known = level, ang_vel_b, vel, joint_pos, feet_b, feet, *soles, jacobian, swings, progress, left_s
        return StepState(*known, drive, goes, rests, stands, ground, void, touchdown)

    def _on_path(self, command: Array, ground: Array, soles: Array, due: Array) -> tuple[Array, Array]:
        """The share (N, 1) of its velocity that the base moves at, and the velocity (N, 3), on the way that the map
        shows."""
        goal = self._command.goal_velocity
        assert self._paths is not None
        assert goal is not None
        goals = self._paths(command, ground, *_extremes(soles, due))
        both = gait_clock.drive_command(self._command, self._xp.reshape(goals, (-1, goals.shape[-1])))
        return self._paths.goes(command, goal.near_m), self._xp.concat((both[::2, :2], both[1::2, 2:]), axis=-1)

    def _ground(self, elevation_map: Array, soles: Array) -> Array:
        """The map's heights over the base (N, rows, cols), m, of a map (N, rows, cols, channels).

        Where the map is uncertain, the height of the feet counts the more: what was never seen is no floor at the
        height that a robot has when it stands.
        """
        height = elevation_map[..., 0] - self._window.nominal_base_height_m
        if len(self._window.channels) == 1:
            return height
        sure = limited((UNSURE - elevation_map[..., 1]) / (UNSURE - SURE), 0.0, 1.0)
        return sure * height + (1.0 - sure) * self._xp.mean(soles, axis=1)[:, None, None]

    def predicted_touchdown(self, feet: Array, moves_w: Array, progress: Array) -> Array:
        """Predicted touchdown of feet (N, f, 2) that go on as they move (N, f, 2), as ``swing.ease`` has it."""
        swing_s, whole = (1.0 - self._gait.duty) / self._gait.frequency_hz, 1.0 - LIFT_SHARE
        angle = 0.5 * math.pi * limited((progress - LIFT_SHARE) / whole, BEGUN_SHARE, 1.0)
        left_s = swing_s * whole / math.pi * self._xp.cos(angle) / self._xp.sin(angle)
        return feet + moves_w * left_s[..., None]

    def _wide(self, feet: Array) -> Array:
        """Mask (N, 1) of the robots with feet (N, f, 3) far enough apart to rest on them."""
        xp = self._xp
        apart = xp.min(feet[..., 1] @ xp.matrix_transpose(self._across), axis=1, keepdims=True)
        return apart >= NARROW_SHARE

    def _settled(self, elevation_map: Array, feet: Array, due: Array, rests: Array) -> tuple[Array, Array, Array]:
        """The ground as high as the standing feet, the height below which it is void, and which feet are near it.

        A map's drift is seen by the feet that stand on it. A robot at rest may have a foot in the air and is let be.
        """
        xp = self._xp
        soles = feet[..., 2] - self._radius
        void = _extremes(soles, due & ~rests)[0] - STEP_DOWN_M
        ground = self._ground(elevation_map, soles)
        over = soles - solid_heights_at(self._window, ground, feet[..., 0], feet[..., 1], void)
        share = xp.astype(~due & ~rests, soles.dtype)
        count = limited(xp.sum(share, axis=1, keepdims=True), 1.0, None)
        drift = xp.sum(limited(over, -DRIFT_M, DRIFT_M) * share, axis=1, keepdims=True) / count
        return ground + drift[..., None], void, over - drift < NEAR_M


def _across(legs: tuple[LegSpec, ...], front: bool) -> list[float]:
    """Factors of the feet's y for the width of their end, front or rear, as a share of its stance."""
    signs = [math.copysign(float((leg.hip_in_base_m[0] > 0.0) == front), leg.side_m) for leg in legs]
    stance_m = sum(sign * leg.stand_y_m for sign, leg in zip(signs, legs, strict=True))
    return [sign / stance_m for sign in signs]


def _extremes(soles: Array, away: Array) -> tuple[Array, Array]:
    """Lowest and highest (N, 1) of soles (N, f), m, but for those that are away (N, f)."""
    xp = namespace(soles)
    far = xp.full_like(soles, 1e3)
    lowest = xp.min(xp.where(away, far, soles), axis=1, keepdims=True)
    return lowest, xp.max(xp.where(away, -far, soles), axis=1, keepdims=True)

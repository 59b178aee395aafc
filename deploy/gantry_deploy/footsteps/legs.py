"""Legs of hip, thigh and calf: where the feet are, how they move with the joints, and the joints of a place.

Written once for training and robot (Array API standard).
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.footstep_spec import LegSpec
from gantry_mapping.elevation.ops import namespace

Array = Any

STRETCH = 0.981
"""Share of the two links' length that a leg is stretched to at most; at 1 the knee is singular."""
SHORTEST_M = 0.09
"""Nearest that a foot comes to the thigh's axis."""


class Legs:
    """The legs of one robot; f feet, three joints each in the order hip, thigh and calf.

    Args:
        legs: Their geometry.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, legs: tuple[LegSpec, ...], like: Array) -> None:
        xp = namespace(like)

        def per_leg(name: str) -> Array:
            return xp.asarray([getattr(leg, name) for leg in legs], dtype=like.dtype, device=device(like))

        self.hip_b = per_leg("hip_in_base_m")
        """(f, 3) where the hip's axis begins, in the base frame, m."""
        self.side_m = per_leg("side_m")
        """(f,) from there to the leg's plane, m, positive to the left."""
        self.thigh_m = per_leg("thigh_m")
        """(f,) length of the thigh, m."""
        self.calf_m = per_leg("calf_m")
        """(f,) from the knee to the foot, m."""

    def feet(self, joint_pos_rad: Array) -> tuple[Array, Array]:
        """Feet of joint positions (N, 3 f): places (N, f, 3), m, and Jacobians (N, f, 3, 3), m/rad, column by joint;
        both in the base frame."""
        xp = namespace(joint_pos_rad)
        by_leg = xp.reshape(joint_pos_rad, (joint_pos_rad.shape[0], -1, 3))
        hip, thigh, lower = by_leg[..., 0], by_leg[..., 1], by_leg[..., 1] + by_leg[..., 2]
        foot_x, foot_z = -self.calf_m * xp.sin(lower), -self.calf_m * xp.cos(lower)
        x, z = foot_x - self.thigh_m * xp.sin(thigh), foot_z - self.thigh_m * xp.cos(thigh)
        c, s, side = xp.cos(hip), xp.sin(hip), self.side_m
        y_b, z_b = c * side - s * z, s * side + c * z
        by_hip = xp.stack((xp.zeros_like(x), -z_b, y_b), axis=-1)
        by_thigh = xp.stack((z, s * x, -c * x), axis=-1)
        by_calf = xp.stack((foot_z, s * foot_x, -c * foot_x), axis=-1)
        return xp.stack((x, y_b, z_b), axis=-1) + self.hip_b, xp.stack((by_hip, by_thigh, by_calf), axis=-1)

    def joints(self, feet_b: Array) -> Array:
        """Joint positions (N, 3 f), rad, that put the feet at (N, f, 3), m in the base frame, below the hips; of a
        place out of reach, those of the farthest in its direction."""
        xp = namespace(feet_b)
        place = feet_b - self.hip_b
        x, y, z = place[..., 0], place[..., 1], place[..., 2]
        side = self.side_m
        down = -xp.sqrt(limited(y * y + z * z - side * side, 1e-4, None))
        hip = xp.atan2(z, y) - xp.atan2(down, side + xp.zeros_like(down))
        hip = hip - 2.0 * math.pi * xp.floor(hip / (2.0 * math.pi) + 0.5)
        longest = STRETCH * (self.thigh_m + self.calf_m)
        reached = xp.minimum(limited(xp.sqrt(x * x + down * down), SHORTEST_M, None), longest)
        product = 2.0 * self.thigh_m * self.calf_m
        fold = (reached * reached - self.thigh_m * self.thigh_m - self.calf_m * self.calf_m) / product
        knee = -xp.acos(limited(fold, -1.0, 1.0))
        inner = xp.atan2(self.calf_m * xp.sin(knee), self.thigh_m + self.calf_m * xp.cos(knee))
        thigh = xp.atan2(-x, -down) - inner
        return xp.reshape(xp.stack((hip, thigh, knee), axis=-1), (x.shape[0], -1))

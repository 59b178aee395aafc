"""Base support: how the base is held over the soles, and the joint targets of standing legs that push it so.

The feet on the ground push as a least-squares share of the wrench that holds the base's height, attitude and velocity
(Array API standard).
"""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.footstep_spec import StepsSpec
from gantry_deploy.contract.parts import MapWindow
from gantry_deploy.footsteps.body_pose import BodyPoseAdapter
from gantry_deploy.footsteps.forces import foot_forces
from gantry_deploy.footsteps.state import StepCommand, StepState
from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_mapping.elevation.ops import namespace

Array = Any

DEEP_M = 0.45
"""A sole further below the highest one counts as being so far below it."""
LEVEL_M = 0.12
"""Ground under a foot in the air counts to this height above and below the standing ones."""
PITCH_SHARE, ROLL_SHARE = 0.9208, 0.4
"""Shares of the slope between front and rear, and between left and right, that the base takes on."""
VELOCITY_GAIN_1_S = 4.8519
"""Horizontal acceleration for an error of the velocity."""
HEIGHT_GAIN_1_S2, HEIGHT_DAMPING_1_S = 161.37, 14.1729
"""Vertical acceleration for an error of the height, and for the vertical velocity."""
TILT_GAIN_1_S2, TILT_DAMPING_1_S = 262.9786, 14.0
"""Angular acceleration for an error of roll and pitch, and of the angular velocity."""
FRICTION = 0.4404
"""Greatest horizontal force of a foot, as a share of the vertical one."""
MOST_M_S2, MOST_ROLL_RAD = 4.0, 0.3
"""Greatest horizontal acceleration, and roll that the ground asks for."""
LEAST_LIFT_M_S2, MOST_LIFT_M_S2 = 2.0, 25.0
"""Vertical force of all feet, over the mass."""


class BaseSupport:
    """Support of the base by the feet on the ground.

    Args:
        spec: Legs, mass and heights.
        window: Cells of the map.
        motors: Stiffness, N m/rad, and effort limit, N m, of each joint.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(
        self, spec: StepsSpec, window: MapWindow, motors: tuple[tuple[float, ...], tuple[float, ...]], like: Array
    ) -> None:
        self._xp = xp = namespace(like)

        def asarray(values: Any) -> Array:
            return xp.asarray(values, dtype=like.dtype, device=device(like))

        self._support, self._radius = spec.support, spec.swing.foot_radius_m
        front, left = [leg.hip_in_base_m[0] > 0.0 for leg in spec.legs], [leg.side_m > 0.0 for leg in spec.legs]
        places, integers = range(len(spec.legs)), {"dtype": xp.int64, "device": device(like)}
        self._ends = [xp.asarray([i for i in places if front[i] == end], **integers) for end in (True, False)]
        self._sides = [xp.asarray([i for i in places if left[i] == side], **integers) for side in (True, False)]
        hips = [leg.hip_in_base_m for leg in spec.legs]
        self._long_m = max(hip[0] for hip in hips) - min(hip[0] for hip in hips)
        self._wide_m = sum(abs(leg.hip_in_base_m[1] + leg.side_m) for leg in spec.legs) / 2.0
        self._stiffness, self._effort = asarray(motors[0]), asarray([motors[1]])
        self._mass_b, self._inertia = asarray(spec.support.mass_in_base_m), asarray(spec.support.inertia_kg_m2)
        self._body_pose = None if spec.body_pose is None else BodyPoseAdapter(spec.body_pose, window, like)

    def __call__(self, body: StepState, plan: StepCommand) -> Array:
        """Targets of all joints by which the standing feet push the base as wished, (N, 3 f), rad.

        The joints' own damping is left to them: made up for with velocities that are a control step old, it shakes a
        robot to the ground as soon as its actions are a little off.
        """
        xp = self._xp
        force, torque = self._wrench(body, plan, self.held(body, plan) + plan.pose)
        arms = body.feet - (body.level @ self._mass_b)[:, None]
        forces = foot_forces(force, torque, arms, body.stands, FRICTION)
        forces_b = forces @ body.level
        joint_nm = -(xp.matrix_transpose(body.jacobian_b) @ forces_b[..., None])[..., 0]
        joint_nm = xp.minimum(xp.maximum(xp.reshape(joint_nm, body.joint_pos.shape), -self._effort), self._effort)
        return body.joint_pos + joint_nm / self._stiffness

    def held(self, body: StepState, plan: StepCommand) -> Array:
        """Height over the present one, pitch and roll (N, 3) for the ground below the feet and ahead."""
        xp, pose = self._xp, self._pose(self.soles(body, plan.places[..., 2], plan.ways[..., 0]))
        if self._body_pose is None:
            return pose
        sole = xp.min(xp.take(body.feet[..., 2], self._ends[0], axis=1), axis=1) - self._radius
        return pose + xp.where(body.rests, xp.zeros_like(pose), self._body_pose(body.ground, sole, pose))

    def soles(self, body: StepState, land_m: Array, under_m: Array) -> Array:
        """Heights over the base (N, f), m, between which it is carried: those of feet in the air change on the way.

        Args:
            body: Of a ``StepSensor``.
            land_m: (N, f) height over the base that feet in the air are sent to.
            under_m: (N, f) the map's heights over the base under the feet.
        """
        xp, radius = self._xp, self._radius
        under = xp.minimum(xp.maximum(under_m, body.lowest - LEVEL_M), body.highest + LEVEL_M)
        moving = under + body.progress * (land_m - radius - under)
        soles = xp.where(body.swings, moving, body.feet[..., 2] - radius)
        return xp.maximum(soles, xp.max(soles, axis=1, keepdims=True) - DEEP_M)

    def _pose(self, soles: Array) -> Array:
        """Height over the present one, pitch and roll (N, 3) that the soles' heights (N, f), m, ask for."""
        xp, rules = self._xp, self._support
        hips = []
        for feet in self._ends:
            z = xp.take(soles, feet, axis=1)
            height = xp.minimum(xp.mean(z, axis=1) + rules.height_m, xp.min(z, axis=1) + rules.highest_m)
            hips.append(xp.maximum(height, xp.max(z, axis=1) + rules.lowest_m))
        left, right = (xp.mean(xp.take(soles, feet, axis=1), axis=1) for feet in self._sides)
        pitch = -xp.atan((hips[0] - hips[1]) / self._long_m) * PITCH_SHARE
        roll = limited(xp.atan((left - right) / self._wide_m) * ROLL_SHARE, -MOST_ROLL_RAD, MOST_ROLL_RAD)
        return xp.stack((0.5 * (hips[0] + hips[1]), pitch, roll), axis=-1)

    def _wrench(self, body: StepState, plan: StepCommand, pose: Array) -> tuple[Array, Array]:
        """Force (N, 3), N, and torque (N, 3), N m, on the base in the level frame; ``pose`` as of :meth:`_pose`."""
        xp, rules = self._xp, self._support
        turned = xp.matrix_transpose(_tilted(pose[:, 2], pose[:, 1])) @ body.level
        error = 0.5 * xp.stack(
            (turned[:, 1, 2] - turned[:, 2, 1], turned[:, 2, 0] - turned[:, 0, 2], xp.zeros_like(pose[:, 0])), axis=-1
        )
        spin = xp.concat((xp.zeros_like(plan.vel), plan.turn), axis=-1)
        torque_b = self._inertia * (TILT_GAIN_1_S2 * error + TILT_DAMPING_1_S * (spin - body.ang_vel_b))
        pushes = VELOCITY_GAIN_1_S * (plan.vel - body.vel[:, :2]) + rules.drag_1_s * plan.vel
        flat = limited(pushes, -MOST_M_S2, MOST_M_S2)
        lift = HEIGHT_GAIN_1_S2 * pose[:, 0] - HEIGHT_DAMPING_1_S * body.vel[:, 2]
        up = limited(GRAVITY_M_S2 + lift, LEAST_LIFT_M_S2, MOST_LIFT_M_S2)
        return rules.mass_kg * xp.concat((flat, up[:, None]), axis=-1), (body.level @ torque_b[..., None])[..., 0]


def _tilted(roll: Array, pitch: Array) -> Array:
    """Rotations (N, 3, 3) by angles (N,), rad: roll first, then pitch."""
    xp = namespace(roll)
    cr, sr, cp, sp, zero = xp.cos(roll), xp.sin(roll), xp.cos(pitch), xp.sin(pitch), xp.zeros_like(roll)
    rows = (cp, sp * sr, sp * cr, zero, cr, -sr, -sp, cp * sr, cp * cr)
    return xp.reshape(xp.stack(rows, axis=-1), (-1, 3, 3))

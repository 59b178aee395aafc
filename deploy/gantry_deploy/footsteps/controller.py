"""Footstep controller: footholds and a speed of the body, turned into joint targets, from what a robot measures.

A trot whose feet land half a stance ahead of where they stand and after a wrong velocity (Raibert, Legged Robots That
Balance, 1986), moved as the policy says; the feet on the ground push as a least-squares share of the wrench that holds
the base's height, attitude and velocity. Nothing is remembered from one step to the next: the clock says which feet
are in the air, and the base's velocity is that of the standing feet, seen from the base.

Written once for training and robot (Array API standard). Level frame: the base's origin and heading, z
up, the ``base_yaw`` of :mod:`gantry_mapping.frames`.
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import device

from gantry_deploy.arrays import limited
from gantry_deploy.contract.footstep_spec import LIFT_SHARE, LegSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.footsteps import gait as gait_clock
from gantry_deploy.footsteps.body_pose import Posture
from gantry_deploy.footsteps.footholds import Footholds
from gantry_deploy.footsteps.forces import foot_forces, skew
from gantry_deploy.footsteps.legs import Legs
from gantry_deploy.footsteps.path_selector import Steering
from gantry_deploy.footsteps.state import Body, Plan
from gantry_deploy.footsteps.terrain_lookup import solid_heights_at
from gantry_mapping.frames import base_to_base_yaw
from gantry_mapping.ops import namespace

Array = Any

GRAVITY_M_S2 = 9.81
DEEP_M = 0.45
"""A sole further below the highest one counts as being so far below it."""
STEP_DOWN_M, STEP_UP_M = 0.15, 0.4
"""Ground that a foot is sent to counts to this depth below the lowest standing foot and height above the highest."""
DRIFT_M = 0.05
"""A map that is not as high as the standing feet is raised or lowered by up to this."""
NEAR_M = 0.06
"""A sole that is not higher than this over the map's ground may stand on it: its drift and noise."""
SURE, UNSURE = 0.35, 0.85
"""Uncertainties (:mod:`gantry_mapping.pipeline`) of which a cell's height counts in full and not at all: it has won
twice, and never."""
LEVEL_M = 0.12
"""Ground under a foot in the air counts to this height above and below the standing ones."""
CREST_M = 0.25
"""Ground on a foot's way counts up to this height over its ends."""
BOUND_SHARE = 0.2
"""A foot that has only just begun to move ahead does not say yet where to."""
APEX_SHARE = 0.5
"""Share of a swing at which a foot begins to come down."""
MOST_M_S2, MOST_ROLL_RAD = 4.0, 0.3
"""Greatest horizontal acceleration, and roll that the ground asks for."""
LEAST_LIFT_M_S2, MOST_LIFT_M_S2 = 2.0, 25.0
"""Vertical force of all feet, over the mass."""
CRESTS = tuple(i / 5.0 for i in range(6))
"""Points on a foot's way at which the ground is looked at: its start is 0, its end 1."""


def apply(matrix: Array, vectors: Array) -> Array:
    """Vectors (N, ..., f, 3) times matrices (N, 3, 3), one for all f."""
    return vectors @ namespace(matrix).matrix_transpose(matrix)


class Stepper:
    """Joint targets from footstep actions (kind :data:`~gantry_deploy.contract.footstep_spec.STEP_TARGET`).

    Its places are added to where the feet would land on a plane, their z to the ground of the map; its velocity is
    added to the one that the goal amounts to (``command.carrot``). Where that is at rest, neither counts.

    Args:
        contract: With ``gait.steps``, a clock and a map window.
        like: Any floating array of the namespace, dtype and device to work on.
    """

    def __init__(self, contract: PolicyContract, like: Array) -> None:
        gait, window = contract.gait, contract.map_window
        if gait is None or gait.steps is None or window is None:
            raise ContractError("Legs that are told where to step need 'gait.steps' and 'map_window'.")
        self._xp = xp = namespace(like)
        self._contract, self._gait, self._window = contract, gait, window
        spec = gait.steps
        self._support, self._way = spec.support, spec.swing
        self._legs = Legs(spec.legs, like)

        def asarray(values: Any) -> Array:
            return xp.asarray(values, dtype=like.dtype, device=device(like))

        self._offset = asarray(gait.foot_offset)
        self._stand = asarray([(leg.stand_x_m, leg.stand_y_m) for leg in spec.legs])
        front, left = [leg.hip_in_base_m[0] > 0.0 for leg in spec.legs], [leg.side_m > 0.0 for leg in spec.legs]
        places, integers = range(len(spec.legs)), {"dtype": xp.int64, "device": device(like)}
        self._ends = [xp.asarray([i for i in places if front[i] == end], **integers) for end in (True, False)]
        self._sides = [xp.asarray([i for i in places if left[i] == side], **integers) for side in (True, False)]
        self.end_of = xp.asarray([0 if ahead else 1 for ahead in front], **integers)
        """(f,) 0 for a front foot, 1 for a rear one."""
        hips = [leg.hip_in_base_m for leg in spec.legs]
        self._long_m = max(hip[0] for hip in hips) - min(hip[0] for hip in hips)
        self._wide_m = sum(abs(leg.hip_in_base_m[1] + leg.side_m) for leg in spec.legs) / 2.0
        self._across = asarray([_across(spec.legs, end) for end in (True, False)])
        self._stiffness, self._effort = asarray(contract.stiffness_nm_rad), asarray([contract.effort_limit_nm])
        self._mass_b, self._inertia = asarray(spec.support.mass_in_base_m), asarray(spec.support.inertia_kg_m2)
        self._along = asarray(CRESTS)
        self._footholds = Footholds(spec.footholds, spec.legs, window, like)
        self._posture = None if spec.posture is None else Posture(spec.posture, window, like)
        self._steering = None if spec.steer is None else Steering(spec.steer, window, like)
        self._capture = asarray([spec.swing.capture_s, spec.swing.capture_aside_s])
        self._lead = asarray([spec.swing.most_lead_rad * len(spec.legs)])

    def __call__(self, steps: Array, body: Body) -> Array:
        """Joint targets (N, 3 f), rad, within no limits.

        Args:
            steps: (N, 12) as in :data:`~gantry_deploy.contract.footstep_spec.STEP_NAMES`, in their units.
            body: From :meth:`sense`.
        """
        xp = self._xp
        plan = self.plan(steps, body)
        swinging, standing = self._swinging(body, plan), self._standing(body, plan)
        return xp.where(xp.repeat(body.stands, 3, axis=1), standing, swinging)

    def _ground(self, elevation_map: Array, soles: Array) -> Array:
        """The map's heights over the base (N, rows, cols), m, of a map (N, rows, cols, channels).

        Where the map is uncertain, the height of the feet counts the more: what was never seen is no floor at the
        height that a robot has when it stands.
        """
        height = elevation_map[..., 0] - self._window.nominal_base_height_m
        if len(self._window.channels) == 1:
            return height
        sure = _share((UNSURE - elevation_map[..., 1]) / (UNSURE - SURE))
        return sure * height + (1.0 - sure) * self._xp.mean(soles, axis=1)[:, None, None]

    def sense(
        self,
        time_s: Array,
        command: Array,
        quat_wxyz: Array,
        ang_vel_b: Array,
        joint_pos: Array,
        joint_vel: Array,
        elevation_map: Array,
    ) -> Body:
        """The body by clock (N,) [s], shaped command (N, 4), attitude (N, 4), turning rate in the base frame (N, 3),
        joints (N, 3 f) [rad, rad/s] and map (N, rows, cols, channels).

        Raises:
            ContractError: If one of them is None, naming it.
        """
        seen = {"attitude": quat_wxyz, "turning rate": ang_vel_b, "joint angles": joint_pos, "map": elevation_map}
        missing = [name for name, value in (seen | {"joint velocities": joint_vel}).items() if value is None]
        if missing:
            raise ContractError(f"A policy that says where to step is told no {', no '.join(missing)}.")
        xp, gait, way = self._xp, self._gait, self._way
        norm = xp.sqrt(xp.sum(quat_wxyz * quat_wxyz, axis=1, keepdims=True))
        level = base_to_base_yaw(quat_wxyz / limited(norm, 1e-6, None))
        feet_b, jacobian = self._legs.feet(joint_pos)
        feet = apply(level, feet_b)
        phase = gait_clock.foot_phase(gait, time_s, self._offset)
        drive = gait_clock.drive_command(self._contract.command, command)
        rests = (gait_clock.moving(gait, drive)[:, None] == 0.0) & self._wide(feet)
        due = phase >= gait.duty
        ground, void, near = self._settled(elevation_map, feet, due, rests)
        goes = xp.ones_like(drive[:, :1])
        if self._steering is not None:
            goes, drive = self._steered(command, ground, feet[..., 2] - way.foot_radius_m, due)
        # A robot that comes to rest puts a foot down that is in the air, as at the end of a swing.
        swings = xp.where(rests, ~near & xp.any(near, axis=1, keepdims=True), due)
        zero = xp.zeros_like(phase)
        progress = xp.where(swings, xp.where(rests, zero + 1.0, (phase - gait.duty) / (1.0 - gait.duty)), zero)
        left_s = xp.where(swings & ~rests, (1.0 - phase) / gait.frequency_hz, zero)
        moves_b = (jacobian @ xp.reshape(joint_vel, (*feet_b.shape, 1)))[..., 0] + apply(skew(ang_vel_b), feet_b)
        moves = apply(level, moves_b)
        on = xp.astype(~swings, moves.dtype)[..., None]
        vel = -xp.sum(moves * on, axis=1) / limited(xp.sum(on, axis=1), 1.0, None)
        falls = vel[:, None, 2] + moves[..., 2] < -way.early_m_s
        stands = ~swings | (near & (progress > way.early_share) & ~falls)
        bound = self._bound(feet[..., :2], (vel[:, None] + moves)[..., :2], progress)
        soles = _extremes(feet[..., 2] - way.foot_radius_m, swings)
        known = level, ang_vel_b, vel, joint_pos, feet_b, feet, *soles, jacobian, swings, progress, left_s
        return Body(*known, drive, goes, rests, stands, ground, void, bound)

    def _steered(self, command: Array, ground: Array, soles: Array, due: Array) -> tuple[Array, Array]:
        """The share (N, 1) of its velocity that the base moves at, and the velocity (N, 3), on the way that the map
        shows."""
        carrot = self._contract.command.carrot
        assert self._steering is not None
        assert carrot is not None
        goals = self._steering(command, ground, *_extremes(soles, due))
        both = gait_clock.drive_command(self._contract.command, self._xp.reshape(goals, (-1, goals.shape[-1])))
        return self._steering.goes(command, carrot.near_m), self._xp.concat((both[::2, :2], both[1::2, 2:]), axis=-1)

    def _bound(self, feet: Array, moves_w: Array, progress: Array) -> Array:
        """Predicted touchdown of feet (N, f, 2) that go on as they move (N, f, 2), by what is left of :meth:`_ease`."""
        swing_s, whole = (1.0 - self._gait.duty) / self._gait.frequency_hz, self._way.arrive - LIFT_SHARE
        angle = 0.5 * math.pi * limited((progress - LIFT_SHARE) / whole, BOUND_SHARE, 1.0)
        left_s = swing_s * whole / math.pi * self._xp.cos(angle) / self._xp.sin(angle)
        return feet + moves_w * left_s[..., None]

    def _wide(self, feet: Array) -> Array:
        """Mask (N, 1) of the robots with feet (N, f, 3) far enough apart to rest on them."""
        xp, share = self._xp, self._support.narrow_share
        apart = xp.min(feet[..., 1] @ xp.matrix_transpose(self._across), axis=1, keepdims=True)
        return (apart >= share) | (share == 0.0)

    def _settled(self, elevation_map: Array, feet: Array, due: Array, rests: Array) -> tuple[Array, Array, Array]:
        """The ground as high as the standing feet, the height below which it is void, and which feet are near it.

        A map's drift is seen by the feet that stand on it. A robot at rest may have a foot in the air and is let be.
        """
        xp = self._xp
        soles = feet[..., 2] - self._way.foot_radius_m
        void = _extremes(soles, due & ~rests)[0] - STEP_DOWN_M
        ground = self._ground(elevation_map, soles)
        over = soles - self._heights(ground, feet[..., :2], void)
        share = xp.astype(~due & ~rests, soles.dtype)
        count = limited(xp.sum(share, axis=1, keepdims=True), 1.0, None)
        drift = xp.sum(limited(over, -DRIFT_M, DRIFT_M) * share, axis=1, keepdims=True) / count
        return ground + drift[..., None], void, over - drift < NEAR_M

    def plan(self, steps: Array, body: Body) -> Plan:
        """Command for N bodies and their feet, in the level frame [m]; ``steps`` (N, 12) as in :meth:`__call__`."""
        xp, drive = self._xp, body.drive
        # A robot that rests and only tries not to move leans further and further off its feet with every push.
        upright = self._support.upright_1_s * xp.mean(body.feet[..., :2], axis=1)
        vel = xp.where(body.rests, upright, body.goes * (drive[:, :2] + steps[:, 6:8]))
        turn = xp.where(body.rests, xp.zeros_like(drive[:, 2:]), drive[:, 2:] + steps[:, 8:9])
        shift = xp.take(xp.reshape(steps[:, :6], (-1, 2, 3)), self.end_of, axis=1)
        land = self.landing(body, vel, turn) + shift[..., :2]
        most = body.highest + STEP_UP_M
        moved = self._footholds(body.ground, land, vel, body.void, most, body.bound, body.progress)
        land = land + moved
        # A body that goes on as it was leaves the feet behind that were moved.
        along = xp.mean(moved * xp.astype(body.swings, moved.dtype)[..., None], axis=1)
        vel = xp.where(body.rests, vel, vel + self._footholds.follow_1_s * along)
        ways = self._ways(body, land)
        height = self._stepped_on(body, ways[..., -1]) + shift[..., 2] + self._way.foot_radius_m
        return Plan(vel, turn, xp.concat((land, height[..., None]), axis=-1), ways, steps[:, 9:])

    def landing(self, body: Body, vel: Array, turn: Array) -> Array:
        """Places where feet would land on a plane, (N, f, 2), m in the level frame, at this velocity of the base."""
        xp, way = self._xp, self._way
        stance_s = self._gait.duty / self._gait.frequency_hz
        yaw = turn * (body.left_s + 0.5 * stance_s)
        c, s, x, y = xp.cos(yaw), xp.sin(yaw), self._stand[:, 0], self._stand[:, 1]
        below = xp.stack((c * x - s * y, s * x + c * y), axis=-1) + vel[:, None] * body.left_s[..., None]
        away = 0.5 * stance_s * vel + self._capture * (body.vel[:, :2] - vel)
        ahead, aside = limited(away[:, 0], -way.ahead_m, way.ahead_m), limited(away[:, 1], -way.aside_m, way.aside_m)
        return below + xp.stack((ahead, aside), axis=-1)[:, None]

    def _heights(self, ground: Array, places: Array, void: Array) -> Array:
        """The map's heights over the base (N, k), m, at places (N, k, 2)."""
        return solid_heights_at(self._window, ground, places[..., 0], places[..., 1], void)

    def _ways(self, body: Body, land: Array) -> Array:
        """The map's heights over the base on the ways of feet to places (N, f, 2): at :data:`CRESTS`, (N, f, 6), m."""
        start, shape = body.feet[:, :, None, :2], (*land.shape[:2], len(CRESTS))
        between = start + self._along[:, None] * (land[:, :, None] - start)
        over = self._heights(body.ground, self._xp.reshape(between, (shape[0], shape[1] * shape[2], 2)), body.void)
        return self._xp.reshape(over, shape)

    def stepped_on(self, body: Body, places: Array) -> Array:
        """Heights over the base (N, f), m, that feet are sent to at places (N, f, 2) as the map has them; beside a void
        the map's are those of neither side, and count no further than :data:`STEP_DOWN_M` and :data:`STEP_UP_M`."""
        return self._stepped_on(body, self._heights(body.ground, places, body.void))

    def _stepped_on(self, body: Body, heights: Array) -> Array:
        return self._xp.minimum(self._xp.maximum(heights, body.void), body.highest + STEP_UP_M)

    def soles(self, body: Body, land_m: Array, under_m: Array | None = None) -> Array:
        """Heights over the base (N, f), m, between which it is carried: those of feet in the air change on the way.

        Args:
            body: From :meth:`sense`.
            land_m: (N, f) height over the base that feet in the air are sent to.
            under_m: (N, f) the map's heights under the feet; None looks there.
        """
        xp, radius = self._xp, self._way.foot_radius_m
        under = self._heights(body.ground, body.feet[..., :2], body.void) if under_m is None else under_m
        under = xp.minimum(xp.maximum(under, body.lowest - LEVEL_M), body.highest + LEVEL_M)
        moving = under + body.progress * (land_m - radius - under)
        soles = xp.where(body.swings, moving, body.feet[..., 2] - radius)
        return xp.maximum(soles, xp.max(soles, axis=1, keepdims=True) - DEEP_M)

    def _swinging(self, body: Body, plan: Plan) -> Array:
        """Targets of all joints as if all feet were in the air, (N, 3 f), rad."""
        xp, way = self._xp, self._way
        swing_s = (1.0 - self._gait.duty) / self._gait.frequency_hz
        now, soon = body.progress, body.progress + way.lead_s / swing_s
        # Of what is left of its way a foot goes the share that is due: where it is says what it has done so far.
        ahead = _due(self._ease(now), self._ease(soon))
        to_go = plan.places[..., :2] - body.feet[..., :2]
        flat = body.feet[..., :2] + ahead[..., None] * to_go
        apex = self._apex(body, plan)
        risen = _due(xp.sin(0.5 * math.pi * _share(now / 0.4)), xp.sin(0.5 * math.pi * _share(soon / 0.4)))
        down = 0.5 + 0.5 * xp.cos(math.pi * _share((soon - APEX_SHARE) / (1.0 - APEX_SHARE)))
        rises = body.feet[..., 2] + risen * (apex - body.feet[..., 2])
        falls = plan.places[..., 2] + down * (apex - plan.places[..., 2])
        place = xp.concat((flat, xp.where(soon < APEX_SHARE, rises, falls)[..., None]), axis=-1)
        later = body.level + way.turn_lead_s * (body.level @ skew(body.ang_vel_b))
        place_b = (place - way.move_lead_s * body.vel[:, None]) @ later
        joints, lead = self._legs.joints(place_b), self._lead
        return xp.minimum(xp.maximum(joints, body.joint_pos - lead), body.joint_pos + lead)

    def _ease(self, share: Array) -> Array:
        whole = self._way.arrive - LIFT_SHARE
        return 0.5 - 0.5 * self._xp.cos(math.pi * _share((share - LIFT_SHARE) / whole))

    def _apex(self, body: Body, plan: Plan) -> Array:
        """Apex height of feet, (N, f), m over the base."""
        xp, radius, end = self._xp, self._way.foot_radius_m, plan.places[..., 2]
        most = xp.maximum(end, body.highest + radius) + CREST_M
        return xp.maximum(end, xp.minimum(xp.max(plan.ways, axis=-1) + radius, most)) + self._way.clearance_m

    def _standing(self, body: Body, plan: Plan) -> Array:
        """Targets of all joints by which the standing feet push the base as wished, (N, 3 f), rad.

        The joints' own damping is left to them: made up for with velocities that are a control step old, it shakes a
        robot to the ground as soon as its actions are a little off.
        """
        xp = self._xp
        force, torque = self._wrench(body, plan, self.held(body, plan) + plan.pose)
        arms = body.feet - (body.level @ self._mass_b)[:, None]
        forces = foot_forces(force, torque, arms, body.stands, self._support.friction)
        forces_b = forces @ body.level
        joint_nm = -(xp.matrix_transpose(body.jacobian_b) @ forces_b[..., None])[..., 0]
        joint_nm = xp.minimum(xp.maximum(xp.reshape(joint_nm, body.joint_pos.shape), -self._effort), self._effort)
        return body.joint_pos + joint_nm / self._stiffness

    def held(self, body: Body, plan: Plan) -> Array:
        """Height over the present one, pitch and roll (N, 3) for the ground below the feet and ahead."""
        xp, pose = self._xp, self.pose(self.soles(body, plan.places[..., 2], plan.ways[..., 0]))
        if self._posture is None:
            return pose
        sole = xp.min(xp.take(body.feet[..., 2], self._ends[0], axis=1), axis=1) - self._way.foot_radius_m
        return pose + xp.where(body.rests, xp.zeros_like(pose), self._posture(body.ground, sole, pose))

    def pose(self, soles: Array) -> Array:
        """Height over the present one, pitch and roll (N, 3) that the soles' heights (N, f), m, ask for."""
        xp, rules = self._xp, self._support
        hips = []
        for feet in self._ends:
            z = xp.take(soles, feet, axis=1)
            height = xp.minimum(xp.mean(z, axis=1) + rules.height_m, xp.min(z, axis=1) + rules.highest_m)
            hips.append(xp.maximum(height, xp.max(z, axis=1) + rules.lowest_m))
        left, right = (xp.mean(xp.take(soles, feet, axis=1), axis=1) for feet in self._sides)
        pitch = -xp.atan((hips[0] - hips[1]) / self._long_m) * rules.pitch_share
        roll = limited(xp.atan((left - right) / self._wide_m) * rules.roll_share, -MOST_ROLL_RAD, MOST_ROLL_RAD)
        return xp.stack((0.5 * (hips[0] + hips[1]), pitch, roll), axis=-1)

    def _wrench(self, body: Body, plan: Plan, pose: Array) -> tuple[Array, Array]:
        """Force (N, 3), N, and torque (N, 3), N m, on the base in the level frame; ``pose`` as of :meth:`pose`."""
        xp, rules = self._xp, self._support
        turned = xp.matrix_transpose(_tilted(pose[:, 2], pose[:, 1])) @ body.level
        error = 0.5 * xp.stack(
            (turned[:, 1, 2] - turned[:, 2, 1], turned[:, 2, 0] - turned[:, 0, 2], xp.zeros_like(pose[:, 0])), axis=-1
        )
        spin = xp.concat((xp.zeros_like(plan.vel), plan.turn), axis=-1)
        torque_b = self._inertia * (rules.tilt_gain_1_s2 * error + rules.tilt_damping_1_s * (spin - body.ang_vel_b))
        pushes = rules.velocity_gain_1_s * (plan.vel - body.vel[:, :2]) + rules.drag_1_s * plan.vel
        flat = limited(pushes, -MOST_M_S2, MOST_M_S2)
        lift = rules.height_gain_1_s2 * pose[:, 0] - rules.height_damping_1_s * body.vel[:, 2]
        up = limited(GRAVITY_M_S2 + lift, LEAST_LIFT_M_S2, MOST_LIFT_M_S2)
        return rules.mass_kg * xp.concat((flat, up[:, None]), axis=-1), (body.level @ torque_b[..., None])[..., 0]


def _across(legs: tuple[LegSpec, ...], front: bool) -> list[float]:
    """Factors of the feet's y for the width of their end, front or rear, as a share of its stance."""
    signs = [math.copysign(float((leg.hip_in_base_m[0] > 0.0) == front), leg.side_m) for leg in legs]
    stance_m = sum(sign * leg.stand_y_m for sign, leg in zip(signs, legs, strict=True))
    return [sign / stance_m for sign in signs]


def _tilted(roll: Array, pitch: Array) -> Array:
    """Rotations (N, 3, 3) by angles (N,), rad: roll first, then pitch."""
    xp = namespace(roll)
    cr, sr, cp, sp, zero = xp.cos(roll), xp.sin(roll), xp.cos(pitch), xp.sin(pitch), xp.zeros_like(roll)
    rows = (cp, sp * sr, sp * cr, zero, cr, -sr, -sp, cp * sr, cp * cr)
    return xp.reshape(xp.stack(rows, axis=-1), (-1, 3, 3))


def _extremes(soles: Array, away: Array) -> tuple[Array, Array]:
    """Lowest and highest (N, 1) of soles (N, f), m, but for those that are away (N, f)."""
    xp = namespace(soles)
    far = xp.full_like(soles, 1e3)
    lowest = xp.min(xp.where(away, far, soles), axis=1, keepdims=True)
    return lowest, xp.max(xp.where(away, -far, soles), axis=1, keepdims=True)


def _share(value: Array) -> Array:
    return limited(value, 0.0, 1.0)


def _due(now: Array, soon: Array) -> Array:
    """Of what is left of something from 0 to 1, the share that is done between two values of it."""
    return _share((soon - now) / limited(1.0 - now, 1e-2, None))

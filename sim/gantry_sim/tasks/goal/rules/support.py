"""How the base is carried: forces of the feet on the ground, turned into joint targets; feet that missed it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_sim.tasks.goal.rules.cfg import SupportRules
from gantry_sim.tasks.goal.rules.forces import foot_forces
from gantry_sim.tasks.goal.rules.gait import Phases
from gantry_sim.tasks.goal.rules.legs import Legs
from gantry_sim.tasks.goal.rules.moment import Moment
from gantry_sim.tasks.goal.rules.route import Wish

GRAVITY_M_S2 = 9.81
HIGH_FOOT_M = 0.45
"""A foot further below the highest one counts as being so far below it."""
EARLY_SHARE = 0.6
"""A foot that touches the ground after this share of its swing carries already."""
HOP_STEPS = 2
"""A standing foot that leaves the ground for this many control steps is only shaken off, and pushes on."""
REACH_M = 0.06
"""Most that a foot that should stand and does not is sent away from where it is."""


@dataclass(frozen=True)
class Drive:
    """What turns forces into joint targets."""

    stiffness_nm_rad: Tensor
    """(3 f,) of the joints' controllers."""
    mass_kg: float
    """Of the robot."""
    foot_radius_m: float
    """Height of a foot over its sole."""


class Support:
    """Remembers the pose that the base is led to, and which feet have stood in their stance.

    Args:
        legs: The robot's legs.
        rules: Parameters.
        drive: The joints' controllers and the masses.
        num_envs: Environments.
    """

    def __init__(self, legs: Legs, rules: SupportRules, drive: Drive, num_envs: int) -> None:
        self._rules, self._drive = rules, drive
        device = legs.side_m.device
        self._front, self._left = legs.hip_b[:, 0] > 0.0, legs.side_m > 0.0
        self._long = float(legs.hip_b[:, 0].max() - legs.hip_b[:, 0].min())
        self._wide = float((legs.hip_b[:, 1] + legs.side_m).abs().sum()) / 2.0
        self._inertia = torch.tensor(rules.inertia_kg_m2, device=device)
        self._mass_b = torch.tensor((rules.mass_x_m, 0.0, rules.mass_z_m), device=device)
        self._pose = torch.zeros(num_envs, 3, device=device)
        self._touched = torch.zeros(num_envs, len(legs.side_m), dtype=torch.bool, device=device)
        self._airborne = torch.zeros(num_envs, len(legs.side_m), dtype=torch.long, device=device)
        self.uneven_m = torch.zeros(num_envs, device=device)
        """(N,) difference of the feet's heights."""

    def stands(self, now: Moment, phases: Phases) -> Tensor:
        """(N, f) bool, which feet are not on their way to a place."""
        return ~phases.swings | ((phases.progress > EARLY_SHARE) & now.contact)

    def missing(self, now: Moment, phases: Phases) -> Tensor:
        """(N, f) bool, which feet should be on the ground and have not been for a while; once per control step."""
        airborne = ~phases.swings & ~now.contact
        self._airborne = torch.where(airborne & ~now.new[:, None], self._airborne + 1, 0)
        return self._airborne > HOP_STEPS

    def joint_targets(self, now: Moment, wish: Wish, phases: Phases, places_w: Tensor, missing: Tensor) -> Tensor:
        """Targets of all joints by which the standing feet push the base as wished, (N, 3 f), rad.

        The joints' own damping is left to them: made up for with velocities that are a control step old, it shakes a
        robot to the ground as soon as its actions are a little off.
        """
        self._lead(now, self._soles(now, phases, places_w))
        force, torque = self._wrench(now, wish)
        arms = now.feet_w - (now.pos_w + now.rotation @ self._mass_b)[:, None]
        carrying = self.stands(now, phases) & ~missing
        forces = foot_forces(force, torque, arms, carrying, self._rules.friction)
        forces_b = torch.einsum("nji,nkj->nki", now.rotation, forces)
        joint_nm = -torch.einsum("nkji,nkj->nki", now.jacobian_b, forces_b).flatten(1)
        return now.joint_pos + joint_nm / self._drive.stiffness_nm_rad

    def searching(self, now: Moment, phases: Phases, places_w: Tensor) -> Tensor:
        """Places that feet which miss the ground are sent to, (N, f, 3), m: down."""
        self._touched = ~phases.swings & ((self._touched & ~now.new[:, None]) | now.contact)
        feet = now.feet_w
        bounced = self._touched | (places_w[..., 2] - 0.02 > feet[..., 2])
        down = torch.where(bounced, feet[..., 2] - 0.03, places_w[..., 2] - 0.02) - feet[..., 2]
        return torch.cat((feet[..., :2], (feet[..., 2] + down.clamp(-REACH_M, REACH_M))[..., None]), -1)

    def _soles(self, now: Moment, phases: Phases, places_w: Tensor) -> Tensor:
        """Heights (N, f), m, between which the base is carried: those of feet in the air change on the way."""
        start = phases.lifted_w[..., 2]
        moving = start + phases.progress * (places_w[..., 2] - start)
        soles = torch.where(phases.swings, moving, now.feet_w[..., 2]) - self._drive.foot_radius_m
        soles = torch.maximum(soles, soles.amax(1, keepdim=True) - HIGH_FOOT_M)
        self.uneven_m = soles.amax(1) - soles.amin(1)
        return soles

    def _lead(self, now: Moment, soles: Tensor) -> None:
        """Bring height, pitch and roll nearer to what the feet's heights ask for."""
        rules = self._rules

        def hips(feet: Tensor) -> Tensor:
            z = soles[:, feet]
            height = torch.minimum(z.mean(1) + rules.height_m, z.amin(1) + rules.highest_m)
            return torch.maximum(height, z.amax(1) + rules.lowest_m)

        front, rear = hips(self._front), hips(~self._front)
        left, right = soles[:, self._left].mean(1), soles[:, ~self._left].mean(1)
        pitch = -torch.atan((front - rear) / self._long) * rules.pitch_share
        roll = (torch.atan((left - right) / self._wide) * rules.roll_share).clamp(-0.3, 0.3)
        pose = torch.stack((0.5 * (front + rear), pitch, roll), -1)
        self._pose = now.kept(self._pose + rules.pose_share * (pose - self._pose), pose)

    def _wrench(self, now: Moment, wish: Wish) -> tuple[Tensor, Tensor]:
        """Force (N, 3), N, and torque (N, 3), N m, on the base in the world."""
        rules, mass = self._rules, self._drive.mass_kg
        height, pitch, roll = self._pose.unbind(-1)
        turned = rotation_of(roll, pitch, now.yaw).transpose(1, 2) @ now.rotation
        turned = turned - turned.transpose(1, 2)
        error = 0.5 * torch.stack((turned[:, 1, 2], turned[:, 2, 0], torch.zeros_like(roll)), -1)
        spin = torch.nn.functional.pad(wish.turn_rad_s[:, None], (2, 0))
        torque_b = self._inertia * (rules.tilt_gain * error + rules.tilt_damping * (spin - now.ang_vel_b))
        flat = (rules.velocity_gain * (wish.vel_w - now.vel_w[:, :2])).clamp(-4.0, 4.0)
        lift = rules.height_gain * (height - now.pos_w[:, 2]) - rules.height_damping * now.vel_w[:, 2]
        up = (GRAVITY_M_S2 + lift).clamp(2.0, 25.0)
        force = mass * torch.cat((flat, up[:, None]), -1)
        return force, torch.einsum("nij,nj->ni", now.rotation, torque_b)


def rotation_of(roll: Tensor, pitch: Tensor, yaw: Tensor) -> Tensor:
    """Rotations (N, 3, 3) by angles (N,), rad: roll first, then pitch, then yaw, about the world's axes."""
    cr, sr, cp, sp, cy, sy = (f(angle) for angle in (roll, pitch, yaw) for f in (torch.cos, torch.sin))
    rows = (
        cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr,
        sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr,
        -sp, cp * sr, cp * cr,
    )  # fmt: skip
    return torch.stack(rows, -1).view(-1, 3, 3)

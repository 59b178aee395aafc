"""Properties of a robot for the goal tasks beside those for walking."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

from gantry_deploy.contract.footstep_spec import (
    BodyPoseSpec,
    LegSpec,
    PathSelectorSpec,
    StepsSpec,
    SupportSpec,
    SwingSpec,
)
from gantry_deploy.contract.policy_contract import GaitSpec, GoalVelocitySpec, GroundSpec
from gantry_hardware.errors import UnknownNameError
from gantry_sim.robots.models import robot_model
from gantry_sim.tasks.locomotion.legged_robot import LeggedRobotCfg
from gantry_sim.tasks.locomotion.robots import legged_robot_cfg

LINK_M = 0.213
"""Go2's thigh and calf (Unitree's description)."""
THIGH_RAD = 0.9
"""Go2's thigh in the default pose, half of what the calf is folded by."""


@dataclass(frozen=True)
class GoalRobotCfg:
    """A robot that walks to goals."""

    body: LeggedRobotCfg
    """Properties of its walking."""
    base_shapes: tuple[str, ...]
    """Regular expressions of the base's collision shapes."""
    few_shapes: tuple[str, ...]
    """Regular expressions of the shapes that the cheap model collides beside the feet."""
    thighs: tuple[str, ...]
    """Per foot, the body whose vertical acceleration tells a hard landing."""
    thigh_acc_m_s2: float
    """Most that it may be: data of dogs and of people (paper)."""
    spin_rad_s: float
    """Turning faster than this is undesired."""
    extra_weights: dict[str, float] = field(default_factory=dict)
    """Rewards of this robot alone."""

    def foot_patterns(self, full: bool) -> tuple[str, ...]:
        """Regular expressions of the feet's collision shapes, in the full model or in the cheap one."""
        return (self.body.all_foot_geoms if full else ()) or self.body.foot_geoms

    def body_patterns(self, full: bool) -> tuple[str, ...]:
        """Regular expressions of the other collision shapes; those of the full model cover the feet as well."""
        return (r".*_collision\d*",) if full else self.few_shapes

    def body_shapes(self, full: bool) -> tuple[str, ...]:
        """Names of the collision shapes other than feet, in the model's order."""
        model = robot_model(self.body.spec.name, visuals=False)
        names = [geom.name for geom in model.geoms]
        patterns, feet = self.body_patterns(full), self.foot_patterns(full)
        return tuple(name for name in names if _matches(patterns, name) and not _matches(feet, name))

    def central_shapes(self, full: bool) -> tuple[str, ...]:
        """Those of :meth:`body_shapes` on bodies in the plane of symmetry, which no joint of one side moves."""
        model, shapes = robot_model(self.body.spec.name, visuals=False), self.body_shapes(full)
        sided = set(self.body.spec.joint_names) - set(self.body.spec.central_joints)
        return tuple(geom.name for geom in model.geoms if geom.name in shapes and not _moved_by(geom.parent) & sided)


def _moved_by(body: Any) -> set[str]:
    """Names of the joints between the world and a body."""
    names: set[str] = set()
    while body.name != "world":  # whose parent MuJoCo does not like to be asked for
        names |= {joint.name for joint in body.joints}
        body = body.parent
    return names


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def _go2(recipe: bool) -> GoalRobotCfg:
    body = legged_robot_cfg("go2")
    return GoalRobotCfg(
        body=_upright(body) if recipe else body,
        base_shapes=("^base_collision$", r"^head_collision\d$"),
        few_shapes=("^base_collision$", "^head_collision2$", r".*_calf_collision\d"),
        thighs=tuple(f"{foot}_thigh" for foot in body.spec.feet),
        thigh_acc_m_s2=60.0,
        spin_rad_s=2.0,
    )


def _upright(body: LeggedRobotCfg) -> LeggedRobotCfg:
    """A quadruped whose gait alone, without any policy, walks to goals on easy ground.

    On the spec's gains the legs sag by 5 cm and the strides reach a third of their speed. Somewhat stiffer knees and
    thighs, a straighter leg at zero action and longer strides make up for that, which saves the samples that learning
    it would take. The feet follow the ground. The numbers are from a search over gaits alone, as the share of goals
    they reach (docs/ame2.md).
    """
    kinds = [joint.split("_")[1] for joint in body.spec.joint_names]

    def by_joint(hip: float, thigh: float, calf: float) -> tuple[float, ...]:
        return tuple({"hip": hip, "thigh": thigh, "calf": calf}[kind] for kind in kinds)

    stride = tuple(1.2 * gain for gain in body.gait.stride_x_rad_m)
    # Two links of equal length, folded by twice the thigh's angle: this draws the foot up and keeps it below the hip.
    up = 1.0 / (2.0 * LINK_M * math.sin(THIGH_RAD))
    ground = GroundSpec(by_joint(0.0, up, -2.0 * up), level_tilt=0.4, level_rate_s=0.08)
    return replace(
        body,
        bandwidth=by_joint(1.2, 1.25, 1.25),
        offset_rad=by_joint(0.0, -0.08, 0.22),
        gait=replace(body.gait, stride_x_rad_m=stride, ground=ground),
    )


STEP_SCALE = (0.12, 0.12, 0.1, 0.12, 0.12, 0.1, 0.3, 0.15, 0.8, 0.05, 0.2, 0.1)
"""Of the numbers that say where to step (``STEP_NAMES``), per unit of action."""
STEP_GOAL_VELOCITY = GoalVelocitySpec(
    speed_m_s=0.5, lateral_m_s=0.25, speed_gain_s=1.2, yaw_rate_rad_s=1.2, yaw_gain_s=2.5, stop_m=0.3, stop_rad=0.3
)
"""Velocity with which such a policy's robot goes to its goal of its own accord."""
STEP_CLIP = 2.5
"""Most of such an action."""


def clocked(robot: GoalRobotCfg) -> GoalRobotCfg:
    """The same robot with a gait that moves no joint: a clock to observe and to be rewarded by."""
    still = tuple(0.0 for _ in robot.body.gait.joint_gain)
    gait = replace(robot.body.gait, joint_gain=still, stride_x_rad_m=(), stride_y_rad_m=(), foot_x_m=(), foot_y_m=())
    gait = replace(gait, sway_rad=(), stride_yaw=(), balance=None, ground=None)
    return replace(robot, body=replace(robot.body, gait=gait))


def stepping(robot: GoalRobotCfg) -> GoalRobotCfg:
    """The same quadruped, whose policy says where to step and how fast to go, and its legs do it."""
    body = robot.body
    gait = GaitSpec(
        frequency_hz=2.4,
        duty=0.58,
        foot_offset=body.gait.foot_offset,
        amplitude_rad=0.0,
        lead_s=0.0,
        joint_foot=body.gait.joint_foot,
        joint_gain=(0.0,) * len(body.gait.joint_gain),
        stand_below=body.gait.stand_below,
        steps=_go2_steps(body),
    )
    return replace(robot, body=replace(body, gait=gait))


def _go2_steps(body: LeggedRobotCfg) -> StepsSpec:
    """Geometry and mass are the model's. The foot is the point of the calf's axis at the height of its site, which is
    2 mm behind it. The other numbers are from a search over goals reached (docs/ame2.md)."""
    model = robot_model(body.spec.name, visuals=False)

    def leg(foot: str) -> LegSpec:
        hip, thigh, calf = (model.body(f"{foot}_{part}").pos.tolist() for part in ("hip", "thigh", "calf"))
        return LegSpec(
            hip_in_base_m=(hip[0], hip[1], hip[2]),
            side_m=thigh[1],
            thigh_m=-calf[2],
            calf_m=-float(model.site(foot).pos[2]),
            stand_x_m=hip[0] - 0.0046,
            stand_y_m=0.8886 * (hip[1] + thigh[1]),
        )

    support = SupportSpec(
        mass_kg=float(model.compile().body_mass.sum()),
        mass_in_base_m=(-0.0006, 0.0, -0.02),
        inertia_kg_m2=(0.12, 0.32, 0.36),  # found with the gains, and less than the robot's
        drag_1_s=6.0,
    )
    swing = SwingSpec(foot_radius_m=body.foot_radius_m)
    legs = tuple(leg(foot) for foot in body.spec.feet)
    return StepsSpec(legs, support, swing, BodyPoseSpec(), PathSelectorSpec())


def _g1(recipe: bool) -> GoalRobotCfg:
    del recipe  # its gait is that of the walking task
    body = legged_robot_cfg("g1")
    return GoalRobotCfg(
        body=body,
        base_shapes=("^pelvis_collision$", "^torso_collision$"),
        few_shapes=("^pelvis_collision$", "^torso_collision$", ".*_shin_collision"),
        thighs=("left_hip_yaw_link", "right_hip_yaw_link"),
        thigh_acc_m_s2=100.0,
        spin_rad_s=3.0,
        extra_weights={"arm_posture": -1.0, "foot_yaw": -1.0},
    )


def goal_robot_cfg(name: str, *, recipe: bool = False) -> GoalRobotCfg:
    """The parameters of a robot that walks to goals.

    Args:
        name: Of the robot.
        recipe: With the gait of the few-sample recipe; otherwise as the spec has it.

    Raises:
        UnknownNameError: If the robot has none.
    """
    makers = {"go2": _go2, "g1": _g1}
    if name not in makers:
        raise UnknownNameError("robot that walks to goals", name, makers)
    return makers[name](recipe)

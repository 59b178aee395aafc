"""The contracts of goal policies: what a teacher and a student see, what they do, what may be asked of them."""

from __future__ import annotations

from dataclasses import replace

from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.footstep_spec import STEP_TARGET
from gantry_deploy.contract.policy_contract import (
    BODY_POSE,
    BODY_POSE_NAMES,
    ActionSpec,
    CommandSpec,
    MapWindow,
    ObservationTerm,
    PolicyContract,
)
from gantry_deploy.observations.builder import make_term
from gantry_sim.tasks.goal.cfg import RATE_HZ, GoalCfg, goal_robot_of, maps_in_loop, steps_in
from gantry_sim.tasks.goal.mapping import mapper_hash, mapping_cfg
from gantry_sim.tasks.goal.robots import STEP_CLIP, STEP_SCALE

TEACHER_Z_M = 1.5
"""A teacher's map is clipped to this (paper's code)."""
FARTHEST_GOAL_M = 100.0
"""Range of the goal command; the actor sees two metres of it."""


def goal_contract(cfg: GoalCfg) -> PolicyContract:
    """The contract of the policy that the task trains, teacher or student."""
    body = goal_robot_of(cfg).body
    spec = body.spec
    n = spec.num_joints
    student = cfg.observer == "student"
    looks = maps_in_loop(cfg)

    def floats(name: str) -> tuple[float, ...]:
        return tuple(float(value) for value in spec.array(name))

    return PolicyContract(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=RATE_HZ,
        joint_names=spec.joint_names,
        joint_lower_rad=floats("lower_rad"),
        joint_upper_rad=floats("upper_rad"),
        default_pos_rad=floats("default_rad"),
        stiffness_nm_rad=body.stiffness_nm_rad,
        damping_nm_s_rad=body.damping_nm_s_rad,
        effort_limit_nm=floats("effort_limit_nm"),
        observations=_terms(cfg, n, student),
        action=_action(cfg),
        command=CommandSpec(
            kind=BODY_POSE,
            names=BODY_POSE_NAMES,
            lower=(-FARTHEST_GOAL_M, -FARTHEST_GOAL_M, -1.0, -1.0),
            upper=(FARTHEST_GOAL_M, FARTHEST_GOAL_M, 1.0, 1.0),
            max_rate=(0.0, 0.0, 0.0, 0.0),
            goal_velocity=cfg.goal_velocity,
        ),
        gait=None if cfg.goal_velocity is None else body.gait,
        map_window=MapWindow(
            rows=cfg.window.rows,
            cols=cfg.window.cols,
            resolution_m=cfg.window.resolution_m,
            center_x_m=cfg.window.center_x_m,
            center_y_m=cfg.window.center_y_m,
            channels=("elevation", "uncertainty") if student else ("elevation",),
            nominal_base_height_m=body.base_height_m,
            mapping=mapping_cfg(cfg.student_map, cfg.robot, body.base_height_m) if looks else None,
            mapper_sha256=mapper_hash(cfg.student_map) if looks else "",
        ),
        acceptance=cfg.acceptance,
    )


def teacher_contract(cfg: GoalCfg) -> PolicyContract:
    """The contract of the teacher that goes with a student's task."""
    return goal_contract(replace(cfg, observer="teacher"))


def _action(cfg: GoalCfg) -> ActionSpec:
    body = goal_robot_of(cfg).body
    if steps_in(cfg):
        return ActionSpec(STEP_TARGET, STEP_SCALE, (0.0,) * len(STEP_SCALE), clip=STEP_CLIP)
    return ActionSpec(JOINT_TARGET, body.action_scale, body.action_offset_rad, clip=10.0)


def _terms(cfg: GoalCfg, n: int, student: bool) -> tuple[ObservationTerm, ...]:
    """Order of the paper; the gait's clock, where there is one, comes before the goal."""
    frames = cfg.history if student else 1
    slow, slower = (0.25, 0.05) if cfg.scaled else (1.0, 1.0)
    clock = () if cfg.goal_velocity is None else (make_term("gait_clock", 2),)
    # A policy that imitates places and sees its last ones says them again, and never learns when to choose anew.
    memory = () if steps_in(cfg) else (make_term("last_action", n, history=frames),)
    cells = cfg.window.size
    elevation = (
        make_term("elevation_map", 2 * cells) if student else make_term("elevation_map", cells, clip=TEACHER_Z_M)
    )
    return (
        *(() if student else (make_term("base_lin_vel", 3),)),
        make_term("base_ang_vel", 3, scale=slow, history=frames),
        make_term("projected_gravity", 3, history=frames),
        make_term("joint_pos", n, history=frames),
        make_term("joint_vel", n, scale=slower, history=frames),
        *memory,
        *clock,
        make_term("goal_command", 4),
        elevation,
    )

"""The contracts of manipulation policies."""

from __future__ import annotations

import math

from gantry_deploy.contract.arm_spec import BODY_TARGET, JOINT_TARGET, ArmSpec
from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.contract.policy_contract import (
    INSTRUCTION_TERM,
    OBJECT_GOAL,
    OBJECT_GOAL_NAMES,
    Acceptance,
    ActionSpec,
    CameraInput,
    CommandSpec,
    ObservationTerm,
    PolicyContract,
)
from gantry_deploy.observations.builder import make_term
from gantry_deploy.observations.scene import THINGS_SIZE, ZONES_SIZE
from gantry_hardware.model.chain import Chain
from gantry_hardware.robots import robot_spec
from gantry_hardware.robots.yam import GRIPPER_CLOSED_M, GRIPPER_JOINT, GRIPPER_OPEN_M, TOOL_TILT_RAD
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.language.instructions import instruction_spec
from gantry_sim.tasks.manipulation.workbench import WORKBENCHES

LOWER_EE_M, UPPER_EE_M = (0.2, -0.2, 0.015), (0.45, 0.2, 0.25)
"""Workspace of the end effector's target in the base frame; the finger tips stay 3 mm above the table."""
JOINT_REACH_RAD = 1.0
"""Distance from the default pose of a joint whose action is a place and at its end."""


def has_goal(cfg: ArmCfg) -> bool:
    """Whether the task's command says where the object belongs."""
    return bool(WORKBENCHES[cfg.task].fixture)


def arm_contract(cfg: ArmCfg) -> PolicyContract:
    """The contract of a policy of the task."""
    spec = robot_spec(cfg.robot)
    # A turn about y by half a circle less the tilt: fingers down and forward, x towards the base.
    half = 0.5 * (math.pi - TOOL_TILT_RAD)
    goal = has_goal(cfg)
    return PolicyContract(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=cfg.rate_hz,
        joint_names=spec.joint_names,
        joint_lower_rad=spec.numbers("lower_rad"),
        joint_upper_rad=spec.numbers("upper_rad"),
        default_pos_rad=spec.numbers("default_rad"),
        stiffness_nm_rad=spec.numbers("stiffness_nm_rad"),
        damping_nm_s_rad=spec.numbers("damping_nm_s_rad"),
        effort_limit_nm=spec.numbers("effort_limit_nm"),
        observations=observation_terms(cfg, spec.num_joints),
        action=_action(cfg, spec.numbers("default_rad")),
        command=CommandSpec(
            kind=OBJECT_GOAL if goal else "",
            names=OBJECT_GOAL_NAMES if goal else (),
            lower=(*LOWER_EE_M[:2], 0.0) if goal else (),
            upper=UPPER_EE_M if goal else (),
            max_rate=(0.0,) * 3 if goal else (),
        ),
        body=ArmSpec(
            chain=spec.body_as(Chain),
            lower_ee_in_base_m=LOWER_EE_M,
            upper_ee_in_base_m=UPPER_EE_M,
            quat_ee_to_base_wxyz=(math.cos(half), 0.0, math.sin(half), 0.0),
            max_turn_rad=cfg.max_turn_rad if cfg.action == "ee-turn" else 0.0,
            max_lead_m=cfg.max_lead_m,
            gripper_joint=GRIPPER_JOINT,
            gripper_closed_m=GRIPPER_CLOSED_M,
            gripper_open_m=GRIPPER_OPEN_M,
            relative=cfg.action != "joint-absolute",
        ),
        cameras=tuple(CameraInput(name, cfg.image_px, cfg.image_px) for name in cfg.seen_cameras),
        instruction=instruction_spec(cfg.verbs) if WORKBENCHES[cfg.task].is_told else None,
        acceptance=Acceptance(min_success_rate=0.8),
        trained_for=cfg.randomize.trained_for(1.0 / cfg.rate_hz, spec),
    )


def _action(cfg: ArmCfg, default: tuple[float, ...]) -> ActionSpec:
    middle, half = 0.5 * (GRIPPER_OPEN_M + GRIPPER_CLOSED_M), 0.5 * (GRIPPER_OPEN_M - GRIPPER_CLOSED_M)
    if cfg.action in ("ee", "ee-turn"):
        turns = 3 if cfg.action == "ee-turn" else 0
        scale = (cfg.step_m,) * 3 + (cfg.step_rad,) * turns
        return ActionSpec(BODY_TARGET, (*scale, half), (0.0,) * len(scale) + (middle,), clip=1.0)
    joints = len(default) - 1
    if cfg.action == "joint":
        return ActionSpec(JOINT_TARGET, (cfg.step_rad,) * joints + (half,), (0.0,) * joints + (middle,), clip=1.0)
    return ActionSpec(JOINT_TARGET, (JOINT_REACH_RAD,) * joints + (half,), (*default[:joints], middle), clip=1.0)


def observation_terms(cfg: ArmCfg, num_joints: int) -> tuple[ObservationTerm, ...]:
    """Terms of the policy's observation beside images, scaled to about one."""
    in_base = cfg.frame == "base"
    terms = [
        make_term("joint_pos" if in_base else "joint_from_start", num_joints),
        *((make_term("joint_vel", num_joints, scale=0.2),) if cfg.motion else ()),
        *((make_term("joint_lead", num_joints, scale=5.0),) if cfg.motion else ()),
        make_term("ee_pos" if in_base else "ee_from_start", 3, scale=5.0),
    ]
    if cfg.action != "ee":
        terms.append(make_term("ee_rotation", 6))
    told = WORKBENCHES[cfg.task].is_told
    if told:
        scene = (
            make_term("things_from_ee", THINGS_SIZE, scale=10.0),
            make_term("zones_from_ee", ZONES_SIZE, scale=5.0),
        )
        terms += [*(scene if cfg.observer == "state" else ()), make_term(INSTRUCTION_TERM, MAX_WORDS)]
    elif cfg.observer == "state":
        terms += [
            *((make_term("object_pos", 3, scale=5.0),) if in_base else ()),
            make_term("object_rotation", 6),
            make_term("object_from_ee", 3, scale=10.0),
        ]
    if has_goal(cfg):
        if in_base or cfg.observer != "state":
            terms.append(make_term("object_goal", 3, scale=5.0))
        if cfg.observer == "state":
            terms.append(make_term("goal_from_object", 3, scale=10.0))
    return tuple(terms)

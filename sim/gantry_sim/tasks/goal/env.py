"""The goal tasks as mjlab configurations."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from mjlab.entity import EntityCfg
from mjlab.envs import mdp as envs_mdp
from mjlab.managers.curriculum_manager import CurriculumTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.scene import SceneCfg
from mjlab.sensor import ContactMatch, ContactSensorCfg
from mjlab.sim import MujocoCfg, SimulationCfg
from mjlab.utils.spec_config import CollisionCfg

from gantry_sim.envs.manager_env import GantryEnv, GantryEnvCfg
from gantry_sim.tasks.goal import rewards, terminations
from gantry_sim.tasks.goal.cfg import RATE_HZ, GoalCfg, goal_robot_of, weights_of
from gantry_sim.tasks.goal.contract import goal_contract, teacher_contract
from gantry_sim.tasks.goal.episodes import GoalCommandCfg, GoalLevels, event_cfgs
from gantry_sim.tasks.goal.ground import HEIGHT_SENSOR, ground_sensors, terrain_cfg
from gantry_sim.tasks.goal.observations import GoalCriticObservation, GoalSensors
from gantry_sim.tasks.goal.robots import GoalRobotCfg
from gantry_sim.tasks.goal.state import GoalNames, GoalState
from gantry_sim.tasks.locomotion import rewards as walking
from gantry_sim.tasks.locomotion.terms import ActorObservation, ContractActionCfg
from gantry_sim.tasks.locomotion.velocity import robot_cfg
from gantry_sim.tasks.locomotion.velocity_cfg import VelocityCfg
from gantry_sim.terrains.tile import GROUND_BODY


def goal_env_cfg(cfg: GoalCfg, *, seed: int) -> GantryEnvCfg:
    """mjlab's configuration of the task; a fresh one at every call, since mjlab edits it."""
    robot = goal_robot_of(cfg)
    contract = goal_contract(cfg)
    names = GoalNames(
        robot.body.spec,
        foot_sites=robot.body.spec.feet,
        foot_geoms=robot.foot_patterns(cfg.full_collisions),
        foot_radius_m=robot.body.foot_radius_m,
        height_sensor=HEIGHT_SENSOR if looks_below(cfg) else None,
        base_shapes=robot.base_shapes,
    )
    return GantryEnvCfg(
        seed=seed,
        decimation=round(1.0 / (RATE_HZ * cfg.physics_dt_s)),
        episode_length_s=cfg.episode_s,
        is_finite_horizon=not cfg.bootstrap,
        hold_controls=True,
        refresh_all=False,
        near_ground=True,
        make_task_state=partial(_make_state, names, cfg, robot),
        scene=SceneCfg(
            num_envs=cfg.num_envs,
            terrain=terrain_cfg(cfg, seed),
            entities={"robot": _robot_cfg(cfg, robot)},
            sensors=(*_contact_sensors(cfg, robot, names), *ground_sensors(cfg, robot, below=looks_below(cfg))),
        ),
        sim=_simulation_cfg(cfg),
        observations=_observation_cfgs(cfg),
        actions={"joint_pos": ContractActionCfg(entity_name="robot", contract=contract)},
        commands={"goal": GoalCommandCfg()},
        events=event_cfgs(cfg, robot, robot.foot_patterns(cfg.full_collisions)),
        rewards=_reward_cfgs(cfg, robot),
        curriculum={
            "levels": CurriculumTermCfg(
                func=GoalLevels, params={"newest": cfg.promote_new, "school": cfg.ground.school}
            )
        }
        if cfg.curriculum
        else {},
        terminations=_termination_cfgs(cfg, robot),
    )


def looks_below(cfg: GoalCfg) -> bool:
    """Whether a term asks for the height of the ground under base and feet."""
    return weights_of(cfg).get("swing_height", 0.0) != 0.0


def _make_state(names: GoalNames, cfg: GoalCfg, robot: GoalRobotCfg, env: GantryEnv) -> GoalState:
    state = GoalState(env, names, cfg, robot, goal_contract(cfg))
    state.sensors = GoalSensors(env, state)
    return state


def _robot_cfg(cfg: GoalCfg, robot: GoalRobotCfg) -> EntityCfg:
    """The walking tasks' robot with this task's collision shapes."""
    like = VelocityCfg(robot=cfg.robot, num_envs=1, physics_dt_s=cfg.physics_dt_s, feet_only=False, pyramidal=True)
    feet = "|".join(robot.foot_patterns(cfg.full_collisions))
    collision = CollisionCfg(
        geom_names_expr=(feet, *robot.body_patterns(cfg.full_collisions)),
        contype=1 if cfg.full_collisions else 0,
        conaffinity=1,
        condim={feet: 3, ".*": 1},
        priority={feet: 1, ".*": 0},
        friction={feet: (0.8, 0.02, 0.01)},
        disable_other_geoms=True,
    )
    return replace(robot_cfg(like, robot.body), collisions=(collision,))


def _contact_sensors(cfg: GoalCfg, robot: GoalRobotCfg, names: GoalNames) -> tuple[ContactSensorCfg, ...]:
    feet = robot.foot_patterns(cfg.full_collisions)
    ground = ContactMatch(mode="body", pattern=GROUND_BODY)
    fields: dict[str, Any] = {"fields": ("found", "force"), "reduce": "netforce"}
    sensors = (
        ContactSensorCfg(
            name=names.contact_sensor,
            primary=ContactMatch(mode="geom", pattern=feet, entity="robot"),
            secondary=ground,
            **fields,
        ),
        ContactSensorCfg(
            name=names.body_sensor,
            primary=ContactMatch(
                mode="geom",
                pattern=robot.body_patterns(cfg.full_collisions),
                entity="robot",
                exclude=feet,
            ),
            secondary=ground,
            **fields,
        ),
    )
    if not cfg.full_collisions:
        return sensors
    itself = ContactMatch(mode="subtree", pattern=robot.body.root_body, entity="robot")
    return (
        *sensors,
        ContactSensorCfg(name=names.self_sensor, primary=itself, secondary=itself, fields=("found",), reduce="none"),
    )


def _simulation_cfg(cfg: GoalCfg) -> SimulationCfg:
    # The sizes are MuJoCo Warp's, which drops what exceeds them.
    return SimulationCfg(
        njmax=1500,
        nconmax=70,
        contact_sensor_maxmatch=500,
        mujoco=MujocoCfg(
            timestep=cfg.physics_dt_s,
            iterations=10,
            ls_iterations=20,
            ccd_iterations=100,
            cone="pyramidal" if cfg.pyramidal else "elliptic",
            impratio=1.0 if cfg.pyramidal else 10.0,
        ),
    )


def _observation_cfgs(cfg: GoalCfg) -> dict[str, ObservationGroupCfg]:
    teacher = teacher_contract(cfg)
    groups = {
        "actor": ObservationTermCfg(ActorObservation, {"contract": goal_contract(cfg)}),
        "critic": ObservationTermCfg(GoalCriticObservation, {"contract": teacher}),
    }
    if cfg.observer == "student":
        groups["teacher"] = ObservationTermCfg(ActorObservation, {"contract": teacher, "exact": True})
    return {name: ObservationGroupCfg(terms={"all": term}) for name, term in groups.items()}


def _termination_cfgs(cfg: GoalCfg, robot: GoalRobotCfg) -> dict[str, TerminationTermCfg]:
    ends = cfg.ends
    limit = robot.thigh_acc_m_s2 if ends.thigh_acc_m_s2 is None else ends.thigh_acc_m_s2
    terms = {
        "time_out": TerminationTermCfg(func=envs_mdp.time_out, time_out=True),
        "bad_orientation": TerminationTermCfg(func=terminations.bad_orientation),
        "fell_through": TerminationTermCfg(func=terminations.fell_through),
        "off_tile": TerminationTermCfg(func=terminations.off_tile, params={"size_m": cfg.ground.tile_m}),
    }
    if ends.base_force > 0:
        terms["base_collision"] = TerminationTermCfg(
            func=terminations.BaseCollision, params={"share": ends.base_force, "grace_s": ends.grace_s}
        )
    if limit > 0:
        terms["thigh_acceleration"] = TerminationTermCfg(
            func=terminations.thigh_acceleration, params={"limit_m_s2": limit, "grace_s": ends.grace_s}
        )
    if ends.stagnation_m > 0:
        terms["stagnation"] = TerminationTermCfg(func=terminations.stagnation, params={"moved_m": ends.stagnation_m})
    return terms


def _reward_cfgs(cfg: GoalCfg, robot: GoalRobotCfg) -> dict[str, RewardTermCfg]:
    body, spec = robot.body, robot.body.spec

    def floats(name: str) -> tuple[float, ...]:
        return tuple(float(value) for value in spec.array(name))

    default = {"default_rad": floats("default_rad")}
    arms = tuple(i for i, joint in enumerate(spec.joint_names) if "shoulder" in joint or "elbow" in joint)
    limits = {"lower_rad": floats("lower_rad"), "upper_rad": floats("upper_rad")}
    params: dict[str, dict[str, Any]] = {
        "stand_at_goal": default,
        "spinning": {"limit_rad_s": robot.spin_rad_s},
        "joint_pos_limit": limits,
        "joint_vel_limit": {"limit_rad_s": floats("velocity_limit_rad_s")},
        "joint_torque_limit": {"limit_nm": floats("effort_limit_nm")},
        "arm_posture": {"joints": arms, **default},
        "track_planar_velocity": {"width_m_s": 0.35},
        "track_yaw_rate": {"width_rad_s": 0.5},
        "contact_matches_clock": {"gait": body.gait},
        "swing_height": {"gait": body.gait, "height_m": body.swing_height_m, "width_m": 0.05},
        "joint_deviation": {**default, "weight": body.deviation_weight},
    }
    weights = weights_of(cfg)
    if not cfg.full_collisions:
        weights.pop("self_collision")
    return {
        name: RewardTermCfg(
            func=getattr(rewards, name, None) or getattr(walking, name), weight=weight, params=params.get(name, {})
        )
        for name, weight in weights.items()
        if weight != 0.0
    }

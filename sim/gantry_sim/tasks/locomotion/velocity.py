"""The velocity tasks: follow a commanded planar velocity and yaw rate."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from mjlab.actuator import BuiltinPositionActuatorCfg
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg
from mjlab.envs import mdp as envs_mdp
from mjlab.managers.curriculum_manager import CurriculumTermCfg
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.scene import SceneCfg
from mjlab.sensor import ContactMatch, ContactSensorCfg
from mjlab.sim import MujocoCfg, SimulationCfg
from mjlab.tasks.velocity.mdp import UniformVelocityCommandCfg, commands_vel
from mjlab.utils.spec_config import CollisionCfg

from gantry_deploy.contract.policy_contract import (
    ActionSpec,
    CommandSpec,
    PolicyContract,
    TrainedRange,
)
from gantry_deploy.observations.builder import make_term
from gantry_hardware.robots import robot_spec
from gantry_sim.envs.manager_env import GantryEnv, GantryEnvCfg
from gantry_sim.robots.models import robot_model
from gantry_sim.tasks.locomotion import rewards
from gantry_sim.tasks.locomotion.curriculum import TerrainLevels
from gantry_sim.tasks.locomotion.ground import HEIGHT_SENSOR, SCAN_SENSOR, height_sensors, terrain_cfg
from gantry_sim.tasks.locomotion.legged_robot import LeggedRobotCfg
from gantry_sim.tasks.locomotion.machine.events import machine_events, machine_stages
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg
from gantry_sim.tasks.locomotion.machine.state import MachineState
from gantry_sim.tasks.locomotion.robots import legged_robot_cfg
from gantry_sim.tasks.locomotion.state import LocomotionNames, LocomotionState
from gantry_sim.tasks.locomotion.terms import (
    ActorObservation,
    BodySensors,
    ContractActionCfg,
    CriticObservation,
)
from gantry_sim.tasks.locomotion.velocity_cfg import RATE_HZ, REWARD_WEIGHTS, VelocityCfg


def walking_body(cfg: VelocityCfg) -> LeggedRobotCfg:
    """Gait and gains of the robot, with the changes of a configuration."""
    body = legged_robot_cfg(cfg.robot)
    factors = body.bandwidth or (1.0,) * body.spec.num_joints
    frequency_hz = body.gait.frequency_hz if cfg.gait_frequency_hz is None else cfg.gait_frequency_hz
    return replace(
        body,
        gait=replace(body.gait, frequency_hz=frequency_hz),
        bandwidth=tuple(factor * cfg.bandwidth for factor in factors),
    )


def velocity_contract(cfg: VelocityCfg) -> PolicyContract:
    """The contract of a policy trained on this task; training and runtime both obey it."""
    body = walking_body(cfg)
    spec = body.spec
    n = spec.num_joints
    return PolicyContract(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=RATE_HZ,
        joint_names=spec.joint_names,
        joint_lower_rad=_floats(spec, "lower_rad"),
        joint_upper_rad=_floats(spec, "upper_rad"),
        default_pos_rad=_floats(spec, "default_rad"),
        stiffness_nm_rad=body.stiffness_nm_rad,
        damping_nm_s_rad=body.damping_nm_s_rad,
        effort_limit_nm=_floats(spec, "effort_limit_nm"),
        observations=(
            make_term("base_ang_vel", 3, scale=0.25, history=cfg.history),
            make_term("projected_gravity", 3, history=cfg.history),
            make_term("joint_pos", n, history=cfg.history),
            make_term("joint_vel", n, scale=0.05, history=cfg.history),
            make_term("last_action", n, history=cfg.history),
            make_term("velocity_command", 3),
            make_term("gait_clock", 2),
        ),
        action=ActionSpec("target/joint/position", body.action_scale, body.action_offset_rad, clip=10.0),
        command=CommandSpec(
            kind="command/body/velocity",
            names=("lin_vel_x_base_m_s", "lin_vel_y_base_m_s", "ang_vel_z_base_rad_s"),
            lower=(cfg.lin_vel_x_m_s[0], cfg.lin_vel_y_m_s[0], cfg.yaw_rate_rad_s[0]),
            upper=(cfg.lin_vel_x_m_s[1], cfg.lin_vel_y_m_s[1], cfg.yaw_rate_rad_s[1]),
            max_rate=(0.0, 0.0, 0.0),
        ),
        gait=body.gait,
        acceptance=cfg.acceptance,
        trained_for=trained_for(cfg),
    )


def trained_for(cfg: VelocityCfg) -> tuple[TrainedRange, ...]:
    """Robots, grounds and disturbances of a configuration, for its contract."""
    return (
        TrainedRange("friction", *cfg.friction),
        TrainedRange("added_mass_kg", *cfg.added_mass_kg),
        TrainedRange("push_m_s", 0.0, cfg.push_m_s),
        *cfg.machine.trained_for(robot_spec(cfg.robot)),
    )


def _floats(spec: object, name: str) -> tuple[float, ...]:
    return tuple(float(value) for value in spec.array(name))  # type: ignore[attr-defined]


def velocity_env_cfg(cfg: VelocityCfg, *, seed: int) -> GantryEnvCfg:
    """mjlab's configuration of the task; a fresh one at every call, since mjlab edits it."""
    body = walking_body(cfg)
    contract = velocity_contract(cfg)
    decimation = round(1.0 / (RATE_HZ * cfg.physics_dt_s))
    names = LocomotionNames(
        body.spec,
        foot_sites=body.spec.feet,
        foot_geoms=foot_shapes(cfg, body),
        foot_radius_m=body.foot_radius_m,
        height_sensor=HEIGHT_SENSOR if cfg.rough else None,
    )
    critic = {"contract": contract, "height_scan": SCAN_SENSOR if cfg.rough else None}
    return GantryEnvCfg(
        seed=seed,
        decimation=decimation,
        episode_length_s=cfg.episode_s,
        hold_controls=cfg.machine.is_constant,
        refresh_all=False,
        make_task_state=partial(_make_state, names, cfg),
        scene=SceneCfg(
            num_envs=cfg.num_envs,
            terrain=terrain_cfg(cfg.rough, levels=cfg.terrain_levels, seed=seed, curriculum=cfg.curriculum),
            entities={"robot": robot_cfg(cfg, body)},
            sensors=(
                ContactSensorCfg(
                    name=names.contact_sensor,
                    primary=ContactMatch(mode="geom", pattern=foot_shapes(cfg, body), entity="robot"),
                    secondary=ContactMatch(mode="body", pattern="terrain"),
                    fields=("found",),
                    reduce="none",
                ),
                *(height_sensors(body) if cfg.rough else ()),
            ),
        ),
        sim=_simulation_cfg(cfg),
        observations={
            "actor": ObservationGroupCfg(terms={"all": ObservationTermCfg(ActorObservation, {"contract": contract})}),
            "critic": ObservationGroupCfg(terms={"all": ObservationTermCfg(CriticObservation, critic)}),
        },
        actions={"joint_pos": ContractActionCfg(entity_name="robot", contract=contract)},
        commands={"twist": _command_cfg(cfg)},
        events=_event_cfgs(cfg, body),
        rewards=_reward_cfgs(cfg, body),
        curriculum=_curriculum_cfgs(cfg, body),
        terminations={
            "time_out": TerminationTermCfg(func=envs_mdp.time_out, time_out=True),
            "fallen": TerminationTermCfg(
                func=rewards.fallen,
                params={"min_height_m": body.spec.fall_height_m},
            ),
        },
    )


def _simulation_cfg(cfg: VelocityCfg) -> SimulationCfg:
    # The sizes are MuJoCo Warp's, which drops what exceeds them; they are mjlab's own for its velocity tasks.
    return SimulationCfg(
        njmax=1500 if cfg.rough else 300,
        nconmax=35 if cfg.rough else None,
        contact_sensor_maxmatch=500 if cfg.rough else 64,
        mujoco=MujocoCfg(
            timestep=cfg.physics_dt_s,
            iterations=10,
            ls_iterations=20,
            ccd_iterations=500 if cfg.rough else 50,
            cone="pyramidal" if cfg.pyramidal else "elliptic",
            impratio=1.0 if cfg.pyramidal else 10.0,
        ),
    )


def _curriculum_cfgs(cfg: VelocityCfg, body: LeggedRobotCfg) -> dict[str, CurriculumTermCfg]:
    terms: dict[str, CurriculumTermCfg] = {}
    if cfg.rough and cfg.curriculum:
        terms["terrain_levels"] = CurriculumTermCfg(func=TerrainLevels)
    if cfg.command_stages and cfg.curriculum:
        stages = [{"step": step, **_command_ranges(cfg, share)} for step, share in cfg.command_stages]
        terms["commands"] = CurriculumTermCfg(
            func=commands_vel, params={"command_name": "twist", "velocity_stages": stages}
        )
    if cfg.curriculum:
        terms |= machine_stages(cfg.machine_stages, cfg.machine, cfg.push_m_s, body.spec)
    return terms


def _make_state(names: LocomotionNames, cfg: VelocityCfg, env: GantryEnv) -> LocomotionState:
    state = LocomotionState(env, names)
    if cfg.machine != MachineCfg():
        joints = names.spec.num_joints
        state.machine = MachineState(cfg.machine, env.num_envs, joints, env.step_dt, str(env.device))
    state.sensors = BodySensors(cfg.noise, state.machine)
    return state


def foot_shapes(cfg: VelocityCfg, body: LeggedRobotCfg) -> tuple[str, ...]:
    """Regular expression of the collision shapes of each foot: a few in the cheap model, all in the full one."""
    return body.foot_geoms if cfg.feet_only else body.all_foot_geoms or body.foot_geoms


def robot_cfg(cfg: VelocityCfg, body: LeggedRobotCfg) -> EntityCfg:
    """The robot as an mjlab entity: position servos with the contract's gains, collisions as the task asks."""
    spec = body.spec
    feet = "|".join(foot_shapes(cfg, body))
    collision = CollisionCfg(
        geom_names_expr=(feet,) if cfg.feet_only else (".*_collision\\d*",),
        contype=0 if cfg.feet_only else 1,
        conaffinity=1,
        condim={feet: 3, ".*": 1},
        priority={feet: 1, ".*": 0},
        friction={feet: (0.8, 0.02, 0.01)},
        disable_other_geoms=True,
    )
    actuators = tuple(
        BuiltinPositionActuatorCfg(
            target_names_expr=(f"^{joint.name}$",),
            stiffness=stiffness,
            damping=damping,
            effort_limit=joint.effort_limit_nm,
            armature=joint.armature_kg_m2,
        )
        for joint, stiffness, damping in zip(spec.joints, body.stiffness_nm_rad, body.damping_nm_s_rad, strict=True)
    )
    return EntityCfg(
        spec_fn=partial(robot_model, spec.name, visuals=False),
        init_state=EntityCfg.InitialStateCfg(
            pos=(0.0, 0.0, body.spawn_height_m),
            joint_pos={f"^{joint.name}$": joint.default_rad for joint in spec.joints},
            joint_vel={".*": 0.0},
        ),
        collisions=(collision,),
        articulation=EntityArticulationInfoCfg(actuators=actuators),
    )


def _command_cfg(cfg: VelocityCfg) -> UniformVelocityCommandCfg:
    return UniformVelocityCommandCfg(
        entity_name="robot",
        resampling_time_range=cfg.resample_s,
        rel_standing_envs=cfg.standing_share,
        rel_heading_envs=0.0,
        ranges=UniformVelocityCommandCfg.Ranges(**_command_ranges(cfg, 1.0)),
    )


def _command_ranges(cfg: VelocityCfg, share: float) -> dict[str, tuple[float, float]]:
    ranges = {"lin_vel_x": cfg.lin_vel_x_m_s, "lin_vel_y": cfg.lin_vel_y_m_s, "ang_vel_z": cfg.yaw_rate_rad_s}
    return {name: (share * low, share * high) for name, (low, high) in ranges.items()}


def _event_cfgs(cfg: VelocityCfg, body: LeggedRobotCfg) -> dict[str, EventTermCfg]:
    feet = SceneEntityCfg("robot", geom_names=foot_shapes(cfg, body))
    base = SceneEntityCfg("robot", body_names=(body.heavy_body,))
    shift = (-cfg.com_offset_m, cfg.com_offset_m)
    events = {
        "reset_base": EventTermCfg(
            func=envs_mdp.reset_root_state_uniform,
            mode="reset",
            params={"pose_range": {"yaw": (-math.pi, math.pi)}, "velocity_range": {}},
        ),
        "reset_joints": EventTermCfg(
            func=envs_mdp.reset_joints_by_offset,
            mode="reset",
            params={
                "position_range": (-cfg.reset_joint_rad, cfg.reset_joint_rad),
                "velocity_range": (0.0, 0.0),
                "asset_cfg": SceneEntityCfg("robot", joint_names=(".*",)),
            },
        ),
        "foot_friction": EventTermCfg(
            func=envs_mdp.dr.geom_friction,
            mode="startup",
            params={"asset_cfg": feet, "operation": "abs", "ranges": cfg.friction, "shared_random": True},
        ),
        "base_mass": EventTermCfg(
            func=envs_mdp.dr.body_mass,
            mode="startup",
            params={"asset_cfg": base, "operation": "add", "ranges": cfg.added_mass_kg},
        ),
        "base_com": EventTermCfg(
            func=envs_mdp.dr.body_com_offset,
            mode="startup",
            params={"asset_cfg": base, "operation": "add", "ranges": {0: shift, 1: shift}},
        ),
    }
    events |= machine_events(cfg.machine, body.spec)
    if cfg.push_m_s > 0:
        kick = (-cfg.push_m_s, cfg.push_m_s)
        events["push"] = EventTermCfg(
            func=envs_mdp.push_by_setting_velocity,
            mode="interval",
            interval_range_s=(5.0, 10.0),
            params={"velocity_range": {"x": kick, "y": kick}},
        )
    return events


def _reward_cfgs(cfg: VelocityCfg, body: LeggedRobotCfg) -> dict[str, RewardTermCfg]:
    default_rad = _floats(body.spec, "default_rad")
    terms = {
        "track_planar_velocity": (rewards.track_planar_velocity, {"width_m_s": cfg.track_width_m_s}),
        "track_yaw_rate": (rewards.track_yaw_rate, {"width_rad_s": 0.5}),
        "power": (rewards.power, {}),
        "vertical_velocity": (rewards.vertical_velocity, {}),
        "roll_pitch_rate": (rewards.roll_pitch_rate, {}),
        "tilt": (rewards.tilt, {}),
        "height": (rewards.height_error, {"target_m": body.base_height_m}),
        "action_rate": (rewards.action_rate, {}),
        "joint_deviation": (rewards.joint_deviation, {"default_rad": default_rad, "weight": body.deviation_weight}),
        "contact_matches_clock": (rewards.contact_matches_clock, {"gait": body.gait}),
        "swing_height": (
            rewards.swing_height,
            {"gait": body.gait, "height_m": body.swing_height_m, "width_m": 0.05},
        ),
        "foot_slip": (rewards.FootSlip, {}),
    }
    weights = REWARD_WEIGHTS | cfg.reward_weights
    return {
        name: RewardTermCfg(func=func, weight=weights[name], params=params)
        for name, (func, params) in terms.items()
        if weights[name] != 0.0
    }

"""The goal tasks by robot, each with a preset for a CPU and the paper's for a GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.contract.policy_contract import Acceptance, GoalVelocitySpec, PolicyContract
from gantry_deploy.observations.mirrors import MirrorMap, mirror_action, mirror_names, mirror_window
from gantry_mapping.elevation.grid import WINDOW_SMALL, WINDOW_STEPS, GridSpec
from gantry_policies.networks.sizes import AmeCfg
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.guidance import ImitationCfg
from gantry_policies.on_policy.symmetry import mirror_actor
from gantry_sim.envs.managed import ManagedBatch
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks import catalogue
from gantry_sim.tasks.catalogue import TaskInfo
from gantry_sim.tasks.goal.cfg import (
    EndsCfg,
    GoalCfg,
    GoalNoiseCfg,
    GroundCfg,
    RandomizeCfg,
    goal_robot_of,
    maps_in_loop,
)
from gantry_sim.tasks.goal.contract import goal_contract, teacher_contract
from gantry_sim.tasks.goal.env import goal_env_cfg
from gantry_sim.tasks.goal.evaluation import ame2_suite, evaluate_goal, record_goal, suite_table
from gantry_sim.tasks.goal.mapping import StudentMapCfg, mapper_bytes
from gantry_sim.tasks.goal.robots import STEP_GOAL_VELOCITY
from gantry_sim.tasks.goal.scripted.teacher import imitating, scripted_env, taught_by_script
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.locomotion.terms import SensorNoiseCfg
from gantry_sim.tasks.registry import Preset, ScriptedPolicy, Suite, Task
from gantry_sim.terrains.catalogue import GROUPS

WINDOW_G1 = GridSpec(26, 15, 0.08, 0.5, 0.0)
"""The authors' window for the G1."""


STEP_WEIGHTS = {
    "move_to_goal": 0.0,
    "approach": 5.0,
    "joint_pos_limit": -100.0,
    "joint_vel_limit": -0.1,
    "joint_regularisation": -3e-4,
}
"""Changes where legs step by themselves: how they move their joints is not the policy's."""


def cpu(robot: str) -> Preset:
    """Few samples: a small window, few tiles, few shapes, a gait that walks to the goal by itself, small networks.
    A Go2's policy says where to step."""
    preset = Preset(
        env=GoalCfg(
            robot=robot,
            num_envs=512,
            physics_dt_s=0.01,
            full_collisions=False,
            pyramidal=True,
            window=WINDOW_SMALL,
            goal_velocity=GoalVelocitySpec(),
            scaled=True,
            promote_new=0.6,
            ground=GroundCfg(levels=6, columns=16, tile_m=(8.0, 8.0), start_levels=2, school=("dense",)),
            ends=EndsCfg(thigh_acc_m_s2=0.0),
            noise=GoalNoiseCfg(map_z_m=0.02),  # the gait's feet follow each cell, not what a network makes of many
            randomize=RandomizeCfg(start_vel_m_s=0.2, ramp_steps=3000),
            # Table I pays 150 for the last four seconds and next to nothing for the way; few samples then learn about
            # standing, and that not to walk is the surest way not to fall.
            reward_weights={"position_tracking": 30.0, "heading_tracking": 15.0, "early_termination": -200.0},
            acceptance=Acceptance(min_success_rate=0.5),
        ),
        learner=PpoCfg(
            total_steps=12_000_000,
            learning_rate=1e-3,
            final_learning_rate_factor=0.3,
            gamma=0.99,
            init_std=0.35,
            entropy=0.002,
            epochs=2,  # an update through the attention costs as much as the simulation
            network="ame2",
            ame=AmeCfg.small(),
            critic_hidden=(256, 128),
        ),
    )
    return _stepping(preset) if robot == "go2" else preset


def _stepping(preset: Preset) -> Preset:
    """The same for a policy that says where to step."""
    # Little noise on joints and attitude: the legs push by them in each control step.
    body = SensorNoiseCfg(joint_vel_rad_s=0.5, ang_vel_rad_s=0.1, tilt_rad=0.02)
    env = replace(
        preset.env,
        window=WINDOW_STEPS,
        student_map=StudentMapCfg(mapper="mapper-go2-near"),
        goal_velocity=STEP_GOAL_VELOCITY,
        gait="steps",
        noise=GoalNoiseCfg(body=body, map_z_m=0.02),
        reward_weights=preset.env.reward_weights | STEP_WEIGHTS,
    )
    learner = replace(
        preset.learner,
        gamma=0.997,
        init_std=0.1,
        entropy=0.0,
        learning_rate=2.5e-4,
        minibatches=16,
        mirror="critic",  # with little noise, a policy that is not symmetric finds its mirror image far away
    )
    return Preset(env, learner)


JOINT_WEIGHTS = {
    "position_tracking": 30.0,
    "heading_tracking": 15.0,
    "early_termination": -200.0,
    "approach": 3.0,
    "move_to_goal": 0.0,
    "track_planar_velocity": 3.0,
    "track_yaw_rate": 1.5,
    "contact_matches_clock": 1.0,
    "swing_height": 1.0,
    "joint_pos_limit": -100.0,
    "joint_regularisation": -3e-4,
}
"""Table I beside the walking tasks' terms, at the size of these."""


def joints(robot: str) -> Preset:
    """Joint targets learned from nothing, on dense ground and climbs up to the third level: the paper's actions and
    rewards, beside the trot and the rewards of walking on level ground. Nothing but the policy knows the map."""
    preset = cpu(robot)
    ground = GroundCfg(
        kinds=("dense", "climb"),
        levels=6,
        columns=16,
        tile_m=(8.0, 8.0),
        start_levels=1,
        trained_levels=3,
        even=True,
    )
    env = replace(
        preset.env,
        window=WINDOW_SMALL,
        # From standing, the tracking reward's slope at 0.8 m/s would be next to nothing.
        goal_velocity=GoalVelocitySpec(speed_m_s=0.6),
        gait="trot",
        ground=ground,
        noise=GoalNoiseCfg(map_z_m=0.02),
        randomize=RandomizeCfg(start_vel_m_s=0.2, ramp_steps=12_000),
        reward_weights=JOINT_WEIGHTS,
    )
    learner = PpoCfg(
        total_steps=60_000_000,
        epochs=2,
        learning_rate=1e-3,
        desired_kl=0.01,
        gamma=0.99,
        entropy=0.003,
        init_std=0.5,
        network="ame2",
        ame=AmeCfg.small(),
        critic_hidden=(256, 128),
        # Mirrored actions lie as far from the policy as it is asymmetric, and so slow an adaptive rate down.
        mirror="critic",
    )
    return Preset(env, learner)


def gpu(robot: str) -> Preset:
    """The paper: all terrains, its window, its networks, no gait prior."""
    window = {"g1": WINDOW_G1}.get(robot)
    env = GoalCfg(robot=robot, num_envs=4096)
    return Preset(
        env=env if window is None else replace(env, window=window),
        learner=PpoCfg(
            total_steps=4_000_000_000,
            epochs=4,
            minibatches=3,
            desired_kl=0.01,
            gamma=0.99,
            clip_value_loss=True,
            entropy=0.004,
            entropy_decay=0.9999,
            entropy_floor=0.001,
            init_std=1.0,
            network="ame2",
            ame=AmeCfg.paper(),
            hidden=(512, 512),
            critic_network="moe",
            critic_hidden=(512, 512),
            mirror="critic",
        ),
    )


def student(preset: Preset, learner: PpoCfg) -> Preset:
    """A preset's task for a student: its map comes from the mapping pipeline, it starts on every level, and whatever
    its teacher's ramps led up to holds from the beginning."""
    env = preset.env
    return Preset(
        env=replace(
            env,
            observer="student",
            student_map=replace(env.student_map, source="pipeline"),
            ground=replace(env.ground, start_levels=env.ground.levels, school=()),
            randomize=replace(env.randomize, ramp_steps=0),
        ),
        learner=learner,
    )


def cpu_student(robot: str) -> Preset:
    """The student of :func:`cpu`, on all kinds of terrain alike and from the easier levels on; it imitates alone, its
    teacher at the wheel at first."""
    preset = cpu(robot)
    guide = ImitationCfg(
        action_weight=0.3,
        imitation_iterations=100,
        final_imitation_factor=0.02,
        action_loss="mean",
        teacher_action_fraction=1.0,
        aggregate_rollouts=40,
    )
    # Embeddings of a map have no mirror image, so the critic alone learns from mirrored samples.
    return imitating(student(preset, replace(preset.learner, mirror="critic", learning_rate=3e-4)), guide)


def gpu_student(robot: str) -> Preset:
    """The paper's student of :func:`gpu`: half the iterations, the first 5000 of them imitate alone."""
    preset = gpu(robot)
    learner = replace(
        preset.learner, total_steps=2_000_000_000, learning_rate=1e-5, entropy_floor=0.0005, guide=ImitationCfg()
    )
    return student(preset, learner)


def make_env(cfg: GoalCfg, device: str, seed: int) -> ManagedBatch:
    """The environments on a device."""
    with quietly():
        return ManagedBatch(GantryEnv(goal_env_cfg(cfg, seed=seed), device), step_metrics)


def _scripted_env(cfg: GoalCfg, device: str, seed: int) -> ManagedBatch:
    return ManagedBatch(scripted_env(cfg, device, seed), step_metrics)


def mirror_maps(cfg: GoalCfg) -> dict[str, MirrorMap]:
    """Left-right symmetry of observations and actions."""
    contract, teacher = goal_contract(cfg), teacher_contract(cfg)
    seen = tuple(term for term in teacher.observations if term.name not in ("goal_command", "elevation_map"))
    robot = goal_robot_of(cfg)
    feet, shapes = robot.body.spec.feet, robot.body_shapes(cfg.full_collisions)
    assert teacher.map_window is not None
    critic = (
        mirror_actor(replace(teacher, observations=seen))
        + MirrorMap.signs(1, -1, -1, 1)
        + MirrorMap.signs(1)
        + mirror_names(feet, (1.0,) * len(feet))
        + mirror_names(shapes, (1.0,) * len(shapes), robot.central_shapes(cfg.full_collisions))
        + mirror_window(teacher.map_window)
    )
    return {"actor": mirror_actor(contract), "critic": critic, "action": mirror_action(contract)}


def step_metrics(env: GantryEnv) -> dict[str, torch.Tensor]:
    """Level and running success, over all environments and by group of terrain."""
    state = GoalState.of(env)
    terrain = env.scene.terrain
    assert terrain is not None
    metrics = {"terrain_level": terrain.terrain_levels.float().mean(), "success": state.success_ema.mean()}
    for group in GROUPS:
        rows = torch.tensor([name == group for name in state.sites.groups], device=env.device)[terrain.terrain_types]
        if bool(rows.any()):
            metrics[f"success_{group}"] = state.success_ema[rows].mean()
            metrics[f"level_{group}"] = terrain.terrain_levels[rows].float().mean()
    return metrics


def evaluation_cfg(cfg: GoalCfg, *, num_envs: int, full_model: bool = False, held_out: tuple[str, ...] = ()) -> GoalCfg:
    """Held-out episodes: no curriculum, ramps at their end, no environment has a clean map; ``full_model`` takes all
    collision shapes and the better cone; ``held_out`` names test terrains to walk on instead of the training
    terrain."""
    cfg = replace(cfg, num_envs=num_envs, curriculum=False, ground=replace(cfg.ground, held_out=held_out))
    if cfg.noise is not None:
        cfg = replace(cfg, noise=replace(cfg.noise, clean_share=0.0))
    return replace(cfg, full_collisions=True, pyramidal=False) if full_model else cfg


def _teacher(cfg: GoalCfg) -> PolicyContract | None:
    return teacher_contract(cfg) if cfg.observer == "student" else None


def _mapper(cfg: GoalCfg) -> bytes | None:
    return mapper_bytes(cfg.student_map) if maps_in_loop(cfg) else None


def _use_mapper(cfg: GoalCfg, path: Path) -> GoalCfg:
    return replace(cfg, student_map=replace(cfg.student_map, mapper=str(path)))


def _follow(cfg: GoalCfg, teacher: Any) -> GoalCfg:
    """A student's configuration with its teacher's gait, goals and window."""
    if not isinstance(teacher, GoalCfg) or teacher.robot != cfg.robot:
        return cfg
    return replace(
        cfg, gait=teacher.gait, goal_velocity=teacher.goal_velocity, window=teacher.window, scaled=teacher.scaled
    )


def _task(info: TaskInfo, *, taught: bool = False, scripted: bool = False) -> Task:
    makers = {"cpu": cpu_student, "gpu": gpu_student} if taught else {"cpu": cpu, "gpu": gpu}
    if "joints" in info.presets:
        makers["joints"] = joints
    presets: dict[str, Any] = {preset: partial(maker, info.robot) for preset, maker in makers.items()}
    return Task(
        name=info.name,
        summary=info.summary,
        robot=info.robot,
        presets=presets,
        make_env=make_env,
        contract=goal_contract,
        mirror=mirror_maps,
        evaluation=evaluation_cfg,
        evaluate=evaluate_goal,
        record=record_goal,
        suites={"ame2": Suite(ame2_suite, suite_table)},
        teacher=_teacher,
        follow=_follow,
        scripted=ScriptedPolicy(make_env=_scripted_env, preset=taught_by_script) if scripted else None,
        needs_teacher=taught,
        mapper=_mapper,
        use_mapper=_use_mapper,
    )


AME2_GO2 = _task(catalogue.AME2_GO2, scripted=True)
AME2_G1 = _task(catalogue.AME2_G1)
AME2_GO2_STUDENT = _task(catalogue.AME2_GO2_STUDENT, taught=True)

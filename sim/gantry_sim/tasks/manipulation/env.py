"""The manipulation tasks as mjlab configurations."""

from __future__ import annotations

from functools import partial

import mujoco
from mjlab.actuator import BuiltinPositionActuatorCfg
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg
from mjlab.envs import mdp as envs_mdp
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.scene import SceneCfg
from mjlab.sim import MujocoCfg, SimulationCfg

from gantry_hardware.robots import robot_spec
from gantry_sim.envs.manager_env import GantryEnv, GantryEnvCfg
from gantry_sim.robots.models import robot_model
from gantry_sim.tasks.manipulation import terms
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.manipulation.state import ArmState
from gantry_sim.tasks.manipulation.workbench import PADS, WORKBENCHES, Workbench, add_workbench

ROBOT = "robot"
"""The arm's entity."""
STATE_GROUP = "state"
"""The group of what is observed beside images."""


def arm_env_cfg(cfg: ArmCfg, *, seed: int) -> GantryEnvCfg:
    """mjlab's configuration of the task; a fresh one at every call, since mjlab edits it.

    Episodes that end wait to be reset, so that their last observation can be seen.
    """
    contract = arm_contract(cfg)
    terminations = {
        "time_out": TerminationTermCfg(func=envs_mdp.time_out, time_out=True),
        "lost": TerminationTermCfg(func=terms.lost),
    }
    if cfg.end_on_success:
        terminations["success"] = TerminationTermCfg(func=terms.success)
    reward = terms.DenseReward if cfg.reward == "dense" else terms.sparse_reward
    return GantryEnvCfg(
        seed=seed,
        decimation=cfg.decimation,
        episode_length_s=cfg.episode_s,
        auto_reset=False,
        scale_rewards_by_dt=False,
        hold_controls=True,
        refresh_all=False,
        make_task_state=partial(_make_state, cfg, seed),
        scene=SceneCfg(
            num_envs=cfg.num_envs,
            entities={ROBOT: _robot_cfg(cfg)},
            spec_fn=partial(_furnish, WORKBENCHES[cfg.task]),
        ),
        sim=_simulation_cfg(cfg),
        observations={
            STATE_GROUP: ObservationGroupCfg(
                terms={"all": ObservationTermCfg(terms.ArmObservation, {"contract": contract})}
            )
        },
        actions={terms.ACTION: terms.ArmActionCfg(entity_name=ROBOT, contract=contract)},
        events={"begin_episode": EventTermCfg(func=terms.begin_episode, mode="reset")},
        rewards={"task": RewardTermCfg(func=reward, weight=1.0)},
        terminations=terminations,
    )


def make_arm_env(cfg: ArmCfg, device: str, seed: int) -> GantryEnv:
    """The task as mjlab's environment.

    Args:
        cfg: The task.
        device: ``cpu`` or a CUDA device.
        seed: Of the episodes.
    """
    return GantryEnv(arm_env_cfg(cfg, seed=seed), device)


def _make_state(cfg: ArmCfg, seed: int, env: GantryEnv) -> ArmState:
    return ArmState(env, cfg, arm_contract(cfg), seed)


def _robot_cfg(cfg: ArmCfg) -> EntityCfg:
    spec = robot_spec(cfg.robot)
    actuators = tuple(
        BuiltinPositionActuatorCfg(
            target_names_expr=(f"^{joint.name}$",),
            stiffness=joint.stiffness_nm_rad,
            damping=joint.damping_nm_s_rad,
            effort_limit=joint.effort_limit_nm,
            armature=joint.armature_kg_m2,
        )
        for joint in spec.joints
    )
    return EntityCfg(
        spec_fn=partial(_robot, cfg.robot, cfg.meshes),
        init_state=EntityCfg.InitialStateCfg(
            joint_pos={f"^{joint.name}$": joint.default_rad for joint in spec.joints}, joint_vel={".*": 0.0}
        ),
        articulation=EntityArticulationInfoCfg(actuators=actuators),
    )


def _robot(name: str, visuals: bool) -> mujoco.MjSpec:
    """The arm with nothing but its pads to touch things with, which is what a cheap step asks for."""
    model = robot_model(name, visuals=visuals)
    for geom in model.geoms:
        if geom.conaffinity and geom.name not in PADS:
            geom.contype = geom.conaffinity = 0
    return model


def _furnish(bench: Workbench, scene: mujoco.MjSpec) -> None:
    """Lay the table, and drop the key frames, which know nothing of what lies on it."""
    add_workbench(scene, bench, prefix=f"{ROBOT}/")
    for key in list(scene.keys):
        scene.delete(key)


def _simulation_cfg(cfg: ArmCfg) -> SimulationCfg:
    # The sizes are MuJoCo Warp's, which drops what exceeds them; a thing that lies there has four contacts.
    others = len(WORKBENCHES[cfg.task].things) - 1
    return SimulationCfg(
        njmax=300 + 50 * others,
        nconmax=40 + 12 * others,
        mujoco=MujocoCfg(
            timestep=cfg.physics_dt_s,
            iterations=10,
            ls_iterations=20,
            cone="elliptic",
            impratio=10.0,
        ),
    )

"""Observations in the frame of the episode's start: the same numbers wherever the hand begins."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.observations.builder import ee_from_start
from gantry_deploy.observations.joints import joint_from_start
from gantry_deploy.observations.signals import TermConstants
from gantry_deploy.policy.golden import recorded_signals
from gantry_hardware.errors import UnknownNameError
from gantry_policies.common.batched_env import STATE
from gantry_policies.common.export import export_bundle
from gantry_policies.common.recorded_rows import OneByOne, input_names
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.manipulation.presets import ExpertPolicy
from gantry_sim.tasks.manipulation.recording import record_episodes
from gantry_sim.tasks.registry import find_task

CFG = ArmCfg("lift", num_envs=3, frame="start")


def places(contract):
    """Columns of each term."""
    ends = np.cumsum([term.size for term in contract.observations])
    return {term.name: slice(end - term.size, end) for term, end in zip(contract.observations, ends, strict=True)}


def test_the_hand_is_told_from_where_it_began_in_every_episode():
    env, where = ArmStepEnv(CFG, seed=4), places(arm_contract(CFG))
    assert "ee_pos" not in where
    assert "object_pos" not in where
    expert = ExpertPolicy(env, 0.0, 1)
    obs = env.reset()
    expert.reset()
    start, begun = env.state.ee_pos.clone(), env.state.joint_pos.clone()
    assert (start[0] - start[1]).norm() > 0.005
    ends = 0
    for _ in range(150):
        moved = obs[STATE][:, where["ee_from_start"]] / 5.0
        torch.testing.assert_close(moved, env.state.ee_pos - start, atol=1e-5, rtol=0)
        joints = obs[STATE][:, where["joint_from_start"]]
        torch.testing.assert_close(joints, env.state.joint_pos - begun, atol=1e-5, rtol=0)
        step = env.step(expert.act(obs))
        over = step.terminated | step.truncated
        ends += int(over.sum())
        start[over], begun[over] = env.state.ee_pos[over], env.state.joint_pos[over]
        expert.reset(over.nonzero().squeeze(1))
        obs = step.obs
    assert ends > 0
    env.close()


def test_the_terms_are_differences():
    contract = arm_contract(CFG)
    rng = np.random.default_rng(1)
    joints = np.array([contract.default_pos_rad], np.float32)
    moved = joints + rng.uniform(-0.1, 0.1, joints.shape).astype(np.float32)
    constants = TermConstants(contract, joints)
    golden = {
        "joint_pos_rad": np.concatenate((joints, moved)),
        "joint_vel_rad_s": np.zeros((2, joints.shape[1]), np.float32),
        "command": np.zeros((2, 0)),
        "last_action": np.zeros((2, contract.action_size)),
        "time_s": np.array([0.0, 0.05]),
        "episode_start": np.array([True, False]),
        "joint_target_rad": np.concatenate((joints, joints)),
    }
    signals = recorded_signals(contract, golden, 1)
    np.testing.assert_allclose(joint_from_start(signals, constants), moved - joints, atol=1e-7)
    kinematics, ids = constants.kinematics
    expected = kinematics.forward(moved[:, ids])[0] - kinematics.forward(joints[:, ids])[0]
    np.testing.assert_allclose(ee_from_start(signals, constants), expected, atol=1e-6)
    np.testing.assert_allclose(ee_from_start(recorded_signals(contract, golden, 0), constants), 0.0, atol=1e-7)
    with pytest.raises(UnknownNameError, match="Did you mean 'start'"):
        ArmCfg("lift", frame="strat")


class Reacher(torch.nn.Module):
    """Moves by what it sees, a little."""

    def forward(self, obs):
        return 0.3 * torch.tanh(obs[STATE][:, :4])


def test_a_bundle_sees_on_the_robot_what_it_saw_in_training(tmp_path, capsys):
    task = find_task("yam-lift")
    cfg = replace(task.usual_env(), frame="start")
    contract = task.contract(cfg)

    class Acting:
        def reset(self, env_ids=None): ...

        def act(self, obs):
            return Reacher()(obs)

    golden = record_episodes(task, cfg, lambda env: Acting(), seed=2)
    export_bundle(OneByOne(Reacher(), input_names(contract)), contract, golden, tmp_path / "bundle")
    assert load_bundle(tmp_path / "bundle").contract == contract
    main(["check", str(tmp_path / "bundle"), "--episodes", "1", "--perturbations", "none"])
    said = capsys.readouterr().out
    for name in ("observation", "joint targets", "episodes"):
        assert f"pass  {name}" in said, said

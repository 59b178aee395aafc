"""Joint targets for goals: a clock that moves nothing, a trot that does, and levels that a curriculum keeps to."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.structured import ConfigError
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.goal.cfg import GoalCfg, GroundCfg, goal_robot_of, weights_of
from gantry_sim.tasks.goal.contract import goal_contract
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.registry import find_task

pytestmark = pytest.mark.usefixtures("one_thread")

GROUND = GroundCfg(
    kinds=("boxes", "climb_up"), levels=3, columns=2, tile_m=(8.0, 8.0), start_levels=1, trained_levels=2
)


def preset(**changes) -> GoalCfg:
    return replace(find_task("ame2-go2").preset("joints").env, num_envs=4, ground=GROUND, noise=None, **changes)


def build(cfg):
    with quietly():
        return find_task("ame2-go2").make_env(cfg, "cpu", 1).env


def targets(env, steps=30):
    """Joint targets (steps, N, n) of zero actions while robots hang in the air, where nothing turns their goal."""
    found = []
    term = env.action_manager.get_term("joint_pos")
    for _ in range(steps):
        env.sim.data.qpos[:, 2] = 3.0
        env.step(torch.zeros(env.num_envs, env.action_manager.total_action_dim))
        found.append(term.targets.clone())
    return torch.stack(found)


def test_a_clock_moves_no_joint_and_is_seen():
    cfg = preset(gait="clock")
    found = targets(build(cfg))
    default = torch.tensor(goal_robot_of(cfg).body.spec.array("default_rad"), dtype=torch.float32)
    torch.testing.assert_close(found, default.expand_as(found))
    contract = goal_contract(cfg)
    assert "gait_clock" in [term.name for term in contract.observations]
    assert contract.gait.frequency_hz == 2.0


def test_a_trot_lifts_diagonal_legs_in_turn_whatever_the_ground():
    cfg = preset(gait="trot")
    assert goal_contract(cfg).gait.ground is None
    found = targets(build(cfg))[:, 0].numpy()
    calf = [name for name in goal_robot_of(cfg).body.spec.joint_names if "calf" in name]
    index = {name[:2]: goal_robot_of(cfg).body.spec.joint_names.index(name) for name in calf}
    moves = found - found.max(0)
    assert moves.min() < -0.3  # a calf folds by twice the amplitude of 0.3 rad
    np.testing.assert_allclose(moves[:, index["FR"]], moves[:, index["RL"]], atol=1e-6)
    assert not np.allclose(moves[:, index["FR"]], moves[:, index["FL"]], atol=0.1)


def test_a_curriculum_keeps_to_its_levels_and_an_evaluation_does_not():
    env = build(preset())
    state, terrain = GoalState.of(env), env.scene.terrain
    terrain.terrain_levels[:] = 1
    state.success_ema[:] = 1.0
    env.reset()  # the first episodes are not judged
    for _ in range(20):
        terrain.terrain_levels[:] = 1
        state.set_goals(torch.arange(4), state.pos_w.clone(), torch.zeros(4))
        state.success_ema[:] = 1.0
        env.reset()
        assert int(terrain.terrain_levels.max()) < 2  # past the top, any of the levels below it
    task = find_task("ame2-go2")
    free = build(task.evaluation(preset(), num_envs=2))
    assert free.scene.terrain.max_terrain_level == 3


def test_weights_and_names():
    weights = weights_of(preset())
    assert weights["track_planar_velocity"] == 3.0
    assert weights["link_acceleration"] == -1e-3  # the paper's
    with pytest.raises(UnknownNameError, match="clock"):
        preset(gait="clok")
    with pytest.raises(ConfigError, match="trained_levels is 0"):
        replace(GROUND, trained_levels=0)

"""The school of the goal tasks: where robots begin, when they leave and when they come back."""

from dataclasses import replace

import pytest
import torch

from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.goal.cfg import GroundCfg
from gantry_sim.tasks.goal.episodes import GoalLevels
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.registry import find_task

GROUND = GroundCfg(kinds=("boxes", "gap"), levels=2, columns=3, tile_m=(8.0, 8.0), start_levels=1, school=("dense",))


pytestmark = pytest.mark.usefixtures("one_thread")


def test_robots_go_to_school_leave_it_and_come_back():
    task = find_task("ame2-go2")
    cfg = replace(task.preset("cpu").env, num_envs=4, ground=GROUND, noise=None)
    with quietly():
        env = task.make_env(cfg, "cpu", 1).env
        env.reset()
    state, terrain, everyone = GoalState.of(env), env.scene.terrain, torch.arange(4)
    kinds = state.sites.kinds
    assert {kinds[column] for column in terrain.terrain_types} == {"boxes"}
    term = env.curriculum_manager._term_cfgs[0].func
    assert isinstance(term, GoalLevels)
    home = [kinds[column] for column in term._home]
    assert set(home) == {"boxes", "gap"}
    gaps, boxes = home.count("gap"), home.count("boxes")

    def judged(level, distance):
        terrain.terrain_levels[:] = level
        state.success_ema[:] = 0.0
        state.set_goals(everyone, state.pos_w + torch.tensor([distance, 0.0, 0.0]), torch.zeros(4))
        term(env, everyone, 0.6, ("dense",))
        return [
            (kinds[column], int(row)) for column, row in zip(terrain.terrain_types, terrain.terrain_levels, strict=True)
        ]

    judged(0, 0.1)  # first episodes are not judged
    assert judged(0, 0.1) == [("boxes", 1)] * 4  # level 0 was good; nobody leaves yet
    left = judged(1, 0.1)
    assert [place for place, whose in zip(left, home, strict=True) if whose == "gap"] == [("gap", 0)] * gaps
    assert all(kind == "boxes" for (kind, _), whose in zip(left, home, strict=True) if whose == "boxes")
    assert [float(state.success_ema[i]) for i in range(4) if home[i] == "gap"] == [0.0] * gaps
    back = judged(0, 6.0)
    assert [place for place, whose in zip(back, home, strict=True) if whose == "gap"] == [("boxes", 1)] * gaps
    assert [place for place, whose in zip(back, home, strict=True) if whose == "boxes"] == [("boxes", 0)] * boxes
    origins = terrain.terrain_origins[terrain.terrain_levels, terrain.terrain_types]
    torch.testing.assert_close(terrain.env_origins, origins)

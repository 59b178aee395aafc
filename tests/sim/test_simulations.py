"""Simulations by name: another package's plain MuJoCo steps mjlab's tasks and ours, and agrees with our own."""

from dataclasses import replace

import pytest
import torch
from mjlab.scene import Scene
from mjlab.tasks.velocity.config.go1.env_cfgs import unitree_go1_flat_env_cfg

from gantry_fixtures import plain_simulation
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.physics.simulation import VARIABLE, SimulationKind, find_simulation, simulation_names
from gantry_sim.tasks.registry import find_task

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The stand-in as another package installs it, and an entry point that holds something else."""
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gantry.simulations]\nplain = gantry_fixtures.plain_simulation:PLAIN\n"
        "odd = gantry_fixtures.plain_simulation:PlainSimulation\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def roll(env, steps=12):
    generator = torch.Generator().manual_seed(0)
    env.reset()
    env.episode_length_buf[1] = env.max_episode_length - steps // 2
    for left in env.event_manager._interval_term_time_left:
        left.fill_(0.1)
    found = []
    for _ in range(steps):
        action = 0.3 * torch.randn(env.num_envs, 12, generator=generator)
        observations, reward, terminated, truncated, _ = env.step(action)
        found.append((env.sim.data.qpos.clone(), observations["actor"].clone(), reward.clone(), terminated | truncated))
    return [torch.stack(part) for part in zip(*found, strict=True)]


def test_plain_mujoco_of_another_package_agrees_with_ours_on_a_velocity_task(installed, monkeypatch):
    def run(name):
        monkeypatch.setenv(VARIABLE, name)
        cfg = unitree_go1_flat_env_cfg()
        cfg.scene.num_envs, cfg.seed = 3, 5
        return roll(GantryEnv(cfg, "cpu"))

    assert "plain" in simulation_names()
    plain_simulation.STEPS.clear()
    theirs, count = run("plain"), len(plain_simulation.STEPS)
    assert count == 12 * unitree_go1_flat_env_cfg().decimation
    ours = run("threads")
    assert len(plain_simulation.STEPS) == count
    assert ours[3].any(), "one ran out of time and began anew"
    assert torch.equal(theirs[3], ours[3])
    # Both step the same MuJoCo; what differs is which numbers pass through float32.
    for mine, other, bound in zip(ours, theirs, (1e-5, 3e-4, 1e-5), strict=False):
        torch.testing.assert_close(mine, other, atol=bound, rtol=0)


def test_our_own_task_takes_it_too_without_what_it_cannot_leave_out(installed, monkeypatch):
    monkeypatch.setenv(VARIABLE, "plain")
    task = find_task("velocity-flat-go2")
    env = task.make_env(replace(task.usual_env(), num_envs=2), "cpu", 1)
    plain_simulation.STEPS.clear()
    step = env.step(torch.zeros(2, env.action_size))
    assert torch.isfinite(step.reward).all()
    assert len(plain_simulation.STEPS) == env.env.cfg.decimation, "no steps in one call"
    env.close()


def test_a_scene_for_a_cpu_belongs_to_simulations_on_a_cpu():
    with pytest.raises(GantryError, match="GantryScene works on a CPU alone, expected another with only_cpu=False"):
        SimulationKind(plain_simulation.PlainSimulation, only_cpu=False)
    assert SimulationKind(plain_simulation.PlainSimulation, Scene, only_cpu=False).scene is Scene


def test_what_is_no_simulation_is_refused(installed):
    with pytest.raises(GantryError, match="is a type, expected a SimulationKind"):
        find_simulation("cpu", "odd")
    with pytest.raises(UnknownNameError, match=r"Unknown physics engine 'plane'\. Did you mean 'plain'"):
        find_simulation("cpu", "plane")
    with pytest.raises(GantryError, match="'plain' runs on device 'cpu', not on 'cuda:0'"):
        find_simulation("cuda:0", "plain")

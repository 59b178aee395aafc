"""mjlab's own tasks on the CPU backend: they run unmodified, reproducibly, and one broken environment stays alone."""

import mujoco
import pytest
import torch
from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.sensor import CameraSensorCfg
from mjlab.tasks.velocity.config.go1.env_cfgs import unitree_go1_flat_env_cfg

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.envs.manager_env import GantryEnv, GantryEnvCfg
from gantry_sim.physics.agreement import AGREEMENT_TASKS

NUM_ENVS = 8


pytestmark = pytest.mark.usefixtures("one_thread")


def build(make=unitree_go1_flat_env_cfg, seed=3, num_envs=NUM_ENVS, **switches):
    cfg = make()
    cfg.scene.num_envs = num_envs
    cfg.seed = seed
    if switches:
        fields = {name: getattr(cfg, name) for name in ManagerBasedRlEnvCfg.__dataclass_fields__}
        cfg = GantryEnvCfg(**fields, **switches)
    return GantryEnv(cfg, "cpu")


def roll(env, steps=20, seed=0):
    """Observations, rewards, ends and states of some steps; a quarter of the environments runs out of time on the way,
    and every environment is pushed."""
    generator = torch.Generator().manual_seed(seed)
    env.reset()
    env.episode_length_buf[::4] = env.max_episode_length - steps // 2
    for name, left in zip(
        env.event_manager._mode_term_names["interval"], env.event_manager._interval_term_time_left, strict=True
    ):
        assert name == "push_robot"
        left.fill_(0.1)
    trace = []
    for _ in range(steps):
        action = 0.3 * torch.randn(env.num_envs, env.action_manager.total_action_dim, generator=generator)
        observations, reward, terminated, truncated, _ = env.step(action)
        trace.append(
            {
                **{name: value.clone() for name, value in observations.items()},
                "reward": reward.clone(),
                "done": terminated | truncated,
                "qpos": env.sim.data.qpos.clone(),
                "qvel": env.sim.data.qvel.clone(),
            }
        )
    return trace


def assert_equal_traces(one, two):
    for step, (a, b) in enumerate(zip(one, two, strict=True)):
        for name in a:
            assert torch.equal(a[name], b[name]), f"step {step}: {name}"


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(AGREEMENT_TASKS))
def test_mjlab_tasks_run_unmodified_and_reproducibly(task):
    make = AGREEMENT_TASKS[task]
    env = build(make)
    trace = roll(env)
    for entry in trace:
        for name, value in entry.items():
            assert torch.isfinite(value.float()).all(), name
    ends = torch.stack([entry["done"] for entry in trace])
    assert ends[:, ::4].any(dim=0).all()  # those that ran out of time were reset ...
    assert (env.episode_length_buf[::4] < 20).all()
    friction = env.sim.model.geom_friction  # ... robots differ from one another ...
    assert friction.std(dim=0).max() > 0.05
    assert env.sim.model.body_ipos.std(dim=0).max() > 0.005
    assert_equal_traces(trace, roll(build(make)))  # ... and the seed decides everything.
    other = roll(build(make, seed=4))
    assert not torch.equal(trace[0]["qpos"], other[0]["qpos"])


def test_threads_give_what_mjbatch_gives(monkeypatch):
    pytest.importorskip("mjbatch")
    traces = []
    for engine in ("mjbatch", "threads"):
        monkeypatch.setenv("GANTRY_PHYSICS_ENGINE", engine)
        env = build()
        assert type(env.sim.engine).__name__ == {"mjbatch": "Batch", "threads": "ThreadBatch"}[engine]
        traces.append(roll(env))
    # Derived constants pass through float32 in one engine, not in the other.
    for a, b in zip(*traces, strict=True):
        torch.testing.assert_close(a["qpos"], b["qpos"], atol=1e-4, rtol=0)
        assert torch.equal(a["done"], b["done"])


@pytest.mark.parametrize(
    "switches", [{"hold_controls": True}, {"refresh_all": False}, {"hold_controls": True, "refresh_all": False}]
)
def test_time_saving_switches_leave_the_motion_alone(switches):
    """For a constant action, positions and velocities do not depend on how often sensors and kinematics are read."""

    def still(**options):
        env = build(**options)
        env.reset()
        assert env.event_manager._mode_term_names["interval"] == ["push_robot"]
        env.event_manager._interval_term_time_left[0].fill_(1e6)
        states = []
        for _ in range(15):
            env.step(torch.full((NUM_ENVS, 12), 0.2))
            states.append(torch.cat([env.sim.data.qpos, env.sim.data.qvel], dim=1).clone())
        return torch.stack(states)

    plain, saving = still(), still(**switches)
    assert not torch.equal(plain[0], plain[-1])
    assert torch.equal(plain, saving)


def test_refresh_all_off_still_refreshes_what_was_reset():
    env = build(refresh_all=False)
    env.reset()
    env.episode_length_buf[2] = env.max_episode_length - 1
    env.step(torch.zeros(NUM_ENVS, 12))
    root = env.sim.data.qpos[:, :3]
    body = env.sim.data.xpos[:, env.robot.indexing.root_body_id]
    lag = (root - body).abs().amax(dim=1)
    assert lag[2] < 1e-6
    assert (lag[[0, 1, 3]] > 1e-6).all()  # a substep behind, as the switch says


def test_a_write_pending_at_a_reset_is_forgotten():
    env = build()
    env.reset()
    env.sim.data.qvel[1, 0] = 9.0
    env.sim.data.xfrc_applied[1, 2, 0] = 50.0
    env.sim.reset(torch.tensor([1]))
    assert not env.sim.data.qvel[1].any()
    assert not env.sim.data.xfrc_applied[1].any()


@pytest.mark.parametrize("field", ["qpos", "qvel", "ctrl"])
def test_an_environment_that_breaks_is_reset_alone(field):
    broken = 5

    def run(break_it):
        env = build()
        env.reset()
        env.event_manager._interval_term_time_left[0].fill_(1e6)
        trace = []
        for step in range(6):
            action = torch.zeros(NUM_ENVS, 12)
            if break_it and step == 2:
                if field == "ctrl":
                    action[broken] = torch.nan
                else:
                    getattr(env.sim.data, field)[broken, 3] = torch.nan
            observations, reward, terminated, truncated, extras = env.step(action)
            ends = terminated.clone(), truncated.clone()
            trace.append((env.sim.data.qpos.clone(), reward.clone(), *ends, observations, extras["log"]))
        return env, trace

    _, plain = run(False)
    env, trace = run(True)
    others = torch.arange(NUM_ENVS) != broken
    for step, ((qpos, reward, terminated, truncated, observations, log), reference) in enumerate(
        zip(trace, plain, strict=True)
    ):
        assert torch.isfinite(qpos).all()
        assert torch.isfinite(reward).all()
        assert all(torch.isfinite(value).all() for value in observations.values())
        assert not truncated.any()
        assert terminated.tolist() == [step == 2 and index == broken for index in range(NUM_ENVS)]
        assert torch.equal(qpos[others], reference[0][others])
        assert torch.equal(reward[others], reference[1][others])
        if step == 2:
            assert log["Episode_Termination/diverged"] == 1
    assert env.episode_length_buf[broken] == 3
    assert not env.sim.diverged.any()


def test_the_nan_guard_still_finds_what_it_looks_for(tmp_path):
    def make():
        cfg = unitree_go1_flat_env_cfg()
        cfg.sim.nan_guard.enabled = True
        cfg.sim.nan_guard.output_dir = str(tmp_path / "dumps")
        return cfg

    env = build(make)
    env.reset()
    env.sim.data.qpos[1, 2] = torch.nan
    observations, *_ = env.step(torch.zeros(NUM_ENVS, 12))
    assert list((tmp_path / "dumps").glob("nan_dump_*.npz"))
    assert all(torch.isfinite(value).all() for value in observations.values())


def test_constants_derived_from_randomised_masses_can_be_read():
    env = build()
    ours = env.sim.model.body_subtreemass[0]
    plain = torch.tensor(env.sim.mj_model.body_subtreemass, dtype=torch.float32)
    torch.testing.assert_close(ours, plain)  # the task moves the centre of mass, and leaves the mass
    assert not torch.equal(env.sim.model.dof_invweight0[0], env.sim.model.dof_invweight0[1])


def test_cameras_are_refused_by_name():
    def make():
        cfg = unitree_go1_flat_env_cfg()
        cfg.scene.sensors += (CameraSensorCfg(name="front", camera_name="robot/tracking", height=4, width=4),)
        return cfg

    with pytest.raises(
        GantryError, match=r"Camera sensors \(front\) are drawn by MuJoCo Warp alone.* do not learn from pictures"
    ):
        build(make)


def test_unknown_simulations_and_devices_are_refused():
    with pytest.raises(UnknownNameError, match=r"Unknown physics engine 'thread'\. Did you mean 'threads'"):
        GantryEnv(unitree_go1_flat_env_cfg(), "cpu", "thread")
    with pytest.raises(GantryError, match="'threads' runs on device 'cpu', not on 'cuda:0'"):
        GantryEnv(unitree_go1_flat_env_cfg(), "cuda:0", "threads")


def test_unknown_engines_are_refused(monkeypatch):
    monkeypatch.setenv("GANTRY_PHYSICS_ENGINE", "thread")
    with pytest.raises(
        UnknownNameError, match=r"Unknown physics engine of the variable GANTRY_PHYSICS_ENGINE 'thread'"
    ):
        build()
    monkeypatch.setenv("GANTRY_PHYSICS_ENGINE", "threads")
    with pytest.raises(GantryError, match=r"'threads' .variable GANTRY_PHYSICS_ENGINE. runs on device 'cpu'"):
        GantryEnv(unitree_go1_flat_env_cfg(), "cuda:0")


def test_unknown_model_fields_are_refused():
    env = build(num_envs=2)
    with pytest.raises(ValueError, match="no_such_field"):
        env.sim.expand_model_fields(("no_such_field",))
    assert mujoco.mj_versionString().startswith("3.")


@pytest.mark.slow
def test_a_broken_environment_is_reset_on_mujoco_warp_too():
    cfg = unitree_go1_flat_env_cfg()
    cfg.scene.num_envs, cfg.seed = 3, 0
    env = GantryEnv(cfg, "cpu", "warp")
    env.reset()
    env.sim.data.qpos[1, 2] = torch.nan
    _, reward, terminated, *_ = env.step(torch.zeros(3, 12))
    assert terminated.tolist() == [False, True, False]
    assert torch.isfinite(reward).all()
    observations, reward, terminated, *_ = env.step(torch.zeros(3, 12))
    assert not terminated.any()
    assert torch.isfinite(reward).all()
    assert all(torch.isfinite(value).all() for value in observations.values())

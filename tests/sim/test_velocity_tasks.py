"""The velocity tasks: what they ask of a robot, by hand-made numbers, and what the runtime makes of the same states."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.actions.joints import JointDecoder
from gantry_deploy.observations.builder import ObservationBuilder, Signals
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import tiny_bundle
from gantry_hardware.backends.state import RobotState
from gantry_hardware.robots import robot_spec
from gantry_sim.envs.managed import ManagedBatch
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.locomotion import rewards
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg
from gantry_sim.tasks.locomotion.presets import cpu_flat, step_metrics
from gantry_sim.tasks.locomotion.state import LocomotionState
from gantry_sim.tasks.locomotion.terms import SensorNoiseCfg
from gantry_sim.tasks.registry import find_task, from_flat, task_names
from gantry_sim.training.evaluate import evaluate_policy

GO2 = "velocity-flat-go2"


pytestmark = pytest.mark.usefixtures("one_thread")


def build(name=GO2, preset="cpu", num_envs=4, seed=1, **changes):
    task = find_task(name)
    exact = {"machine": MachineCfg()} if changes.get("noise", 0) is None else {}
    cfg = replace(task.preset(preset).env, num_envs=num_envs, **exact, **changes)
    with quietly():
        env = task.make_env(cfg, "cpu", seed).env
        env.reset()
    return env, cfg


@pytest.mark.parametrize("preset", ["cpu", "gpu"])
@pytest.mark.parametrize("name", [name for name in task_names() if name.startswith("velocity")])
def test_every_preset_builds_and_steps(name, preset):
    task = find_task(name)
    assert preset in task.presets
    env, cfg = build(name, preset, terrain_levels=2)
    contract = task.contract(cfg)
    assert env.step_dt == pytest.approx(contract.dt_s)
    sizes = {group: values.shape[1] for group, values in env.obs_buf.items()}
    assert sizes["actor"] == contract.observation_size
    maps = task.mirror(cfg)
    assert (len(maps["actor"].source), len(maps["critic"].source)) == (sizes["actor"], sizes["critic"])
    torch.manual_seed(0)
    for _ in range(5):
        action = 0.5 * torch.randn(4, contract.action_size)
        obs, reward, terminated, _, _ = env.step(action)
        assert torch.isfinite(reward).all()
        assert reward.abs().max() > 0
        assert not terminated.any()
        assert all(torch.isfinite(values).all() for values in obs.values())
        assert {name: float(value) for name, value in step_metrics(env).items()}.keys() >= {"lin_vel_error_m_s"}
    lower, upper = (torch.tensor(getattr(contract, f"joint_{side}_rad")) for side in ("lower", "upper"))
    targets = env.action_manager.get_term("joint_pos").targets
    assert ((targets >= lower) & (targets <= upper)).all()


# -- the runtime on the same states --------------------------------------------------------------------------------


def robot_state(env, spec, row):
    """A row of the simulation as a robot would report it, found by the names in the compiled model."""
    model = env.sim.mj_model
    joints = [model.joint(f"robot/{name}") for name in spec.joint_names]
    qpos, qvel = (getattr(env.sim.data, field)[row].numpy().astype(np.float64) for field in ("qpos", "qvel"))
    return RobotState(
        stamp_s=0.0,
        joint_pos_rad=qpos[[joint.qposadr[0] for joint in joints]],
        joint_vel_rad_s=qvel[[joint.dofadr[0] for joint in joints]],
        joint_effort_nm=np.zeros(spec.num_joints),
        quat_base_to_world_wxyz=qpos[3:7],
        ang_vel_base_in_base_rad_s=qvel[3:6],
        lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, 9.81]),
    )


@pytest.mark.parametrize("name", [GO2, "velocity-flat-g1"])
def test_the_robots_own_runtime_sees_and_does_the_same(name, tmp_path):
    """A policy in the environment and a PolicyRunner on the same states: observation, action and joint targets."""
    task = find_task(name)
    env, cfg = build(name, num_envs=2, noise=None, standing_share=0.0)
    contract, spec = task.contract(cfg), robot_spec(task.robot)
    rng = np.random.default_rng(0)
    weight = rng.normal(0.0, 0.1, (contract.observation_size, contract.action_size))
    runner = PolicyRunner(tiny_bundle(tmp_path / "bundle", contract, weight=weight), spec)
    matrix = torch.tensor(weight, dtype=torch.float32)
    obs = env.obs_buf["actor"]
    largest = 0.0
    for _ in range(40):
        step = runner.step(robot_state(env, spec, 1), env.command_manager.get_command("twist")[1].numpy())
        np.testing.assert_allclose(step.observation, obs[1].numpy(), atol=1e-5, rtol=0)
        action = obs @ matrix
        np.testing.assert_allclose(step.action, action[1].numpy(), atol=2e-5, rtol=0)
        obs = env.step(action)[0]["actor"]
        targets = env.action_manager.get_term("joint_pos").targets[1].numpy()
        np.testing.assert_allclose(step.target.pos_rad, targets, atol=1e-5, rtol=0)
        largest = max(largest, float(np.abs(targets - np.array(contract.default_pos_rad)).max()))
        if env.episode_length_buf[1] == 0:
            break
    assert env.common_step_counter > 15
    assert largest > 0.2


def test_what_an_export_records_is_what_the_runtime_computes():
    task = find_task(GO2)
    cfg = task.preset("cpu").env
    contract = task.contract(cfg)
    matrix = 0.1 * torch.randn(
        contract.observation_size, contract.action_size, generator=torch.Generator().manual_seed(0)
    )
    golden = task.record(task, cfg, from_flat(lambda obs: obs @ matrix), seed=3)
    assert {len(values) for values in golden.values()} == {1440}
    starts = np.flatnonzero(golden["episode_start"])
    assert set(range(0, 1440, 240)) <= set(starts.tolist())
    # Late times, many commands, standing among them, and episodes that end.
    assert golden["time_s"].max() > 15.0
    assert len(np.unique(golden["command"], axis=0)) > 30
    assert (golden["command"] == 0).all(axis=1).any()
    assert len(starts) > 6
    assert not golden["time_s"][[start for start in starts if start % 240]].any()
    signals = Signals(**{name: golden[name] for name in Signals.__dataclass_fields__ if name in golden})
    builder, found = ObservationBuilder(contract, golden["observation"][:1]), []
    for row in range(1440):
        if golden["episode_start"][row]:
            builder.reset()
        found.append(
            builder(Signals(**{name: golden[name][row : row + 1] for name in vars(signals) if name in golden}))
        )
    np.testing.assert_allclose(np.concatenate(found), golden["observation"], atol=1e-5, rtol=0)
    action = golden["observation"] @ matrix.numpy()
    targets = JointDecoder(contract, action)(action, signals).pos_rad
    np.testing.assert_allclose(targets, golden["joint_target_rad"], atol=1e-5, rtol=0)
    inside = np.ones(1440, dtype=bool)
    inside[starts] = False
    np.testing.assert_allclose(np.diff(golden["time_s"])[inside[1:]], 0.02, atol=1e-5)
    np.testing.assert_allclose(golden["last_action"][inside], np.clip(action, -10, 10)[:-1][inside[1:]], atol=1e-4)


# -- sensor noise --------------------------------------------------------------------------------------------------


def test_noise_has_the_widths_that_were_asked_for():
    rows, cfg = 3000, SensorNoiseCfg(joint_pos_rad=0.02, joint_vel_rad_s=1.0, ang_vel_rad_s=0.3, tilt_rad=0.05)
    torch.manual_seed(0)
    quat = torch.nn.functional.normalize(torch.randn(rows, 4), dim=-1)
    clean = Signals(torch.randn(rows, 4), torch.randn(rows, 4), quat, torch.randn(rows, 3), *torch.randn(3, rows, 3))
    noisy = cfg.apply(clean)
    widths = {"joint_pos_rad": 0.02, "joint_vel_rad_s": 1.0, "ang_vel_base_in_base_rad_s": 0.3}
    for name, width in widths.items():
        error = getattr(noisy, name) - getattr(clean, name)
        assert 0.99 * width < error.abs().max() < width + 1e-5, name
        assert error.std() == pytest.approx(width / math.sqrt(3), rel=0.05), name  # uniform
        assert abs(float(error.mean())) < 0.05 * width, name
    for name in ("command", "last_action", "time_s"):
        assert torch.equal(getattr(noisy, name), getattr(clean, name))
    a, b = clean.quat_base_to_world_wxyz, noisy.quat_base_to_world_wxyz
    torch.testing.assert_close(b.norm(dim=-1), torch.ones(rows))
    # conj(a) * b is the rotation in the body frame; twice its vector part is the rotation vector, which is small.
    w, x, y, z = a.unbind(-1)
    inverse = torch.stack(
        (
            torch.stack((w, x, y, z), -1),
            torch.stack((-x, w, z, -y), -1),
            torch.stack((-y, -z, w, x), -1),
            torch.stack((-z, y, -x, w), -1),
        ),
        dim=-2,
    )
    turned = 2.0 * torch.einsum("nij,nj->ni", inverse, b)[:, 1:]
    for axis in range(3):
        assert 0.97 * 0.05 < turned[:, axis].abs().max() < 1.001 * 0.05
        assert turned[:, axis].std() == pytest.approx(0.05 / math.sqrt(3), rel=0.05)


def test_sensors_are_read_once_per_control_step():
    """Observation and gait get the same noise, however often they look, and another in the next step."""
    env, _ = build(num_envs=3)
    state = LocomotionState.of(env)
    first = state.measured
    seen = [env.observation_manager.compute()["actor"].clone() for _ in range(2)]
    assert torch.equal(*seen)
    assert state.measured is first
    assert not torch.equal(first.joint_vel_rad_s, state.joint_vel)
    env.step(torch.zeros(3, env.action_manager.total_action_dim))
    assert not torch.equal(LocomotionState.of(env).measured.joint_vel_rad_s - state.joint_vel, first.joint_vel_rad_s)


def test_only_the_actor_hears_the_noise():
    env, _ = build(num_envs=32, machine=MachineCfg(), history=1)
    quiet, _ = build(num_envs=32, noise=None, history=1)
    for target, noisy in ((env, True), (quiet, False)):
        obs = target.step(torch.zeros(32, 12))[0]
        frame = obs["critic"][:, : obs["actor"].shape[1]]
        difference = (obs["actor"] - frame).abs().amax(dim=0)
        measured, told = difference[:30], difference[30:]
        assert (told == 0).all()  # last action, command and clock
        assert (measured > 0).all() if noisy else (measured == 0).all()
    state = LocomotionState.of(env)
    error = state.measured.joint_vel_rad_s - state.signals().joint_vel_rad_s
    assert 0.9 * 1.5 < error.abs().max() <= 1.5


def test_robots_differ_in_friction_and_mass_as_configured():
    env, cfg = build(num_envs=64)
    feet = [i for i in range(env.sim.mj_model.ngeom) if "foot_collision" in env.sim.mj_model.geom(i).name]
    assert len(feet) == 4
    friction = env.sim.model.geom_friction[:, feet, 0]
    assert (friction == friction[:, :1]).all()  # the floor is one floor
    assert cfg.friction[0] <= friction.min() < 0.5
    assert 1.1 < friction.max() <= cfg.friction[1]
    base = env.sim.mj_model.body("robot/base").id
    added = env.sim.model.body_mass[:, base] - float(env.sim.mj_model.body_mass[base])
    assert cfg.added_mass_kg[0] <= added.min() < -0.5
    assert 1.5 < added.max() <= cfg.added_mass_kg[1]
    others = [i for i in range(env.sim.mj_model.nbody) if i != base]
    assert (env.sim.model.body_mass[:, others] == env.sim.model.body_mass[:1, others]).all()


# -- hand-made states ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def placed():
    """``placed(...)`` puts four Go2 into given states and returns the environment."""
    torch.set_num_threads(1)
    env, _ = build(noise=None, standing_share=0.0, resample_s=(1e3, 1e3), friction=(0.8, 0.8))

    def place(*, height=0.3, quat=(1.0, 0.0, 0.0, 0.0), lin_vel_w=(0.0,) * 3, ang_vel_b=(0.0,) * 3, command=(0.0,) * 3):
        spec, data = robot_spec("go2"), env.sim.data
        rows = 4
        data.qvel[:] = 0.0
        data.qpos[:, 2] = torch.as_tensor(height)
        data.qpos[:, 3:7] = torch.as_tensor(quat, dtype=torch.float32).expand(rows, 4)
        data.qpos[:, 7:19] = torch.tensor(spec.array("default_rad"), dtype=torch.float32)
        data.qvel[:, :3] = torch.as_tensor(lin_vel_w).expand(rows, 3)
        data.qvel[:, 3:6] = torch.as_tensor(ang_vel_b).expand(rows, 3)
        env.command_manager.get_term("twist").vel_command_b[:] = torch.as_tensor(command).expand(rows, 3)
        env.sim.forward()
        env.state_version += 1
        return env

    return place


def tilted(degrees, axis):
    half = math.radians(degrees) / 2
    return [math.cos(half), *(math.sin(half) * float(i == axis) for i in range(3))]


def test_fallen_by_height_and_by_tilt(placed):
    limits = {"min_height_m": 0.15}
    env = placed(height=[0.151, 0.149, 0.3, 0.1])
    assert rewards.fallen(env, **limits).tolist() == [False, True, False, True]
    env = placed(quat=[tilted(59, 0), tilted(61, 0), tilted(-61, 1), tilted(170, 2)])
    assert rewards.fallen(env, **limits).tolist() == [False, True, True, False]
    env = placed(quat=[tilted(180, 0), tilted(180, 1), tilted(0, 0), tilted(-59, 1)])
    assert rewards.fallen(env, **limits).tolist() == [True, True, False, False]


def test_velocity_is_tracked_in_the_frame_of_the_body(placed):
    """Turned by 90 degrees, moving along the world's y is moving ahead."""
    env = placed(quat=tilted(90, 2), lin_vel_w=(0.0, 0.65, 0.3), command=(1.0, 0.0, 0.0))
    state = LocomotionState.of(env)
    torch.testing.assert_close(state.lin_vel_b, torch.tensor([0.65, 0.0, 0.3]).expand(4, 3), atol=1e-6, rtol=0)
    expected = torch.full((4,), math.exp(-1.0))
    torch.testing.assert_close(rewards.track_planar_velocity(env, 0.35), expected)
    env = placed(lin_vel_w=(0.5, -0.2, 0.0), command=(0.5, -0.2, 0.9))
    torch.testing.assert_close(rewards.track_planar_velocity(env, 0.35), torch.ones(4))
    torch.testing.assert_close(rewards.vertical_velocity(env), torch.zeros(4))


def test_turning_is_tracked(placed):
    env = placed(ang_vel_b=[[0, 0, 0.5], [0, 0, -0.5], [0.3, 0.4, 0.0], [0, 0, 1.0]], command=(0.0, 0.0, 0.5))
    torch.testing.assert_close(
        rewards.track_yaw_rate(env, 0.5), torch.tensor([1.0, math.exp(-4), math.exp(-1), math.exp(-1)])
    )
    torch.testing.assert_close(rewards.roll_pitch_rate(env), torch.tensor([0.0, 0.0, 0.25, 0.0]))


def test_posture_by_hand(placed):
    env = placed(quat=[tilted(30, 0), tilted(30, 1), tilted(30, 2), tilted(0, 0)], height=[0.27, 0.37, 0.17, 0.27])
    torch.testing.assert_close(rewards.tilt(env), torch.tensor([0.25, 0.25, 0.0, 0.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        rewards.height_error(env, 0.27), torch.tensor([0.0, 0.01, 0.01, 0.0]), atol=1e-6, rtol=1e-5
    )
    env.sim.data.qpos[1, 7 + 2] += 0.2
    env.sim.data.qpos[2, 7 + 0] -= 0.1
    env.state_version += 1
    default = tuple(robot_spec("go2").array("default_rad").tolist())
    weight = (1.0, 0.5, 0.25) + (0.0,) * 9
    deviation = rewards.joint_deviation(env, default, weight)
    torch.testing.assert_close(deviation, torch.tensor([0.0, 0.01, 0.01, 0.0]), atol=1e-6, rtol=1e-4)


def test_feet_on_the_ground_agree_with_a_resting_clock_and_feet_in_the_air_do_not():
    gait = find_task(GO2).contract(find_task(GO2).preset("cpu").env).gait
    env, _ = build(num_envs=2, noise=None, lin_vel_x_m_s=(0, 0), lin_vel_y_m_s=(0, 0), yaw_rate_rad_s=(0, 0))
    for _ in range(25):
        env.step(torch.zeros(2, 12))
    assert LocomotionState.of(env).foot_contact.tolist() == [[1.0] * 4] * 2
    torch.testing.assert_close(LocomotionState.of(env).foot_height, torch.zeros(2, 4), atol=0.006, rtol=0)
    assert rewards.contact_matches_clock(env, gait).tolist() == [1.0, 1.0]
    # The same feet on the ground while two of four should swing: 45 % of a period from the end of stance.
    command = env.command_manager.get_term("twist").vel_command_b
    command[:] = torch.tensor([0.5, 0.0, 0.0])
    env.episode_length_buf[:] = round((gait.duty + 0.2) / gait.frequency_hz / env.step_dt)
    assert rewards.contact_matches_clock(env, gait).tolist() == [0.5, 0.5]
    # A swing that asks for 8 cm while the foot is down scores as a Gaussian of that miss.
    quiet = rewards.swing_height(env, gait, height_m=0.0, width_m=0.05)
    asked = rewards.swing_height(env, gait, height_m=0.08, width_m=0.05)
    arc = math.sin(math.pi * 0.2 / (1 - gait.duty))
    torch.testing.assert_close(
        asked, 0.5 * quiet + 0.5 * math.exp(-((0.08 * arc / 0.05) ** 2)) * torch.ones(2), atol=0.05, rtol=0
    )


def test_a_stand_command_rests_the_clock_and_the_legs():
    task = find_task(GO2)
    env, cfg = build(num_envs=2, noise=None, resample_s=(1e3, 1e3), standing_share=0.0)
    default = torch.tensor(task.contract(cfg).default_pos_rad)
    command = env.command_manager.get_term("twist").vel_command_b
    command[:] = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    swung = torch.zeros(12)
    for _ in range(30):
        obs = env.step(torch.zeros(2, 12))[0]["actor"]
        targets = env.action_manager.get_term("joint_pos").targets
        assert torch.equal(targets[0], default)
        swung = torch.maximum(swung, (targets[1] - default).abs())
        assert obs[0, -2:].tolist() == [0.0, 0.0]
        assert obs[1, -2:].norm() == pytest.approx(1.0, abs=1e-5)
    hips, thighs, calves = swung.reshape(4, 3).unbind(-1)
    assert (thighs > 0.2).all()
    assert (calves > 0.4).all()
    assert (hips < 0.05).all()


# -- evaluation ----------------------------------------------------------------------------------------------------


def zero(obs):
    return torch.zeros(len(obs), 12)


@pytest.mark.parametrize("full_model", [False, True])
def test_a_robot_that_is_asked_for_nothing_and_does_nothing_scores_well(full_model):
    task = find_task(GO2)
    cfg = replace(
        task.preset("cpu").env, episode_s=2.0, lin_vel_x_m_s=(0, 0), lin_vel_y_m_s=(0, 0), yaw_rate_rad_s=(0, 0)
    )
    shares = []
    result = evaluate_policy(task, cfg, from_flat(zero), episodes=6, full_model=full_model, on_progress=shares.append)
    assert result["episodes"] == 6
    assert result["seconds_per_episode"] == pytest.approx(1.98)
    assert result["model"] == ("full" if full_model else "training")
    assert result["fall_rate"]["mean"] == 0.0
    assert 0.0 < result["lin_vel_error_m_s"]["mean"] < 0.08
    assert 0.0 < result["yaw_rate_error_rad_s"]["mean"] < 0.15
    assert result["standing"]["episodes"] == 1
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_a_robot_that_stands_when_asked_to_walk_misses_by_about_the_command():
    task = find_task(GO2)
    still = replace(task.preset("cpu").env, episode_s=2.0, lin_vel_y_m_s=(0, 0), yaw_rate_rad_s=(0, 0))
    # Below the threshold of the clock, so that the legs rest.
    cfg = replace(still, lin_vel_x_m_s=(0.09, 0.09))
    slow = evaluate_policy(task, cfg, from_flat(zero), episodes=4)
    assert slow["lin_vel_error_m_s"]["mean"] == pytest.approx(0.09, abs=0.04)
    assert slow["fall_rate"]["mean"] == 0.0


def test_a_policy_that_folds_the_legs_falls_every_time():
    task = find_task(GO2)
    cfg = replace(task.preset("cpu").env, episode_s=2.0)
    fold = torch.tensor([0.0, 10.0, -10.0] * 4)
    result = evaluate_policy(task, cfg, from_flat(lambda obs: fold.expand(len(obs), 12)), episodes=4)
    assert result["fall_rate"]["mean"] == 1.0


@pytest.mark.slow
def test_standing_is_scored_by_itself():
    """What robots do without a command, apart from how they follow one."""
    task = find_task(GO2)
    cfg = replace(cpu_flat("go2").env, episode_s=3.0, lin_vel_x_m_s=(0.8, 1.0))
    commands = []

    def still(obs):
        commands.append(obs[:, 42:45].clone())
        return torch.zeros(len(obs), 12)

    def falls_when_it_stands(obs):
        asked = obs[:, 42:45].norm(dim=-1, keepdim=True) > 0
        return torch.where(asked, 0.0, torch.tensor([0.0, 10.0, -10.0] * 4))

    standing = evaluate_policy(task, cfg, from_flat(still), episodes=8)["standing"]
    assert [len(rows) for rows in commands] == [8] * 149 + [2] * 149
    assert all((rows[:, 0] > 0.5).all() for rows in commands[:149])
    assert not torch.stack(commands[149:]).any()
    assert (standing["episodes"], standing["seconds_per_episode"]) == (2, pytest.approx(2.98))
    assert 0.0 < standing["drift_m_s"]["mean"] < 0.05  # they settle at first
    assert standing["fall_rate"]["mean"] == 0.0
    scores = evaluate_policy(task, cfg, from_flat(falls_when_it_stands), episodes=4)
    assert scores["standing"]["fall_rate"]["mean"] == 1.0
    assert scores["fall_rate"]["mean"] < 1.0


def test_threads_of_torch_are_left_as_they_were():
    task = find_task(GO2)
    cfg = replace(task.preset("cpu").env, episode_s=0.1)
    torch.set_num_threads(2)  # the fixture puts it back
    evaluate_policy(task, cfg, from_flat(zero), episodes=1)
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError):
        evaluate_policy(task, cfg, from_flat(lambda obs: 1 / 0), episodes=1)
    assert torch.get_num_threads() == 2


def test_evaluation_is_repeatable():
    task = find_task(GO2)
    cfg = replace(task.preset("cpu").env, episode_s=0.6)
    one, two = (evaluate_policy(task, cfg, from_flat(zero), episodes=4) for _ in range(2))
    other = evaluate_policy(task, cfg, from_flat(zero), episodes=4, seed=3)
    assert one == two
    assert one["lin_vel_error_m_s"] != other["lin_vel_error_m_s"]


# -- what a resumed training carries over --------------------------------------------------------------------------


def test_levels_of_terrain_survive_a_resume():
    """A curriculum that judged the reset of a resume would move robots that have not walked to other levels."""
    wanted = torch.tensor([0, 2, 1, 2, 0, 1])
    states = []
    for _ in range(2):
        env, _ = build("velocity-rough-go2", num_envs=6, terrain_levels=3)
        with quietly():
            states.append((env, ManagedBatch(env)))
    env, vec_env = states[0]
    env.scene.terrain.terrain_levels[:] = wanted
    env.common_step_counter = 1234
    state = vec_env.training_state()
    env, vec_env = states[1]
    vec_env.restore_training_state(state)
    assert env.scene.terrain.terrain_levels.tolist() == wanted.tolist()
    assert env.common_step_counter == 1234
    origins = env.scene.terrain.terrain_origins[wanted, state["terrain_types"]]
    distance = (env.sim.data.qpos[:, :2] - origins[:, :2]).norm(dim=-1)
    assert (distance < 1.0).all()
    before = env.scene.terrain.terrain_levels.clone()
    env.reset()
    assert not torch.equal(env.scene.terrain.terrain_levels, before)  # and from here on the curriculum rules again

"""The goal tasks: rewards and ends by hand-made states, goals, levels, what is seen, and a training that exports."""

import math
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.evaluation.gate import check_static
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.structured import ConfigError
from gantry_mapping.elevation.grid import WINDOW_STEPS
from gantry_mapping.pipeline import uncertainty_of
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.goal import rewards, terminations
from gantry_sim.tasks.goal.cfg import GoalCfg, GroundCfg, RandomizeCfg, weights_of
from gantry_sim.tasks.goal.contract import goal_contract
from gantry_sim.tasks.goal.episodes import GoalLevels, in_cone, pick
from gantry_sim.tasks.goal.evaluation import spread_evenly
from gantry_sim.tasks.goal.ground import terrain_cfg
from gantry_sim.tasks.goal.observations import hide_far_heading
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.registry import find_task
from gantry_sim.terrains.catalogue import TESTS, HeldOutTerrainError
from gantry_sim.terrains.grid import assert_trainable
from gantry_sim.terrains.tile import MAP_GROUPS
from gantry_sim.training.run_folder import RunCfg, create_run
from gantry_sim.training.train import build_trainer, export_run, open_trained

NAMES = ("ame2-go2", "ame2-g1")
SMALL = GroundCfg(kinds=("boxes", "gap"), levels=2, columns=3, tile_m=(8.0, 8.0), start_levels=1)
STILL = RandomizeCfg(
    friction=(0.8, 0.8), added_mass_kg=(0.0, 0.0), com_offset_m=0.0, start_m=0.0, start_vel_m_s=0.0, start_joint_rad=0.0
)


pytestmark = pytest.mark.usefixtures("one_thread")


def build(name="ame2-go2", seed=1, **changes):
    task = find_task(name)
    given = {"num_envs": 4, "ground": SMALL, "randomize": STILL} | changes
    cfg = replace(task.preset("cpu").env, **given)
    with quietly():
        env = task.make_env(cfg, "cpu", seed).env
        env.reset()
    return env, cfg


@pytest.fixture(scope="module")
def made():
    # Joints that stay where they are put: legs that push are for tests of their own.
    return build(noise=None, gait="strides")[0]


@pytest.fixture
def env(made):
    """An environment that tests put into states of their own, at the beginning of an episode."""
    made.reset()
    made.episode_length_buf[:] = 0
    return made


def put(env, pos=None, yaw=0.0, velocity=None, spin=None, goal=None, heading=0.0, left_s=None):
    """The same state in every environment; the base is high in the air unless ``pos`` is given."""
    state, data = GoalState.of(env), env.sim.data
    index = env.robot.indexing
    q, v = index.free_joint_q_adr, index.free_joint_v_adr
    pos = (0.0, 0.0, 3.0) if pos is None else pos
    data.qpos[:, q] = torch.tensor([*pos, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])
    data.qvel[:, :] = 0.0
    if velocity is not None:
        data.qvel[:, v[:3]] = torch.tensor(velocity)
    if spin is not None:
        data.qvel[:, v[3:6]] = torch.tensor(spin)
    if left_s is not None:
        env.episode_length_buf[:] = round((env.max_episode_length * env.step_dt - left_s) / env.step_dt)
    if goal is not None:
        ids = torch.arange(env.num_envs)
        state.set_goals(ids, torch.tensor([goal]).repeat(len(ids), 1), torch.full((len(ids),), float(heading)))
    env.sim.forward()
    env.state_version += 1
    return GoalState.of(env)


# -- presets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["cpu", "gpu"])
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_builds_and_steps(name, preset):
    task = find_task(name)
    cfg = replace(task.preset(preset).env, num_envs=2, ground=SMALL)
    with quietly():
        env = task.make_env(cfg, "cpu", 1).env
        env.reset()
    contract = task.contract(cfg)
    sizes = {group: values.shape[1] for group, values in env.obs_buf.items()}
    maps = task.mirror(cfg)
    assert env.step_dt == pytest.approx(contract.dt_s)
    assert sizes == {"actor": contract.observation_size, "critic": len(maps["critic"].source)}
    assert len(maps["actor"].source) == sizes["actor"]
    assert set(env.reward_manager.active_terms) <= set(weights_of(cfg))
    for _ in range(5):
        obs, reward, *_ = env.step(0.5 * torch.randn(2, contract.action_size))
    assert torch.isfinite(obs["actor"]).all()
    assert torch.isfinite(obs["critic"]).all()
    assert torch.isfinite(reward).all()


@pytest.mark.parametrize("preset", ["cpu", "gpu"])
@pytest.mark.parametrize("name", NAMES)
def test_no_preset_trains_on_a_test(name, preset):
    cfg = find_task(name).preset(preset).env
    terrain = terrain_cfg(replace(cfg, ground=replace(cfg.ground, levels=1)), seed=1)
    assert_trainable(terrain)
    assert not cfg.ground.held_out
    with pytest.raises(ConfigError, match="test terrains are for evaluation"):
        replace(cfg, ground=replace(cfg.ground, held_out=TESTS))
    with pytest.raises(HeldOutTerrainError):
        GroundCfg(kinds=("boxes", TESTS[0]))


def test_the_observation_of_the_paper():
    cfg = find_task("ame2-go2").preset("gpu").env
    teacher = [(term.name, term.size, term.history, term.scale) for term in goal_contract(cfg).observations]
    assert [name for name, *_ in teacher] == [
        "base_lin_vel",
        "base_ang_vel",
        "projected_gravity",
        "joint_pos",
        "joint_vel",
        "last_action",
        "goal_command",
        "elevation_map",
    ]
    assert sum(size for _, size, *_ in teacher) == 49 + 36 * 14
    assert {scale for *_, scale in teacher} == {1.0}
    student = goal_contract(replace(cfg, observer="student")).observations
    assert [(term.name, term.size * term.history) for term in student] == [
        ("base_ang_vel", 60),
        ("projected_gravity", 60),
        ("joint_pos", 240),
        ("joint_vel", 240),
        ("last_action", 240),
        ("goal_command", 4),
        ("elevation_map", 2 * 36 * 14),
    ]


@pytest.mark.parametrize(
    ("changes", "sees"), [({}, False), ({"gait": "strides"}, True), ({"goal_velocity": None}, True)]
)
@pytest.mark.parametrize("observer", ["teacher", "student"])
def test_who_says_where_to_step_does_not_see_what_it_said(observer, changes, sees):
    cfg = replace(find_task("ame2-go2").preset("cpu").env, observer=observer, **changes)
    assert ("last_action" in [term.name for term in goal_contract(cfg).observations]) == sees


def test_a_misspelt_reward_or_terrain_is_named():
    with pytest.raises(UnknownNameError, match="'slipping'"):
        GoalCfg("go2", 4, reward_weights={"sliping": 1.0})
    with pytest.raises(UnknownNameError, match="'stones'"):
        GroundCfg(kinds=("stone",))


# -- rewards -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left_s", "expected"), [(3.0, 0.5 / 4.0), (5.0, 0.0)])
def test_position_counts_in_the_last_four_seconds(env, left_s, expected):
    put(env, goal=(1.2, 1.6, 0.0), left_s=left_s)  # 2 m away
    torch.testing.assert_close(rewards.position_tracking(env), torch.full((4,), expected))


@pytest.mark.parametrize(
    ("goal", "left_s", "expected"),
    [((0.4, 0.0, 0.0), 1.0, 0.5 / 2.0), ((0.6, 0.0, 0.0), 1.0, 0.0), ((0.4, 0.0, 0.0), 3.0, 0.0)],
)
def test_heading_counts_at_the_goal_in_the_last_two_seconds(env, goal, left_s, expected):
    put(env, yaw=0.5, goal=goal, heading=-0.5, left_s=left_s)  # an error of 1 rad
    torch.testing.assert_close(rewards.heading_tracking(env), torch.full((4,), expected))


@pytest.mark.parametrize(
    ("goal", "velocity", "expected"),
    [
        ((5.0, 0.0, 0.0), (1.0, 0.0, 0.0), 1.0),
        ((5.0, 0.0, 0.0), (0.2, 0.0, 0.0), 0.0),  # too slow
        ((5.0, 0.0, 0.0), (2.1, 0.0, 0.0), 0.0),  # too fast
        ((5.0, 0.0, 0.0), (0.52, 0.87, 0.0), 1.0),  # 59 degrees off
        ((5.0, 0.0, 0.0), (0.48, 0.87, 0.0), 0.0),  # 61 degrees off
        ((0.3, 0.3, 0.0), (0.0, 0.0, 0.0), 1.0),  # there
    ],
)
def test_moving_to_the_goal(env, goal, velocity, expected):
    put(env, yaw=1.0, velocity=velocity, goal=goal)
    assert rewards.move_to_goal(env).tolist() == [expected] * 4


@pytest.mark.parametrize(
    ("goal", "velocity", "expected"),
    [
        ((3.0, 4.0, 0.0), (0.4, 0.0, 0.0), 0.3),  # 0.24 m/s towards it
        ((3.0, 4.0, 0.0), (-0.4, 0.0, 0.0), -0.3),
        ((3.0, 4.0, 0.0), (0.0, 0.0, 0.0), 0.0),
        ((5.0, 0.0, 0.0), (1.5, 0.0, 0.0), 1.0),
        ((0.3, 0.3, 0.0), (-0.2, 0.0, 0.0), 1.0),  # there
    ],
)
def test_approaching_the_goal(env, goal, velocity, expected):
    put(env, yaw=1.0, velocity=velocity, goal=goal)
    torch.testing.assert_close(rewards.approach(env), torch.full((4,), expected), atol=1e-4, rtol=0)


def test_standing_at_the_goal(env):
    default = tuple(GoalState.of(env).joint_pos[0].tolist())
    shifted = tuple(value + 0.2 for value in default)
    put(env, goal=(0.3, 0.0, 0.0))
    expected = math.exp(-0.25 * (1.0 + 0.0 + 0.2 + 0.3))  # feet in the air, upright, joints 0.2 rad off, 0.3 m away
    torch.testing.assert_close(rewards.stand_at_goal(env, shifted), torch.full((4,), expected), atol=1e-4, rtol=0)
    put(env, goal=(0.3, 0.0, 0.0), heading=0.6)
    assert not rewards.stand_at_goal(env, shifted).any()


def test_spinning_and_rolling(env):
    put(env, spin=(0.5, 0.0, -2.1))
    assert rewards.spinning(env, 2.0).tolist() == [1.0] * 4
    assert not rewards.spinning(env, 3.0).any()
    torch.testing.assert_close(rewards.base_roll_rate(env), torch.full((4,), 0.25))


def test_limits_shrink_about_the_middle_of_the_range(env):
    state = GoalState.of(env)
    calf = [i for i, name in enumerate(state.names.spec.joint_names) if "calf" in name]
    q = env.sim.data.qpos[:, state._q]
    q[:, calf] = -0.85  # both limits are negative, and this is nearly the upper one
    env.sim.data.qpos[:, state._q] = q
    env.state_version += 1
    lower, upper = (tuple(state.names.spec.array(name).tolist()) for name in ("lower_rad", "upper_rad"))
    middle, half = 0.5 * (-2.7227 - 0.83776), 0.475 * (2.7227 - 0.83776)
    expected = 4 * (-0.85 - middle - half)
    assert expected > 0.1
    torch.testing.assert_close(
        rewards.joint_pos_limit(env, lower, upper), torch.full((4,), expected), atol=1e-5, rtol=0
    )


def test_a_robot_in_the_air_leaps_and_touches_nothing(env):
    put(env, pos=(*GoalState.of(env).sites.spawn[0, 0, :2].tolist(), 3.0))
    env.sim.sense()
    env.state_version += 1
    window = GoalState.of(env).window("true_map")
    assert float(window.amax() - window.amin()) < 0.3
    assert rewards.leaping(env).tolist() == [1.0] * 4
    for term in (rewards.body_contact, rewards.stumbling, rewards.contact_force, rewards.slipping):
        assert not term(env).any()


def test_accelerations_are_those_of_a_fall_and_start_with_the_third_step(env):
    with torch.inference_mode():
        state, everyone = put(env, pos=(0.0, 0.0, 30.0)), torch.arange(4)
        spawn = state.sites.spawn[env.scene.terrain.terrain_levels, env.scene.terrain.terrain_types]
        state.set_goals(everyone, spawn[:, :3], torch.zeros(4))  # all at their goals, so that the clock rests
        env.sim.data.qpos[:, env.robot.indexing.free_joint_q_adr[:2]] = spawn[:, :2]
        env.sim.data.qpos[:, state._q] = torch.tensor(state.contract.action.offset_rad)  # where zero actions keep them
        env.sim.forward()
        state.reset(everyone)
        found = []
        for _ in range(5):
            env.step(torch.zeros(4, 12))
            found.append(GoalState.of(env).motion.link_acc[:, 0, 2].clone())
    assert not torch.stack(found[:2]).any()
    torch.testing.assert_close(found[-1], torch.full((4,), -9.81), atol=0.1, rtol=0)


# -- early ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roll", "pitch", "expected"),
    [(0.7, 0.0, False), (0.85, 0.0, True), (0.0, 1.3, False), (0.0, 1.45, True), (0.0, 3.0, True)],
)
def test_bad_orientation(env, roll, pitch, expected):
    put(env)
    a, b = roll / 2, pitch / 2
    quat = [math.cos(a) * math.cos(b), math.sin(a) * math.cos(b), math.cos(a) * math.sin(b), 0.0]
    env.sim.data.qpos[:, env.robot.indexing.free_joint_q_adr[3:7]] = torch.tensor(quat)
    env.state_version += 1
    assert not terminations.bad_orientation(env).any()  # not yet
    env.episode_length_buf[:] = 11
    assert terminations.bad_orientation(env).tolist() == [expected] * 4


def test_below_the_floor_and_beside_the_tile(env):
    state = GoalState.of(env)
    terrain = env.scene.terrain
    floor = state.sites.floor_z_m[terrain.terrain_levels, terrain.terrain_types]
    x, y, _, _ = state.sites.spawn[terrain.terrain_levels[0], terrain.terrain_types[0]].tolist()
    put(env, pos=(x, y, float(floor[0]) - 0.51))
    assert bool(terminations.fell_through(env)[0])
    put(env, pos=(x, y, float(floor[0]) - 0.49))
    assert not bool(terminations.fell_through(env)[0])
    put(env, pos=(x, y + 4.2, 1.0))
    assert not bool(terminations.off_tile(env, (8.0, 8.0))[0])
    put(env, pos=(x, y + 4.4, 1.0))
    assert bool(terminations.off_tile(env, (8.0, 8.0))[0])


def test_standing_still_far_from_the_goal_ends(env):
    """Five seconds in the same place, a robot that is held up by nobody: it just stands."""
    state = GoalState.of(env)
    with torch.inference_mode():
        state.set_goals(torch.arange(4), state.pos_w + torch.tensor([0.5, 0.0, 0.0]), torch.zeros(4))
        for step in range(252):
            env.step(torch.zeros(4, 12))
            assert not terminations.stagnation(env, 0.5).any(), step  # near the goal it may
        state = GoalState.of(env)
        assert (state.motion.moved_m < 0.5).all()
        state.set_goals(torch.arange(4), state.pos_w + torch.tensor([3.0, 0.0, 0.0]), torch.zeros(4))
        GoalState.of(env)
        assert terminations.stagnation(env, 0.5).all()


# -- goals and levels ----------------------------------------------------------------------------------------------


def test_a_cone_and_a_choice_within_it():
    offset = torch.tensor([[[4.0, 0.5], [4.0, 1.5], [-4.0, 0.0]], [[0.5, 4.0], [4.0, 0.0], [0.0, -4.0]]])
    allowed = in_cone(offset, torch.tensor([0.0, math.pi / 2]), math.atan(0.25))
    assert allowed.tolist() == [[True, False, False], [True, False, False]]
    torch.manual_seed(0)
    assert pick(allowed.repeat(20, 1)).unique().tolist() == [0]
    assert len(pick(torch.zeros(40, 3, dtype=torch.bool)).unique()) == 3


def test_goals_are_those_of_the_tile_and_headings_within_a_third_of_a_turn(env):
    state, terrain = GoalState.of(env), env.scene.terrain
    for _ in range(5):
        env.reset()
        goals = state.sites.goals[terrain.terrain_levels, terrain.terrain_types]
        distance = (goals - state.goal_pos_w[:, None]).norm(dim=-1).amin(-1)
        assert not distance.any()
        assert (state.goal_yaw.abs() < 1.048).all()
        assert (GoalState.of(env).command[:, :2].norm(dim=-1) > 4.0).all()


def judge(env, distance, before):
    """Levels and running success after episodes that end at these distances; every robot was on level 1 of 3."""
    state, terrain = GoalState.of(env), env.scene.terrain
    terrain.max_terrain_level = 9
    terrain.terrain_levels[:] = 1
    state.success_ema[:] = torch.tensor(before)
    spots = state.pos_w + torch.tensor(distance)[:, None] * torch.tensor([1.0, 0.0, 0.0])
    state.set_goals(torch.arange(4), spots, torch.zeros(4))
    term = GoalLevels(None, env)
    ids = torch.arange(4)
    origins = terrain.terrain_origins
    terrain.terrain_origins = torch.zeros(9, 3, 3)
    try:
        term(env, ids, 0.2)
        first = terrain.terrain_levels.tolist()
        term(env, ids, 0.2)
    finally:
        terrain.terrain_origins = origins
        terrain.max_terrain_level = 2
    levels, success = terrain.terrain_levels.tolist(), state.success_ema.tolist()
    terrain.terrain_levels[:] = 0
    return first, levels, success


def test_levels_follow_success(env):
    first, levels, success = judge(env, [0.4, 0.4, 2.0, 4.5], [0.5, 0.1, 0.9, 0.9])
    assert first == [1, 1, 1, 1]  # episodes that began in the middle are not judged
    assert levels == [2, 1, 1, 0]  # arrived and good on average; arrived by chance; came near; stayed far away
    assert success == pytest.approx([0.6, 0.28, 0.72, 0.72])


def test_evaluation_spreads_over_kinds_and_levels():
    env, _ = build(num_envs=12, curriculum=False)
    spread_evenly(env)
    terrain, kinds = env.scene.terrain, GoalState.of(env).sites.kinds
    found = sorted(
        (kinds[column], level) for column, level in zip(terrain.terrain_types, terrain.terrain_levels, strict=True)
    )
    assert found == [(kind, level) for kind in ("boxes", "gap") for level in (0, 1) for _ in range(3)]


# -- what is seen --------------------------------------------------------------------------------------------------


def test_the_window_shows_what_rays_hit_at_its_cells(env):
    x, y = (float(value) for value in env.scene.terrain.terrain_origins[1, 0, :2])
    state = put(env, pos=(x + 1.5, y, 0.4), yaw=0.7)
    env.sim.sense()
    env.state_version += 1
    window = GoalState.of(env).window("true_map")[0].numpy()
    model, data = env.ground_model, mujoco.MjData(env.ground_model)
    mujoco.mj_forward(model, data)
    groups = np.isin(np.arange(6), MAP_GROUPS).astype(np.uint8)
    expected = np.empty((18, 10))
    for i in range(18):
        for j in range(10):
            ahead, left = 0.4 + (i - 8.5) * 0.08, (j - 4.5) * 0.08  # the paper's frame: rows ahead, columns to the left
            px = x + 1.5 + math.cos(0.7) * ahead - math.sin(0.7) * left
            py = y + math.sin(0.7) * ahead + math.cos(0.7) * left
            hit = mujoco.mj_ray(
                model, data, np.array([px, py, 9.0]), np.array([0.0, 0, -1]), groups, 1, -1, np.zeros(1, np.int32)
            )
            expected[i, j] = 9.0 - hit - 0.4 + 0.27
    assert WINDOW_STEPS.shape == (18, 10)
    assert np.ptp(expected) > 0.05
    assert np.mean(np.abs(window - expected.clip(-2, 2)) < 1e-4) > 0.96  # a ray on an edge may go either way
    assert state.contract.map_window.nominal_base_height_m == 0.27


def test_far_goals_have_a_heading_of_no_meaning():
    torch.manual_seed(0)
    far = torch.tensor([[3.0, 0.0, 0.0, 1.0]]).repeat(500, 1)
    near = torch.tensor([[1.9, 0.0, 0.6, 0.8]]).repeat(5, 1)
    hidden = hide_far_heading(far)
    torch.testing.assert_close(hidden[:, :2], far[:, :2])
    torch.testing.assert_close(hidden[:, 2:].norm(dim=-1), torch.ones(500))
    assert hidden[:, 2:].mean(0).abs().max() < 0.1
    assert torch.equal(hide_far_heading(near), near)


def test_uncertainty_is_half_the_log_of_the_variance():
    found = uncertainty_of(torch.tensor([1e-9, 0.01, 1.0, 2.0, 50.0]))
    torch.testing.assert_close(found, torch.tensor([-1.8026, -1.8026, 0.5, 0.8466, 0.8466]), atol=1e-4, rtol=0)


def test_a_student_trains_beside_its_teachers_view():
    env, cfg = build(observer="student", history=3)
    contract = goal_contract(cfg)
    teacher = goal_contract(replace(cfg, observer="teacher"))
    obs = env.obs_buf
    assert obs["actor"].shape[1] == contract.observation_size
    assert obs["teacher"].shape[1] == teacher.observation_size
    cells = obs["actor"][:, -224:].view(4, 112, 2)
    assert ((cells[..., 1] >= -1.81) & (cells[..., 1] <= 0.85)).all()


def test_mirrored_robots_see_and_do_mirrored_things():
    """Two robots on the flat border, one the other's mirror image, with mirrored actions: so stay all observations."""
    env, cfg = build(num_envs=2, goal_velocity=None, noise=None, curriculum=False)
    maps = find_task("ame2-go2").mirror(cfg)
    swap, sign = torch.tensor(maps["action"].source), torch.tensor(maps["action"].sign)
    state, data = GoalState.of(env), env.sim.data
    index = env.robot.indexing
    spawn = state.sites.spawn[0, 0]
    env.scene.terrain.terrain_types[:], env.scene.terrain.terrain_levels[:] = 0, 0  # both on the same tile
    generator = torch.Generator().manual_seed(3)
    with torch.inference_mode():
        put(env, pos=(float(spawn[0]) - 2.5, float(spawn[1]), 0.3))
        joints = data.qpos[:1, state._q] + 0.1 * torch.randn(1, 12, generator=generator)
        data.qpos[:, state._q] = torch.cat((joints, joints[:, swap] * sign))
        data.qpos[:, index.free_joint_q_adr[3:7]] = torch.tensor([[0.99, 0.02, 0.03, 0.1], [0.99, -0.02, 0.03, -0.1]])
        env.state_version += 1
        goals = state.pos_w + torch.tensor([[4.0, 1.0, 0.0], [4.0, -1.0, 0.0]])
        state.set_goals(torch.arange(2), goals, torch.tensor([0.4, -0.4]))
        for _ in range(12):
            action = torch.randn(1, 12, generator=generator)
            obs = env.step(torch.cat((action, action[:, swap] * sign)))[0]
    assert float(GoalState.of(env).foot_contact.sum()) > 0
    for group in ("actor", "critic"):
        source, signs = torch.tensor(maps[group].source), torch.tensor(maps[group].sign)
        torch.testing.assert_close(obs[group][0, source] * signs, obs[group][1], atol=3e-3, rtol=0)


# -- training ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("observer", ["teacher", pytest.param("student", marks=pytest.mark.soak)])
def test_a_short_training_exports_a_bundle_that_the_runtime_repeats(tmp_path, observer):
    task = find_task("ame2-go2")
    preset = task.preset("cpu")
    few = replace(preset.env, num_envs=8, ground=SMALL, observer=observer, history=5)
    learner = replace(preset.learner, total_steps=400, steps_per_env=24)
    cfg = RunCfg(task, "cpu", replace(preset, env=few, learner=learner), "cpu", 1)
    folder = create_run(cfg, tmp_path / "run")
    with quietly():
        runner = build_trainer(cfg, folder)
    losses = []
    assert runner.train(lambda progress: losses.append(progress.metrics["loss_value"]))
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    stages = []
    trained = open_trained(folder, runner)[1]
    check_static(lambda: load_bundle(export_run(cfg, folder, trained)), stages.append)
    assert {stage.name: stage.passed for stage in stages if not stage.skipped} == dict.fromkeys(
        ("manifest", "contract", "network", "observation", "joint targets", "memory"), True
    )

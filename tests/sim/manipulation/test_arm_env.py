"""Manipulation environments: episodes, their ends and their seeds, and the runtime's own code inside them."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.actions.arm import ArmDecoder
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.builder import ObservationBuilder, Signals
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.structured import ConfigError
from gantry_policies.common.batched_env import STATE
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.cfg import ArmCfg, RandomizeCfg
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.manipulation.experts import make_expert
from gantry_sim.tasks.manipulation.presets import INSERT, LIFT, PICK_PLACE, PUSH
from gantry_sim.tasks.manipulation.workbench import OBJECT, PADS

pytestmark = pytest.mark.usefixtures("one_thread")

N = 4
SHORT = replace(LIFT.usual_env(), num_envs=N, episode_s=0.5)
"""Ten steps an episode."""


@pytest.fixture(scope="module")
def short():
    made = ArmStepEnv(SHORT, seed=7)
    yield made
    made.close()


def place_object(env, pos, quat=(1.0, 0.0, 0.0, 0.0)):
    """Put every object somewhere, at rest, and let the task look."""
    env.env.sim.data.qpos[:, env.state.things.qpos_ids[0]] = torch.tensor([*pos, *quat])
    env.env.sim.data.qvel[:] = 0.0
    env.env.state_version += 1
    env.state.refresh()


def object_in(observation, contract):
    """The object's place as the policy sees it, (N, 3), m."""
    start = 0
    for term in contract.observations:
        if term.name == "object_pos":
            return observation[STATE][:, start : start + 3] / term.scale
        start += term.size
    raise AssertionError("no such term")


# -- ends ------------------------------------------------------------------------------------------------------------


def test_an_episode_that_runs_out_of_time_is_truncated_and_shows_what_it_ended_in(short):
    first = short.reset()
    up = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(N, 1)
    height = 3 * 7 + 2  # of the end effector, after three terms of the joints
    for age in range(1, short.max_episode_steps + 1):
        step = short.step(up)
        if age < short.max_episode_steps:
            assert step.obs is step.next_obs
            assert not (step.terminated | step.truncated).any()
    assert short.max_episode_steps == 10
    assert step.truncated.all()
    assert not step.terminated.any()
    assert not step.success.any()
    assert (step.next_obs[STATE][:, height] > first[STATE][:, height] + 5.0 * 0.02).all()  # the arm has come up ...
    home = 5.0 * 0.17
    assert (step.obs[STATE][:, height] < home + 5.0 * 0.031).all()  # ... and the next episode begins below
    assert not torch.equal(step.obs[STATE], first[STATE])
    later = short.step(up)
    assert torch.equal(short.env.episode_length_buf, torch.ones(N, dtype=torch.long))
    assert not later.truncated.any()


def test_success_terminates_and_only_the_ended_environment_begins_anew(short):
    short.reset()
    still = torch.zeros(N, 4)
    short.step(still)
    lifted = short.state.ee_pos[1].tolist()
    before = short.env.sim.data.qpos.clone()
    short.env.sim.data.qpos[1, short.state.things.qpos_ids[0]] = torch.tensor([*lifted, 1.0, 0.0, 0.0, 0.0])
    short.env.sim.data.qvel[1] = 0.0
    step = short.step(still)
    only = torch.tensor([False, True, False, False])
    assert torch.equal(step.success, only)
    assert torch.equal(step.terminated, only)
    assert not step.truncated.any()
    assert torch.equal(step.reward, only.float())
    contract = short.state.contract
    assert object_in(step.next_obs, contract)[1, 2] > 0.12
    assert object_in(step.obs, contract)[1, 2] == pytest.approx(0.02, abs=1e-3)
    assert torch.equal(step.obs[STATE][~only], step.next_obs[STATE][~only])
    assert torch.equal(short.env.episode_length_buf, torch.tensor([2, 0, 2, 2]))
    assert not torch.equal(before[0], short.env.sim.data.qpos[0])


def test_an_object_out_of_reach_ends_the_episode_without_success(short):
    short.reset()
    short.env.sim.data.qpos[2, short.state.things.qpos_ids[0, 0]] = 0.8
    step = short.step(torch.zeros(N, 4))
    assert step.terminated.tolist() == [False, False, True, False]
    assert not step.success.any()
    assert float(step.reward.sum()) == 0.0


def test_wrong_actions_and_orders_are_refused():
    env = ArmStepEnv(replace(SHORT, num_envs=2))
    with pytest.raises(GantryError, match="never reset"):
        env.step(torch.zeros(2, 4))
    env.reset()
    with pytest.raises(GantryError, match=r"shape \(2, 7\), expected \(2, 4\)"):
        env.step(torch.zeros(2, 7))


def test_configurations_that_make_no_sense_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'lift'"):
        ArmCfg("lfit")
    with pytest.raises(UnknownNameError, match="camera"):
        ArmCfg("lift", cameras=("back",))
    with pytest.raises(ConfigError, match="whole number"):
        ArmCfg("lift", rate_hz=30.0)
    with pytest.raises(ConfigError, match="smaller number first"):
        RandomizeCfg(mass=(2.0, 1.0))


# -- seeds -----------------------------------------------------------------------------------------------------------


def test_the_seed_decides_the_episodes_whatever_the_policy_does_and_a_learner_draws():
    def begin(seed, action, draws):
        env = ArmStepEnv(SHORT, seed)
        seen = [env.reset()[STATE][0]]
        while len(seen) < 3:
            torch.randn(draws)
            step = env.step(action)
            if (step.terminated | step.truncated)[0]:
                seen.append(step.obs[STATE][0])
        return torch.stack(seen), env.env.sim.model.body_mass.clone()

    one, mass = begin(3, torch.zeros(N, 4), 1)
    two, same_mass = begin(3, torch.ones(N, 4), 5)
    torch.testing.assert_close(one, two, atol=1e-6, rtol=0)
    assert torch.equal(mass, same_mass)
    assert not torch.equal(one[0], one[1])
    other, _ = begin(4, torch.zeros(N, 4), 1)
    assert not torch.equal(one[0], other[0])


def test_building_an_environment_leaves_the_learners_random_numbers_alone():
    def draw():
        return float(torch.rand(1)), float(np.random.rand()), random.random()

    def seed():
        torch.manual_seed(5)
        np.random.seed(5)
        random.seed(5)

    seed()
    wanted = draw()
    seed()
    ArmStepEnv(replace(SHORT, num_envs=1))
    assert draw() == wanted


def test_physics_differs_between_environments_and_episodes_within_its_ranges(short):
    short.reset()
    model, chance = short.env.sim.mj_model, short.cfg.randomize
    seen = []
    for _ in range(3):
        short.reset()
        sim = short.env.sim.model
        pad = sim.geom_friction[:, model.geom(f"robot/{PADS[0]}").id, 0]
        table = sim.geom_friction[:, model.geom(OBJECT).id, 0]
        torch.testing.assert_close(table, 0.6 * pad)
        mass = sim.body_mass[:, model.body(OBJECT).id] / 0.05
        gain = sim.actuator_gainprm[:, 0, 0] / 80.0
        torch.testing.assert_close(sim.actuator_biasprm[:, 0, 1], -80.0 * gain)
        seen.append(torch.stack((pad, mass, gain)))
    values = torch.cat(seen, dim=1)
    for row, (low, high) in zip(values, (chance.friction, chance.mass, chance.stiffness), strict=True):
        assert low <= float(row.min()) < float(row.max()) <= high
        assert len(row.unique()) == 3 * N


# -- the runtime's own code ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["ee", "ee-turn", "joint", "joint-absolute"])
def test_the_runtime_decodes_and_observes_as_training_does(action):
    """Row by row in numpy, from the contract's JSON, what the environments do in torch."""
    env = ArmStepEnv(replace(PICK_PLACE.usual_env(), num_envs=2, action=action))
    seen = env.reset()
    contract = PolicyContract.from_json(env.state.contract.to_json())
    like = np.zeros((1, 1), dtype=np.float32)
    decoder, builder = ArmDecoder(contract, like), ObservationBuilder(contract, like)
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        state = env.state
        joints, targets = state.joint_pos[:1].numpy(), state.decoder.targets[:1].numpy()
        signals = Signals(
            joint_pos_rad=joints,
            joint_vel_rad_s=state.joint_vel[:1].numpy(),
            quat_base_to_world_wxyz=np.array([[1.0, 0.0, 0.0, 0.0]], np.float32),
            ang_vel_base_in_base_rad_s=np.zeros((1, 3), np.float32),
            command=state.goal[:1].numpy(),
            last_action=np.zeros((1, contract.action_size), np.float32),
            time_s=np.zeros(1, np.float32),
            joint_target_rad=targets,
            object_pose_in_base=state.object_pose[:1].numpy(),
        )
        np.testing.assert_allclose(builder(signals)[0], seen[STATE][0].numpy(), atol=1e-5)
        act = torch.rand(2, env.action_size, generator=generator) * 3.0 - 1.5
        decoder.reset(targets)
        seen = env.step(act).next_obs
        mine = decoder.follow(act[:1].numpy(), joints)
        np.testing.assert_allclose(mine, env.env.action_manager.get_term("arm").targets[:1].numpy(), atol=1e-5)


def test_contracts_and_observations_have_the_same_size():
    for task in (LIFT, PUSH, PICK_PLACE, INSERT):
        for observer in ("state", "camera"):
            cfg = replace(task.usual_env(), observer=observer)
            contract = arm_contract(cfg)
            assert contract.action_size == 4
            assert contract.body is not None
            assert [camera.name for camera in contract.cameras] == (["wrist", "front"] if observer == "camera" else [])
            names = [term.name for term in contract.observations]
            assert ("object_pos" in names) == (observer == "state")
            assert ("object_goal" in names) == (cfg.task != "lift")


# -- rules -----------------------------------------------------------------------------------------------------------


def test_what_counts_as_lifted_and_what_is_rewarded_densely():
    cfg = replace(SHORT, num_envs=1, reward="dense", end_on_success=False, randomize=RandomizeCfg(start_m=0.0))
    env = ArmStepEnv(cfg)
    env.reset()
    x, y, _ = env.state.ee_pos[0].tolist()
    rule, progress = env.state.rule, []
    for height, wanted in ((0.02, False), (0.119, False), (0.121, True)):
        place_object(env, (x, y, height))
        assert rule.success(env.state).tolist() == [wanted]
        progress.append(float(rule.progress(env.state)))
    assert 0.0 <= progress[0] < progress[1] < progress[2] <= 1.0
    place_object(env, (x - 0.06, y, 0.2))  # high, but in nobody's hand
    assert not rule.success(env.state).any()
    place_object(env, env.state.ee_pos[0].tolist())
    step = env.step(torch.tensor([[0.0, 0.0, 0.0, -1.0]]))
    assert step.success.all()
    assert not step.terminated.any()  # the episode goes on
    assert float(step.reward) == 1.0, "the first step of the episode: no change of progress yet"
    place_object(env, (env.state.ee_pos[0, 0], env.state.ee_pos[0, 1], 0.02))
    env.state.refresh()
    low = float(rule.progress(env.state))
    step = env.step(torch.tensor([[0.0, 0.0, 0.0, -1.0]]))
    assert float(step.reward) == pytest.approx(float(rule.progress(env.state)) - 1.0), "back from the end of it"
    assert float(step.reward) < low - 0.9


def test_dense_rewards_of_an_episode_add_up_to_its_progress_and_success():
    """Waiting next to the end earns nothing: the rewards of an episode are the progress from its first step, and 1."""
    env = ArmStepEnv(
        replace(SHORT, num_envs=1, reward="dense", end_on_success=False, randomize=RandomizeCfg(start_m=0.0))
    )
    env.reset()
    x, y, _ = env.state.ee_pos[0].tolist()
    total, first = 0.0, None
    for height in (0.02, 0.05, 0.05, 0.05, 0.08):
        place_object(env, (x, y, height))
        reward = float(env.step(torch.tensor([[0.0, 0.0, 0.0, -1.0]])).reward)
        first = float(env.state.rule.progress(env.state)) if first is None else first
        total += reward
    assert total == pytest.approx(float(env.state.rule.progress(env.state)) - first, abs=1e-6)


def test_a_hand_that_can_push_has_come_farther_than_one_in_front_or_over():
    env = ArmStepEnv(replace(PUSH.usual_env(), num_envs=1))
    env.reset()
    rule, state, half = env.state.rule, env.state, env.state.rule.half_m[0]

    def progress(shift_x_m, away_m):
        """Of a hand beside the cube, towards the goal if positive, and a goal ahead of the cube."""
        state.refresh()
        x, y, z = state.ee_pos[0].tolist()
        state.goal[0] = torch.tensor([x - shift_x_m + away_m, y, z])
        place_object(env, (x - shift_x_m, y, z))
        return float(rule.progress(state))

    behind, over, ahead = (progress(shift, 0.1) for shift in (-half - 0.015, 0.0, half + 0.015))
    assert behind > over > ahead
    assert behind == pytest.approx(0.3 + 0.7 * (1.0 - np.tanh(0.1 / 0.2)), abs=1e-3)
    nearer = progress(-half - 0.015, 0.05)
    assert nearer - behind == pytest.approx(0.7 * (np.tanh(0.5) - np.tanh(0.25)), abs=1e-3)


def test_what_counts_as_placed_pushed_and_inserted():
    place = ArmStepEnv(replace(PICK_PLACE.usual_env(), num_envs=1))
    place.reset()
    goal = place.state.goal[0].tolist()
    assert goal[2] == pytest.approx(0.06)  # on top of a stand of 4 cm
    for shift, wanted in (
        ((0.0, 0.0, 0.0), True),
        ((0.015, 0.0, 0.0), True),
        ((0.015, 0.015, 0.0), False),
        ((0, 0, 0.02), False),
    ):
        place_object(place, np.add(goal, shift).tolist())
        assert place.state.rule.success(place.state).tolist() == [wanted]
    place_object(place, goal)
    place.env.sim.data.qpos[:, 6] = 0.02  # not let go yet
    place.env.state_version += 1
    place.state.refresh()
    assert not place.state.rule.success(place.state).any()

    push = ArmStepEnv(replace(PUSH.usual_env(), num_envs=1))
    push.reset()
    goal = push.state.goal[0].tolist()
    for shift, wanted in (((0.024, 0, 0), True), ((0.026, 0, 0), False), ((0, 0, 0.05), False)):
        place_object(push, np.add(goal, shift).tolist())
        assert push.state.rule.success(push.state).tolist() == [wanted]

    insert = ArmStepEnv(replace(INSERT.usual_env(), num_envs=1))
    insert.reset()
    hole = insert.state.goal[0].tolist()
    # The tip is 25 mm below the edge, 40 mm above the table, where the middle of the 80 mm long peg is at 55 mm.
    for shift, height, wanted in ((0.0, 0.0549, True), (0.0, 0.0551, False), (0.006, 0.05, False)):
        place_object(insert, (hole[0] + shift, hole[1], height))
        assert insert.state.rule.success(insert.state).tolist() == [wanted]
    place_object(insert, (0.3, 0.0, 0.04))
    assert insert.state.rule.lost(insert.state).all()  # it lies on the table, and the hand is elsewhere


def test_a_held_peg_stays_in_the_hand_until_it_is_let_go():
    env = ArmStepEnv(replace(INSERT.usual_env(), num_envs=2))
    env.reset()
    held = env.state.object_from_ee.clone()
    for _ in range(15):
        step = env.step(torch.tensor([[0.3, 0.3, 0.0, -1.0]]).repeat(2, 1))
    assert not step.terminated.any()
    assert (env.state.object_from_ee - held).norm(dim=-1).max() < 0.005
    for _ in range(20):
        step = env.step(torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, -1.0]]))
        if step.terminated[0]:
            break
    assert step.terminated.tolist() == [True, False]


def test_motors_that_obey_late_move_a_step_later():
    moves = []
    for share in (0.0, 1.0):
        chance = RandomizeCfg(late_share=share, stiffness=(1.0, 1.0), damping=(1.0, 1.0))
        env = ArmStepEnv(replace(SHORT, num_envs=1, randomize=chance), seed=7)
        env.reset()
        heights = [float(env.state.ee_pos[0, 2])]
        for _ in range(5):
            env.step(torch.tensor([[0.0, 0.0, 1.0, 1.0]]))
            heights.append(float(env.state.ee_pos[0, 2]))
        moves.append(np.diff(heights))
    prompt, late = moves
    assert abs(late[0]) < 1e-4 < prompt[0]
    # Not quite the same motion a step later: the target may lead the arm by so much only.
    np.testing.assert_allclose(late[1:3], prompt[:2], atol=2e-3)


def test_noise_on_the_object_is_seen_and_not_felt():
    env = ArmStepEnv(replace(SHORT, object_noise_m=0.01), seed=7)
    contract = env.state.contract
    off = object_in(env.reset(), contract) - env.state.object_pos
    assert 0.002 < float(off.abs().max()) <= 0.0101
    assert make_expert(env.state).suboptimality == 0.0

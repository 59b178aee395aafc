"""A correction session on the simulated workbench: every step is what was really sent, whoever acted."""

import numpy as np
import pytest

from gantry_deploy.session.states import SessionState
from gantry_deploy.session.steps import Actor
from gantry_deploy.teleop.operator import TeleopEvent
from gantry_fixtures.sessions import Bench, hand

SEED = 5


@pytest.fixture
def bench():
    made = Bench("yam-pick-place", episode_s=4.0)
    made.start()
    yield made
    made.robot.close()


def test_a_correction_of_two_steps_is_kept_inside_the_whole_attempt(bench: Bench):
    bench.device.script = {5: hand(x=1.0), 6: hand(y=-0.5)}
    bench.run_ticks(100)
    first = bench.kept.attempt(0)
    by_person = [step for step in first if step.actor is Actor.PERSON]
    assert [step.index for step in by_person] == [by_person[0].index, by_person[0].index + 1]
    assert first[-1].is_last
    assert first[-1].last_obs is not None
    assert [step.index for step in first] == list(range(len(first)))
    np.testing.assert_allclose(by_person[0].action[:3], [1.0, 0.0, 0.0], atol=1e-4)
    np.testing.assert_allclose(by_person[1].action[:3], [0.0, -0.5, 0.0], atol=1e-4)
    assert not np.allclose(by_person[0].policy_action[:3], by_person[0].action[:3], atol=1e-2)


def test_no_target_moves_farther_than_the_slew_limit_at_any_change_of_the_actor(bench: Bench):
    rng = np.random.default_rng(SEED)
    for tick in range(1, 200):
        if tick % 7 < 3:
            motion = dict(zip(("x", "y", "z", "gripper"), rng.uniform(-1.0, 1.0, 4), strict=True))
            bench.device.script[tick] = hand(**motion)
    before = len(bench.sent)
    bench.run_ticks(70)
    assert bench.session.tally.corrections > 5, f"seed {SEED}"
    arm = bench.session.parts.contract.body
    limit = np.array([*(arm.max_step_rad,) * (len(bench.sent[0]) - 1), arm.gripper_step_m])
    steps = np.abs(np.diff(np.array(bench.sent[before:]), axis=0))
    assert (steps <= limit + 1e-6).all(), f"seed {SEED}: {steps.max(axis=0)}"


def test_a_gripper_stays_as_it_is_when_the_person_takes_over(bench: Bench):
    while bench.kept.steps[-1].action[-1] > -0.9:  # until the policy closes it
        bench.run_ticks(1)
    bench.run_ticks(3)
    before = bench.sent[-1][-1]
    bench.device.script = {bench.device.ticks + tick: hand(z=0.5) for tick in range(1, 9)}
    bench.run_ticks(8)
    assert bench.session.state is SessionState.CORRECTING
    assert np.abs(np.array(bench.sent[-8:])[:, -1] - before).max() < 1e-4


def test_verdicts_of_the_person(bench: Bench):
    bench.device.script = {4: hand(TeleopEvent.SUCCESS, engaged=False), 9: hand(TeleopEvent.FAILURE, engaged=False)}
    bench.run_ticks(12)
    ends = [step for step in bench.kept.steps if step.is_last]
    assert [(step.success, step.terminated, step.reward) for step in ends] == [(True, True, 1.0), (False, True, 0.0)]
    assert bench.session.tally.successes_alone == 1


def test_an_attempt_is_discarded_and_begun_again(bench: Bench):
    bench.device.script = {6: hand(TeleopEvent.RERECORD, engaged=False)}
    bench.run_ticks(10)
    assert bench.kept.discarded == [0]
    assert bench.kept.steps[-1].episode == 1


def test_paused_nothing_is_recorded_and_nothing_moves(bench: Bench):
    bench.device.script = {8: hand(TeleopEvent.PAUSE, engaged=False), 28: hand(TeleopEvent.PAUSE, engaged=False)}
    bench.run_ticks(10)
    before = len(bench.kept.steps)
    bench.run_ticks(16)
    assert bench.session.state is SessionState.PAUSED
    assert len(bench.kept.steps) == before
    assert np.abs(np.diff(np.array(bench.sent[-15:]), axis=0)).max() < 2e-3
    bench.run_ticks(10)
    assert bench.session.state is SessionState.AUTONOMOUS
    assert len(bench.kept.steps) > before


def test_an_emergency_stop_holds_the_arm_and_a_hand_that_stays_does_not_take_over_again(bench: Bench):
    bench.device.script = {tick: hand(x=1.0) for tick in range(5, 60)}
    bench.run_ticks(10)
    assert bench.session.state is SessionState.CORRECTING
    bench.device.script[bench.device.ticks + 1] = hand(TeleopEvent.ESTOP, x=1.0)
    bench.run_ticks(5)
    assert bench.session.state is SessionState.STOPPED
    assert np.abs(np.diff(np.array(bench.sent[-4:]), axis=0)).max() == 0.0


def test_a_stopped_robot_is_recovered_by_the_person_and_begins_another_attempt(bench: Bench):
    bench.device.script = {5: hand(TeleopEvent.ESTOP, engaged=False), 15: hand(TeleopEvent.START, engaged=False)}
    bench.run_ticks(14)
    assert bench.session.state is SessionState.STOPPED
    before = {step.episode for step in bench.kept.steps}
    bench.run_ticks(80)
    assert bench.session.state is SessionState.AUTONOMOUS
    assert {step.episode for step in bench.kept.steps} - before


def test_requests_are_refused_with_what_is_possible(bench: Bench):
    assert bench.session.request(TeleopEvent.SUCCESS) is None
    refusal = bench.session.request(TeleopEvent.START)
    assert refusal is not None
    assert "AUTONOMOUS" in refusal
    assert "failure" in refusal


def test_time_runs_out(bench: Bench):
    bench.run_ticks(90)
    first = bench.kept.attempt(0)
    assert len(first) <= bench.session.max_steps == 80
    assert first[-1].is_last

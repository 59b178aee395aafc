"""The same session on a car, whose actions are corrected, and on legs, whose velocity command is."""

from functools import partial

import numpy as np
import pytest

from gantry_deploy.session.steps import Actor
from gantry_deploy.teleop.operator import TeleopEvent
from gantry_fixtures.sessions import Bench, hand
from gantry_sim.driving.drivers.person import ScriptedDriver


def test_a_car_is_steered_by_the_person_and_brakes_while_paused():
    bench = Bench("drive-traffic")
    bench.start()
    bench.run_ticks(40)
    at = bench.device.ticks
    bench.device.script = {at + tick: hand(steer=0.3, throttle=0.2) for tick in range(1, 11)}
    bench.run_ticks(12)
    corrected = [step for step in bench.kept.steps if step.actor is Actor.PERSON]
    assert len(corrected) == 10
    steering = np.array([step.action[0] for step in corrected])
    # The wheels fade over from where the policy had them to where the person wants them, and so does what is learned.
    assert (np.diff(steering) >= -1e-4).all()
    assert steering[-1] == pytest.approx(0.3, abs=0.02)
    np.testing.assert_allclose([step.action[1] for step in corrected], 0.2, atol=0.02)
    bench.device.script[bench.device.ticks + 1] = hand(TeleopEvent.PAUSE, engaged=False)
    bench.run_ticks(60)
    assert abs(bench.robot.outcome["speed_m_s"]) < 0.1  # type: ignore[attr-defined]
    bench.robot.close()


def test_legs_walk_as_the_person_says_while_the_policy_moves_them():
    bench = Bench("go2-walk", command=np.array([0.3, 0.0, 0.0]), episode_s=6.0)
    bench.start()
    bench.run_ticks(60)
    at = bench.device.ticks
    bench.device.script = {at + tick: hand(yaw=1.0) for tick in range(1, 101)}
    bench.run_ticks(102)
    corrected = [step for step in bench.kept.steps if step.actor is Actor.PERSON]
    assert len(corrected) == 100
    last = corrected[-1]
    np.testing.assert_allclose(last.policy_action, [0.3, 0.0, 0.0], atol=1e-6)
    assert last.action[2] == pytest.approx(bench.session.parts.contract.command.upper[2])
    state = bench.robot.read()
    assert state.ang_vel_base_in_base_rad_s[2] > 0.3
    bench.robot.close()


def test_legs_keep_their_gait_when_a_person_takes_over_with_the_same_command():
    """Half of 1 m/s forward, by person and policy in turns of five ticks, against the policy alone."""
    sent, actors = [], set()
    for turns in (range(0), range(40, 200, 10)):
        bench = Bench("go2-walk", command=np.array([0.5, 0.0, 0.0]), episode_s=10.0)
        bench.start()
        at = bench.device.ticks
        bench.device.script = {at + first + tick: hand(x=0.5) for first in turns for tick in range(5)}
        bench.run_ticks(220)
        sent.append(np.array(bench.sent))
        actors.add(frozenset(step.actor for step in bench.kept.steps))
        bench.robot.close()
    assert actors == {frozenset({Actor.POLICY}), frozenset({Actor.POLICY, Actor.PERSON})}
    np.testing.assert_allclose(sent[1], sent[0], atol=1e-6)


def test_a_scripted_driver_brings_a_car_back_to_its_route():
    bench = Bench("drive-traffic", make_device=partial(ScriptedDriver, offset_m=0.05, reaction_s=0.1))
    bench.start()
    bench.run_ticks(200)
    acted = [step for step in bench.kept.steps if step.actor is Actor.PERSON]
    assert 10 <= len(acted) < 200, "it takes over, and gives back"
    assert bench.robot.outcome.get("ended", "") in ("", "finished"), bench.robot.outcome  # type: ignore[attr-defined]
    bench.robot.close()

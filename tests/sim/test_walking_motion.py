"""Power and smoothness of walking, against sums over the joints by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gantry_sim.tasks.locomotion.motion import SETTLE_S, MotionScores
from gantry_sim.tasks.locomotion.presets import cpu_flat, make_env
from gantry_sim.tasks.registry import find_task, from_flat
from gantry_sim.training.evaluate import evaluate_policy

pytestmark = pytest.mark.usefixtures("one_thread")


def test_motion_is_summed_until_the_fall():
    env = make_env(replace(cpu_flat("go2").env, num_envs=3), "cpu", 1).env
    scores = MotionScores(env)
    alive, power, rate, yaw, before = torch.tensor([True, True, False]), [], [], [], scores._torques()
    for _ in range(5):
        env.step(torch.randn(3, 12))
        scores.update(alive)
        torque, speed = env.sim.data.actuator_force, env.sim.data.actuator_velocity
        power.append(float((torque[0] * speed[0]).abs().sum()))
        rate.append(float((torque[0] - before[0]).abs().mean()) / env.step_dt)
        before = torque.clone()
        yaw.append(float(env.task_state.ang_vel_b[0, 2]))
    found, mean, jitter = scores._sums, 0.0, 0.0
    assert float(found["power_w"][0]) == pytest.approx(sum(power), rel=1e-4)
    assert float(found["torque_rate_nm_s"][0]) == pytest.approx(sum(rate), rel=1e-4)
    for value in yaw:
        mean += (value - mean) * env.step_dt / SETTLE_S
        jitter += abs(value - mean)
    assert float(found["yaw_jitter_rad_s"][0]) == pytest.approx(jitter, rel=1e-3)
    assert float(found["power_w"][2]) == 0.0
    assert scores._steps.tolist() == [5.0, 5.0, 0.0]


def test_pushed_episodes_are_scored_by_themselves():
    task = find_task("velocity-flat-go2")
    cfg = replace(cpu_flat("go2").env, episode_s=14.0, push_m_s=3.0)
    shares = []
    scores = evaluate_policy(
        task, cfg, from_flat(lambda obs: torch.zeros(len(obs), 12)), episodes=8, on_progress=shares.append
    )
    assert scores["pushed"]["lin_vel_error_m_s"]["mean"] > scores["lin_vel_error_m_s"]["mean"] + 0.02
    assert scores["pushed"]["motion"]["power_w"]["mean"] > 0.0
    assert scores["standing_pushed"]["drift_m_s"]["mean"] > scores["standing"]["drift_m_s"]["mean"] + 0.01
    assert scores["standing"]["motion"]["lifted_feet"]["mean"] < 0.5 < scores["motion"]["lifted_feet"]["mean"]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    quiet = evaluate_policy(
        task, replace(cfg, push_m_s=0.0, episode_s=0.2), from_flat(lambda obs: torch.zeros(len(obs), 12)), episodes=2
    )
    assert not {"pushed", "standing_pushed"} & quiet.keys()

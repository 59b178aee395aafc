"""The action of what was sent: the inverse of a decoder, where no limit has changed it."""

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.observations.signals import Signals
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.robots import robot_spec

SEED = 11


@pytest.fixture(scope="module", params=["yam-pick-place", "drive-traffic"])
def policy(request: pytest.FixtureRequest):
    bundle = load_bundle(find_bundle(f"pretrained:{request.param}"))
    return bundle, embodiment_of(bundle.contract)


def signals_of(contract, speed_m_s: float) -> Signals:
    pos = np.array([contract.default_pos_rad], np.float32)
    nothing = np.zeros_like(pos)
    velocity = np.array([[speed_m_s, 0.0, 0.0]], np.float32)
    return Signals(pos, nothing, nothing, nothing, nothing, nothing, nothing, lin_vel_base_in_base_m_s=velocity)


def test_an_action_that_no_limit_changes_comes_back(policy):
    bundle, kind = policy
    contract, rng = bundle.contract, np.random.default_rng(SEED)
    for _ in range(20):
        decoder = kind.make_decoder(contract, np.zeros((1, 1), np.float32))
        seen = signals_of(contract, speed_m_s=4.0)
        decoder.reset(seen.joint_pos_rad)
        action = rng.uniform(-0.25, 0.25, (1, contract.action_size)).astype(np.float32)
        if contract.action_size == 4:  # The gripper goes to its place in steps; this one it reaches in one.
            place = (seen.joint_pos_rad[0, -1] - contract.action.offset_rad[-1]) / contract.action.scale[-1]
            action[0, -1] = np.clip(place, -1.0, 1.0)
        targets = decoder(action, seen)
        speed = np.zeros_like(targets.pos_rad) if targets.vel_rad_s is None else targets.vel_rad_s
        found = decoder.action_of(targets.pos_rad, speed, seen)  # type: ignore[attr-defined]
        np.testing.assert_allclose(found, action, atol=5e-3, err_msg=f"seed {SEED}")


def test_what_the_robot_changed_is_what_is_learned_from():
    bundle = load_bundle(find_bundle("pretrained:yam-pick-place"))
    spec = robot_spec(bundle.contract.robot)
    runner = PolicyRunner(bundle, spec)
    state = runner.embodiment.rest_state(bundle.contract)
    asked = np.array([0.4, 0.0, 0.0, 1.0], np.float32)
    before = runner.step(state, np.zeros(3), decide=lambda seen: asked).target
    np.testing.assert_allclose(runner.executed_action(before), asked)
    target = runner.step(state, np.zeros(3), decide=lambda seen: asked).target
    # The hand went half as far as it was told, so half the step was really made.
    half = target.with_pos(0.5 * (before.pos_rad + target.pos_rad))
    np.testing.assert_allclose(runner.executed_action(half)[:3], [0.2, 0.0, 0.0], atol=5e-3)

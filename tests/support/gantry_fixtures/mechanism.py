"""A cart-pole's contract, and a bundle of a linear policy that balances it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.bundle.bundle import Bundle, load_bundle, write_bundle
from gantry_deploy.contract.mechanism_spec import JOINT_EFFORT, MechanismSpec
from gantry_deploy.contract.parts import Acceptance
from gantry_deploy.contract.policy_contract import ActionSpec, CommandSpec, PolicyContract
from gantry_deploy.observations.builder import ObservationBuilder, Signals, make_term
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.testing.legs import contract_for, linear_model
from gantry_hardware.robots import robot_spec

SCALE = 0.25
"""Share of the effort limit per unit of action: 100 N."""
GAINS_N = (10.0, 125.0, 31.0, 33.0)
"""Force on the cart per m, rad, m/s and rad/s, from Riccati's equation: poles at -0.7, -3.1 +- 0.5 i and -20 per
second."""


def cartpole_contract(**changes: Any) -> PolicyContract:
    """A contract that pushes the cart at 60 Hz and sees joints and their velocities."""
    usual = {
        "rate_hz": 60.0,
        "observations": (make_term("joint_pos", 2), make_term("joint_vel", 2)),
        "action": ActionSpec(JOINT_EFFORT, (SCALE,), (0.0,), clip=100.0),
        "command": CommandSpec("", (), (), (), ()),
        "gait": None,
        "body": MechanismSpec(("slider_to_cart",), (-0.5, -0.3), (0.5, 0.3)),
        "acceptance": Acceptance(min_success_rate=0.9),
    }
    return contract_for(robot_spec("cartpole"), **{**usual, **changes})


def cartpole_bundle(
    folder: Path, gains_n: tuple[float, ...] = GAINS_N, contract: PolicyContract | None = None
) -> Bundle:
    """A bundle of the policy that pushes with gains times (position, angle, velocity, turning rate)."""
    contract = contract or cartpole_contract()
    model = linear_model(contract, weight=np.array(gains_n)[:, None] / 100.0)
    rng, rows = np.random.default_rng(0), 12
    golden = {
        "joint_pos_rad": rng.normal(0.0, 0.3, (rows, 2)),
        "joint_vel_rad_s": rng.normal(0.0, 0.5, (rows, 2)),
        "command": np.zeros((rows, 0)),
        "time_s": np.arange(rows) / 60.0,
        "episode_start": np.arange(rows) == 0,
    }
    golden = {name: values.astype(np.float32) for name, values in golden.items()}
    builder, network = ObservationBuilder(contract, np.zeros((1, 1), np.float32)), OnnxPolicy(model, contract)
    level = np.tile(np.float32([1.0, 0.0, 0.0, 0.0]), (1, 1))
    observations, actions, last = [], [], []
    action = np.zeros((1, 1), np.float32)
    for i in range(rows):
        pos, vel, time_s = (golden[name][i : i + 1] for name in ("joint_pos_rad", "joint_vel_rad_s", "time_s"))
        observations.append(
            builder(Signals(pos, vel, level, level[:, :3] * 0.0, golden["command"][:1], action, time_s))
        )
        last.append(action)
        action = network(observations[-1])
        actions.append(action)
    effort = np.clip(np.concatenate(actions) * 100.0, -400.0, 400.0)
    golden |= {
        "observation": np.concatenate(observations),
        "action": np.concatenate(actions),
        "last_action": np.concatenate(last),
        "joint_target_rad": np.zeros((rows, 2), np.float32),
        "joint_target_effort_nm": np.concatenate((effort, np.zeros_like(effort)), axis=1),
    }
    write_bundle(folder, contract=contract, model_bytes=model, golden=golden)
    return load_bundle(folder)

"""A bundle for the Go2, run by the robot's own runtime inside of Isaac Lab's Go2 environment.

python scripts/measure/tasks/isaaclab_walk.py pretrained:go2-walk [--command 0.5,0,0 ...] [--robots 32] [--seconds 15]

Isaac Lab simulates; each robot has a policy runner of its own, as on hardware. Gains and default pose are the
contract's; all that the task draws stays: pose, velocity and joints at the start, mass and centre of mass of the base,
a push between 10 and 15 s, noise on velocities and joints, but not on gravity. All robots walk in one simulation, so
many for each command.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from gantry_deploy.bundle.bundle import Bundle, load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.evaluation.metrics import rate_interval
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.state import RobotState
from gantry_hardware.robots import robot_spec
from gantry_sim.isaaclab_tasks.cfg import IsaacCfg, actor_groups, isaac_env_cfg
from gantry_sim.isaaclab_tasks.opened import OpenEnv
from gantry_sim.isaaclab_tasks.reader import IsaacReader

TASK = "Isaac-Velocity-Flat-UnitreeGo2"
SETTLE_S = 2.0
"""Time at the beginning that is not measured."""
NOISY = {
    "lin_vel_base_in_base_m_s": "base_lin_vel",
    "ang_vel_base_in_base_rad_s": "base_ang_vel",
    "joint_pos_rad": "joint_pos",
    "joint_vel_rad_s": "joint_vel",
}
"""Signals to which the task's noise is added, and the task's terms that have it. That of gravity is left out."""


def configuration(bundle: Bundle, robots: int, seconds: float) -> IsaacCfg:
    """Isaac Lab's task with the gains and the pose of a contract."""
    contract = bundle.contract
    named = {
        "stiffness": contract.stiffness_nm_rad,
        "damping": contract.damping_nm_s_rad,
    }
    gains = {
        f"scene.robot.actuators.base_legs.{name}": dict(zip(contract.joint_names, values, strict=True))
        for name, values in named.items()
    }
    pose = dict(zip(contract.joint_names, contract.default_pos_rad, strict=True))
    return IsaacCfg(TASK, robots, gains | {"scene.robot.init_state.joint_pos": pose, "episode_length_s": seconds + 1.0})


def readings(signals: Any, env_cfg: Any, rng: np.random.Generator, time_s: float) -> list[RobotState]:
    """Signals of the environments as readings of robots, with the task's noise."""
    told: dict[str, np.ndarray] = {}
    for name in (*NOISY, "quat_base_to_world_wxyz"):
        told[name] = getattr(signals, name).cpu().numpy().astype(np.float64)
        if name in NOISY:
            noise = getattr(env_cfg.observations.policy, NOISY[name]).noise
            told[name] = told[name] + rng.uniform(noise.n_min, noise.n_max, told[name].shape)
    n = told["joint_pos_rad"].shape[1]
    rest = {"joint_effort_nm": np.zeros(n), "lin_acc_base_in_base_m_s2": np.zeros(3)}
    rows = range(len(told["joint_pos_rad"]))
    return [RobotState(stamp_s=time_s, **rest, **{name: told[name][row] for name in told}) for row in rows]


def walk(bundle: Bundle, asked: np.ndarray, seconds: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether each robot walked to the end (N,), and its velocities and error after the beginning (N, 4).

    Args:
        bundle: The policy.
        asked: Commands (N, 3), m/s and rad/s.
        seconds: Time of walking.
        seed: Of everything drawn.

    Returns:
        Means over the time until a robot ends: forward, lateral and yaw velocity, and the planar error, m/s and rad/s.
        Not a number for one that ends before it counts.
    """
    runners, rng = [PolicyRunner(bundle, robot_spec("go2")) for _ in asked], np.random.default_rng(seed)
    env_cfg = isaac_env_cfg(configuration(bundle, len(asked), seconds), "cpu", seed)[0]
    opened = OpenEnv(TASK, env_cfg)
    env = opened.env
    env.reset()
    reader, action = IsaacReader(env, actor_groups(TASK)), env.action_manager.get_term("joint_pos")
    alive, found, wanted = torch.ones(len(asked), dtype=torch.bool), [], torch.as_tensor(asked, dtype=torch.float32)
    with torch.inference_mode():
        for step in range(round(seconds / env.step_dt)):
            time_s = step * env.step_dt
            states = readings(reader.signals(), env_cfg, rng, time_s)
            steps = zip(runners, states, asked, strict=True)
            target = np.array([runner.step(state, command).target.pos_rad for runner, state, command in steps])
            env.step((torch.as_tensor(target, dtype=torch.float32) - action._offset) / action._scale)
            alive &= ~env.reset_buf.cpu()
            if time_s >= SETTLE_S:
                now, error = reader.signals(), reader.errors(wanted)[0]
                planar, yaw = now.lin_vel_base_in_base_m_s[:, :2], now.ang_vel_base_in_base_rad_s[:, 2:]
                row = torch.cat((planar, yaw, error[:, None]), dim=1).cpu()
                found.append(torch.where(alive[:, None], row, torch.nan))
    opened.close()
    return alive, torch.stack(found).nanmean(dim=0)


def main() -> None:
    """Print how the robots walked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", help="bundle of a Go2, or pretrained:NAME")
    usual = ["0.5,0,0", "0.5,0.3,0", "0,0,0.5"]
    parser.add_argument("--command", nargs="+", default=usual, metavar="X,Y,YAW", help="m/s and rad/s; %(default)s")
    parser.add_argument("--robots", type=int, default=32, metavar="N", help="robots for each command; %(default)s")
    parser.add_argument("--seconds", type=float, default=15.0, metavar="S", help="of walking; %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of everything drawn; %(default)s")
    args = parser.parse_args()
    commands = np.array([[float(word) for word in text.split(",")] for text in args.command])
    bundle = load_bundle(find_bundle(args.bundle))
    alive, means = walk(bundle, np.repeat(commands, args.robots, axis=0), args.seconds, args.seed)
    for place, text in enumerate(args.command):
        rows = slice(place * args.robots, (place + 1) * args.robots)
        walked, mine = int(alive[rows].sum()), means[rows]
        share = rate_interval(walked, args.robots)
        spread = mine[:, 3][~mine[:, 3].isnan()]
        print(
            f"asked {text}: {walked} of {args.robots} walked {args.seconds:g} s (95 % interval "
            f"{100 * share.low:.0f} to {100 * share.high:.0f} %); after {SETTLE_S:g} s mean planar error "
            f"{float(spread.mean()):.3f} m/s (robots {float(spread.min()):.3f} to {float(spread.max()):.3f}), mean "
            f"velocity {np.round(mine[:, :3].nanmean(dim=0).tolist(), 3).tolist()}"
        )


if __name__ == "__main__":
    main()

"""A bundle for the Go2, run by the robot's own runtime inside of Isaac Lab's Go2 environment.

python scripts/measure/tasks/isaaclab_walk.py pretrained:go2-walk [--command 0.5,0,0] [--envs 4] [--seconds 6]

Isaac Lab simulates; each robot has a policy runner of its own, as on hardware. Gains and default pose are the
contract's; noise, pushes and drawn masses are off, and the robots start in the default pose.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from gantry_deploy.bundle.bundle import Bundle, load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.state import RobotState
from gantry_hardware.robots import robot_spec
from gantry_sim.isaaclab_tasks.cfg import IsaacCfg, actor_groups, isaac_env_cfg
from gantry_sim.isaaclab_tasks.opened import OpenEnv
from gantry_sim.isaaclab_tasks.reader import IsaacReader

TASK = "Isaac-Velocity-Flat-UnitreeGo2"
SETTLE_S = 2.0
"""Time at the beginning that is not measured."""


def configuration(bundle: Bundle, envs: int, seconds: float) -> IsaacCfg:
    """Isaac Lab's task with the gains and the pose of a contract, and nothing drawn."""
    contract = bundle.contract
    named = {
        "stiffness": contract.stiffness_nm_rad,
        "damping": contract.damping_nm_s_rad,
    }
    gains = {
        f"scene.robot.actuators.base_legs.{name}": dict(zip(contract.joint_names, values, strict=True))
        for name, values in named.items()
    }
    still = {
        "scene.robot.init_state.joint_pos": dict(zip(contract.joint_names, contract.default_pos_rad, strict=True)),
        "events.push_robot": None,
        "events.add_base_mass": None,
        "events.reset_robot_joints.params.position_range": [1.0, 1.0],
        "events.reset_base.params.velocity_range": {},
        "episode_length_s": seconds + 1.0,
    }
    return IsaacCfg(TASK, envs, gains | still, noise=False)


def state_of(signals: Any, row: int, time_s: float) -> RobotState:
    """Signals of one environment as a robot's reading."""

    def numbers(values: torch.Tensor) -> np.ndarray:
        return values[row].cpu().numpy().astype(np.float64)

    joints = numbers(signals.joint_pos_rad)
    return RobotState(
        stamp_s=time_s,
        joint_pos_rad=joints,
        joint_vel_rad_s=numbers(signals.joint_vel_rad_s),
        joint_effort_nm=np.zeros_like(joints),
        quat_base_to_world_wxyz=numbers(signals.quat_base_to_world_wxyz),
        ang_vel_base_in_base_rad_s=numbers(signals.ang_vel_base_in_base_rad_s),
        lin_acc_base_in_base_m_s2=np.zeros(3),
        lin_vel_base_in_base_m_s=numbers(signals.lin_vel_base_in_base_m_s),
    )


def main() -> None:
    """Print how the robots walked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", help="bundle of a Go2, or pretrained:NAME")
    parser.add_argument("--command", default="0.5,0,0", metavar="X,Y,YAW", help="m/s and rad/s; %(default)s")
    parser.add_argument("--envs", type=int, default=4, metavar="N", help="robots; %(default)s")
    parser.add_argument("--seconds", type=float, default=6.0, metavar="S", help="of walking; %(default)s")
    args = parser.parse_args()
    asked = np.array([float(word) for word in args.command.split(",")])
    bundle = load_bundle(find_bundle(args.bundle))
    runners = [PolicyRunner(bundle, robot_spec("go2")) for _ in range(args.envs)]
    opened = OpenEnv(TASK, isaac_env_cfg(configuration(bundle, args.envs, args.seconds), "cpu", seed=1)[0])
    env = opened.env
    env.reset()
    reader = IsaacReader(env, actor_groups(TASK))
    action = env.action_manager.get_term("joint_pos")
    steps, alive, found = round(args.seconds / env.step_dt), torch.ones(args.envs, dtype=torch.bool), []
    with torch.inference_mode():
        for step in range(steps):
            signals = reader.signals()
            rows = enumerate(runners)
            targets = [run.step(state_of(signals, i, step * env.step_dt), asked).target.pos_rad for i, run in rows]
            target = torch.as_tensor(np.array(targets), dtype=torch.float32)
            env.step((target - action._offset) / action._scale)
            alive &= ~env.reset_buf.cpu()
            if step * env.step_dt >= SETTLE_S:
                now = reader.signals()
                speed = torch.cat((now.lin_vel_base_in_base_m_s[:, :2], now.ang_vel_base_in_base_rad_s[:, 2:]), dim=1)
                found.append(torch.where(alive[:, None], speed.cpu(), torch.nan))
    opened.close()
    means = torch.stack(found).nanmean(dim=0)
    for row, mean in enumerate(means.tolist()):
        print(f"robot {row}: {'walked' if alive[row] else 'fell'}, mean velocity {np.round(mean, 3).tolist()}")
    error = (means[:, :2] - torch.as_tensor(asked[:2], dtype=torch.float32)).norm(dim=1)
    print(
        f"{int(alive.sum())} of {args.envs} walked {args.seconds:g} s; mean velocity after {SETTLE_S:g} s "
        f"{np.round(means.nanmean(dim=0).tolist(), 3).tolist()}, asked {asked.tolist()}; mean error of the mean "
        f"velocity {float(error.nanmean()):.3f} m/s"
    )


if __name__ == "__main__":
    main()

"""Isaac Lab's own LEAPP export of its flat Go2 with a random policy: leapp_program.py FOLDER [newton|models]

Writes FOLDER/Isaac-Velocity-Flat-UnitreeGo2, the bundle, and FOLDER/steps.npz, 100 steps of the same policy in Isaac
Lab: what the environment has before each, by the names of the bundle's inputs, the joint targets that Isaac Lab
follows, and ``reset``, true where an episode begins. With ``newton`` the actuators are Newton's, as in the stock task,
and with ``models`` Isaac Lab's (``use_newton_actuators=False``).
"""

import sys
from pathlib import Path

import numpy as np
import torch

torch.jit._state.disable()  # LEAPP follows Python, so that Isaac Lab's scripted functions must be left as they are.

import gymnasium  # noqa: E402
import leapp  # noqa: E402
import yaml  # noqa: E402

from gantry_sim.isaaclab_tasks.cfg import IsaacCfg, agent_cfg, isaac_env_cfg  # noqa: E402
from gantry_sim.isaaclab_tasks.opened import OpenEnv  # noqa: E402

TASK = "Isaac-Velocity-Flat-UnitreeGo2"
STEPS = 100


def opened(newton):
    """The environment with one robot, its joints in the order of PhysX: all hips, then all thighs, then all calves."""
    changes = {"sim.use_newton_actuators": newton, "scene.robot.joint_ordering": "physx"}
    return OpenEnv(TASK, isaac_env_cfg(IsaacCfg(TASK, 1, changes, noise=False, substeps=1), "cpu", seed=1)[0])


def policy_of(env):
    """The wrapped environment and Isaac Lab's actor: layers of 16, random weights of 1.2 times their usual size."""
    from isaaclab_rl.rsl_rl import RslRlVecEnvWrapper, create_rsl_rl_runner

    agent = agent_cfg(TASK)
    agent.device, agent.actor.hidden_dims, agent.critic.hidden_dims = "cpu", [16, 16], [16]
    torch.manual_seed(5)
    wrapped = RslRlVecEnvWrapper(env, clip_actions=agent.clip_actions)
    runner = create_rsl_rl_runner(wrapped, agent)
    policy = runner.get_inference_policy(device="cpu")
    with torch.no_grad():
        for weights in policy.parameters():
            weights.mul_(1.2)
    return wrapped, policy


def export(folder, newton):
    """Isaac Lab's export, as its `isaaclab leapp export` makes it."""
    env = opened(newton)  # Before anything of Isaac Lab is imported, so that it takes our files.
    from isaaclab.utils.leapp import patch_env_for_export

    patch_env_for_export(gymnasium.Wrapper(env.env), export_method="onnx-dynamo", required_obs_groups={"policy"})
    wrapped, policy = policy_of(env.env)
    leapp.start(TASK, save_path=str(folder), max_cached_io=5)
    obs, _ = wrapped.reset()
    for _ in range(5):
        with torch.inference_mode():
            obs, *_ = wrapped.step(policy(obs))
    leapp.stop()
    frequency = leapp.GraphConfigs(frequency=1.0 / env.env.step_dt)
    leapp.compile_graph(visualize=False, validate=True, graph_configs=frequency)
    env.close()


def record(folder, newton):
    """The steps, by the names of the bundle's inputs and in its orders."""
    told = yaml.safe_load((folder / TASK / f"{TASK}.yaml").read_text())["models"][TASK]["inputs"]
    sources = {item["name"]: item["isaaclab_connection"].split(":") for item in told if "isaaclab_connection" in item}
    env = opened(newton)
    wrapped, policy = policy_of(env.env)
    obs, _ = wrapped.reset()
    rows, begins = [], True
    for _ in range(STEPS):
        row = {"reset": np.array(begins)}
        for name, (kind, *where) in sources.items():
            if kind == "command":
                value = env.env.command_manager.get_command(where[0])
            else:
                value = getattr(env.env.scene[where[0]].data, where[1]).torch
            row[name] = value[0].clone().numpy()
        with torch.inference_mode():
            obs, _, done, _ = wrapped.step(policy(obs))
        row["joint_pos_target"] = env.env.action_manager.get_term("joint_pos").processed_actions[0].clone().numpy()
        rows.append(row)
        begins = bool(done[0])
    np.savez_compressed(folder / "steps.npz", **{name: np.stack([row[name] for row in rows]) for name in rows[0]})
    env.close()


if __name__ == "__main__":
    folder, newton = Path(sys.argv[1]).resolve(), sys.argv[2:] != ["models"]
    export(folder, newton)
    record(folder, newton)

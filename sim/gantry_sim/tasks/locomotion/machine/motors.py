"""Motors that differ from robot to robot: friction, rotor inertia, gains, torque limits and their fall with speed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from mjlab.managers.event_manager import RecomputeLevel, requires_model_fields
from torch import Tensor

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg, Range

JOINT_SPREAD = 0.4
"""Width of the differences between the joints of one robot, as a share of a range; robots differ over all of it."""


class TorqueSpeed:
    """Torque limits of all motors, which fall in a line from full torque at the corner speed to none at the no-load
    speed, in either direction of driving; what brakes keeps its full torque.

    Args:
        env: The environments; torque limits of motors are read from its model.
        no_load_rad_s: Shape (N, m), speeds at which no torque is left, m motors in the model's order.
        corner_rad_s: Shape (N, m), speeds up to which there is full torque.
    """

    def __init__(self, env: GantryEnv, no_load_rad_s: Tensor, corner_rad_s: Tensor) -> None:
        self._env = env
        self._motors, self._speeds = motor_ids(env)
        self._no_load, self._fall = no_load_rad_s, no_load_rad_s - corner_rad_s
        self._limit_nm = env.sim.model.actuator_forcerange[:, self._motors, 1].clone()

    def limit(self) -> None:
        """Write the limits of the present speeds into the model."""
        speed = self._env.sim.data.qvel[:, self._speeds]
        left = torch.stack((self._no_load + speed, self._no_load - speed), dim=-1) / self._fall[..., None]
        limits = left.clamp(0.0, 1.0) * self._limit_nm[..., None]
        limits[..., 0] *= -1.0
        self._env.sim.model.actuator_forcerange[:, self._motors] = limits


def motor_ids(env: GantryEnv) -> tuple[Tensor, Tensor]:
    """Indices (m,) of the robot's motors among the model's actuators, and of their joints' speeds in ``qvel``."""
    motors = torch.cat([motor.global_ctrl_ids for motor in env.robot.actuators])
    model = env.sim.mj_model
    speeds = model.jnt_dofadr[model.actuator_trnid[motors.cpu().numpy(), 0]]
    return motors, torch.as_tensor(speeds, dtype=torch.long, device=env.device)


def joint_names(env: GantryEnv) -> list[str]:
    """Names (m,) of the joints that the motors of :func:`motor_ids` drive."""
    motors, _ = motor_ids(env)
    model = env.sim.mj_model
    return [model.joint(int(joint)).name.split("/")[-1] for joint in model.actuator_trnid[motors.cpu().numpy(), 0]]


@requires_model_fields(
    "dof_armature",
    "dof_damping",
    "dof_frictionloss",
    "actuator_gainprm",
    "actuator_biasprm",
    "actuator_forcerange",
    recompute=RecomputeLevel.set_const_0,
)
def draw_motors(
    env: GantryEnv, env_ids: Tensor | None, cfg: MachineCfg, speed_limit_rad_s: Mapping[str, float]
) -> None:
    """Draw what the physics knows of every robot: friction, rotor inertia, gains and torque limits of its joints.

    Args:
        env: The environments.
        env_ids: Not looked at: all of them are drawn.
        cfg: Ranges.
        speed_limit_rad_s: Joint -> its speed limit, for torque that falls with speed.
    """
    del env_ids
    model, robot = env.sim.model, env.robot
    joints, count = robot.indexing.joint_v_adr, env.num_envs

    def spread(low_high: Range, size: int, shared: bool = False) -> Tensor:
        low, high = low_high
        whole = torch.rand(count, 1, device=env.device)
        own = 0.0 if shared else JOINT_SPREAD * (torch.rand(count, size, device=env.device) - 0.5)
        return (low + (high - low) * (whole + own)).clamp(low, high).expand(count, size)

    n = len(joints)
    model.dof_armature[:, joints] = env.sim.get_default_field("dof_armature")[joints] * spread(cfg.armature_share, n)
    viscous = cfg.viscous_friction_nm_s_rad
    usual_damping = env.sim.get_default_field("dof_damping")[joints]  # Again, where a stage before had more.
    model.dof_damping[:, joints] = spread(viscous, n) if viscous[1] > 0.0 else usual_damping
    if cfg.coulomb_friction_nm is not None:
        model.dof_frictionloss[:, joints] = spread(cfg.coulomb_friction_nm, n)
    motors, _ = motor_ids(env)
    strength = spread(cfg.strength_share, len(motors), shared=True)
    stiffness = strength * spread(cfg.stiffness_share, len(motors))
    damping = strength * spread(cfg.damping_share, len(motors))
    gain, bias, limits = (
        env.sim.get_default_field(name)[motors]
        for name in ("actuator_gainprm", "actuator_biasprm", "actuator_forcerange")
    )
    model.actuator_gainprm[:, motors, 0] = gain[:, 0] * stiffness
    model.actuator_biasprm[:, motors, 1] = bias[:, 1] * stiffness
    model.actuator_biasprm[:, motors, 2] = bias[:, 2] * damping
    model.actuator_forcerange[:, motors] = limits * strength[..., None]
    friction = model.dof_frictionloss[:, joints].mean(-1), model.dof_damping[:, joints].mean(-1)
    machine = env.task_state.machine
    machine.physics[:] = torch.stack((*friction, strength[:, 0] - 1.0, stiffness.mean(-1) - 1.0), dim=-1)
    if cfg.no_load_speed_share is not None:
        usual = torch.tensor([speed_limit_rad_s[name] for name in joint_names(env)], device=env.device)
        no_load = usual * spread(cfg.no_load_speed_share, len(motors), shared=True)
        machine.torque_speed = TorqueSpeed(env, no_load, no_load * spread(cfg.corner_speed_share, len(motors), True))

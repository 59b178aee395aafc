"""Differences between machines of one kind: motors, friction, delays and mountings, drawn for each robot in training.

What the physics knows (friction, gains, torque limits, rotor inertia) is drawn once per environment, at its start; what
belongs to commands and sensors (delays, offsets, drop-outs) is drawn anew for every episode.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from mjlab.managers.event_manager import EventTermCfg, RecomputeLevel, requires_model_fields
from torch import Tensor

from gantry_deploy.contract.parts import TrainedRange
from gantry_deploy.observations.builder import Signals
from gantry_hardware.files.structured import ConfigError
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_sim.envs.manager_env import GantryEnv

Range = tuple[float, float]
"""Least and largest value of a uniform distribution."""
JOINT_SPREAD = 0.4
"""Width of the differences between the joints of one robot, as a share of a range; robots differ over all of it."""
NOT_IDENTIFIED = ("armature_share", "strength_share", "sensor_delay_s", "dropout_share")
"""Fields that are no parameter of a machine, or shares of one."""
NAMES = {"imu_tilt_rad": "imu_pitch_rad"}
"""Fields with another name in :data:`gantry_hardware.model.dynamics.PARAMETERS`."""


KNOWN = 6
"""Numbers of a machine that a critic sees; none of them changes in the mirror."""


@dataclass(frozen=True)
class MachineCfg:
    """Ranges of the differences; as it stands, all robots are as their model."""

    armature_share: Range = (1.0, 1.0)
    """Rotor inertia over that of the model."""
    viscous_friction_nm_s_rad: Range = (0.0, 0.0)
    """Friction of a joint that grows with its speed, N m s/rad."""
    coulomb_friction_nm: Range | None = None
    """Dry friction of a joint, N m; None for that of the model."""
    stiffness_share: Range = (1.0, 1.0)
    """Position gain in effect over the contract's."""
    damping_share: Range = (1.0, 1.0)
    """Velocity gain in effect over the contract's."""
    strength_share: Range = (1.0, 1.0)
    """Torque of all motors of a robot over the usual one, its limit included: a weak motor, an empty battery."""
    encoder_offset_rad: Range = (0.0, 0.0)
    """Reading of an encoder minus the true angle."""
    command_delay_s: Range = (0.0, 0.0)
    """From an action to the motors, at most one control step."""
    sensor_delay_s: Range = (0.0, 0.0)
    """Age of all readings, at most one control step."""
    imu_tilt_rad: Range = (0.0, 0.0)
    """Rotation of the IMU in its mounting, about each axis."""
    dropout_share: float = 0.0
    """Share of the control steps in which the readings are those of the step before."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None or item.name == "dropout_share":
                continue
            if not value[0] <= value[1]:
                raise ConfigError(f"env.machine.{item.name} is {list(value)}, expected the smaller number first.")
        if not 0.0 <= self.dropout_share < 1.0:
            raise ConfigError(f"env.machine.dropout_share is {self.dropout_share}, expected 0 to less than 1.")

    @classmethod
    def wide(cls, scale: float = 1.0) -> MachineCfg:
        """Ranges that cover robots of other people: friction as measured on Go2s, delay of a wireless link.

        Args:
            scale: Factor on friction, for motors that are stronger than a Go2's.
        """
        return cls(
            armature_share=(0.8, 1.5),
            viscous_friction_nm_s_rad=(0.0, 2.0 * scale),
            coulomb_friction_nm=(0.0, 1.4 * scale),
            stiffness_share=(0.85, 1.15),
            damping_share=(0.85, 1.15),
            strength_share=(0.85, 1.15),
            encoder_offset_rad=(-0.02, 0.02),
            command_delay_s=(0.0, 0.02),
            sensor_delay_s=(0.0, 0.01),
            imu_tilt_rad=(-0.03, 0.03),
            dropout_share=0.01,
        )

    def around(self, dynamics: RobotDynamics) -> MachineCfg:
        """These ranges with those of an identified machine in their places, see :meth:`RobotDynamics.range_of`."""
        names = {item.name: NAMES.get(item.name, item.name) for item in fields(self) if item.name not in NOT_IDENTIFIED}
        found = {mine: dynamics.range_of(name) for mine, name in names.items()}
        return replace(self, **{mine: pair for mine, pair in found.items() if pair is not None})

    def trained_for(self) -> tuple[TrainedRange, ...]:
        """The table of a contract, of what is the same for all joints."""
        return tuple(
            TrainedRange(NAMES.get(item.name, item.name), *getattr(self, item.name))
            for item in fields(self)
            if item.name not in NOT_IDENTIFIED and getattr(self, item.name) is not None
        )

    @property
    def is_late(self) -> bool:
        """Whether commands take effect within a control step instead of at its start."""
        return self.command_delay_s[1] > 0.0


@requires_model_fields(
    "dof_armature",
    "dof_damping",
    "dof_frictionloss",
    "actuator_gainprm",
    "actuator_biasprm",
    "actuator_forcerange",
    recompute=RecomputeLevel.set_const_0,
)
def draw_motors(env: GantryEnv, env_ids: Tensor | None, cfg: MachineCfg) -> None:
    """Draw what the physics knows of every robot: friction, rotor inertia, gains and torque limits of its joints."""
    del env_ids  # All of them, at the start.
    model, robot = env.sim.model, env.robot
    joints, count = robot.indexing.joint_v_adr, env.num_envs

    def spread(low_high: Range, size: int, shared: bool = False) -> Tensor:
        low, high = low_high
        whole = torch.rand(count, 1, device=env.device)
        own = 0.0 if shared else JOINT_SPREAD * (torch.rand(count, size, device=env.device) - 0.5)
        return (low + (high - low) * (whole + own)).clamp(low, high).expand(count, size)

    n = len(joints)
    model.dof_armature[:, joints] = env.sim.get_default_field("dof_armature")[joints] * spread(cfg.armature_share, n)
    if cfg.viscous_friction_nm_s_rad[1] > 0.0:
        model.dof_damping[:, joints] = spread(cfg.viscous_friction_nm_s_rad, n)
    if cfg.coulomb_friction_nm is not None:
        model.dof_frictionloss[:, joints] = spread(cfg.coulomb_friction_nm, n)
    motors = torch.cat([motor.global_ctrl_ids for motor in robot.actuators])
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
    env.task_state.machine.physics[:] = torch.stack((*friction, strength[:, 0] - 1.0, stiffness.mean(-1) - 1.0), dim=-1)


class MachineState:
    """Delays, offsets and drop-outs of the episodes that run, and the readings of the step before.

    Args:
        cfg: Ranges.
        num_envs: Environments N.
        joints: Joints n.
        dt_s: Control step.
        device: Where tensors live.
    """

    def __init__(self, cfg: MachineCfg, num_envs: int, joints: int, dt_s: float, device: str) -> None:
        self._cfg, self._dt_s = cfg, dt_s
        self._count, self._joints, self._device = num_envs, joints, device
        for name in ("command_delay_s", "sensor_delay_s"):
            if not 0.0 <= getattr(cfg, name)[0] <= getattr(cfg, name)[1] <= dt_s + 1e-9:
                raise ConfigError(f"env.machine.{name} is {list(getattr(cfg, name))}, expected 0 to {dt_s:g} s.")
        self.encoder_offset_rad = torch.zeros(num_envs, joints, device=device)
        """(N, n), reading of every encoder minus the true angle."""
        self.command_delay_s = torch.zeros(num_envs, 1, device=device)
        """(N, 1), from an action to the motors."""
        self.physics = torch.zeros(num_envs, 4, device=device)
        """(N, 4), mean dry friction [N m] and viscous friction [N m s/rad] of the joints, strength and stiffness beyond
        the usual ones: what a critic may know."""
        self.imu_tilt_rad = torch.zeros(num_envs, 3, device=device)
        """(N, 3), rotation vector of the IMU in its mounting."""
        self._sensor_age = torch.zeros(num_envs, 1, device=device)
        self._before: Signals | None = None
        self._newest: Signals | None = None
        self._step = -1
        self._fresh = torch.ones(num_envs, 1, dtype=torch.bool, device=device)
        self.begin(torch.arange(num_envs, device=device))

    def begin(self, env_ids: Tensor) -> None:
        """Draw the differences of the episodes that begin in these environments, indices (k,)."""
        k = len(env_ids)
        self.encoder_offset_rad[env_ids] = self._uniform(self._cfg.encoder_offset_rad, k, self._joints)
        self.command_delay_s[env_ids] = self._uniform(self._cfg.command_delay_s, k, 1)
        self.imu_tilt_rad[env_ids] = self._uniform(self._cfg.imu_tilt_rad, k, 3)
        self._sensor_age[env_ids] = self._uniform(self._cfg.sensor_delay_s, k, 1) / self._dt_s
        self._fresh[env_ids] = True

    @property
    def known(self) -> Tensor:
        """(N, KNOWN), what a critic may know of the machines: physics and delays, of the order of one."""
        return torch.cat((self.physics, self.command_delay_s / self._dt_s, self._sensor_age), dim=-1)

    def reading(self, signals: Signals, step: int) -> Signals:
        """Signals as late sensors tell them: between those of the control step before and the present ones.

        Args:
            signals: Exact and present.
            step: Control steps so far, to tell a second look at the same step from the next one.
        """
        if self._cfg.sensor_delay_s[1] <= 0.0 and self._cfg.dropout_share <= 0.0:
            return signals
        if step != self._step:
            self._step, self._before = step, self._newest
        self._newest = signals
        before = self._before or signals
        age = self._sensor_age
        if self._cfg.dropout_share > 0.0:
            lost = torch.rand(self._count, 1, device=self._device) < self._cfg.dropout_share
            age = torch.where(lost, torch.ones_like(age), age)
        age = torch.where(self._fresh, torch.zeros_like(age), age)
        self._fresh = torch.zeros_like(self._fresh)

        def aged(name: str) -> Tensor:
            now = getattr(signals, name)
            return now + age * (getattr(before, name) - now)

        quat = aged("quat_base_to_world_wxyz")
        return replace(
            signals,
            joint_pos_rad=aged("joint_pos_rad"),
            joint_vel_rad_s=aged("joint_vel_rad_s"),
            ang_vel_base_in_base_rad_s=aged("ang_vel_base_in_base_rad_s"),
            quat_base_to_world_wxyz=quat / quat.norm(dim=-1, keepdim=True),
        )

    def late_targets(self, before: Tensor, targets: Tensor, begin_s: float, length_s: float) -> Tensor:
        """Targets (N, n), rad, that the motors follow on average from ``begin_s`` after an action for ``length_s``."""
        waits = ((self.command_delay_s - begin_s) / length_s).clamp(0.0, 1.0)
        return targets + waits * (before - targets)

    def _uniform(self, low_high: Range, rows: int, columns: int) -> Tensor:
        low, high = low_high
        return low + (high - low) * torch.rand(rows, columns, device=self._device)


def begin_machine(env: GantryEnv, env_ids: Tensor) -> None:
    """Event of a reset: other delays and offsets for the episodes that begin."""
    env.task_state.machine.begin(env_ids)


def machine_events(cfg: MachineCfg) -> dict[str, EventTermCfg]:
    """Events that draw the differences; none where there are none."""
    if cfg == MachineCfg():
        return {}
    return {
        "motors": EventTermCfg(func=draw_motors, mode="startup", params={"cfg": cfg}),
        "machine": EventTermCfg(func=begin_machine, mode="reset", params={}),
    }

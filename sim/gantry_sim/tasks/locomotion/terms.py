"""mjlab terms of the locomotion tasks; observation and joint targets go through the runtime's own code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from mjlab.managers.action_manager import ActionTerm, ActionTermCfg
from mjlab.managers.observation_manager import ObservationTermCfg
from torch import Tensor

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.observations.builder import ObservationBuilder, Signals
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.locomotion.machine.state import MachineState
from gantry_sim.tasks.locomotion.state import LocomotionState


@dataclass(frozen=True)
class SensorNoiseCfg:
    """Half widths of the uniform noise on what the actor reads; it is added to raw signals, before any scaling."""

    joint_pos_rad: float = 0.01
    """Encoders."""
    joint_vel_rad_s: float = 1.5
    """Differentiated encoders."""
    ang_vel_rad_s: float = 0.2
    """Gyroscope."""
    tilt_rad: float = 0.05
    """Attitude estimate, about each axis."""

    def apply(self, signals: Signals) -> Signals:
        """The same signals as noisy sensors report them."""
        tilt = _uniform(signals.ang_vel_base_in_base_rad_s, self.tilt_rad)
        return replace(
            signals,
            joint_pos_rad=signals.joint_pos_rad + _uniform(signals.joint_pos_rad, self.joint_pos_rad),
            joint_vel_rad_s=signals.joint_vel_rad_s + _uniform(signals.joint_vel_rad_s, self.joint_vel_rad_s),
            quat_base_to_world_wxyz=small_rotation(signals.quat_base_to_world_wxyz, tilt),
            ang_vel_base_in_base_rad_s=signals.ang_vel_base_in_base_rad_s
            + _uniform(signals.ang_vel_base_in_base_rad_s, self.ang_vel_rad_s),
        )


class BodySensors:
    """Sensor stage of a walking robot without a map.

    Args:
        noise: Noise of its sensors; None for none.
        machine: Delays and offsets; None for none.
    """

    def __init__(self, noise: SensorNoiseCfg | None, machine: MachineState | None = None) -> None:
        self._noise, self._machine = noise, machine

    def measure(self, state: LocomotionState) -> Signals:
        """Signals of the state, noise, delays and offsets included."""
        signals = state.signals()
        if self._machine is not None:
            signals = self._machine.reading(signals, state.step_count)
            signals = replace(
                signals,
                joint_pos_rad=signals.joint_pos_rad + self._machine.encoder_offset_rad,
                quat_base_to_world_wxyz=small_rotation(signals.quat_base_to_world_wxyz, self._machine.imu_tilt_rad),
            )
        return signals if self._noise is None else self._noise.apply(signals)

    def reset(self, env_ids: Tensor) -> None:
        """Begin episodes; nothing is remembered of earlier ones."""


def _uniform(like: Tensor, half_width: float) -> Tensor:
    return (torch.rand_like(like) - 0.5) * (2.0 * half_width)


def small_rotation(quat_wxyz: Tensor, rotation_rad: Tensor) -> Tensor:
    """Unit quaternions (N, 4) after a small rotation vector (N, 3) in the body frame, to first order."""
    w, x, y, z = quat_wxyz.unbind(-1)
    a, b, c = (0.5 * rotation_rad).unbind(-1)
    turned = torch.stack(
        (w - x * a - y * b - z * c, x + w * a + y * c - z * b, y + w * b + z * a - x * c, z + w * c + x * b - y * a),
        dim=-1,
    )
    return turned / turned.norm(dim=-1, keepdim=True)


@dataclass(kw_only=True)
class ContractActionCfg(ActionTermCfg):
    """Joint position targets by the policy's contract."""

    contract: PolicyContract
    """Scales, offsets, limits and gait."""
    actuator_names: tuple[str, ...] = (".*",)
    """Kept for mjlab's inspectors; every joint of the contract is driven."""

    def build(self, env: Any) -> ContractAction:
        """Make the term."""
        return ContractAction(self, env)


class ContractAction(ActionTerm):
    """Runs the robot's own decoder on all environments at once."""

    cfg: ContractActionCfg

    def __init__(self, cfg: ContractActionCfg, env: Any) -> None:
        super().__init__(cfg, env)
        self._raw = torch.zeros(self.num_envs, cfg.contract.action_size, device=self.device)
        self._decoder = embodiment_of(cfg.contract).make_decoder(cfg.contract, self._raw)
        ids = [self._entity.find_joints(f"^{name}$")[0][0] for name in cfg.contract.joint_names]
        self._joint_ids = torch.tensor(ids, device=self.device)
        self._targets = torch.zeros_like(self._raw)
        self._before = self._targets
        self._began = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self._begin_s = 0.0

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return self._raw.shape[1]

    @property
    def raw_action(self) -> Tensor:
        """The network's output within the contract's bounds, (N, a); what ``last_action`` observes."""
        return self._raw

    @property
    def targets(self) -> Tensor:
        """Joint position targets of this control step, (N, n), rad."""
        return self._targets

    def process_actions(self, actions: Tensor) -> None:
        """Decode actions (N, a), dimensionless, once per control step."""
        self._raw[:] = self._decoder.clip(actions)
        before, self._targets = self._targets, self._decode(actions)
        self._before = torch.where(self._began[:, None], self._targets, before)
        self._began[:] = False
        self._begin_s = 0.0

    def _decode(self, actions: Tensor) -> Tensor:
        """Targets (N, n), rad, of actions (N, a), by the clock, the command and what the actor was shown."""
        env: GantryEnv = self._env  # type: ignore[assignment]
        state = LocomotionState.of(env)
        seen = state.measured
        return self._decoder(actions, replace(seen, time_s=state.time_s, command=state.command)).pos_rad

    def apply_actions(self) -> None:
        """Hand the targets to the actuators; those of a late robot change within the control step."""
        env: GantryEnv = self._env  # type: ignore[assignment]
        machine: MachineState | None = getattr(env.task_state, "machine", None)
        targets = self._targets
        if machine is not None:
            targets = machine.late_targets(self._before, targets, self._begin_s, env.physics_dt)
            self._begin_s += env.physics_dt
            targets = targets - machine.encoder_offset_rad
            if machine.torque_speed is not None:
                machine.torque_speed.limit()
        self._entity.set_joint_position_target(targets, joint_ids=self._joint_ids)

    def reset(self, env_ids: Tensor | slice | None = None) -> None:
        """Forget the last action of these environments, indices (k,)."""
        rows = slice(None) if env_ids is None else env_ids
        self._raw[rows], self._began[rows] = 0.0, True


class ActorObservation:
    """The actor's whole observation in one term, built by the robot's own :class:`ObservationBuilder`."""

    def __init__(self, cfg: ObservationTermCfg, env: GantryEnv) -> None:
        contract: PolicyContract = cfg.params["contract"]
        self._builder = ObservationBuilder(contract, torch.zeros(env.num_envs, 1, device=env.device))
        self._num_envs = env.num_envs
        self._device = env.device

    def __call__(self, env: GantryEnv, contract: PolicyContract, exact: bool = False) -> Tensor:
        """Observation (N, contract.observation_size) of what the sensors report, or of the exact state."""
        state = LocomotionState.of(env)
        return self._builder(state.signals() if exact else state.measured)

    @property
    def memory(self) -> Any:
        """Earlier frames, which the next observation is stacked with."""
        return self._builder.past

    @memory.setter
    def memory(self, value: Any) -> None:
        self._builder.past = value

    def reset(self, env_ids: Tensor | slice | None = None) -> None:
        """Forget the history of these environments, indices (k,)."""
        rows = torch.zeros(self._num_envs, dtype=torch.bool, device=self._device)
        rows[slice(None) if env_ids is None else env_ids] = True
        self._builder.reset(rows)


class CriticObservation:
    """Critic's observation: the actor's newest frame without noise, and what only a simulator knows."""

    def __init__(self, cfg: ObservationTermCfg, env: GantryEnv) -> None:
        contract: PolicyContract = cfg.params["contract"]
        self._builder = ObservationBuilder(contract, torch.zeros(env.num_envs, 1, device=env.device))

    def __call__(self, env: GantryEnv, contract: PolicyContract, height_scan: str | None = None) -> Tensor:
        """Frame, base velocity (3) m/s, foot contacts (f), foot heights (f) x 10, base height (1) x 5, where machines
        differ what is known of them (6), height scan."""
        state = LocomotionState.of(env)
        parts = [
            self._builder.frame(state.signals()),
            state.lin_vel_b,
            state.foot_contact,
            state.foot_height * 10.0,
            state.base_height[:, None] * 5.0,
        ]
        if state.machine is not None:
            parts.append(state.machine.known)
        if height_scan is not None:
            sensor = env.scene[height_scan].data
            parts.append((sensor.pos_w[:, 2:3] - sensor.hit_pos_w[..., 2] - 0.3).clamp(-1.0, 1.0) * 2.0)
        return torch.cat(parts, dim=-1)

"""Reward terms of the few-sample recipe: functions ``f(env, ...) -> (N,)``, weighted and summed by mjlab per second."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_deploy.contract.policy_contract import GaitSpec
from gantry_deploy.evaluation.metrics import has_fallen
from gantry_deploy.footsteps import gait as gait_clock
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.process.device_work import numbers_like
from gantry_sim.tasks.locomotion.state import LocomotionState


def track_planar_velocity(env: GantryEnv, width_m_s: float) -> Tensor:
    """Shape (N,): 1 where the base moves as commanded, falling off as a Gaussian of the planar velocity error
    in the base frame.
    """
    state = LocomotionState.of(env)
    error2 = (state.lin_vel_b[:, :2] - state.drive[:, :2]).square().sum(-1)
    return torch.exp(-error2 / width_m_s**2)


def power(env: GantryEnv) -> Tensor:
    """Shape (N,), W, sum over the joints of |torque x speed|."""
    return (env.sim.data.actuator_force * env.sim.data.actuator_velocity).abs().sum(-1)


def track_yaw_rate(env: GantryEnv, width_rad_s: float) -> Tensor:
    """Shape (N,): 1 where the base turns as commanded, falling off as a Gaussian of the yaw-rate error in the
    base frame.
    """
    state = LocomotionState.of(env)
    return torch.exp(-(state.ang_vel_b[:, 2] - state.drive[:, 2]).square() / width_rad_s**2)


def vertical_velocity(env: GantryEnv) -> Tensor:
    """Shape (N,): square of the base's velocity along its own z axis, which is the vertical one while it stands
    upright.
    """
    return LocomotionState.of(env).lin_vel_b[:, 2].square()


def roll_pitch_rate(env: GantryEnv) -> Tensor:
    """Shape (N,): squares of roll and pitch rate."""
    return LocomotionState.of(env).ang_vel_b[:, :2].square().sum(-1)


def tilt(env: GantryEnv) -> Tensor:
    """Shape (N,): squares of the horizontal components of gravity in the base frame."""
    return LocomotionState.of(env).gravity_b[:, :2].square().sum(-1)


def height_error(env: GantryEnv, target_m: float) -> Tensor:
    """Shape (N,): square of the base height's distance from its target."""
    return (LocomotionState.of(env).base_height - target_m).square()


def action_rate(env: GantryEnv) -> Tensor:
    """Shape (N,): squares of the change of the action."""
    manager = env.action_manager
    return (manager.action - manager.prev_action).square().sum(-1)


def joint_deviation(env: GantryEnv, default_rad: tuple[float, ...], weight: tuple[float, ...]) -> Tensor:
    """Shape (N,): squares of the joints' distance from the default pose, each with its own weight."""
    state = LocomotionState.of(env)
    like = state.joint_pos
    distance = like - numbers_like(default_rad, like)
    return (distance.square() * numbers_like(weight, like)).sum(-1)


def contact_matches_clock(env: GantryEnv, gait: GaitSpec) -> Tensor:
    """Shape (N,): mean over the feet of 1 where contact agrees with the gait clock, all feet down while standing."""
    state = LocomotionState.of(env)
    phase = gait_clock.foot_phase(gait, state.time_s, numbers_like(gait.foot_offset, state.time_s))
    swing = (phase >= gait.duty).to(torch.float32) * gait_clock.moving(gait, state.drive)[:, None]
    return 1.0 - (state.foot_contact - (1.0 - swing)).abs().mean(-1)


def swing_height(env: GantryEnv, gait: GaitSpec, height_m: float, width_m: float) -> Tensor:
    """Shape (N,): mean over the feet of a Gaussian around the height that the gait clock asks for."""
    state = LocomotionState.of(env)
    phase = gait_clock.foot_phase(gait, state.time_s, numbers_like(gait.foot_offset, state.time_s))
    target = gait_clock.swing_arc(gait, phase) * gait_clock.moving(gait, state.drive)[:, None] * height_m
    return torch.exp(-((state.foot_height - target) / width_m).square()).mean(-1)


class FootSlip:
    """Squares of the horizontal velocity of feet that touch the ground, from their positions at two control steps."""

    def __init__(self, cfg: object, env: GantryEnv) -> None:
        del cfg
        self._previous = LocomotionState.of(env).foot_pos_w.clone()
        self._started = torch.zeros(env.num_envs, device=env.device)

    def __call__(self, env: GantryEnv) -> Tensor:
        """Sum over the feet, (N,), m^2/s^2; zero in an episode's first step."""
        state = LocomotionState.of(env)
        velocity = (state.foot_pos_w[..., :2] - self._previous[..., :2]) / env.step_dt
        slip = (velocity.square().sum(-1) * state.foot_contact).sum(-1) * self._started
        self._previous = state.foot_pos_w.clone()
        self._started[:] = 1.0
        return slip

    def reset(self, env_ids: Tensor | slice | None = None) -> None:
        """Forget positions from before a reset of environments, indices (k,)."""
        self._started[slice(None) if env_ids is None else env_ids] = 0.0


def fallen(env: GantryEnv, min_height_m: float) -> Tensor:
    """True where the base is too low or too tilted, (N,) bool: the scores' own definition of a fall."""
    state = LocomotionState.of(env)
    return has_fallen(state.quat, state.base_height, min_height_m)

"""Table I of AME-2: functions ``f(env, ...) -> (N,)``, weighted and summed by mjlab per second."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.process.device_work import numbers_like
from gantry_sim.tasks.goal.state import GoalState

POSITION_LAST_S = 4.0
"""Position counts in so many last seconds."""
HEADING_LAST_S = 2.0
"""Heading counts in so many."""
NEAR_M = 0.5
"""A robot nearer than this is at its goal..."""
ALIGNED_RAD = 0.5
"""...and, with a smaller heading error than this, in its heading."""
SPEED_M_S = (0.3, 2.0)
"""Range of speeds that count as moving to the goal."""
APPROACH_M_S = 0.8
"""Coming nearer to the goal faster than this is worth no more."""
FLAT_M = 0.3
"""Ground whose heights in the window differ by less is flat enough to keep a foot on it."""


def position_tracking(env: GantryEnv) -> Tensor:
    """Shape (N,): 1 / (1 + d^2 / 4) over the last four seconds, divided by their length."""
    state = GoalState.of(env)
    in_time = (state.time_left_s < POSITION_LAST_S) / POSITION_LAST_S
    return in_time / (1.0 + 0.25 * state.distance.square())


def heading_tracking(env: GantryEnv) -> Tensor:
    """Shape (N,): 1 / (1 + e^2) at the goal over the last two seconds, divided by their length."""
    state = GoalState.of(env)
    in_time = (state.time_left_s < HEADING_LAST_S) / HEADING_LAST_S
    return in_time * (state.distance < NEAR_M) / (1.0 + state.heading_error.square())


def move_to_goal(env: GantryEnv) -> Tensor:
    """Shape (N,): 1 at the goal, or while moving at a speed in range within 60 degrees of the goal's direction."""
    state = GoalState.of(env)
    speed = env.sim.data.qvel[:, state._lin][:, :2].norm(dim=-1)
    moves = (_speed_to_goal(env) > 0.5 * speed) & (speed >= SPEED_M_S[0]) & (speed <= SPEED_M_S[1])
    return ((state.distance < NEAR_M) | moves).to(torch.float32)


def approach(env: GantryEnv) -> Tensor:
    """Shape (N,): 1 at the goal; elsewhere the speed towards it over 0.8 m/s, within -1 and 1: what is paid for
    coming nearer is taken back for going away.
    """
    near = GoalState.of(env).distance < NEAR_M
    return torch.where(near, 1.0, (_speed_to_goal(env) / APPROACH_M_S).clamp(-1.0, 1.0))


def _speed_to_goal(env: GantryEnv) -> Tensor:
    """Horizontal velocity in the goal's direction, (N,), m/s."""
    state = GoalState.of(env)
    away = state.goal_pos_w[:, :2] - state.pos_w[:, :2]
    along = (env.sim.data.qvel[:, state._lin][:, :2] * away).sum(-1)
    return along / away.norm(dim=-1).clamp(min=1e-6)


def stand_at_goal(env: GantryEnv, default_rad: tuple[float, ...]) -> Tensor:
    """Shape (N,): at the goal and in its heading: exp of minus a quarter of feet in the air (share), tilt, mean
    joint deviation and distance.
    """
    state = GoalState.of(env)
    feet_up = 1.0 - state.foot_contact.mean(-1)
    tilt = 1.0 - state.gravity_b[:, 2].square()
    away = (state.joint_pos - numbers_like(default_rad, state.joint_pos)).abs().mean(-1)
    there = (state.distance < NEAR_M) & (state.heading_error < ALIGNED_RAD)
    return there * torch.exp(-0.25 * (feet_up + tilt + away + state.distance))


def early_termination(env: GantryEnv) -> Tensor:
    """Shape (N,): 1 where the episode ends before its time."""
    return env.termination_manager.terminated.to(torch.float32)


def spinning(env: GantryEnv, limit_rad_s: float) -> Tensor:
    """Shape (N,): 1 where the base turns too fast."""
    return (GoalState.of(env).ang_vel_b[:, 2].abs() > limit_rad_s).to(torch.float32)


def leaping(env: GantryEnv) -> Tensor:
    """Shape (N,): 1 where all feet are in the air over flat ground."""
    state = GoalState.of(env)
    window = state.window(state.goal_names.map_sensor).flatten(1)
    flat = window.amax(-1) - window.amin(-1) < FLAT_M
    return (flat & (state.foot_contact.amax(-1) == 0)).to(torch.float32)


def body_contact(env: GantryEnv) -> Tensor:
    """Shape (N,): number of shapes other than feet that touch the ground."""
    return GoalState.of(env).body_contact.sum(-1)


def new_body_contact(env: GantryEnv) -> Tensor:
    """Shape (N,): number of those that did not touch it a control step ago."""
    return GoalState.of(env).motion.new_body_contact.sum(-1)


def stumbling(env: GantryEnv) -> Tensor:
    """Shape (N,): number of feet that are pushed sideways more than up: F_xy > 1.1 F_z + 1 N, as in the authors'
    code.
    """
    state = GoalState.of(env)
    force = state.contact_force(state.names.contact_sensor)
    return (force[..., :2].norm(dim=-1) > 1.1 * force[..., 2].abs() + 1.0).to(torch.float32).sum(-1)


def slipping(env: GantryEnv, limit_m_s: float = 0.3) -> Tensor:
    """Shape (N,): number of feet that move over the ground while they touch it, at two control steps in a row."""
    motion = GoalState.of(env).motion
    return ((motion.foot_speed > limit_m_s) * motion.foot_stayed).sum(-1)


def self_collision(env: GantryEnv) -> Tensor:
    """Shape (N,): number of contacts of the robot with itself."""
    state = GoalState.of(env)
    return env.scene[state.goal_names.self_sensor].data.found.to(torch.float32).sum(-1)


def base_roll_rate(env: GantryEnv) -> Tensor:
    """Shape (N,): square of the roll rate."""
    return GoalState.of(env).ang_vel_b[:, 0].square()


def joint_regularisation(env: GantryEnv) -> Tensor:
    """Shape (N,): sum of velocity^2 + 0.01 torque^2 + 0.001 acceleration^2 over the joints."""
    state = GoalState.of(env)
    torque = joint_torque(env)
    return (state.joint_vel.square() + 0.01 * torque.square() + 0.001 * state.motion.joint_acc.square()).sum(-1)


def action_smoothness(env: GantryEnv) -> Tensor:
    """Shape (N,): squares of the change of the action."""
    manager = env.action_manager
    return (manager.action - manager.prev_action).square().sum(-1)


def contact_force(env: GantryEnv) -> Tensor:
    """Shape (N,): squares of the contact forces above the robot's weight, over feet and other shapes, none counted
    for more than twice the weight.
    """
    state = GoalState.of(env)
    total = torch.zeros(env.num_envs, device=env.device)
    for sensor in (state.names.contact_sensor, state.goal_names.body_sensor):
        force = state.contact_force(sensor).norm(dim=-1).clamp(max=2.0 * state.weight_n)
        total = total + (force - state.weight_n).clamp(min=0.0).square().sum(-1)
    return total


def link_acceleration(env: GantryEnv) -> Tensor:
    """Shape (N,): sum of the links' accelerations, m/s^2."""
    return GoalState.of(env).motion.link_acc.norm(dim=-1).sum(-1)


def joint_pos_limit(env: GantryEnv, lower_rad: tuple[float, ...], upper_rad: tuple[float, ...]) -> Tensor:
    """Shape (N,): distance of joints into the outer 5 % of their ranges, rad.

    The paper scales the limits themselves by 0.95, which for a range that does not straddle zero loosens one of them;
    here the range shrinks about its middle.
    """
    state = GoalState.of(env)
    lower, upper = numbers_like(lower_rad, state.joint_pos), numbers_like(upper_rad, state.joint_pos)
    middle, half = 0.5 * (lower + upper), 0.475 * (upper - lower)
    return ((state.joint_pos - middle).abs() - half).clamp(min=0.0).sum(-1)


def joint_vel_limit(env: GantryEnv, limit_rad_s: tuple[float, ...]) -> Tensor:
    """Shape (N,): excess of joint speeds over 90 % of their limits, rad/s."""
    state = GoalState.of(env)
    return (state.joint_vel.abs() - 0.9 * numbers_like(limit_rad_s, state.joint_vel)).clamp(min=0.0).sum(-1)


def joint_torque_limit(env: GantryEnv, limit_nm: tuple[float, ...]) -> Tensor:
    """Shape (N,): excess of torques over 80 % of the joints' limits, N m."""
    torque = joint_torque(env)
    return (torque.abs() - 0.8 * numbers_like(limit_nm, torque)).clamp(min=0.0).sum(-1)


def joint_torque(env: GantryEnv) -> Tensor:
    """Torques of the actuators on the joints, (N, n), N m, of the newest physics step."""
    return env.sim.data.qfrc_actuator[:, GoalState.of(env)._v]


def arm_posture(env: GantryEnv, joints: tuple[int, ...], default_rad: tuple[float, ...]) -> Tensor:
    """Shape (N,): squares of the arms' distance from the default pose, a tenth of it on uneven ground."""
    state = GoalState.of(env)
    away = state.joint_pos - numbers_like(default_rad, state.joint_pos)
    away = away[:, numbers_like(joints, env.episode_length_buf)].square().sum(-1)
    window = state.window(state.goal_names.map_sensor).flatten(1)
    uneven = window.amax(-1) - window.amin(-1) >= FLAT_M
    return torch.where(uneven, 0.1 * away, away)


def foot_yaw(env: GantryEnv) -> Tensor:
    """Shape (N,): squares of the feet's yaw against the base's, a tenth of it while the robot does not walk ahead."""
    state = GoalState.of(env)
    rotation = env.sim.data.site_xmat[:, state._sites]
    ahead = rotation[..., :2, 0]
    base = torch.stack(
        (env.sim.data.xmat[:, state.motion.base_id, 0, 0], env.sim.data.xmat[:, state.motion.base_id, 1, 0]), -1
    )
    base = base[:, None]
    sine = base[..., 0] * ahead[..., 1] - base[..., 1] * ahead[..., 0]
    angle = torch.atan2(sine, (base * ahead).sum(-1))
    walks = state.lin_vel_b[:, 0].abs() > 0.3
    return angle.square().sum(-1) * torch.where(walks, 1.0, 0.1)

"""Velocities and accelerations of links from their positions at control steps, and where a robot was seconds ago."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.robots import GoalRobotCfg

LIGHTEST_LINK_KG = 0.1
"""Links lighter than this do not count."""


class Motion:
    """History of positions, one entry per control step; N environments, b bodies, f feet.

    Differences of positions over a control step (20 ms) are what the authors' code uses too; accelerations at the
    physics step would be those of a stiff contact, and differ between simulators. A reset blanks what spans it.
    """

    def __init__(self, env: GantryEnv, robot: GoalRobotCfg, state: Any) -> None:
        self._env = env
        self._state = state
        entity = env.robot
        model = env.sim.mj_model
        ids = entity.indexing.body_ids.tolist()
        heavy = [body for body in ids if model.body_mass[body] > LIGHTEST_LINK_KG]
        names = [model.body(body).name.split("/")[-1] for body in heavy]
        self.base_id = int(ids[0])
        self._bodies = torch.tensor(heavy, device=env.device)
        self._thighs = torch.tensor([names.index(thigh) for thigh in robot.thighs], device=env.device)
        now = env.sim.data.xpos[:, self._bodies]
        self._pos = [now.clone() for _ in range(3)]
        self._foot = [state.foot_pos_w.clone() for _ in range(2)]
        self._age = torch.zeros(env.num_envs, dtype=torch.long, device=env.device)
        self._step = -1
        self._joint_vel = [torch.zeros(env.num_envs, robot.body.spec.num_joints, device=env.device) for _ in range(2)]
        self._contact = torch.zeros(env.num_envs, len(robot.body.spec.feet), device=env.device)
        self._contact_before = self._contact.clone()
        self._body_contact: Tensor | None = None
        self._body_before: Tensor | None = None
        past_steps = max(1, round(state.cfg.ends.stagnation_s / env.step_dt))
        self._past = state.pos_w[:, None, :2].repeat(1, past_steps, 1)
        self._moved = torch.zeros(env.num_envs, device=env.device)

    def refresh(self) -> None:
        """Take the newest positions, once per control step."""
        if self._step == self._env.common_step_counter:
            return
        self._step = self._env.common_step_counter
        state = self._state
        self._age += 1
        self._pos = [*self._pos[1:], self._env.sim.data.xpos[:, self._bodies].clone()]
        self._foot = [self._foot[1], state.foot_pos_w.clone()]
        self._joint_vel = [self._joint_vel[1], state.joint_vel.clone()]
        self._contact_before, self._contact = self._contact, state.foot_contact
        body = state.body_contact
        self._body_before = body if self._body_contact is None else self._body_contact
        self._body_contact = body
        slot = self._step % self._past.shape[1]
        here = state.pos_w[:, :2]
        self._moved = (here - self._past[:, slot]).norm(dim=-1)
        self._past[:, slot] = here

    def _since_reset(self, steps: int) -> Tensor:
        return (self._age >= steps).to(torch.float32)

    @property
    def link_acc(self) -> Tensor:
        """(N, b, 3) accelerations of the links' frames in the world, m/s^2; zero in the first steps of an episode."""
        self.refresh()
        first, second, third = self._pos
        acc = (third - 2.0 * second + first) / self._env.step_dt**2
        return acc * self._since_reset(3)[:, None, None]

    @property
    def thigh_acc(self) -> Tensor:
        """(N, f) vertical accelerations of the thighs, m/s^2."""
        return self.link_acc[:, self._thighs, 2]

    @property
    def joint_acc(self) -> Tensor:
        """(N, n) joint accelerations, rad/s^2."""
        self.refresh()
        return (self._joint_vel[1] - self._joint_vel[0]) / self._env.step_dt * self._since_reset(2)[:, None]

    @property
    def foot_speed(self) -> Tensor:
        """(N, f) horizontal speeds of the feet, m/s."""
        self.refresh()
        step = self._foot[1][..., :2] - self._foot[0][..., :2]
        return step.norm(dim=-1) / self._env.step_dt * self._since_reset(2)[:, None]

    @property
    def foot_stayed(self) -> Tensor:
        """(N, f) 1 where a foot touched the ground at this control step and the one before."""
        self.refresh()
        return self._contact * self._contact_before * self._since_reset(2)[:, None]

    @property
    def new_body_contact(self) -> Tensor:
        """(N, shapes) 1 where a shape touches the ground that did not a control step ago."""
        self.refresh()
        assert self._body_contact is not None
        assert self._body_before is not None
        return (self._body_contact - self._body_before).clamp(min=0.0) * self._since_reset(2)[:, None]

    @property
    def moved_m(self) -> Tensor:
        """(N,) horizontal distance from where the base was ``ends.stagnation_s`` ago, m; inf before that.

        A sliding window: a robot that has stood still for so long is found at once, and one that walks never is,
        whereas snapshots at fixed times miss the one and may catch the other.
        """
        self.refresh()
        return torch.where(self._age > self._past.shape[1], self._moved, torch.inf)

    def reset(self, env_ids: Tensor) -> None:
        """Forget what came before, in these environments, indices (k,)."""
        self._age[env_ids] = 0

"""Decisions and actions of a scripted person beside any number of arms: help when progress stalls, sometimes wrong."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gantry_deploy.errors import TeleopError
from gantry_policies.common.batched_env import Observation
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.experts import make_expert
from gantry_sim.tasks.manipulation.state import ArmState


@dataclass(frozen=True)
class PersonCfg:
    """Attention, reaction and errors of a scripted person."""

    patience_s: float = 1.0
    """Time without progress after which the person decides to step in, s."""
    reaction_s: float = 0.3
    """Time from that decision to the first motion, s."""
    gain: float = 0.02
    """Change of the task's progress, 0 to 1, that counts as progress."""
    enough: float = 0.5
    """Progress that a correction brings before the person gives back."""
    least_s: float = 0.5
    """Shortest correction, s."""
    most_s: float = 3.0
    """Longest correction, s."""
    shake: float = 0.1
    """Suboptimality of the expert that acts, 0 to 1."""
    wrong: float = 0.0
    """Share of the corrections that do not help: half of them go to a wrong place, the others hold still."""
    wrong_m: float = 0.06
    """Distance of that place along x and y, m."""
    attention: float = 1.0
    """Share of the attempts in which the person steps in at all."""

    def __post_init__(self) -> None:
        for item in fields(self):
            if not getattr(self, item.name) >= 0.0:
                raise TeleopError(f"{item.name} is {getattr(self, item.name)}, expected 0 or more.")
        for name in ("shake", "wrong", "attention"):
            if getattr(self, name) > 1.0:
                raise TeleopError(f"{name} is {getattr(self, name)}, expected a share from 0 to 1.")


class ScriptedHelp:
    """One person for each of N arms. In every step :meth:`watch` decides where a person acts, :meth:`act` how.

    Args:
        state: Of the arms, up to date whenever it is looked at.
        cfg: Settings.
        dt_s: Length of a step, s.
        seed: Of errors and attention.
    """

    def __init__(self, state: ArmState, cfg: PersonCfg, dt_s: float, seed: int = 0) -> None:
        self.cfg = cfg
        self.corrections = self.wrong_ones = 0
        """Corrections so far, and those that did not help."""
        self._state, self._dt_s = state, dt_s
        self._expert = make_expert(state, cfg.shake, seed)
        self._random = torch.Generator().manual_seed(seed)
        count = len(state.goal)
        self._best, self._start = torch.zeros(count), torch.zeros(count)
        self._still_s, self._alarmed_s, self._acting_s = torch.zeros(count), torch.zeros(count), torch.zeros(count)
        self._acting, self._watches, self._idle = (torch.zeros(count, dtype=torch.bool) for _ in "123")
        self.begin(torch.ones(count, dtype=torch.bool))

    def begin(self, rows: Tensor) -> None:
        """Attempts begin where ``rows``, (N,) bool, says so."""
        self._watches = torch.where(rows, self._drawn(len(rows)) < self.cfg.attention, self._watches)
        self._best = torch.where(rows, -torch.inf, self._best)
        for clock in (self._still_s, self._alarmed_s, self._acting_s):
            clock[rows] = 0.0
        self._acting[rows] = False

    def watch(self, acted: Tensor) -> Tensor:
        """Look at the arms.

        Args:
            acted: (N,) bool: arms that a person moved in the step before.

        Returns:
            (N,) bool: arms that a person moves now.
        """
        cfg, state = self.cfg, self._state
        state.refresh()
        progress = state.rule.progress(state).cpu()
        self._acting_s += self._dt_s * (self._acting & acted.cpu())
        better = (progress >= self._start + cfg.enough) & (self._acting_s >= cfg.least_s)
        gives_back = self._acting & (better | (self._acting_s >= cfg.most_s - 1e-6))
        self._acting &= ~gives_back
        moved_on = gives_back | (~self._acting & (progress > self._best + cfg.gain))
        self._best = torch.where(moved_on, progress, self._best)
        self._still_s = torch.where(moved_on | self._acting, 0.0, self._still_s + self._dt_s)
        alarming = (self._still_s >= cfg.patience_s) | state.rule.endangered(state).cpu()
        self._alarmed_s = torch.where(alarming & ~self._acting & ~gives_back, self._alarmed_s + self._dt_s, 0.0)
        steps_in = self._watches & (self._alarmed_s > cfg.reaction_s + 1e-6)
        if bool(steps_in.any()):
            self._step_in(steps_in, progress)
        return self._acting.clone()

    def act(self) -> Tensor:
        """Actions (N, a), dimensionless, of which the rows count where a person acts."""
        action = self._expert.act().clone()
        action[self._idle, :-1] = 0.0
        return action

    def _step_in(self, rows: Tensor, progress: Tensor) -> None:
        count = len(rows)
        self._acting |= rows
        self._start = torch.where(rows, progress, self._start)
        self._acting_s[rows] = self._alarmed_s[rows] = 0.0
        self.corrections += int(rows.sum())
        self._expert.take_over(rows)
        wrong = rows & (self._drawn(count) < self.cfg.wrong)
        still = wrong & (self._drawn(count) < 0.5)
        self.wrong_ones += int(wrong.sum())
        self._idle = torch.where(rows, still, self._idle)
        angle = 2.0 * torch.pi * self._drawn(count)
        away = torch.stack((angle.cos(), angle.sin(), torch.zeros(count)), dim=-1) * self.cfg.wrong_m
        self._expert.lead_astray(away, wrong & ~still)

    def _drawn(self, count: int) -> Tensor:
        return torch.rand(count, generator=self._random)


class ScriptedCorrector:
    """A scripted person for training environments, see :class:`gantry_policies.corrections.person.Person`.

    Args:
        env: The environments.
        cfg: Settings.
        seed: Of errors and attention.
    """

    def __init__(self, env: ArmStepEnv, cfg: PersonCfg | None = None, seed: int = 0) -> None:
        self.help = ScriptedHelp(env.state, cfg or PersonCfg(), env.dt_s, seed)
        """Decisions and actions, with their counts."""
        self._acted = torch.zeros(env.num_envs, dtype=torch.bool)

    def reset(self, env_ids: Tensor | None = None) -> None:
        """See :meth:`~gantry_policies.corrections.person.Person.reset`."""
        rows = torch.zeros_like(self._acted)
        rows[slice(None) if env_ids is None else env_ids.cpu()] = True
        self.help.begin(rows)
        self._acted &= ~rows

    def decide(self, obs: Observation, policy_action: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`~gantry_policies.corrections.person.Person.decide`; sees what the simulator knows."""
        del obs, policy_action
        self._acted = self.help.watch(self._acted)
        return self._acted, self.help.act()

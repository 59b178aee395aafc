"""A quadruped that walks to its goal by rules, all environments at once.

It knows the simulator's exact state and ground. A trot, whose feet land half a stance ahead of the hip and after a
wrong velocity (Raibert, Legged Robots That Balance, 1986), each on the best ground nearby; the feet on the ground push
as a least-squares share of the wrench that holds the base's height, attitude and velocity.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_sim.env import GantryEnv
from gantry_sim.tasks.goal.rules.cfg import WalkRules
from gantry_sim.tasks.goal.rules.footholds import Footholds
from gantry_sim.tasks.goal.rules.gait import Gait, Phases
from gantry_sim.tasks.goal.rules.ground import Ground
from gantry_sim.tasks.goal.rules.legs import Legs
from gantry_sim.tasks.goal.rules.moment import Moment
from gantry_sim.tasks.goal.rules.route import Footing, Route
from gantry_sim.tasks.goal.rules.support import GRAVITY_M_S2, Drive, Support
from gantry_sim.tasks.goal.rules.swing import Swing
from gantry_sim.tasks.goal.state import GoalState

ROBOT = "go2"
"""Whose legs the rules are for."""
NEW_S = 0.05
"""For so long after a beginning nothing remembered counts."""
RISE_S = 0.1
"""Time from the pose at the beginning to what the rules say."""
STAND_M = 0.29
"""Height of the base in that pose."""


class RuleWalker:
    """Joint targets by rules, once per control step; it remembers, and begins anew with each episode.

    Args:
        env: Environment of a goal task of a Go2; its whole terrain is looked at here, which takes seconds.
        rules: Parameters; None for those found.

    Raises:
        GantryError: If the robot is another, or the policy has no clock.
    """

    def __init__(self, env: GantryEnv, rules: WalkRules | None = None) -> None:
        state, rules = GoalState.of(env), rules or WalkRules()
        spec, contract = state.robot.body.spec, state.contract
        if spec.name != ROBOT:
            raise GantryError(f"The rules walk on the legs of '{ROBOT}', the environment's robot is '{spec.name}'.")
        if contract.gait is None:
            raise GantryError("The rules walk by the policy's clock, and env.carrot is null: there is none.")
        radius, count = state.names.foot_radius_m, env.num_envs
        stiffness = torch.tensor(contract.stiffness_nm_rad, device=env.device)
        damping = torch.tensor(contract.damping_nm_s_rad, device=env.device)
        mass_kg = state.weight_n / GRAVITY_M_S2
        ground = Ground.of(env)
        self._env = env
        self._legs = legs = Legs(spec.name, spec.feet, env.device)
        self._route = Route(env, ground, rules.way)
        self._gait = Gait(torch.zeros(count, len(spec.feet), device=env.device), contract.gait)
        self._footholds = Footholds(legs, ground, rules.feet, count, radius)
        self._swing = Swing(legs, ground, rules.swing, damping / stiffness, env.step_dt, radius)
        self._support = Support(legs, rules.support, Drive(stiffness, mass_kg, radius), count)
        below = torch.full((len(spec.feet), 1), radius - STAND_M, device=env.device)
        self._standing = legs.joints(torch.cat((self._footholds.nominal_b, below), -1)[None])
        self._steps = torch.zeros(count, dtype=torch.long, device=env.device)
        self._next = torch.full((count,), -1, dtype=torch.long, device=env.device)

    def __call__(self) -> Tensor:
        """Joint position targets of this control step, (N, 12), rad, within no limits."""
        state = GoalState.of(self._env)
        now = self._moment(state)
        footing = Footing(
            now.kept(self._footholds.shift_w, torch.zeros_like(self._footholds.shift_w)),
            now.kept(self._footholds.bad, torch.zeros_like(self._footholds.bad)),
            now.kept(self._support.uneven_m, torch.zeros_like(self._support.uneven_m)),
        )
        wish = self._route(now, state, footing)
        phases = self._gait(now, wish.rest)
        places = self._footholds(now, wish, phases, self._gait)
        swinging = self._swing(now, phases, places, self._gait.swing_s)
        missing = self._support.missing(now, phases)
        standing = self._support.joint_targets(now, wish, phases, places, missing)
        standing = self._by_foot(missing, self._searching(now, places, phases), standing)
        stands = self._support.stands(now, phases)
        return self._from_the_start(now, stands, self._by_foot(stands, standing, swinging))

    def _moment(self, state: GoalState) -> Moment:
        """The state, and since when the rules have been walking: an episode's clock that jumps begins them anew."""
        clock = self._env.episode_length_buf
        self._steps = torch.where(clock == self._next, self._steps + 1, 0)
        self._next = clock + 1
        time_s = self._steps * self._env.step_dt
        return Moment.of(state, self._legs, time_s, time_s < NEW_S)

    def _searching(self, now: Moment, places: Tensor, phases: Phases) -> Tensor:
        """Joint targets (N, 12), rad, of feet that look for the ground."""
        pos, rotation = self._swing.ahead(now)
        down = self._support.searching(now, phases, places) - pos[:, None]
        return self._legs.joints(torch.einsum("nji,nkj->nki", rotation, down))

    def _from_the_start(self, now: Moment, stands: Tensor, targets: Tensor) -> Tensor:
        """From the pose at the beginning to what the rules say, (N, 12), rad.

        Nobody waits first: who imitates sees a robot that stands, not for how long, and would go on standing.
        """
        share = (now.time_s / RISE_S).clamp(0.0, 1.0)[:, None]
        return self._by_foot(stands, (1.0 - share) * self._standing + share * targets, targets)

    @staticmethod
    def _by_foot(which: Tensor, yes: Tensor, no: Tensor) -> Tensor:
        """Joint values (N, 3 f) of either, by foot (N, f)."""
        return torch.where(which.repeat_interleave(3, 1), yes, no)

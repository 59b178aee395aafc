"""A quadruped that walks to its goal by rules, all environments at once.

It knows the simulator's exact state and ground, goes the shortest way, and steps on the best ground nearby; its legs
are those of a policy that says where to step (:mod:`gantry_deploy.footsteps.controller`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_deploy.contract.footstep_spec import STEP_NAMES, StepsSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.footsteps.controller import Stepper
from gantry_hardware.errors import GantryError
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.rules.cfg import WalkRules
from gantry_sim.tasks.goal.rules.footholds import Footholds
from gantry_sim.tasks.goal.rules.ground import Ground
from gantry_sim.tasks.goal.rules.route import Footing, Route, Wish
from gantry_sim.tasks.goal.rules.rule_state import RuleState
from gantry_sim.tasks.goal.state import GoalState

NEW_STEPS = 3
"""For so many control steps after a beginning nothing remembered counts."""
DEEPER_M = 0.05
"""Ground is told to a foot that lies so much below where its legs would put it down of their own accord."""


class RuleWalker:
    """Scripted walker: footholds and speed, once per control step; it remembers, and begins anew with each episode.

    Args:
        env: Environment of a goal task; its whole terrain is looked at here, which takes seconds.
        rules: Parameters; None for those found.

    Raises:
        GantryError: If the policy does not say where to step.
    """

    def __init__(self, env: GantryEnv, rules: WalkRules | None = None) -> None:
        state, rules = GoalState.of(env), rules or WalkRules()
        spec = steps_of(state.contract)
        ground = Ground.of(env)
        like = torch.zeros(1, device=env.device)
        side = torch.tensor([1.0 if leg.side_m > 0.0 else -1.0 for leg in spec.legs], device=env.device)
        self._env = env
        self._radius = spec.swing.foot_radius_m
        self._stepper = Stepper(state.contract, like)
        self._route = Route(env, ground, rules.way)
        self._footholds = Footholds(ground, rules.feet, env.num_envs, side, self._radius)
        self._uneven = torch.zeros(env.num_envs, device=env.device)
        self._steps = torch.zeros(env.num_envs, dtype=torch.long, device=env.device)
        self._next = torch.full((env.num_envs,), -1, dtype=torch.long, device=env.device)

    def __call__(self) -> Tensor:
        """This control step's numbers of ``STEP_NAMES``, (N, 12), within no limits."""
        state = GoalState.of(self._env)
        seen = state.measured or state.signals()
        body = self._stepper.sense(
            state.time_s,
            state.command,
            seen.quat_base_to_world_wxyz,
            seen.ang_vel_base_in_base_rad_s,
            seen.joint_pos_rad,
            seen.joint_vel_rad_s,
            seen.elevation_map,
        )
        now = RuleState.of(state, body, self._new())
        feet = self._footholds
        footing = Footing(*(now.kept(old, torch.zeros_like(old)) for old in (feet.shift_w, feet.bad, self._uneven)))
        wish = self._route(now, state, footing)
        return self._steps_of(now, wish)

    def _new(self) -> Tensor:
        """Mask of the environments that have only just begun, (N,): an episode's clock that jumps begins the rules
        anew.
        """
        clock = self._env.episode_length_buf
        self._steps = torch.where(clock == self._next, self._steps + 1, 0)
        self._next = clock + 1
        return self._steps < NEW_STEPS

    def _steps_of(self, now: RuleState, wish: Wish) -> Tensor:
        """Action that gives the wished velocity and the best places, by what the decoder does of its own accord."""
        body, drive, vel, turn = now.body, now.body.drive, now.to_level(wish.vel_w), wish.turn_rad_s[:, None]
        land = self._stepper.landing(body, vel, turn)
        places = self._footholds(now, wish, now.pos_w[:, None, :2] + now.to_world(land)) - now.pos_w[:, None]
        flat = now.to_level(places[..., :2])
        soles = self._stepper.soles(body, places[..., 2])
        self._uneven = _range(soles)
        shift = (flat - land) * body.swings[..., None]
        front = self._stepper.end_of == 0
        found = torch.zeros(len(drive), len(STEP_NAMES), device=drive.device)
        found[:, 0:2], found[:, 3:5] = shift[:, front].sum(1), shift[:, ~front].sum(1)
        deeper = places[..., 2] - self._radius - self._stepper.stepped_on(body, flat)
        deeper = torch.where(deeper < -DEEPER_M, deeper, 0.0) * body.swings
        found[:, 2], found[:, 5] = deeper[:, front].sum(1), deeper[:, ~front].sum(1)
        moves = torch.cat((vel - drive[:, :2], turn - drive[:, 2:]), -1)
        found[:, 6:9] = moves * ~body.rests
        return found


def _range(values: Tensor) -> Tensor:
    return values.amax(1) - values.amin(1)


def steps_of(contract: PolicyContract) -> StepsSpec:
    """Stepping part of a policy's contract.

    Raises:
        GantryError: If the policy does not say where to step.
    """
    if contract.gait is None or contract.gait.steps is None:
        raise GantryError(
            f"The rules say where to step, and the action of this policy is '{contract.action.kind}': they suit "
            "env.gait=steps with a carrot."
        )
    return contract.gait.steps

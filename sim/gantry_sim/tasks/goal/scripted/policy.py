"""Scripted policy of a quadruped that walks to its goal, all environments at once: a teacher, and a baseline.

It knows the simulator's exact state and ground, goes the shortest way, and steps on the best ground nearby; its legs
are those of a policy that says where to step (:mod:`gantry_deploy.footsteps.controller`). The numbers of route and
footholds are from a search over goals reached by a Go2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_deploy.contract.footstep_spec import STEP_NAMES, PathSelectorSpec, StepsSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.footsteps.controller import Stepper
from gantry_deploy.footsteps.map_search import FootholdSearch
from gantry_hardware.errors import GantryError
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.tasks.goal.scripted.footholds import ScriptedFootholds
from gantry_sim.tasks.goal.scripted.ground import Ground
from gantry_sim.tasks.goal.scripted.route import Route
from gantry_sim.tasks.goal.scripted.walk_state import WalkState
from gantry_sim.tasks.goal.state import GoalState

NEW_STEPS = 3
"""Control steps after a beginning in which nothing remembered counts."""
DEEPER_M = 0.05
"""Depth below where its legs would put a foot down of their own accord, from which on the policy says so."""


class ScriptedPolicy:
    """Actions of the scripted policy, once per control step; it remembers, and begins anew with each episode.

    Args:
        env: Environment of a goal task; its whole terrain is looked at here, which takes seconds.

    Raises:
        GantryError: If the task's policies do not say where to step.
    """

    def __init__(self, env: GantryEnv) -> None:
        state = GoalState.of(env)
        spec, action = steps_of(state.contract), state.contract.action
        ground, like = Ground.of(env), torch.zeros(1, device=env.device)
        self._env = env
        self._radius = spec.swing.foot_radius_m
        self._stepper = Stepper(state.contract, like)
        self._route = Route(env, ground, (spec.path or PathSelectorSpec()).track_m)
        search = FootholdSearch(spec.legs, spec.swing.search_m, like)
        self._footholds = ScriptedFootholds(ground, search, state.foot_pos_w, self._radius)
        self._scale, self._clip = torch.tensor(action.scale, device=env.device), action.clip
        self._uneven = torch.zeros(env.num_envs, device=env.device)
        self._steps = torch.zeros(env.num_envs, dtype=torch.long, device=env.device)
        self._next = torch.full((env.num_envs,), -1, dtype=torch.long, device=env.device)

    def __call__(self) -> Tensor:
        """This control step's actions (N, 12), dimensionless, within the contract's bounds; by the map and the
        attitude that the actor is shown."""
        state = GoalState.of(self._env)
        seen = state.measured
        pose = seen.quat_base_to_world_wxyz, seen.ang_vel_base_in_base_rad_s
        joints = seen.joint_pos_rad, seen.joint_vel_rad_s
        body = self._stepper.sense(state.time_s, state.command, *pose, *joints, seen.elevation_map)
        now = WalkState.of(state, body, self._new())
        vel, turn = self._route(now, state, self._footholds, self._uneven)
        return (self._steps_to(now, vel, turn[:, None]) / self._scale).clamp(-self._clip, self._clip)

    def _new(self) -> Tensor:
        """Mask of the environments that have only just begun, (N,): an episode's clock that jumps begins anew."""
        clock = self._env.episode_length_buf
        self._steps = torch.where(clock == self._next, self._steps + 1, 0)
        self._next = clock + 1
        return self._steps < NEW_STEPS

    def _steps_to(self, now: WalkState, vel: Tensor, turn: Tensor) -> Tensor:
        """Numbers of ``STEP_NAMES`` (N, 12), in their units, that give velocity (N, 2) and turning rate (N, 1) and the
        best places, by what the decoder does of its own accord."""
        body, drive, land = now.body, now.body.drive, self._stepper.landing(now.body, vel, turn)
        shift, height = self._footholds(now, vel, land)
        under = self._stepper.heights(body, body.feet[..., :2])
        self._uneven = _range(self._stepper.support.soles(body, height, under))
        front = self._stepper.end_of == 0
        found = torch.zeros(len(drive), len(STEP_NAMES), device=drive.device)
        found[:, 0:2], found[:, 3:5] = shift[:, front].sum(1), shift[:, ~front].sum(1)
        deeper = height - self._radius - self._stepper.stepped_on(body, land + shift)
        deeper = torch.where(deeper < -DEEPER_M, deeper, 0.0) * body.swings
        found[:, 2], found[:, 5] = deeper[:, front].sum(1), deeper[:, ~front].sum(1)
        found[:, 6:9] = torch.cat((vel - drive[:, :2], turn - drive[:, 2:]), -1) * ~body.rests
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
            f"The scripted policy says where to step, and the action of this policy is '{contract.action.kind}': it "
            "suits env.gait=steps with a goal velocity."
        )
    return contract.gait.steps

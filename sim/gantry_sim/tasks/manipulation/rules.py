"""The tasks' own rules: where an episode begins, when it has succeeded, when it is lost, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.draws import Draws, turn_about
from gantry_sim.tasks.manipulation.language.instructions import (
    PICK,
    PLACE,
    PUSH,
    VERBS,
    Asked,
    Phrasing,
    draw_episode,
)
from gantry_sim.tasks.manipulation.workbench import (
    GOAL_RADIUS_M,
    HOLE_DEPTH_M,
    STAND_HALF_M,
    WORKBENCHES,
    Workbench,
)

LIFT_M = 0.10
"""The cube is lifted when its middle is this far above where it lay."""
PLACE_RADIUS_M = 0.02
"""The cube is placed when it lies this close to the middle of the stand, let go, at rest."""
INSERT_DEPTH_M = 0.025
"""The peg is in when its tip is this far below the edge of the hole."""
PUSH_GAP_M = 0.015
"""Distance from a cube's face to the end effector of a closed hand that is about to push it."""
PUSH_CLEAR_M = 0.02
"""Height over a cube's top at which a closed hand passes over it."""
REACH_M = ((0.12, 0.58), (-0.34, 0.34))
"""An object outside these ranges along x and y is out of reach."""
EDGE_M = 0.03
"""An object this close to one of these limits is about to get out of reach."""
DROPPED_M = 0.10
"""An object that begins in the hand and is this far from it has been dropped."""
WRONG_M = 0.03
"""Another thing than the one that is asked for may be moved by this much; farther, and the episode is lost."""
PEG_BELOW_EE_M = 0.02
"""The peg's middle lies so far below the end effector that holds it."""

TIP_GAP_M = -0.0002
"""Distance of a finger's foremost points from the middle when it is at zero."""


@dataclass(frozen=True)
class Start:
    """Starts of k episodes with T things and F fixtures or zones; places in the arm's base frame, m."""

    things_in_base: Tensor
    """(k, T, 7), place in m and unit quaternion, w first, of each thing."""
    goal_m: Tensor
    """(k, 3), where the thing's middle belongs; (k, 0) in a task without a goal."""
    fixtures_m: Tensor
    """(k, F, 3), on the table, the fixture under the goal."""
    gripper_m: Tensor | None = None
    """(k,), place of the driven finger; None for open."""
    asked: Sequence[Asked] | None = None
    """Instruction of each episode; None in a task that is told nothing in words."""

    @property
    def thing(self) -> Tensor:
        """(k,) whole numbers, place in the bench of the thing that is to be handled."""
        count = len(self.things_in_base)
        places = [0] * count if self.asked is None else [one.thing for one in self.asked]
        return torch.tensor(places, device=self.things_in_base.device)

    @property
    def verb(self) -> Tensor:
        """(k,) whole numbers, place of what is asked for among the verbs; 0 where nothing is told."""
        count = len(self.things_in_base)
        places = [0] * count if self.asked is None else [VERBS.index(one.verb) for one in self.asked]
        return torch.tensor(places, device=self.things_in_base.device)


class RuleState(Protocol):
    """Measured quantities that rules judge, in the arm's base frame; N environments."""

    object_speed: Tensor
    """(N,) speed of the object, m/s."""
    object_from_ee: Tensor
    """(N, 3) from the end effector to the object, m."""
    goal_from_object: Tensor
    """(N, 3) from the object to its goal, m; (N, 0) without a goal."""

    @property
    def verb(self) -> Tensor:
        """Place of what is asked for among the verbs, (N,) whole numbers; 0 where nothing is told."""
        ...

    @property
    def others_moved_m(self) -> Tensor:
        """Largest distance of another thing from its place at the start, (N,), m; 0 where there is no other."""
        ...

    @property
    def object_pos(self) -> Tensor:
        """Position of the object, (N, 3), m."""
        ...

    @property
    def gripper_m(self) -> Tensor:
        """Position of the driven finger, half of the gripper's opening, (N,), m."""
        ...


class Rule:
    """One task.

    Args:
        cfg: Its configuration.
    """

    def __init__(self, cfg: ArmCfg) -> None:
        self.cfg = cfg
        self.bench: Workbench = WORKBENCHES[cfg.task]
        self.half_m = self.bench.half_m

    @property
    def goal_size(self) -> int:
        """Numbers of the goal: 3, or 0 in a task without one."""
        return 3 if self.bench.mocap_bodies else 0

    def start(self, draws: Draws, ee_pos_m: Tensor) -> Start:
        """Starts of episodes, with the end effector at (k, 3) [m] in the arm's base frame."""
        raise NotImplementedError

    def success(self, state: RuleState) -> Tensor:
        """(N,) bool."""
        raise NotImplementedError

    def progress(self, state: RuleState) -> Tensor:
        """(N,), 0 to 1, of which the dense reward is the change."""
        raise NotImplementedError

    def lost(self, state: RuleState) -> Tensor:
        """(N,) bool: the object is out of reach."""
        (x_low, x_high), (y_low, y_high) = REACH_M
        x, y, z = state.object_pos.unbind(-1)
        return (x < x_low) | (x > x_high) | (y < y_low) | (y > y_high) | (z < -0.05)

    def endangered(self, state: RuleState) -> Tensor:
        """(N,) bool: the object is about to be lost."""
        (x_low, x_high), (y_low, y_high) = REACH_M
        x, y, _ = state.object_pos.unbind(-1)
        inside = (x > x_low + EDGE_M) & (x < x_high - EDGE_M) & (y > y_low + EDGE_M) & (y < y_high - EDGE_M)
        return ~inside

    def wrong(self, state: RuleState) -> Tensor:
        """(N,) bool: another thing than the one that is asked for has been moved."""
        return state.others_moved_m > WRONG_M

    def _on_table(self, draws: Draws) -> Tensor:
        """Pose (k, 1, 7) of an object that lies on the table."""
        chance = self.cfg.randomize
        x, y = draws.uniform(*chance.object_x_m), draws.uniform(*chance.object_y_m)
        pos = torch.stack((x, y, torch.full_like(x, self.half_m[2])), dim=-1)
        return torch.cat((pos, turn_about(2, draws.within(chance.object_yaw_rad))), dim=-1)[:, None]

    def _goal(self, draws: Draws, height_m: float) -> tuple[Tensor, Tensor]:
        """Goal (k, 3) at a height, and the place (k, 1, 3) of the fixture below it."""
        chance = self.cfg.randomize
        x, y = draws.uniform(*chance.goal_x_m), draws.uniform(*chance.goal_y_m)
        goal = torch.stack((x, y, torch.full_like(x, height_m)), dim=-1)
        fixture = goal.clone()
        fixture[:, 2] = 0.0
        return goal, fixture[:, None]


class Lift(Rule):
    """Grasp a cube that lies on the table and lift it."""

    def start(self, draws: Draws, ee_pos_m: Tensor) -> Start:
        """See :meth:`Rule.start`: begin with the cube on the table."""
        return Start(self._on_table(draws), ee_pos_m[:, :0], ee_pos_m[:, None, :][:, :0])

    def success(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.success`: high enough, and in the hand."""
        high = state.object_pos[:, 2] >= self.half_m[2] + LIFT_M
        return high & (state.object_from_ee.norm(dim=-1) < 0.05)

    def progress(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.progress`: near the cube, then its height."""
        height = (state.object_pos[:, 2] - self.half_m[2]) / LIFT_M
        return 0.4 * _near(state.object_from_ee, 0.1) + 0.6 * height.clamp(0.0, 1.0)


class Push(Rule):
    """Push a cube to a disc on the table."""

    def start(self, draws: Draws, ee_pos_m: Tensor) -> Start:
        """See :meth:`Rule.start`: begin with the cube on the table and the disc beyond it."""
        del ee_pos_m
        return Start(self._on_table(draws), *self._goal(draws, self.half_m[2]))

    def success(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.success`: the cube's middle over the disc, on the table."""
        away = state.goal_from_object[:, :2].norm(dim=-1)
        return (away < GOAL_RADIUS_M) & (state.object_pos[:, 2] < 1.5 * self.half_m[2])

    def progress(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.progress`: the hand near the place from which it can push, and the cube near the goal.

        The hand's distance from that place, behind the cube, is the length of a way over the cube where the cube is in
        between: along a straight line, a hand on the wrong side would be drawn against the cube and stay there.
        """
        from_hand, way = state.object_from_ee, state.goal_from_object[:, :2]
        way = way / way.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        half, height = self.half_m[0], -from_hand[:, 2]
        ahead = -(from_hand[:, :2] * way).sum(dim=-1)
        aside = (from_hand[:, 0] * way[:, 1] - from_hand[:, 1] * way[:, 0]).abs()
        # 1 where the cube is between the hand and that place, falling to 0 over 2 cm at its sides.
        between = ((ahead + half) / 0.02).clamp(0.0, 1.0) * ((half + 0.03 - aside) / 0.02).clamp(0.0, 1.0)
        over = between * (self.half_m[2] + PUSH_CLEAR_M)
        across = torch.hypot(ahead + half + PUSH_GAP_M, aside)
        away = (over - height).clamp(min=0.0) + torch.hypot(across, torch.maximum(height.abs(), over))
        return 0.3 * _near(away[:, None], 0.15) + 0.7 * _near(state.goal_from_object, 0.2)


class PickPlace(Rule):
    """Put a cube onto a stand and let go of it."""

    def start(self, draws: Draws, ee_pos_m: Tensor) -> Start:
        """See :meth:`Rule.start`: begin with the cube on the table and the stand beside it."""
        del ee_pos_m
        return Start(self._on_table(draws), *self._goal(draws, 2 * STAND_HALF_M[2] + self.half_m[2]))

    def _lies_there(self, state: RuleState) -> Tensor:
        away = state.goal_from_object
        return (away[:, :2].norm(dim=-1) < PLACE_RADIUS_M) & (away[:, 2].abs() < 0.01)

    def success(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.success`: on the stand, let go, at rest."""
        let_go = state.gripper_m > self.half_m[1] + 0.005
        return self._lies_there(state) & let_go & (state.object_speed < 0.05)

    def progress(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.progress`: near the cube, the cube near the goal, and let go there."""
        open_share = ((state.gripper_m - self.half_m[1]) / 0.01).clamp(0.0, 1.0)
        there = self._lies_there(state) * open_share
        return 0.2 * _near(state.object_from_ee, 0.1) + 0.5 * _near(state.goal_from_object, 0.15) + 0.3 * there


class Insert(Rule):
    """Put a peg that is in the hand into a hole that is little wider."""

    def start(self, draws: Draws, ee_pos_m: Tensor) -> Start:
        """See :meth:`Rule.start`: begin with the upright peg in the hand, held a little off and askew."""
        chance = self.cfg.randomize
        shift = torch.zeros_like(ee_pos_m)
        shift[:, 0] = draws.within(chance.held_shift_m)
        shift[:, 2] = draws.within(chance.held_shift_m) - PEG_BELOW_EE_M
        quat = turn_about(1, draws.within(chance.held_tilt_rad))
        height = HOLE_DEPTH_M - INSERT_DEPTH_M + self.half_m[2] - 0.005
        goal, fixture = self._goal(draws, height)
        grip = torch.full_like(ee_pos_m[:, 0], self.half_m[1] - TIP_GAP_M - 0.0001)
        return Start(torch.cat((ee_pos_m + shift, quat), dim=-1)[:, None], goal, fixture, grip)

    def success(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.success`: in the hole, deep enough."""
        away = state.goal_from_object
        return (away[:, :2].norm(dim=-1) < 0.005) & (away[:, 2] > -0.005)

    def lost(self, state: RuleState) -> Tensor:
        """Out of reach, or no longer in the hand."""
        return super().lost(state) | (state.object_from_ee.norm(dim=-1) > DROPPED_M)

    def endangered(self, state: RuleState) -> Tensor:
        """About to get out of reach, or slipping from the hand."""
        return super().endangered(state) | (state.object_from_ee.norm(dim=-1) > 0.5 * DROPPED_M)

    def progress(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.progress`: the peg over the hole, then in it."""
        away = state.goal_from_object
        return 0.4 * _near(away[:, :2], 0.05) + 0.6 * _near(away, 0.05)


class Tell(Rule):
    """Handle the thing that an instruction asks for, as it says, and leave the others where they are.

    Which of the rules of :class:`Lift`, :class:`Push` and :class:`PickPlace` counts is a matter of the verb; a zone is
    a goal on the table.
    """

    def __init__(self, cfg: ArmCfg) -> None:
        super().__init__(cfg)
        kinds: dict[str, type[Rule]] = {PICK: Lift, PUSH: Push, PLACE: PickPlace}
        self._parts = [kinds[verb](cfg) for verb in VERBS]

    def start(self, draws: Draws, ee_pos_m: Tensor) -> Start:
        """See :meth:`Rule.start`: lay a scene, and ask for something in it."""
        cfg, like = self.cfg, ee_pos_m
        asked = [draw_episode(self.bench, cfg.verbs, Phrasing(cfg.phrasing), rng) for rng in draws.generators()]
        scenes = [one.scene for one in asked]
        yaw = _stacked([scene.yaw_rad for scene in scenes], like)
        xy, zones = (_stacked([getattr(s, name) for s in scenes], like) for name in ("things_m", "zones_m"))
        height = xy.new_full((*xy.shape[:2], 1), self.half_m[2])
        quat = turn_about(2, yaw.flatten()).reshape(*yaw.shape, 4)
        flat = torch.cat((zones, torch.zeros_like(zones[..., :1])), dim=-1)
        return self.asking(Start(torch.cat((xy, height, quat), dim=-1), flat[:, 0], flat), asked)

    def asking(self, start: Start, asked: Sequence[Asked]) -> Start:
        """The same k starts with other requests."""
        zone = torch.tensor([one.zone or 0 for one in asked], device=start.goal_m.device)
        goal = start.fixtures_m[torch.arange(len(zone), device=zone.device), zone].clone()
        goal[:, 2] = self.half_m[2]
        return replace(start, goal_m=goal, asked=asked)

    def success(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.success`: as the verb says, and no other thing was moved."""
        return self._of_verb(state, [part.success(state) for part in self._parts]) & ~self.wrong(state)

    def progress(self, state: RuleState) -> Tensor:
        """See :meth:`Rule.progress`: as the verb says; none where another thing was moved."""
        return self._of_verb(state, [part.progress(state) for part in self._parts]) * ~self.wrong(state)

    def lost(self, state: RuleState) -> Tensor:
        """Out of reach, or another thing was moved."""
        return super().lost(state) | self.wrong(state)

    @staticmethod
    def _of_verb(state: RuleState, values: list[Tensor]) -> Tensor:
        """Of values (N,) of each verb those of the one that is asked for."""
        return torch.stack(values)[state.verb, torch.arange(len(state.verb), device=state.verb.device)]


RULES: dict[str, type[Rule]] = {"lift": Lift, "push": Push, "pick-place": PickPlace, "insert": Insert, "tell": Tell}
"""Each task's rule, under the names of the workbenches."""


def _stacked(rows: Sequence[NDArray[np.float64]], like: Tensor) -> Tensor:
    """Arrays of one shape, of any unit, as one tensor (k, ...)."""
    return torch.as_tensor(np.stack(rows), dtype=like.dtype, device=like.device)


def _near(vector: Tensor, scale_m: float) -> Tensor:
    """1 at zero distance, falling to 0 over a few times the scale."""
    return 1.0 - torch.tanh(vector.norm(dim=-1) / scale_m)

"""Scripted experts for every manipulation task, over what the simulator knows, with a dial for how bad they are.

An expert goes through phases, each with a waypoint of the end effector and a place of the gripper; all environments
at once, each in its own phase. It moves the end effector, and its motion is translated into whatever action the task
has. The dial, ``suboptimality`` from 0 to 1, adds what human demonstrations have too: a wrong idea of where the object
is, which lasts for an episode; a shaky hand; and hesitation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gantry_deploy.actions.arm import ArmDecoder
from gantry_hardware.errors import GantryError
from gantry_mapping.sensing.frames import rotation_matrix
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.manipulation.language.instructions import PICK, PLACE, PUSH, VERBS
from gantry_sim.tasks.manipulation.state import ArmState
from gantry_sim.tasks.manipulation.workbench import HOLE_DEPTH_M

OPEN, CLOSED, NARROW = 1.0, -1.0, -0.15
"""Places of the gripper as actions; narrow is some 3 cm, for two fingers that push together."""
HELD_M, HELD_GAP_M = 0.02, 0.003
"""An object this close to the end effector, between fingers that are at most this much wider, is held."""
ABOVE_M = 0.06
"""Height over the object from which the hand comes down."""


@dataclass(frozen=True)
class SuboptimalityCfg:
    """Errors at full suboptimality."""

    offset_m: float = 0.035
    """Half width of the wrong idea of where the object is, along x and y."""
    shake: float = 0.5
    """Standard deviation of the shaking hand, in units of the action."""
    shake_memory: float = 0.7
    """Share of the shake that lasts to the next step."""
    hesitation: float = 0.6
    """Share of steps in which the hand does not move."""


@dataclass
class Move:
    """Motion that an expert wants of N arms now."""

    waypoint: Tensor
    """(N, 3), where the end effector should be, m."""
    gripper: Tensor
    """(N,), place of the gripper as an action."""
    speed: Tensor
    """(N,), share of the largest step."""


class Expert:
    """Moves all arms of a task.

    Args:
        state: Of the environments.
        suboptimality: 0 to 1.
        seed: Of its mistakes.
        cfg: What full suboptimality is.

    Raises:
        GantryError: If the suboptimality is not within 0 and 1.
    """

    WORST = SuboptimalityCfg()
    """Full suboptimality of this task, where nothing else is said."""

    def __init__(
        self, state: ArmState, suboptimality: float = 0.0, seed: int = 0, cfg: SuboptimalityCfg | None = None
    ) -> None:
        if not 0.0 <= suboptimality <= 1.0:
            raise GantryError(f"An expert's suboptimality is {suboptimality}, expected 0 to 1.")
        self.state, self.suboptimality, self._cfg = state, suboptimality, cfg or self.WORST
        contract = arm_contract(replace(state.cfg, action="ee"))
        like = torch.zeros(1, 1, device=state.goal.device)
        self._decoder = ArmDecoder(contract, like)
        count = len(state.goal)
        self._random = torch.Generator(device=like.device).manual_seed(seed)
        self._scale = torch.tensor([state.contract.action.scale], device=like.device)
        self._offset = torch.tensor([state.contract.action.offset_rad], device=like.device)
        self._astray = torch.zeros(count, 3, device=like.device)
        self._shake = torch.zeros(count, 3, device=like.device)
        self.phase = torch.zeros(count, dtype=torch.long, device=like.device)
        """(N,), the phase that each arm is in."""
        self.steps = torch.zeros(count, dtype=torch.long, device=like.device)
        """(N,), steps spent in it."""
        self.reset()

    def reset(self, rows: Tensor | None = None) -> None:
        """Begin anew, in some environments (N,) bool or in all: with a new wrong idea of where things are."""
        rows = torch.ones(len(self.phase), dtype=torch.bool, device=self.phase.device) if rows is None else rows
        wrong = self._uniform(len(rows), 3) * self.suboptimality * self._cfg.offset_m
        wrong[:, 2] = 0.0
        self._astray = torch.where(rows[:, None], wrong, self._astray)
        self._shake = torch.where(rows[:, None], 0.0, self._shake)
        self.phase, self.steps = torch.where(rows, 0, self.phase), torch.where(rows, 0, self.steps)

    def take_over(self, rows: Tensor) -> None:
        """Begin anew in the midst of attempts, (N,) bool: go on with what is in the hand already."""
        self.state.refresh()
        self.reset(rows)

    def lead_astray(self, offset_m: Tensor, rows: Tensor) -> None:
        """Let the expert take things to be elsewhere, (N, 3), m in the arm's base frame, where (N,) bool ``rows`` says
        so, until the next reset there."""
        self._astray = torch.where(rows[:, None], offset_m, self._astray)

    def act(self) -> Tensor:
        """The next action, (N, a), in [-1, 1]."""
        state = self.state
        state.refresh()
        targets = state.decoder.targets
        assert targets is not None
        move = self.plan(state.decoder.ee_pose(targets)[0])
        self.steps += 1
        step = (move.waypoint - state.decoder.ee_pose(targets)[0]) / state.cfg.step_m
        length = step.norm(dim=-1, keepdim=True).clamp(min=1e-9)
        step = step * (move.speed[:, None] / length).clamp(max=1.0)
        noise = torch.randn(step.shape, generator=self._random, device=step.device)
        keep = self._cfg.shake_memory
        self._shake = keep * self._shake + (1.0 - keep**2) ** 0.5 * self._cfg.shake * self.suboptimality * noise
        still = torch.rand(len(step), 1, generator=self._random, device=step.device)
        step = torch.where(still < self._cfg.hesitation * self.suboptimality, 0.0, step) + self._shake
        return self._translate(torch.cat((step, move.gripper[:, None]), dim=-1).clamp(-1.0, 1.0), targets)

    def plan(self, hand: Tensor) -> Move:
        """Waypoints now, and the phases that follow; ``hand`` is the end effector's target, (N, 3), in
        the arm's base frame [m]."""
        raise NotImplementedError

    def _advance(self, phase: int, when: Tensor, to: int | None = None) -> None:
        """Go from a phase to the next one, or another, where a condition (N,) holds."""
        moves = (self.phase == phase) & when
        self.phase = torch.where(moves, phase + 1 if to is None else to, self.phase)
        self.steps = torch.where(moves, 0, self.steps)

    def _choose(self, *choices: Tensor) -> Tensor:
        """One row per environment, of its phase: choices are (N, ...) or one row for all."""
        rows = torch.stack([choice.expand(len(self.phase), *choice.shape[1:]) for choice in choices])
        return rows[self.phase, torch.arange(len(self.phase), device=rows.device)]

    def _values(self, *choices: float) -> Tensor:
        """One number per environment, of its phase."""
        return torch.tensor(choices, device=self.phase.device)[self.phase]

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._random, device=self.phase.device) * 2.0 - 1.0

    def _translate(self, action: Tensor, targets: Tensor) -> Tensor:
        """An action of the end effector as one of the task's kind."""
        kind = self.state.cfg.action
        if kind == "ee":
            return action
        if kind == "ee-turn":
            return torch.cat((action[:, :3], torch.zeros_like(action[:, :3]), action[:, 3:]), dim=-1)
        self._decoder.reset(targets)
        joints = self._decoder.follow(action, self.state.joint_pos)
        away = joints - (targets if kind == "joint" else self._offset)
        moved = (away / self._scale).clamp(-1.0, 1.0)
        moved[:, self.state.gripper] = action[:, -1]
        return moved


class GraspExpert(Expert):
    """Comes from above, grasps, lifts. Phases: above, down, close, up."""

    def take_over(self, rows: Tensor) -> None:
        """An object between closed fingers is held on to."""
        super().take_over(rows)
        held = self.state.object_from_ee.norm(dim=-1) < HELD_M
        gripped = self.state.gripper_m < self.state.rule.half_m[1] + HELD_GAP_M
        self.phase = torch.where(rows & held & gripped, 2, self.phase)

    def plan(self, hand: Tensor) -> Move:
        """See :meth:`Expert.plan`: up once the cube is in the hand, back to the beginning if it is lost."""
        state, thing = self.state, self.state.object_pos + self._astray
        above = _raised(thing, ABOVE_M)
        off = (hand - thing).abs()
        self._advance(0, (off[:, :2].amax(-1) < 0.01) & (off[:, 2] < ABOVE_M + 0.01))
        self._advance(1, (state.ee_pos - thing).norm(dim=-1) < 0.008)
        self._advance(1, self.steps > 20)
        self._advance(2, self.steps >= 7)
        dropped = state.object_from_ee.norm(dim=-1) > 0.05
        self._advance(3, dropped & (self.steps > 6), to=0)
        up = state.ee_pos.clone()
        up[:, 2] = 0.2
        return Move(
            self._choose(above, thing, hand, up),
            self._values(OPEN, OPEN, CLOSED, CLOSED),
            self._values(1.0, 0.6, 1.0, 1.0),
        )


class PlaceExpert(GraspExpert):
    """Grasps a cube and puts it onto a stand. Phases: above, down, close, up, across, lower, let go."""

    CLEAR_M = 0.13
    """Height of the hand on its way to the stand."""

    def plan(self, hand: Tensor) -> Move:
        """See :meth:`Expert.plan`: back to the beginning if the cube is lost on the way."""
        state, thing = self.state, self.state.object_pos + self._astray
        goal = state.goal - state.object_from_ee  # where the hand has to be for the cube to be there
        off = (hand - thing).abs()
        self._advance(0, (off[:, :2].amax(-1) < 0.01) & (off[:, 2] < ABOVE_M + 0.01))
        self._advance(1, (state.ee_pos - thing).norm(dim=-1) < 0.008)
        self._advance(1, self.steps > 20)
        self._advance(2, self.steps >= 7)
        self._advance(3, state.ee_pos[:, 2] > self.CLEAR_M - 0.02)
        self._advance(4, (state.goal_from_object + self._astray)[:, :2].norm(dim=-1) < 0.01)
        self._advance(5, state.goal_from_object[:, 2].abs() < 0.008)
        self._advance(5, self.steps > 25)
        self._advance(6, self.steps > 12, to=0)
        lost = state.object_from_ee.norm(dim=-1) > 0.05
        for phase in (3, 4, 5):
            self._advance(phase, lost & (self.steps > 6), to=0)
        up, across, lower, away = hand.clone(), goal + self._astray, goal + self._astray, hand.clone()
        up[:, 2], across[:, 2], away[:, 2] = self.CLEAR_M, self.CLEAR_M, self.CLEAR_M
        leave = torch.where((self.steps > 3)[:, None], away, hand)
        return Move(
            self._choose(_raised(thing, ABOVE_M), thing, hand, up, across, lower, leave),
            self._values(OPEN, OPEN, CLOSED, CLOSED, CLOSED, CLOSED, OPEN),
            self._values(1.0, 0.6, 1.0, 1.0, 1.0, 0.5, 1.0),
        )


class PushExpert(Expert):
    """Pushes a cube with two narrow fingers. Phases: behind it and above, down, push."""

    BEHIND_M = 0.06
    """Distance of the hand's middle from the cube's before pushing."""

    def plan(self, hand: Tensor) -> Move:
        """See :meth:`Expert.plan`: starts over where the cube slipped aside."""
        state, thing = self.state, self.state.object_pos + 0.5 * self._astray
        way = state.goal_from_object[:, :2]
        far = way.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        way = torch.cat((way / far, torch.zeros_like(far)), dim=-1)
        behind = thing - self.BEHIND_M * way
        behind[:, 2] = 0.022
        above = _raised(behind, ABOVE_M)
        from_hand = state.object_from_ee[:, :2]
        aside = (from_hand[:, 0] * way[:, 1] - from_hand[:, 1] * way[:, 0]).abs()
        ahead = (from_hand * way[:, :2]).sum(-1)
        self._advance(0, (hand - above).norm(dim=-1) < 0.012)
        self._advance(1, (state.ee_pos[:, 2] < 0.03))
        self._advance(2, (aside > 0.018 + 0.03 * self.suboptimality) | (ahead < 0.0), to=3)
        self._advance(3, state.ee_pos[:, 2] > 0.06, to=0)
        # Towards the line through cube and goal, then along it.
        push = thing + 0.01 * way
        push[:, 2] = 0.022
        return Move(
            self._choose(above, behind, push, _raised(state.ee_pos - 0.03 * way, ABOVE_M)),
            torch.full_like(hand[:, 0], NARROW),
            self._values(1.0, 0.8, 0.4, 1.0),
        )


class InsertExpert(Expert):
    """Puts a peg into a hole. Phases: over the hole, down."""

    OVER_M = 0.012
    """Height of the peg's tip over the hole while it is brought there."""
    PLAY_M = 0.001
    """Distance of the tip aside of the hole that is allowed on its way down."""
    PATIENCE = 0.25
    """Share of the error that is corrected in a step."""

    WORST = SuboptimalityCfg(offset_m=0.004, shake=0.1)

    def plan(self, hand: Tensor) -> Move:
        """See :meth:`Expert.plan`: keeps correcting on the way down, and looks again from above where the peg stands
        on the edge.
        """
        state, half = self.state, self.state.rule.half_m[2]
        tip = state.object_pos - half * rotation_matrix(state.object_pose[:, 3:])[:, :, 2]
        away = (state.goal + self._astray - tip)[:, :2]
        aside, height = away.norm(dim=-1), tip[:, 2] - HOLE_DEPTH_M
        error = torch.cat((away, (self.OVER_M - height)[:, None]), dim=-1)
        # Far off from where the hand is, and not from where it is told to be, which would chase the arm's lag; close
        # by, by and by from where it is told to be, which leaves no error.
        close = (error.norm(dim=-1) < 0.015)[:, None]
        over, down = torch.where(close, hand + self.PATIENCE * error, state.ee_pos + error), hand.clone()
        inside = height < -0.002
        down[:, :2] += torch.where(inside[:, None], 0.0, self.PATIENCE * away)
        # A worse one takes a less good look.
        play, calm = self.PLAY_M + 0.003 * self.suboptimality, state.object_speed < 0.01 + 0.1 * self.suboptimality
        steady = inside | (aside < play)
        down[:, 2] = torch.where(steady, hand[:, 2] - 0.008, hand[:, 2])
        self._advance(0, calm & (aside < play) & (height < self.OVER_M + 0.005))
        self._advance(1, (self.steps > 15) & ~inside, to=0)
        far = (height > 0.03) | (aside > 0.03)
        return Move(
            self._choose(over, down), torch.full_like(aside, CLOSED), torch.where(far & (self.phase == 0), 1.0, 0.3)
        )


class TellExpert(Expert):
    """Does what an instruction asks for: one expert for each verb, of which that of the episode moves its arm."""

    def __init__(
        self, state: ArmState, suboptimality: float = 0.0, seed: int = 0, cfg: SuboptimalityCfg | None = None
    ) -> None:
        kinds: dict[str, type[Expert]] = {PICK: GraspExpert, PUSH: PushExpert, PLACE: PlaceExpert}
        self._parts = [kinds[verb](state, suboptimality, seed, cfg) for verb in VERBS]
        super().__init__(state, suboptimality, seed, cfg)

    def reset(self, rows: Tensor | None = None) -> None:
        """See :meth:`Expert.reset`."""
        super().reset(rows)
        for part in self._parts:
            part.reset(rows)

    def take_over(self, rows: Tensor) -> None:
        """See :meth:`Expert.take_over`."""
        super().take_over(rows)
        for part in self._parts:
            part.take_over(rows)

    def lead_astray(self, offset_m: Tensor, rows: Tensor) -> None:
        """See :meth:`Expert.lead_astray`."""
        for part in self._parts:
            part.lead_astray(offset_m, rows)

    def plan(self, hand: Tensor) -> Move:
        """See :meth:`Expert.plan`: that of the episode's verb."""
        moves = [part.plan(hand) for part in self._parts]
        for part in self._parts:
            part.steps += 1
        verb, rows = self.state.verb, torch.arange(len(hand), device=hand.device)
        waypoint, gripper, speed = (
            torch.stack([getattr(move, name) for move in moves])[verb, rows]
            for name in ("waypoint", "gripper", "speed")
        )
        return Move(waypoint, gripper, speed)


EXPERTS: dict[str, type[Expert]] = {
    "lift": GraspExpert,
    "push": PushExpert,
    "pick-place": PlaceExpert,
    "insert": InsertExpert,
    "tell": TellExpert,
}
"""Each task's expert, under the names of the workbenches."""


def make_expert(state: ArmState, suboptimality: float = 0.0, seed: int = 0) -> Expert:
    """The expert of the environments' task."""
    return EXPERTS[state.cfg.task](state, suboptimality, seed)


def _raised(places: Tensor, height_m: float) -> Tensor:
    raised = places.clone()
    raised[:, 2] += height_m
    return raised

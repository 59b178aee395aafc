"""Guidance of PPO by a teacher: its settings, and the distances between a student's actions and a teacher's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gantry_hardware.errors import GantryError, UnknownNameError

ACTION_LOSSES = ("likelihood", "mean", "l1", "reverse-kl")
"""Losses between a student's actions and a teacher's: by their likelihood, by the mean alone, squared or absolute, or
the divergence of the student's distribution from the teacher's."""
FADES = ("linear", "cosine")
"""Ways in which a guide's weights fall."""


@dataclass(frozen=True)
class ImitationCfg:
    """Guidance of PPO by a teacher (AME-2, arXiv 2601.08485, Sec. IV); of no effect without one."""

    action_weight: float = 0.02
    """Of the loss of actions, summed over joints."""
    embedding_weight: float = 0.2
    """Of the squared distance of the map embeddings; of no effect for a teacher without one."""
    imitation_iterations: int = 5000
    """Iterations at the start in which surrogate and entropy are off; the value function learns all along."""
    imitation_learning_rate: float = 1e-3
    """Learning rate at their start; afterwards the learner's own begins."""
    final_imitation_factor: float = 1.0
    """Share of it that is left at their end; it falls linearly. A rate that stays as it is leaves the last places of
    the actions to the newest minibatch."""
    action_loss: str = "likelihood"
    """A name of :data:`ACTION_LOSSES`: the negative log-likelihood of the teacher's action; its squared or absolute
    distance from the mean of the student's; or the divergence of the student from a teacher with a spread
    (``reverse-kl``). The likelihood of a teacher that never varies pulls the student's spread to nothing, and a Beta's
    has its poles where pedals are: at the ends. The mean leaves the spread to the reward."""
    teacher_std: float = 0.3
    """Standard deviation that ``reverse-kl`` takes a teacher's actions to have, in units of the action."""
    fade_iterations: int = 0
    """Iterations after the imitation in which both weights fall to nothing; 0 to keep them."""
    fade: str = "linear"
    """A name of :data:`FADES`: along a line, or along half a cosine."""
    teacher_action_fraction: float = 0.0
    """Share of the environments that the teacher acts in, drawn anew for each rollout; it falls linearly to nothing by
    the end of the imitation. A student that falls at once never sees most of what its teacher could show it."""

    aggregate_rollouts: int = 0
    """While there is imitation alone, learn from samples of the last so many rollouts, as in DAgger, instead of the
    newest. A resumed training begins to remember anew."""

    plan_steps: int = 1
    """Steps of a teacher's plan that guide: 1 asks it in every step and takes the first action; more ask it once in so
    many steps, and the steps between are compared with what it planned then. For teachers that plan alone."""

    required: bool = False
    """Refuse a training without a teacher, which would be another method under this one's name."""

    def __post_init__(self) -> None:
        if self.plan_steps < 1:
            raise GantryError(f"learner.guide.plan_steps is {self.plan_steps}, expected at least 1.")
        if self.aggregate_rollouts < 0:
            raise GantryError(f"learner.guide.aggregate_rollouts is {self.aggregate_rollouts}, expected >= 0.")
        if self.action_loss not in ACTION_LOSSES:
            raise UnknownNameError("action loss", self.action_loss, ACTION_LOSSES)
        if self.fade not in FADES:
            raise UnknownNameError("fade", self.fade, FADES)
        if not self.teacher_std > 0.0:
            raise GantryError(f"learner.guide.teacher_std is {self.teacher_std}, expected a number > 0.")
        if not 0.0 <= self.teacher_action_fraction <= 1.0:
            raise GantryError(
                f"learner.guide.teacher_action_fraction is {self.teacher_action_fraction}, expected 0 to 1."
            )
        if self.fade_iterations < 0:
            raise GantryError(f"learner.guide.fade_iterations is {self.fade_iterations}, expected >= 0.")
        for name in ("action_weight", "embedding_weight"):
            if not getattr(self, name) >= 0.0:
                raise GantryError(f"learner.guide.{name} is {getattr(self, name)}, expected a number >= 0.")
        if self.action_weight + self.embedding_weight == 0.0:
            raise GantryError("learner.guide has both weights at 0, expected one above; or train without a teacher.")
        if not 0.0 < self.final_imitation_factor <= 1.0:
            share = self.final_imitation_factor
            raise GantryError(f"learner.guide.final_imitation_factor is {share}, expected more than 0 and at most 1.")
        if self.imitation_iterations < 0:
            raise GantryError(f"learner.guide.imitation_iterations is {self.imitation_iterations}, expected >= 0.")
        if not self.imitation_learning_rate > 0.0:
            rate = self.imitation_learning_rate
            raise GantryError(f"learner.guide.imitation_learning_rate is {rate}, expected a number > 0.")

    def learning_rate_at(self, iteration: int) -> float:
        """Learning rate of an iteration of the imitation, counted from 0."""
        over = min(1.0, iteration / max(1, self.imitation_iterations))
        return self.imitation_learning_rate * (1.0 - over * (1.0 - self.final_imitation_factor))

    def driven_at(self, iteration: int) -> float:
        """Share of the environments that the teacher acts in, in an iteration counted from 0."""
        return self.teacher_action_fraction * max(0.0, 1.0 - iteration / max(1, self.imitation_iterations))

    def share_at(self, iteration: int) -> float:
        """Remaining share of the weights in an iteration, counted from 0."""
        if not self.fade_iterations:
            return 1.0
        left = min(1.0, max(0.0, 1.0 - (iteration - self.imitation_iterations) / self.fade_iterations))
        return left if self.fade == "linear" else 0.5 * (1.0 - math.cos(math.pi * left))


def action_loss(actor: Any, theirs: Tensor, cfg: ImitationCfg, known: Tensor | None = None) -> Tensor:
    """Mean over the known rows of the loss between an actor's newest distribution and actions (N, n), summed over n.

    Args:
        actor: Model of rsl_rl; its distribution has been updated.
        theirs: Teacher's actions, (N, n), in the units of the student's.
        cfg: Names the loss.
        known: (N,) bool, rows that the teacher has answered; None for all. Without any the loss is 0.
    """
    losses: dict[str, Callable[[], Tensor]] = {
        "likelihood": lambda: -actor.get_output_log_prob(theirs),
        "mean": lambda: (actor.output_mean - theirs).square().sum(dim=-1),
        "l1": lambda: (actor.output_mean - theirs).abs().sum(dim=-1),
        "reverse-kl": lambda: reverse_kl(actor, theirs, cfg.teacher_std),
    }
    rows = losses[cfg.action_loss]()
    return rows.mean() if known is None else (rows * known).sum() / known.sum().clamp(min=1)


def reverse_kl(actor: Any, theirs: Tensor, std: float) -> Tensor:
    """Divergence (N,), nats, of the student's actions from a normal distribution around the teacher's.

    The student's own samples count, as in on-policy distillation (arXiv 2603.26666): where it is sure of something that
    the teacher would not do, it pays; what it leaves out costs nothing. Of a student with mean m, variance v and
    entropy H it is n/2 log(2 pi std^2) + sum (v + (m - theirs)^2) / (2 std^2) - H.

    Args:
        actor: Model of rsl_rl; its distribution has been updated.
        theirs: Teacher's actions, (N, n).
        std: Standard deviation of the teacher's actions, in their units.
    """
    spread = actor.output_std.square() + (actor.output_mean - theirs).square()
    constant = 0.5 * theirs.shape[-1] * math.log(2.0 * math.pi * std**2)
    return constant + spread.sum(dim=-1) / (2.0 * std**2) - actor.output_entropy

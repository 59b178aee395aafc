"""PPO that also imitates a teacher: AME-2's student, and the distillation of larger models, are one learner.

L = L_PPO + w_action * L_action + w_embedding * L_embedding (arXiv 2601.08485, Sec. IV), on the student's own rollouts.
A scripted driver may teach as well, until the student knows more: in TeLL-Drive (arXiv 2502.01387) a language model
advises, held to the student by a divergence; here it is anything that answers actions, held by ``guide.action_loss``.
Whose actions are taken in the meantime is mixed as in DAgger (Ross et al., arXiv 1011.0686).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.networks.model import PerceptiveModel
from gantry_policies.on_policy.beta import is_beta
from gantry_policies.on_policy.guidance import ImitationCfg, action_loss
from gantry_policies.on_policy.plan_teacher import WholePlans
from gantry_policies.on_policy.ppo import CRITIC, Batch, FewSamplePPO, update_distribution
from gantry_policies.on_policy.teacher_protocol import Guidance, Teacher

TEACHER_ROWS = 4096
"""Most rows that a teacher is asked about at once."""


class TeacherGuidedPPO(FewSamplePPO):
    """Imitation and reinforcement at once, after a phase of imitation.

    For the first ``guide.imitation_iterations`` surrogate and entropy are off and the learning rate is the guide's;
    the value function learns from the beginning. Imitation goes on, with weights that fade if ``guide.fade_iterations``
    says so. A teacher is asked once about every sample of a rollout, a scripted one while it is collected. Before the
    surrogate counts, the actor may learn from ``guide.aggregate_rollouts`` instead of the newest one, the data set
    that DAgger aggregates.

    Args:
        args: As for :class:`FewSamplePPO`.
        teacher: Teacher that guides.
        guide: Weights and schedule.
        kwargs: As for :class:`FewSamplePPO`.

    Raises:
        GantryError: If actors are mirrored while representations are compared, which have no mirror image.
    """

    always_own_update = True

    def __init__(self, *args: Any, teacher: Teacher, guide: ImitationCfg, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.teacher = teacher
        self.guide = guide
        self.imitating = guide.imitation_iterations > 0
        self.share = guide.share_at(0)
        """What is left of the guide's weights."""
        self._rl_schedule, self._rl_learning_rate = self.schedule, self.learning_rate
        self._guidance: Guidance | None = None
        self._dagger = DaggerBuffer(guide.aggregate_rollouts) if guide.aggregate_rollouts else None
        self._recalled: Tensor | None = None
        present_only = getattr(teacher, "present_only", False)
        self._answers = torch.zeros_like(self.storage.actions) if present_only else None
        self._known = torch.ones_like(self.storage.actions[..., 0], dtype=torch.bool) if present_only else None
        self._driven = torch.zeros(self.storage.num_envs, dtype=torch.bool, device=self.device)

    def begin_iteration(self, iteration: int) -> None:
        """Choose the phase of an iteration, counted from 0, and the policy that acts in its rollout."""
        self.imitating = iteration < self.guide.imitation_iterations
        self.share = self.guide.share_at(iteration)
        self.schedule = "fixed" if self.imitating else self._rl_schedule
        if self.imitating:
            self.set_learning_rate(self.guide.learning_rate_at(iteration))
        elif iteration == self.guide.imitation_iterations and self._rl_schedule == "adaptive":
            self.set_learning_rate(self._rl_learning_rate)  # a linear schedule sets its own in every iteration
        driven = self.guide.driven_at(iteration)
        if driven > 0.0:
            self._driven = torch.rand(self.storage.num_envs, device=self.device) < driven
        else:
            self._driven.zero_()  # nothing is drawn, so that a guide without it is as it was

    def act(self, obs: TensorDict) -> Tensor:
        """Sample actions (N, n), dimensionless, and take the teacher's where it drives."""
        actions = super().act(obs)
        rows = self._driven.nonzero().flatten()
        if self._answers is not None and self._known is not None:
            answer = self.teacher(obs)
            theirs = self._checked(answer.actions, actions.shape)
            self._answers[self.storage.step] = theirs
            self._known[self.storage.step] = True if answer.known is None else answer.known
            rows = (self._driven & self._known[self.storage.step]).nonzero().flatten()
            theirs = theirs[rows]
        elif len(rows):
            theirs = self._checked(self.teacher(obs[rows]).actions, (len(rows), actions.shape[1]))
        else:
            return actions
        # While these are taken, nothing is learned from how probable they were.
        actions = actions.index_copy(0, rows, theirs)
        self.transition.actions = actions
        return actions

    def process_env_step(self, obs: TensorDict, rewards: Tensor, dones: Tensor, extras: dict[str, Tensor]) -> None:
        """Record a step (N, ...); plans of a teacher end with the episodes that they were made in."""
        super().process_env_step(obs, rewards, dones, extras)
        if isinstance(self.teacher, WholePlans):
            self.teacher.forget(dones.bool())

    def update(self) -> dict[str, float]:
        """Ask the teacher about the stored rollout, and learn from both; means of the losses."""
        self._guidance = self._ask()
        if self._dagger is not None and not self.imitating:
            self._dagger = None  # a gigabyte
        try:
            if self._dagger is not None:
                groups = self.actor.obs_groups if self._packing is None else self._packing.groups(self.actor.obs_groups)
                labels = (CRITIC,) if self._label_weight > 0.0 else ()
                kept = (*groups, *getattr(self.actor, "picture_keys", ()), *labels)
                seen = {group: self.storage.observations[group].flatten(0, 1) for group in kept}
                self._dagger.add(seen, self._guidance)
                self._recalled = torch.zeros(len(self._guidance.actions), dtype=torch.long, device=self.device)
            return super().update()
        finally:
            self._guidance = self._recalled = None

    def _ask(self) -> Guidance:
        if self._answers is not None and self._known is not None:
            known = self._known.flatten()
            return Guidance(self._answers.flatten(0, 1), known=None if bool(known.all()) else known)
        observations = self.storage.observations.flatten(0, 1)
        parts = [self.teacher(self._unpacked(rows)) for rows in observations.split(TEACHER_ROWS)]
        actions = torch.cat([part.actions for part in parts]).detach()
        embedding = tuple(torch.cat(piece).detach() for piece in zip(*(part.embedding for part in parts), strict=True))
        actions = self._checked(actions, self.storage.actions.flatten(0, 1).shape)
        if embedding and self.guide.embedding_weight > 0.0:
            self._check_embedding(embedding)
            return Guidance(actions, embedding)
        return Guidance(actions)

    def _unpacked(self, observations: TensorDict) -> TensorDict:
        """Rows of a rollout as the environment gave them, which is how a teacher reads them while it acts."""
        if self._packing is None:
            return observations
        found = self._packing.unpack({str(name): observations[name] for name in observations.keys()})  # noqa: SIM118
        return TensorDict(found, batch_size=observations.batch_size, device=observations.device)

    def _checked(self, actions: Tensor, expected: tuple[int, ...]) -> Tensor:
        """A teacher's actions, if they can be taken."""
        if actions.shape != expected:
            raise GantryError(f"The teacher's actions have shape {tuple(actions.shape)}, expected {tuple(expected)}.")
        if not torch.isfinite(actions).all():
            raise GantryError("The teacher's actions are not all finite.")
        if is_beta(self.actor) and actions.abs().max() > 1.0:
            raise GantryError(
                f"The teacher's actions reach {float(actions.abs().max()):g}, those of learner.distribution 'beta' lie "
                "in [-1, 1]; expected a teacher within these bounds, or 'gaussian'."
            )
        return actions

    def _check_embedding(self, embedding: tuple[Tensor, ...]) -> None:
        theirs = [part.shape[1] for part in embedding]
        ours = list(self.actor.encoder.embedding_sizes) if isinstance(self.actor, PerceptiveModel) else []  # type: ignore[union-attr]
        if theirs != ours:
            raise GantryError(
                f"The teacher's embedding has widths {theirs}, the student's has {ours}; set "
                "learner.guide.embedding_weight to 0 to compare actions alone."
            )
        if self.symmetry is not None and getattr(self.symmetry, "mirrors_actor", True):
            raise GantryError(
                "learner.mirror is 'both', but an embedding has no mirror image; expected 'critic' or 'none', or "
                "learner.guide.embedding_weight 0."
            )

    def _minibatches(self) -> Iterator[Tensor]:
        for rows in super()._minibatches():
            if self._dagger is not None and self._recalled is not None:
                self._recalled[rows] = self._dagger.draw(len(rows))  # here, since threads come in any order
            yield rows

    def _gather(self, rows: Tensor) -> Batch:
        batch = super()._gather(rows)
        assert self._guidance is not None
        guidance = self._guidance
        if self._dagger is not None and self._recalled is not None:
            rows = self._recalled[rows]
            guidance = self._dagger.guidance
            batch.remembered = {group: values[rows] for group, values in self._dagger.observations.items()}
            if self._packing is not None:
                batch.remembered = self._packing.unpack(batch.remembered)
        batch.teacher_actions = guidance.actions[rows]
        batch.teacher_known = None if guidance.known is None else guidance.known[rows]
        batch.teacher_embedding = tuple(part[rows] for part in guidance.embedding)
        return batch

    def _loss(self, replica: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        recalls = batch.remembered is not None
        seen = batch.observations if batch.remembered is None else batch.remembered
        encoding = update_distribution(replica.actor, seen)
        surrogate, entropy, losses = (0.0, 0.0, {}) if recalls else self._policy_losses(replica.actor, batch)
        value_loss = self._value_loss(replica.critic, batch)
        assert batch.teacher_actions is not None
        imitation = action_loss(replica.actor, batch.teacher_actions, self.guide, batch.teacher_known)
        loss = self.value_loss_coef * value_loss + self.share * self.guide.action_weight * imitation
        labels, label_losses = self._label_loss(replica.actor, encoding, seen)
        loss = loss + labels
        losses = {"value": value_loss.detach(), **losses, "imitation": imitation.detach(), **label_losses}
        if batch.teacher_embedding:
            pairs = zip(encoding.embedding, batch.teacher_embedding, strict=True)
            distances = [(mine - theirs).square().mean() for mine, theirs in pairs]
            embedding_loss = torch.stack(distances).sum()
            loss = loss + self.share * self.guide.embedding_weight * embedding_loss
            losses["embedding"] = embedding_loss.detach()
        if not self.imitating:
            loss = loss + surrogate - self.entropy_coef * entropy
        return loss, losses


class DaggerBuffer:
    """The last rollouts of a student with its teacher's answers, in a ring.

    Args:
        rollouts: How many.
    """

    def __init__(self, rollouts: int) -> None:
        self._rollouts = rollouts
        self._added = self._samples = 0
        self.observations: dict[str, Tensor] = {}
        """By group, (rollouts x samples, size)."""
        self.guidance = Guidance(torch.empty(0))
        """The answers, row by row."""

    def add(self, observations: dict[str, Tensor], guidance: Guidance) -> None:
        """Keep a rollout of N samples, by group (N, size) each, in the place of the oldest one."""
        if not self._added:
            self.observations = {group: self._room(values) for group, values in observations.items()}
            self.guidance = Guidance(
                self._room(guidance.actions),
                tuple(map(self._room, guidance.embedding)),
                self._room(torch.ones(len(guidance.actions), dtype=torch.bool, device=guidance.actions.device)),
            )
        count = self._samples = len(guidance.actions)
        start = self._added % self._rollouts * count
        rings = (*self.observations.values(), self.guidance.actions, *self.guidance.embedding)
        for ring, values in zip(rings, (*observations.values(), guidance.actions, *guidance.embedding), strict=True):
            ring[start : start + count] = values
        assert self.guidance.known is not None
        self.guidance.known[start : start + count] = True if guidance.known is None else guidance.known
        self._added += 1

    def draw(self, count: int) -> Tensor:
        """Rows (count,) of what has been kept."""
        held = min(self._added, self._rollouts) * self._samples
        return torch.randint(held, (count,), device=self.guidance.actions.device)

    def _room(self, values: Tensor) -> Tensor:
        return values.new_empty((self._rollouts * values.shape[0], *values.shape[1:]))

"""Teachers: anything that maps observations to actions, and how a trained policy becomes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rsl_rl.models import MLPModel
from rsl_rl.utils import resolve_callable
from tensordict import TensorDict
from torch import Tensor

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.common.batched_env import STATE
from gantry_policies.common.checkpoint import CheckpointError, load_checkpoint, weights_difference
from gantry_policies.imitation.policy import BcPolicy
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.model import PerceptiveModel
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.teacher_protocol import TEACHER_GROUP, Guidance


def get_group(observations: TensorDict, group: str) -> Tensor:
    """An observation group, (N, ...).

    Raises:
        UnknownNameError: If the environment does not give it.
    """
    groups = [str(name) for name in observations.keys()]  # noqa: SIM118  a TensorDict iterates over its rows
    if group not in groups:
        raise UnknownNameError("observation group", group, groups)
    return observations[group]


class PolicyTeacher:
    """A trained actor as a teacher; it is frozen, and put into evaluation mode.

    Args:
        actor: Model of rsl_rl or of :mod:`gantry_policies.networks`, whose map embedding is handed on.
        group: Observation group that it reads.
        columns: (size,), int64, which numbers of the group it was trained on; None for all of them.
    """

    def __init__(self, actor: MLPModel, group: str = TEACHER_GROUP, columns: Tensor | None = None) -> None:
        self.actor = actor.eval().requires_grad_(False)
        self.group = group
        self.columns = columns

    @classmethod
    def from_checkpoint(
        cls,
        path: Path,
        learner: PpoCfg,
        layout: ObservationLayout,
        action_size: int,
        *,
        group: str = TEACHER_GROUP,
        columns: Tensor | None = None,
        device: str = "cpu",
    ) -> PolicyTeacher:
        """Load the actor of a training run.

        Args:
            path: A checkpoint of :mod:`gantry_policies.common.checkpoint`.
            learner: The learner that the run was configured with.
            layout: Of the observations that it was trained on.
            action_size: Numbers in an action.
            group: Observation group that the teacher reads.
            columns: As of the constructor.
            device: Where it computes.

        Raises:
            CheckpointError: If the file is missing, damaged, or holds another network.
        """
        actor = make_actor(learner, layout, action_size)
        state = load_checkpoint(path)
        weights = state.get("actor_state_dict", {})
        difference = weights_difference(actor.state_dict(), weights)
        if difference:
            raise CheckpointError(
                f"Checkpoint {path} does not hold this teacher's network: of its weights, {difference}."
            )
        actor.load_state_dict(weights)
        return cls(actor.to(device), group, columns)

    @torch.no_grad()
    def __call__(self, observations: TensorDict) -> Guidance:
        """Mean actions (N, n), dimensionless, and parts of the embedding, (N, width) each.

        Raises:
            UnknownNameError: If the environment does not give the teacher's observation group.
        """
        seen = self.seen(observations)
        own = TensorDict({group: seen for group in self.actor.obs_groups}, batch_size=observations.batch_size)
        embedding: tuple[Tensor, ...] = ()
        if isinstance(self.actor, PerceptiveModel):
            encoding = self.actor.encode(own)
            latent, embedding = encoding.latent, encoding.embedding
        else:
            latent = self.actor.get_latent(own)
        output: Any = self.actor.mlp(latent)
        if self.actor.distribution is not None:
            output = self.actor.distribution.deterministic_output(output)
        return Guidance(output, embedding)

    def seen(self, observations: TensorDict) -> Tensor:
        """Input of the teacher's network, (N, size), scaled as the observation is.

        Raises:
            UnknownNameError: If the environment does not give the teacher's observation group.
        """
        found = get_group(observations, self.group)
        return found if self.columns is None else found[:, self.columns.to(found.device)]


class ClonedTeacher:
    """A cloned policy as a teacher: the first action of the plan that it would make now, or the whole plan.

    Args:
        policy: Reads numbers alone, no images; it is frozen, and put into evaluation mode.
        group: Observation group that it reads.
        columns: (size,), int64, which numbers of the group it was trained on; None for all of them.

    Raises:
        GantryError: If it reads images.
    """

    def __init__(self, policy: BcPolicy, group: str = TEACHER_GROUP, columns: Tensor | None = None) -> None:
        if more := [key for key in policy.obs_shapes if key != STATE]:
            raise GantryError(f"The cloned teacher reads {', '.join(more)}, and learners are shown numbers alone.")
        self.policy = policy.eval().requires_grad_(False)
        self.group, self.columns = group, columns

    @torch.no_grad()
    def __call__(self, observations: TensorDict) -> Guidance:
        """First actions (N, n) of its plans, in the units of the student's actions; see :meth:`plans`."""
        return Guidance(self.plans(observations)[:, 0])

    @torch.no_grad()
    def plans(self, observations: TensorDict) -> Tensor:
        """Its plans (N, T, n), in the units of the student's actions.

        Raises:
            UnknownNameError: If the environment does not give the teacher's observation group.
        """
        found = get_group(observations, self.group)
        return self.policy({STATE: found if self.columns is None else found[:, self.columns.to(found.device)]})


def make_actor(learner: PpoCfg, layout: ObservationLayout, action_size: int) -> MLPModel:
    """An untrained actor as a learner's configuration describes it, without environment or runner.

    Args:
        learner: The configuration.
        layout: Of the observation.
        action_size: Numbers in an action.
    """
    arguments = learner.actor_model(layout)
    model: Any = resolve_callable(arguments.pop("class_name"))
    observations = TensorDict({"actor": torch.zeros(1, layout.size)}, batch_size=[1])
    return model(observations, {"actor": ["actor"]}, "actor", action_size, **arguments)

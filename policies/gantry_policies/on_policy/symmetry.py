"""Left-right symmetry of a robot as index maps, and its use in PPO without a larger batch.

A policy for a symmetric robot should answer a mirrored observation with the mirrored action. rsl_rl appends the
mirrored copy of every sample; here half of the samples of a minibatch are mirrored, others in every epoch, which has
the same expectation over the epochs of an update at half the cost (Mittal et al., ICRA 2024, study both the data and
the loss form of this prior).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.builder import term_info
from gantry_deploy.observations.mirrors import MirrorMap, mirror_shown_joints
from gantry_hardware.errors import GantryError


def mirror_actor(contract: PolicyContract) -> MirrorMap:
    """The map of the actor's observation, history included, from the mirror images that its terms declare.

    Raises:
        GantryError: If a term's mirror image is not known, or lies in what the term does not show.
    """
    total = MirrorMap((), ())
    for term in contract.observations:
        image = term_info(term.name).mirror_of(contract)
        if image is not None and term.joints:
            image = mirror_shown_joints(contract, term, image)
        if image is None or len(image.source) != term.size:
            raise GantryError(f"No mirror image is known for observation '{term.name}' of {term.size} numbers.")
        for _ in range(term.history):
            total = total + image
    return total


def mirror_frame(contract: PolicyContract) -> MirrorMap:
    """The map of the newest frame of the actor's observation alone, without history; see :func:`mirror_actor`."""
    return mirror_actor(
        replace(contract, observations=tuple(replace(term, history=1) for term in contract.observations))
    )


ParamsMirror = Callable[[tuple[Tensor, ...], Tensor | slice, tuple[Tensor, Tensor]], None]
"""Mirrors rows of a distribution's parameters, each (N, n), in place, by the action's source and sign."""


def mirror_mean_and_std(params: tuple[Tensor, ...], rows: Tensor | slice, mirror: tuple[Tensor, Tensor]) -> None:
    """Mirror rows of a Gaussian's mean and standard deviation (N, n) in place."""
    mean, std = params
    source, sign = mirror
    _mirror_rows(mean, rows, mirror)
    _mirror_rows(std, rows, (source, sign.abs()))


class RandomMirror:
    """Takes the place of rsl_rl's ``Symmetry`` in PPO: mirrors half of every minibatch in place.

    Args:
        observations: Maps by group.
        action: Map of the actions; None where the actor's group is not among the observations, so that the critic
            alone learns from mirrored rows (its returns are the same on both sides).
        device: Device.
        mirror_params: How the parameters of the actor's distribution are mirrored.
    """

    use_mirror_loss = False
    """rsl_rl asks for it; there is no extra loss."""

    def __init__(
        self,
        observations: dict[str, MirrorMap],
        action: MirrorMap | None,
        device: str,
        mirror_params: ParamsMirror = mirror_mean_and_std,
    ) -> None:
        def tensors(mirror: MirrorMap) -> tuple[Tensor, Tensor]:
            return torch.tensor(mirror.source, device=device), torch.tensor(mirror.sign, device=device)

        self._observations = {group: tensors(mirror) for group, mirror in observations.items()}
        self._action = None if action is None else tensors(action)
        self._mirror_params = mirror_params
        self._zero = torch.zeros((), device=device)

    def augment_batch(self, batch: Any, original_batch_size: int) -> None:
        """Mirror half of a minibatch, drawn anew at every call: rsl_rl shuffles once an update and not once an epoch,
        so that its first half would be the same rows in every epoch."""
        order = torch.randperm(original_batch_size, device=self._zero.device)
        self.mirror(batch, order[: original_batch_size // 2])

    def mirror(self, batch: Any, rows: Tensor | slice) -> None:
        """Mirror rows of a minibatch in place: indices (k,), or a slice."""
        for group, mirror in self._observations.items():
            _mirror_rows(batch.observations[group], rows, mirror)
            # A teacher's answers may be about these instead.
            remembered = getattr(batch, "remembered", None) or {}
            if group in remembered:
                _mirror_rows(remembered[group], rows, mirror)
        if self._action is None:
            return
        _mirror_rows(batch.actions, rows, self._action)
        if getattr(batch, "teacher_actions", None) is not None:
            _mirror_rows(batch.teacher_actions, rows, self._action)
        # The divergence from the old policy is measured on the mirrored rows too, so that policy is mirrored with them.
        if batch.old_distribution_params is not None:
            self._mirror_params(batch.old_distribution_params, rows, self._action)

    @property
    def mirrors_actor(self) -> bool:
        """Whether actors learn from mirrored rows too."""
        return self._action is not None

    def compute_loss(self, actor: Any, batch: Any, original_batch_size: int) -> Tensor:
        """A scalar 0, dimensionless: nothing is added to the loss."""
        return self._zero


def _mirror_rows(values: Tensor, rows: Tensor | slice, mirror: tuple[Tensor, Tensor]) -> None:
    source, sign = mirror
    values[rows] = values[rows][:, source] * sign

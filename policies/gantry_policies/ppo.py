"""rsl_rl's PPO with what few cores and few samples ask for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from rsl_rl.algorithms import PPO
from torch import Tensor, nn

from gantry_hardware.errors import GantryError
from gantry_policies.symmetry import MirrorMap, RandomMirror


class FewSamplePPO(PPO):
    """PPO with a fused optimiser, a quiet start, optional mirroring, and minibatches shared out over cores.

    Small networks leave little for the threads inside one matrix product, so on a CPU every minibatch is cut into one
    part per core, each part runs forwards and backwards by itself, and the gradients are averaged: the same update,
    with one meeting per minibatch instead of one per layer.

    Args:
        actor: Actor model.
        critic: Critic model.
        storage: Rollout storage.
        last_layer_scale: Factor on the initial weights of the actor's last layer, so that the first actions are small.
        mirror: Maps by observation group and one under ``action``; None for no mirroring.
        device: Device.
        learning_rate: Of Adam.
        learn_threads: Parts of a minibatch; 1 keeps rsl_rl's own update, and so does an adaptive learning rate.
        **kwargs: As for rsl_rl's PPO.

    Raises:
        GantryError: If minibatches are to be shared out with an extension that only rsl_rl's own update knows.
    """

    def __init__(
        self,
        actor: Any,
        critic: Any,
        storage: Any,
        *,
        last_layer_scale: float = 1.0,
        mirror: dict[str, MirrorMap] | None = None,
        device: str = "cpu",
        learning_rate: float = 1e-3,
        learn_threads: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(actor, critic, storage, device=device, learning_rate=learning_rate, **kwargs)
        with torch.no_grad():
            last = [layer for layer in self.actor.mlp if isinstance(layer, nn.Linear)][-1]
            last.weight.mul_(last_layer_scale)
            last.bias.mul_(last_layer_scale)
        self._parameters = list(chain(self.actor.parameters(), self.critic.parameters()))
        self.optimizer = torch.optim.Adam(self._parameters, lr=learning_rate, fused=True)
        if mirror is not None:
            maps = dict(mirror)
            action = maps.pop("action")
            self.symmetry = RandomMirror(maps, action, device)  # type: ignore[assignment]
        split = learn_threads > 1 and device == "cpu" and self.schedule == "fixed" and not self.actor.is_recurrent
        if split and (self.rnd or self.normalize_advantage_per_mini_batch):
            what = "random network distillation" if self.rnd else "advantage normalisation per minibatch"
            raise GantryError(f"Minibatches that are shared out over {learn_threads} threads know no {what}; use one.")
        self._replicas = [_Replica(self.actor, self.critic) for _ in range(learn_threads)] if split else []
        self._pool = (
            ThreadPoolExecutor(learn_threads, initializer=torch.set_num_threads, initargs=(1,)) if split else None
        )

    def update(self) -> dict[str, float]:
        """Learn from the stored rollout; means of the losses."""
        if self._pool is None:
            return super().update()
        totals = torch.zeros(3)
        updates = 0
        for rows in self._minibatches():
            parts = [part for part in rows.tensor_split(len(self._replicas)) if len(part)]
            jobs = [
                self._pool.submit(self._part, replica, part)
                for replica, part in zip(self._replicas, parts, strict=False)
            ]
            results = [job.result() for job in jobs]
            # Parts differ by a row where the minibatch cannot be shared out evenly.
            shares = torch.tensor([len(part) / len(rows) for part in parts])
            for index, parameter in enumerate(self._parameters):
                gradients = torch.stack([part[index] for part, _ in results])
                parameter.grad = torch.tensordot(shares, gradients, dims=1)
            nn.utils.clip_grad_norm_(self.actor.parameters(), self.max_grad_norm)
            nn.utils.clip_grad_norm_(self.critic.parameters(), self.max_grad_norm)
            self.optimizer.step()
            totals += shares @ torch.stack([losses for _, losses in results])
            updates += 1
        self.storage.clear()
        value, surrogate, entropy = (totals / updates).tolist()
        return {"value": value, "surrogate": surrogate, "entropy": entropy}

    def _minibatches(self) -> Iterator[Tensor]:
        """Row numbers of each minibatch, reshuffled in every epoch."""
        size = self.storage.num_envs * self.storage.num_transitions_per_env
        per_batch = size // self.num_mini_batches
        for _ in range(self.num_learning_epochs):
            order = torch.randperm(size)
            for start in range(0, per_batch * self.num_mini_batches, per_batch):
                yield order[start : start + per_batch]

    def _part(self, replica: _Replica, rows: Tensor) -> tuple[list[Tensor], Tensor]:
        """Gradients and losses of one part of a minibatch."""
        batch = self._gather(rows)
        if self.symmetry:
            # The rows are in an order of this epoch; a draw here would depend on which thread comes first.
            self.symmetry.mirror(batch, slice(len(rows) // 2))  # type: ignore[attr-defined]
        replica.actor.distribution.update(replica.actor.mlp(replica.actor.get_latent(batch.observations)))
        log_prob = replica.actor.get_output_log_prob(batch.actions)
        entropy = replica.actor.output_entropy.mean()
        values = replica.critic.mlp(replica.critic.get_latent(batch.observations))
        ratio = torch.exp(log_prob - batch.old_log_prob)
        clipped = ratio.clamp(1.0 - self.clip_param, 1.0 + self.clip_param)
        surrogate = torch.max(-batch.advantages * ratio, -batch.advantages * clipped).mean()
        value_loss = (values - batch.returns).square()
        if self.use_clipped_value_loss:
            near = batch.values + (values - batch.values).clamp(-self.clip_param, self.clip_param)
            value_loss = torch.max(value_loss, (near - batch.returns).square())
        value_loss = value_loss.mean()
        loss = surrogate + self.value_loss_coef * value_loss - self.entropy_coef * entropy
        gradients = torch.autograd.grad(loss, self._parameters)
        return list(gradients), torch.stack((value_loss, surrogate, entropy)).detach()

    def _gather(self, rows: Tensor) -> _Batch:
        storage = self.storage

        def take(values: Tensor) -> Tensor:
            return values.flatten(0, 1)[rows]

        return _Batch(
            observations={group: take(values) for group, values in storage.observations.items()},  # type: ignore[arg-type]
            actions=take(storage.actions),
            values=take(storage.values),
            returns=take(storage.returns),
            advantages=take(storage.advantages).squeeze(-1),
            old_log_prob=take(storage.actions_log_prob).squeeze(-1),
        )


@dataclass
class _Batch:
    """Rows of a rollout under the names that :class:`RandomMirror` and the loss use."""

    observations: dict[str, Tensor]
    actions: Tensor
    values: Tensor
    returns: Tensor
    advantages: Tensor
    old_log_prob: Tensor
    old_distribution_params: None = None  # only an adaptive learning rate, which rsl_rl's own update serves, needs it


class _Replica:
    """Copies of the models that share their parameters but not what a forward pass leaves behind."""

    def __init__(self, actor: Any, critic: Any) -> None:
        self.actor = _share(actor)
        self.critic = _share(critic)


def _share(model: nn.Module) -> Any:
    twin = copy.deepcopy(model)
    for mine, theirs in zip(twin.modules(), model.modules(), strict=True):
        mine._parameters = theirs._parameters
        mine._buffers = theirs._buffers
    return twin

"""rsl_rl's PPO with what few cores and few samples ask for."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from rsl_rl.algorithms import PPO
from tensordict import TensorDict
from torch import Tensor, nn

from gantry_deploy.observations.mirrors import MirrorMap
from gantry_hardware.errors import GantryError
from gantry_policies.common import processes
from gantry_policies.networks.encoding import Encoding
from gantry_policies.networks.model import PerceptiveModel
from gantry_policies.networks.moe import MixtureOfExperts
from gantry_policies.on_policy.beta import BetaActions, is_beta, mirror_shapes
from gantry_policies.on_policy.packing import RasterPacking
from gantry_policies.on_policy.symmetry import RandomMirror, mirror_mean_and_std

CRITIC = "critic"
"""Group of observations of the critic, the end of which an actor may learn to predict."""
MAX_LOG_RATIO = 20.0
"""Log-ratios of new to old probabilities are limited to this, so that none overflows."""
MIN_LEARNING_RATE, MAX_LEARNING_RATE = 1e-5, 1e-2
"""Range of an adaptive learning rate, as in rsl_rl."""


class FewSamplePPO(PPO):
    """PPO with a fused optimiser, a scaled-down last layer at initialisation, mirroring and split minibatches.

    Small networks leave little for the threads inside one matrix product, so on a CPU every minibatch is cut into one
    part per core, each part runs forwards and backwards by itself, and the gradients are averaged: the same update,
    with one meeting per minibatch instead of one per layer. Where a minibatch's activations do not fit the memory, a
    part is worked off in chunks, whose gradients are averaged in the same way. A Beta policy always learns like this,
    since rsl_rl's own update lets a ratio of probabilities overflow, as those of narrow Betas can.

    Args:
        actor: Actor model.
        critic: Critic model.
        storage: Rollout storage.
        last_layer_scale: Factor on the initial weights of the actor's last layer, so that the first actions are small.
        mirror: Maps by observation group and one under ``action``; without the latter only the groups named are
            mirrored, which suits the critic's. None for no mirroring.
        device: Device.
        learning_rate: Of Adam.
        learn_threads: Parts of a minibatch; 1 keeps rsl_rl's own update of a Gaussian policy unless there are chunks.
        chunk_rows: Most rows of a minibatch that run through the networks at once; 0 for no limit.
        packing: How rollouts keep rasters in little memory; None to keep observations as they are.
        label_weight: Weight of the squared error with which the actor's ``label_head`` predicts the last numbers of
            the critic's group; 0 for an actor without this head.
        **kwargs: As for rsl_rl's PPO.

    Raises:
        GantryError: If minibatches are to be shared out with an extension that only rsl_rl's own update knows, or the
            mirror image of a Beta's action is not within its bounds.
    """

    always_own_update = False
    """Whether rsl_rl's own update would leave out a part of the loss."""

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
        chunk_rows: int = 0,
        packing: RasterPacking | None = None,
        label_weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(actor, critic, storage, device=device, learning_rate=learning_rate, **kwargs)
        _scale_last_layer(self.actor.mlp, last_layer_scale)
        if isinstance(self.actor.distribution, BetaActions):
            self.actor.distribution.start(_last_bias(self.actor.mlp))
        self._parameters = list(chain(self.actor.parameters(), self.critic.parameters()))
        self.optimizer = torch.optim.Adam(self._parameters, lr=learning_rate, fused=True)
        if mirror is not None:
            maps = dict(mirror)
            action = maps.pop("action", None)
            self.symmetry = self._random_mirror(maps, action)  # type: ignore[assignment]
        parts = learn_threads if device == "cpu" else 1
        self._label_weight = label_weight
        always = self.always_own_update or is_beta(self.actor) or packing is not None or label_weight > 0.0
        own = (parts > 1 or chunk_rows > 0 or always or processes.count() > 1) and not self.actor.is_recurrent
        if processes.count() > 1 and not own:
            raise GantryError("A recurrent policy is learned in one process; start it without the launcher.")
        if own and (self.rnd or self.normalize_advantage_per_mini_batch):
            what = "random network distillation" if self.rnd else "advantage normalisation per minibatch"
            if is_beta(self.actor):
                raise GantryError(f"A Beta policy is learned with no {what}; expected a Gaussian one.")
            raise GantryError(f"Minibatches that are shared out over {parts} threads know no {what}; use one.")
        self._chunk_rows = chunk_rows
        self._packing = packing
        if packing is not None:
            storage.observations = packing.allocate(storage.observations)
        self._replicas = [_Replica(self.actor, self.critic) for _ in range(parts)] if own else []
        self._pool = (
            ThreadPoolExecutor(parts, initializer=torch.set_num_threads, initargs=(1,)) if own and parts > 1 else None
        )

    def _random_mirror(self, maps: dict[str, MirrorMap], action: MirrorMap | None) -> RandomMirror:
        if not is_beta(self.actor):
            return RandomMirror(maps, action, self.device, mirror_mean_and_std)
        if action is not None and any(abs(sign) != 1.0 for sign in action.sign):
            raise GantryError(
                f"The mirror map of a Beta policy's actions has signs {list(action.sign)}, expected 1 and -1."
            )
        return RandomMirror(maps, action, self.device, mirror_shapes)

    def act(self, obs: TensorDict) -> Tensor:
        """Sample actions (N, n), dimensionless, for observation groups (N, ...); the transition keeps them packed."""
        actions = super().act(obs)
        if self._packing is not None:
            self.transition.observations = self._packing.pack(obs)
        return actions

    def share_first(self) -> None:
        """Begin with the first process's parameters and buffers."""
        processes.share_first_((), self.actor, self.critic)

    def process_env_step(self, obs: TensorDict, rewards: Tensor, dones: Tensor, extras: dict[str, Tensor]) -> None:
        """Store a step; normalisers learn the observations (N, ...) of all processes."""
        if processes.count() == 1:
            super().process_env_step(obs, rewards, dones, extras)
            return
        for network in (self.actor, self.critic):
            if network.obs_normalization:
                found = {name: processes.gathered(obs[name]) for name in network.obs_groups}
                network.update_normalization(TensorDict(found, batch_size=[len(obs) * processes.count()]))
        with _left_alone(self.actor), _left_alone(self.critic):
            super().process_env_step(obs, rewards, dones, extras)

    def compute_returns(self, obs: TensorDict) -> None:
        """Returns and advantages of the rollout; advantages are normalised over that of all processes."""
        super().compute_returns(obs)
        if processes.count() == 1 or self.normalize_advantage_per_mini_batch:
            return
        storage = self.storage
        raw = storage.returns - storage.values
        sums = torch.stack((raw.mean(), raw.square().mean()))
        processes.average_([sums])
        mean, number = sums[0], raw.numel() * processes.count()
        std = ((sums[1] - mean.square()).clamp(min=0.0) * number / (number - 1)).sqrt()
        storage.advantages = (raw - mean) / (std + 1e-8)

    def begin_iteration(self, iteration: int) -> None:
        """Called before the rollout of every iteration, counted from 0, after the runner has set its schedules."""

    def update(self) -> dict[str, float]:
        """Learn from the stored rollout; means of the losses."""
        if not self._replicas:
            return super().update()
        totals: dict[str, Tensor] = {}
        updates = 0
        for rows in self._minibatches():
            parts = [part for part in rows.tensor_split(len(self._replicas)) if len(part)]
            pairs = list(zip(self._replicas, parts, strict=False))
            if self._pool is None:
                results = [self._part(replica, part) for replica, part in pairs]
            else:
                jobs = [self._pool.submit(self._part, replica, part) for replica, part in pairs]
                results = [job.result() for job in jobs]
            # Parts differ by a row where the minibatch cannot be shared out evenly.
            shares = [len(part) / len(rows) for part in parts]
            gradients, losses = _weighted_sum(shares, results)
            processes.average_([*gradients, *losses.values()])
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
            self._adapt_learning_rate(losses.pop("kl", None))
            nn.utils.clip_grad_norm_(self.actor.parameters(), self.max_grad_norm)
            nn.utils.clip_grad_norm_(self.critic.parameters(), self.max_grad_norm)
            self.optimizer.step()
            totals = {name: totals.get(name, 0.0) + value for name, value in losses.items()}
            updates += 1
        self.storage.clear()
        return {name: float(value) / updates for name, value in totals.items()}

    def _minibatches(self) -> Iterator[Tensor]:
        """Row numbers of each minibatch, reshuffled in every epoch."""
        size = self.storage.num_envs * self.storage.num_transitions_per_env
        per_batch = size // self.num_mini_batches
        for _ in range(self.num_learning_epochs):
            order = torch.randperm(size, device=self.device)
            for start in range(0, per_batch * self.num_mini_batches, per_batch):
                yield order[start : start + per_batch]

    def _part(self, replica: _Replica, rows: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Gradients and losses of one part of a minibatch."""
        total: tuple[list[Tensor], dict[str, Tensor]] | None = None
        for chunk in rows.split(self._chunk_rows or len(rows)):
            batch = self._gather(chunk)
            if self.symmetry:
                # The rows are in an order of this epoch; a draw here would depend on which thread comes first.
                self.symmetry.mirror(batch, slice(len(chunk) // 2))  # type: ignore[attr-defined]
            loss, losses = self._loss(replica, batch)
            # Imitation of the mean alone leaves a spread that depends on no parameter of the loss where it is.
            found = list(torch.autograd.grad(loss, self._parameters, materialize_grads=True)), losses
            if len(chunk) == len(rows):
                return found
            share = len(chunk) / len(rows)
            # Summed as they come, so that the gradients of one chunk at a time are held.
            total = _weighted_sum([share], [found]) if total is None else _weighted_sum([1.0, share], [total, found])
        assert total is not None
        return total

    def _loss(self, replica: _Replica, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of some rows, and its parts as they are reported."""
        encoding = update_distribution(replica.actor, batch.observations)
        surrogate, entropy, losses = self._policy_losses(replica.actor, batch)
        value_loss = self._value_loss(replica.critic, batch)
        labels, label_losses = self._label_loss(replica.actor, encoding, batch.observations)
        loss = surrogate + self.value_loss_coef * value_loss - self.entropy_coef * entropy + labels
        return loss, {"value": value_loss.detach(), **losses, **label_losses}

    def _label_loss(
        self, actor: Any, encoding: Encoding, observations: dict[str, Tensor]
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        """Weighted squared error of the predicted labels, and its entry in the log; 0 and none without a label head.

        The labels teach the actor which thing and goal the words name; the reward alone needs many more samples.
        """
        if self._label_weight == 0.0:
            return 0.0, {}
        predicted = actor.label_head(encoding.latent)
        error = (predicted - observations[CRITIC][:, -predicted.shape[1] :]).square().mean()
        return self._label_weight * error, {"labels": error.detach()}

    def _policy_losses(self, actor: Any, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Surrogate, entropy, and what is reported of an actor whose distribution is up to date."""
        log_prob = actor.get_output_log_prob(batch.actions)
        entropy = actor.output_entropy.mean()
        # Beyond e^20 only the sign matters, which the clip takes care of.
        ratio = torch.exp((log_prob - batch.old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
        clipped = ratio.clamp(1.0 - self.clip_param, 1.0 + self.clip_param)
        surrogate = torch.max(-batch.advantages * ratio, -batch.advantages * clipped).mean()
        losses = {"surrogate": surrogate.detach(), "entropy": entropy.detach()}
        if self.schedule == "adaptive" and self.desired_kl is not None:
            with torch.no_grad():
                old = batch.old_distribution_params
                losses["kl"] = actor.get_kl_divergence(old, actor.output_distribution_params).mean()
        return surrogate, entropy, losses

    def _value_loss(self, critic: Any, batch: Batch) -> Tensor:
        values = critic.mlp(critic.get_latent(batch.observations))
        value_loss = (values - batch.returns).square()
        if self.use_clipped_value_loss:
            near = batch.values + (values - batch.values).clamp(-self.clip_param, self.clip_param)
            value_loss = torch.max(value_loss, (near - batch.returns).square())
        return value_loss.mean()

    def _adapt_learning_rate(self, kl: Tensor | None) -> None:
        """rsl_rl's rule: towards the desired divergence from the policy that collected, by factors of 1.5."""
        if kl is None or self.desired_kl is None:
            return
        # Read at once: every look at a number waits for a GPU.
        far, near = torch.stack((kl > self.desired_kl * 2.0, (kl > 0.0) & (kl < self.desired_kl / 2.0))).tolist()
        if far:
            self.set_learning_rate(max(MIN_LEARNING_RATE, self.learning_rate / 1.5))
        elif near:
            self.set_learning_rate(min(MAX_LEARNING_RATE, self.learning_rate * 1.5))

    def set_learning_rate(self, rate: float) -> None:
        """Set Adam's learning rate."""
        self.learning_rate = rate
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _gather(self, rows: Tensor) -> Batch:
        storage = self.storage

        def take(values: Tensor) -> Tensor:
            return values.flatten(0, 1)[rows]

        params = storage.distribution_params
        observations: dict[str, Tensor] = {group: take(values) for group, values in storage.observations.items()}  # type: ignore
        if self._packing is not None:
            observations = self._packing.unpack(observations)
        return Batch(
            observations=observations,
            actions=take(storage.actions),
            values=take(storage.values),
            returns=take(storage.returns),
            advantages=take(storage.advantages).squeeze(-1),
            old_log_prob=take(storage.actions_log_prob).squeeze(-1),
            old_distribution_params=tuple(map(take, params)) if params and self.schedule == "adaptive" else None,
        )


@dataclass
class Batch:
    """Rows of a rollout under the names that :class:`RandomMirror` and the loss use."""

    observations: dict[str, Tensor]
    """By group, each (N, size)."""
    actions: Tensor
    """Taken actions, (N, n)."""
    values: Tensor
    """The old critic's, (N, 1)."""
    returns: Tensor
    """Targets of the critic, (N, 1)."""
    advantages: Tensor
    """Normalised over the rollout, (N,)."""
    old_log_prob: Tensor
    """Of the actions under the policy that took them, (N,)."""
    old_distribution_params: tuple[Tensor, ...] | None = None
    """Mean and standard deviation of that policy, or a Beta's alpha and beta, (N, n) each; only an adaptive learning
    rate needs them."""
    teacher_actions: Tensor | None = None
    """A teacher's answers, (N, n)."""
    teacher_known: Tensor | None = None
    """Rows that it has answered, (N,) bool; None for all."""
    teacher_embedding: tuple[Tensor, ...] = ()
    """Parts of the teacher's embedding, (N, width) each."""
    remembered: dict[str, Tensor] | None = None
    """Observations of older rollouts that the teacher's answers are about; None where they are about these."""


class _Replica:
    """Copies of the models that share their parameters but not what a forward pass leaves behind."""

    def __init__(self, actor: Any, critic: Any) -> None:
        self.actor = _share(actor)
        self.critic = _share(critic)


def _weighted_sum(
    shares: list[float], results: list[tuple[list[Tensor], dict[str, Tensor]]]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Gradients and losses of several parts, each weighted."""
    # Filled in place of being copied from the CPU, which a GPU would be waited for.
    weights = torch.stack([torch.full((), share, device=results[0][0][0].device) for share in shares])

    def combine(values: Sequence[Tensor]) -> Tensor:
        return torch.tensordot(weights, torch.stack(list(values)), dims=1)

    gradients = [combine(column) for column in zip(*(part for part, _ in results), strict=True)]
    return gradients, {name: combine([losses[name] for _, losses in results]) for name in results[0][1]}


def update_distribution(actor: Any, observations: Any) -> Encoding:
    """Run the actor on groups (N, ...) up to its distribution; what it made of them, scaled."""
    is_perceptive = isinstance(actor, PerceptiveModel)
    encoding = actor.encode(observations) if is_perceptive else Encoding(actor.get_latent(observations))
    actor.distribution.update(actor.mlp(encoding.latent))
    return encoding


def _scale_last_layer(mlp: nn.Module, factor: float) -> None:
    if isinstance(mlp, MixtureOfExperts):
        mlp.scale_last_layer(factor)
        return
    with torch.no_grad():
        last = [layer for layer in mlp.modules() if isinstance(layer, nn.Linear)][-1]
        last.weight.mul_(factor)
        last.bias.mul_(factor)


@contextlib.contextmanager
def _left_alone(network: Any) -> Iterator[None]:
    """Keep a normaliser as it is."""
    before, network.obs_normalization = network.obs_normalization, False
    try:
        yield
    finally:
        network.obs_normalization = before


def _last_bias(mlp: nn.Module) -> nn.Parameter:
    if isinstance(mlp, MixtureOfExperts):
        return mlp.biases[-1]
    return [layer for layer in mlp.modules() if isinstance(layer, nn.Linear)][-1].bias


def _share(model: nn.Module) -> Any:
    twin = copy.deepcopy(model)
    for mine, theirs in zip(twin.modules(), model.modules(), strict=True):
        mine._parameters = theirs._parameters
        mine._buffers = theirs._buffers
    return twin

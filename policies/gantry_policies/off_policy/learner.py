"""One off-policy learner, whose switches give SAC, TD3, RLPD, WSRL and residual learning over a frozen base."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.common.checkpoint import weights_difference
from gantry_policies.off_policy.actors import ActorOutput, DeterministicActor, GaussianActor, Noise
from gantry_policies.off_policy.augment import shifted
from gantry_policies.off_policy.config import LearnerCfg
from gantry_policies.off_policy.critics import Critic, critic_loss, heads_for_policy_loss, reduced, subset_of_heads
from gantry_policies.off_policy.encoders import Encoder, Features
from gantry_policies.off_policy.replay.batches import Batch, Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.replay.mixing import sample_two
from gantry_policies.off_policy.scalers import ActionScaler, StateScaler


class Learner:
    """Networks, their targets and optimisers, and how a batch changes them.

    Actions are scaled ones, in [-1, 1], everywhere in here; :class:`~gantry_policies.off_policy.scalers.ActionScaler`
    leads to those of the environment. States are as the environment gives them.

    Args:
        cfg: How to learn.
        obs_shapes: Shape of one observation, by key; ``state`` must be among them.
        action_size: n.
        device: Where networks and batches are.
        seed: Of the networks' first weights, and of samples and noise from then on.

    Raises:
        GantryError: If there is no ``state`` among the observations.
    """

    def __init__(
        self,
        cfg: LearnerCfg,
        obs_shapes: Mapping[str, tuple[int, ...]],
        action_size: int,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        if STATE not in obs_shapes:
            raise GantryError(f"Observations are {sorted(obs_shapes)}, expected one called '{STATE}' among them.")
        self.cfg = cfg
        self.device = device
        self.action_size = action_size
        (state_size,) = obs_shapes[STATE]
        kind = {"sac": GaussianActor, "td3": DeterministicActor}[cfg.actor.kind]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = Encoder(obs_shapes, cfg.encoder).to(device)
            seen = (self.encoder.tokens, self.encoder.width)
            self.actor, self.actor_target = (kind(cfg.actor, state_size, action_size, *seen).to(device) for _ in "12")
            self.critic, self.critic_target = (
                Critic(cfg.critic, state_size, action_size, *seen).to(device) for _ in "12"
            )
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_target.load_state_dict(self.critic.state_dict())
        for network in (self.actor_target, self.critic_target):
            network.requires_grad_(False)
        self.action_scaler = ActionScaler(action_size).to(device)
        self.state_scaler = StateScaler(state_size).to(device)
        heat = cfg.actor.temperature
        self.log_temperature = torch.tensor(heat.initial, device=device).log().requires_grad_()
        # Walking through modules for their parameters takes longer than some of the products, so it is done once.
        self._parameters = {name: list(network.parameters()) for name, network in self._networks().items()}
        self._optimizers = {
            "actor": self._adam("actor", cfg.actor.learning_rate, cfg.actor.weight_decay),
            "critic": self._adam("critic", cfg.critic.learning_rate, cfg.critic.weight_decay),
            "temperature": torch.optim.Adam([self.log_temperature], heat.learning_rate),
        }
        if self.encoder.keys:
            self._optimizers["encoder"] = self._adam("encoder", cfg.encoder.learning_rate, cfg.critic.weight_decay)
        self.generator = torch.Generator(device)
        self.generator.manual_seed(seed)
        self.critic_updates = 0
        self.actor_updates = 0

    @property
    def correction_scale(self) -> float:
        """Largest correction of the base at present, in units of the scaled action."""
        cfg = self.cfg.actor
        if not cfg.progressive_updates:
            return cfg.action_scale
        return cfg.action_scale * min(1.0, self.actor_updates / cfg.progressive_updates)

    @property
    def temperature(self) -> float:
        """Weight of the entropy, of a ``sac`` actor."""
        return float(self.log_temperature.detach().exp())

    @property
    def ahead(self) -> Lookahead:
        """Look-ahead of samples."""
        return Lookahead(self.cfg.n_step, self.cfg.gamma, self.cfg.timeout_is_terminal)

    @torch.no_grad()
    def act(self, obs: Observation, base_action: Tensor | None = None, explore: bool = False) -> Tensor:
        """``(N, n)``: scaled actions to be executed, in [-1, 1].

        Args:
            obs: ``(N, ...)`` by key.
            base_action: ``(N, n)``: the base's scaled actions, for a residual actor.
            explore: Whether to try something out.
        """
        features = self.encoder.features(self._prepared(obs, shift=False))
        base = self._base(base_action)
        if explore:
            noise = Noise(self.cfg.actor.explore_std, generator=self.generator)
            return self.actor.sample(features, base, self.correction_scale, noise).action
        return self.actor.act_deterministic(features, base, self.correction_scale).action.clamp(-1.0, 1.0)

    def update(self, replay: ReplayBuffer, demos: ReplayBuffer | None = None) -> dict[str, Tensor]:
        """``cfg.critic_updates`` updates of the critic, and one of the actor on the last batch.

        Returns:
            Scalars worth a curve, dimensionless, of the last batch.
        """
        metrics: dict[str, Tensor] = {}
        with fast_products():
            for left in reversed(range(self.cfg.critic_updates)):
                batch = self.draw(replay, demos)
                features, metrics = self._update_critic(batch, smooth=True, told=not left)
                if not left:
                    metrics |= self._update_actor(batch, features.detached())
        return metrics

    def update_critic(self, replay: ReplayBuffer, demos: ReplayBuffer | None = None) -> dict[str, Tensor]:
        """One update of the critic alone, toward the value of the actor as it is: no noise on targets.

        Returns:
            Scalars worth a curve, dimensionless.
        """
        with fast_products():
            return self._update_critic(self.draw(replay, demos), smooth=False)[1]

    def pretrain(self, demos: ReplayBuffer, clone_weight: float) -> dict[str, Tensor]:
        """One update of critic and actor on demonstrations alone, the actor held to them (TD3+BC, arXiv 2106.06860).

        Returns:
            Scalars worth a curve, dimensionless.
        """
        with fast_products():
            batch = self.draw(demos, None)
            features, metrics = self._update_critic(batch, smooth=True)
            return metrics | self._update_actor(batch, features.detached(), clone_weight)

    def draw(self, replay: ReplayBuffer, demos: ReplayBuffer | None) -> Batch:
        """A batch as the configuration wants it."""
        cfg = self.cfg
        return sample_two(replay, demos, cfg.batch_size, cfg.demo_fraction, self.ahead, self.generator)

    @torch.no_grad()
    def targets(self, batch: Batch, smooth: bool = True) -> Tensor:
        """Targets of the critic, ``(B,)``, in units of the reward: returns, and what a random pair of target heads
        expects of the rest.

        Args:
            batch: B transitions.
            smooth: Noise on a ``td3`` target action.
        """
        cfg = self.cfg
        features = self.encoder.features(self._prepared(batch.next_obs, shift=True))
        base = self._base(batch.next_base_action)
        chosen = self._next_choice(features, base, smooth)
        heads = subset_of_heads(cfg.critic.heads, cfg.critic.target_heads, self.generator)
        value = self.critic_target(features, chosen.action.clamp(-1.0, 1.0), heads).amin(0)
        if chosen.log_prob is not None and cfg.actor.temperature.backup:
            value = value - self.log_temperature.exp() * chosen.log_prob
        target = batch.returns + batch.discount * value
        return target if cfg.critic.target_range is None else target.clamp(*cfg.critic.target_range)

    def state_dict(self) -> dict[str, Any]:
        """Everything that an exact continuation needs, and a policy: scalers included."""
        return {
            "networks": {name: network.state_dict() for name, network in self._networks().items()},
            "log_temperature": self.log_temperature.detach().clone(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
            "generator": self.generator.get_state(),
            "critic_updates": self.critic_updates,
            "actor_updates": self.actor_updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become what was saved.

        Raises:
            GantryError: If it was saved by a learner of another configuration.
        """
        try:
            for name, network in self._networks().items():
                difference = weights_difference(network.state_dict(), state["networks"][name])
                if difference:
                    raise ValueError(f"it is of another task or another network: of the {name}'s weights, {difference}")
                network.load_state_dict(state["networks"][name])
            for name, optimizer in self._optimizers.items():
                optimizer.load_state_dict(state["optimizers"][name])
        except (KeyError, RuntimeError, ValueError) as error:
            text = " ".join(str(error).split())
            raise GantryError(f"What was saved does not fit this learner's configuration: {text}") from error
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])
        self.generator.set_state(state["generator"].cpu())
        self.critic_updates, self.actor_updates = state["critic_updates"], state["actor_updates"]

    def _networks(self) -> dict[str, nn.Module]:
        return {
            "encoder": self.encoder,
            "actor": self.actor,
            "actor_target": self.actor_target,
            "critic": self.critic,
            "critic_target": self.critic_target,
            "action_scaler": self.action_scaler,
            "state_scaler": self.state_scaler,
        }

    def _prepared(self, obs: Observation, shift: bool) -> Observation:
        """Images shifted at random, if wanted, and the state standardised."""
        if shift and self.encoder.keys:
            obs = shifted(obs, self.cfg.encoder.shift_pixels, self.generator)
        return {**obs, STATE: self.state_scaler(obs[STATE])}

    def _base(self, base_action: Tensor | None) -> Tensor | None:
        if not self.cfg.actor.residual:
            return None
        if base_action is None:
            raise GantryError("A residual actor needs the base's action, but there is none.")
        return base_action

    def _next_choice(self, features: Features, base: Tensor | None, smooth: bool) -> ActorOutput:
        cfg, scale = self.cfg.actor, self.correction_scale
        if cfg.kind == "sac":
            return self.actor.sample(features, base, scale, Noise(0.0, generator=self.generator))
        if not smooth:
            return self.actor_target.act_deterministic(features, base, scale)
        noise = Noise(cfg.target_std, cfg.target_std_clip, self.generator)
        return self.actor_target.sample(features, base, scale, noise)

    def _update_critic(self, batch: Batch, smooth: bool, told: bool = True) -> tuple[Features, dict[str, Tensor]]:
        cfg = self.cfg
        target = self.targets(batch, smooth)
        features = self.encoder.features(self._prepared(batch.obs, shift=True))
        values = self.critic(features, batch.action)
        loss = critic_loss(values, target, cfg.critic.loss)
        trained = ("critic", "encoder") if self.encoder.keys else ("critic",)
        norm = self._descend(loss, *trained)
        self._follow("critic", cfg.critic.tau)
        self.critic_updates += 1
        if not told:
            return features, {}
        values = values.detach()
        return features, {
            "critic_loss": loss.detach(),
            "critic_grad_norm": norm,
            "value": values.mean(),
            "value_spread": (values.amax(0) - values.amin(0)).mean(),
            "target": target.mean(),
        }

    def _update_actor(self, batch: Batch, features: Features, clone_weight: float | None = None) -> dict[str, Tensor]:
        cfg = self.cfg.actor
        base = self._base(batch.base_action)
        if cfg.kind == "sac":
            chosen = self.actor.sample(features, base, self.correction_scale, Noise(0.0, generator=self.generator))
        else:
            chosen = self.actor.act_deterministic(features, base, self.correction_scale)
        heads = heads_for_policy_loss(cfg.gradient, self.cfg.critic.heads, self.generator)
        value = reduced(self.critic(features, chosen.action, heads), cfg.gradient)
        loss = -value.mean()
        if clone_weight is not None:
            # The value is divided by its own size, so that the weight means the same for every reward.
            cloned = self.actor.act_deterministic(features, base, self.correction_scale).action
            loss = loss / value.detach().abs().mean().clamp(min=1e-3)
            loss = loss + clone_weight * (cloned - batch.action).square().sum(-1).mean()
        if chosen.log_prob is not None:
            loss = loss + self.log_temperature.detach().exp() * chosen.log_prob.mean()
        if cfg.penalty:
            loss = loss + cfg.penalty * chosen.correction.square().mean()
        norm = self._descend(loss, "actor")
        if cfg.kind == "td3":
            self._follow("actor", cfg.tau)
        self.actor_updates += 1
        metrics = {
            "actor_loss": loss.detach(),
            "actor_grad_norm": norm,
            "own_action": chosen.correction.detach().abs().mean(),
        }
        return metrics if chosen.log_prob is None else metrics | self._update_temperature(chosen.log_prob.detach())

    def _update_temperature(self, log_prob: Tensor) -> dict[str, Tensor]:
        cfg = self.cfg.actor.temperature
        entropy = -log_prob.mean()
        if cfg.learning_rate:
            excess = entropy - cfg.entropy_per_action * self.action_size
            self.log_temperature.grad = excess.detach().clone()  # of log_temperature * excess
            self._optimizers["temperature"].step()
        return {"entropy": entropy, "temperature": self.log_temperature.detach().exp()}

    def _descend(self, loss: Tensor, *names: str) -> Tensor:
        """One step of the named networks alone; returns the first one's gradient norm before clipping."""
        groups = [self._parameters[name] for name in names]
        gradients = iter(torch.autograd.grad(loss, [*itertools.chain(*groups)]))
        norms = []
        for name, group in zip(names, groups, strict=True):
            for parameter in group:
                parameter.grad = next(gradients)
            norms.append(nn.utils.clip_grad_norm_(group, self.cfg.max_grad_norm, foreach=True))
            self._optimizers[name].step()
        return norms[0]

    @torch.no_grad()
    def _follow(self, name: str, tau: float) -> None:
        """Move a target toward its network by a share of the way."""
        for target, online in zip(self._parameters[f"{name}_target"], self._parameters[name], strict=True):
            target.lerp_(online, tau)

    def _adam(self, name: str, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self._parameters[name], learning_rate, weight_decay=weight_decay, fused=True)


def rounds_products() -> bool:
    """Whether :func:`fast_products` rounds on this machine's CPU, so that a seed comes out otherwise than elsewhere."""
    return getattr(torch.backends.mkldnn, "matmul", None) is not None and bool(torch.cpu._is_amx_tile_supported())


@contextlib.contextmanager
def fast_products() -> Iterator[None]:
    """Let oneDNN multiply float32 matrices, which is two to three times as fast as MKL on CPUs that are not Intel's.

    On CPUs with matrix units (AMX) it rounds the factors to bfloat16 and sums in float32.
    """
    backend = getattr(torch.backends.mkldnn, "matmul", None)
    if backend is None:  # an older torch
        yield
        return
    before = backend.fp32_precision
    backend.fp32_precision = "bf16"
    try:
        yield
    finally:
        backend.fp32_precision = before

"""One off-policy learner with switches for SAC, TD3, RLPD, WSRL, residual learning over a frozen base, and CO-RFT:
plans of several actions that count as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_hardware.errors import GantryError
from gantry_policies.common import processes
from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.common.checkpoint import load_weights
from gantry_policies.common.descent import Descent
from gantry_policies.common.products import fast_products
from gantry_policies.imitation.policy import BcPolicy
from gantry_policies.off_policy.actors import ActorOutput, Noise, PlanActor, make_actor
from gantry_policies.off_policy.augment import shifted
from gantry_policies.off_policy.config import LearnerCfg
from gantry_policies.off_policy.critics import (
    Critic,
    GripperCritic,
    conservative_loss,
    critic_loss,
    heads_for_policy_loss,
    reduced,
    subset_of_heads,
)
from gantry_policies.off_policy.encoders import Encoder, Features
from gantry_policies.off_policy.replay.batches import Batch, Lookahead
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.replay.mixing import sample_two
from gantry_policies.off_policy.scalers import ActionScaler, StateScaler
from gantry_policies.off_policy.teaching import equal_weight, imitation_loss, mean_size, worth


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
        clone: Policy that plans chunks and is learned further; with ``chunk_steps`` alone.

    Raises:
        GantryError: If there is no ``state`` among the observations, or a clone is missing, out of place, or plans
            otherwise.
    """

    def __init__(
        self,
        cfg: LearnerCfg,
        obs_shapes: Mapping[str, tuple[int, ...]],
        action_size: int,
        device: str = "cpu",
        seed: int = 0,
        clone: BcPolicy | None = None,
    ) -> None:
        if STATE not in obs_shapes:
            raise GantryError(f"Observations are {sorted(obs_shapes)}, expected one called '{STATE}' among them.")
        self.cfg = cfg
        self.device = device
        self.action_size = action_size
        self.valued_size = action_size * (cfg.n_step if cfg.chunk_steps else 1)
        """Numbers of what the critic values: an action, or the executed steps of a plan."""
        self.obs_shapes = dict(obs_shapes)
        self.action_scaler = ActionScaler(action_size).to(device)
        self.state_scaler = StateScaler(obs_shapes[STATE][0], MAX_WORDS if cfg.encoder.vocabulary else 0).to(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = Encoder(obs_shapes, cfg.encoder).to(device)
            state_size, seen = self.encoder.state_size, (self.encoder.tokens, self.encoder.width)
            own_size = action_size - bool(cfg.gripper.places)  # A critic moves the gripper then.
            own, valued = (clone, state_size, own_size, *seen), (state_size, self.valued_size, *seen)
            self.actor, self.actor_target = (make_actor(cfg, *own).to(device) for _ in "12")
            self.critic, self.critic_target = (Critic(cfg.critic, *valued).to(device) for _ in "12")
            self.gripper, self.gripper_target = (
                GripperCritic(cfg.gripper, state_size, *seen).to(device) if cfg.gripper.places else None for _ in "12"
            )
        networks = self._networks()
        for name, network in networks.items():
            if name.endswith("_target"):
                network.load_state_dict(networks[name.removesuffix("_target")].state_dict())
                network.requires_grad_(False)
        heat = cfg.actor.temperature
        self.log_temperature = torch.tensor(heat.initial, device=device).log().requires_grad_()
        self._descent = Descent(networks, cfg.max_grad_norm)
        self._descent.learn("actor", cfg.actor.learning_rate, cfg.actor.weight_decay)
        self._descent.learn("critic", cfg.critic.learning_rate, cfg.critic.weight_decay)
        self._descent.optimizers["temperature"] = torch.optim.Adam([self.log_temperature], heat.learning_rate)
        if self.gripper is not None:
            self._descent.learn("gripper", cfg.gripper.learning_rate)
        if self.encoder.learns:
            self._descent.learn("encoder", cfg.encoder.learning_rate, cfg.critic.weight_decay)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.critic_updates = self.actor_updates = 0

    def share_first(self) -> None:
        """Take networks, scalers and temperature of the first process."""
        processes.share_first_([self.log_temperature], *self._networks().values())

    @property
    def correction_scale(self) -> float:
        """Largest correction of the base at present, in units of the scaled action."""
        steps = self.cfg.actor.progressive_updates
        share = min(1.0, self.actor_updates / steps) if steps else 1.0
        return self.cfg.actor.action_scale * share

    @property
    def temperature(self) -> float:
        """Weight of the entropy, of a ``sac`` actor."""
        return float(self.log_temperature.detach().exp())

    @property
    def ahead(self) -> Lookahead:
        """Look-ahead of samples."""
        return Lookahead(self.cfg.n_step, self.cfg.gamma, self.cfg.timeout_is_terminal, self.cfg.chunk_steps)

    @torch.no_grad()
    def act(self, obs: Observation, base_action: Tensor | None = None, explore: bool = False) -> Tensor:
        """``(N, n)``: scaled actions to be executed, in [-1, 1].

        Args:
            obs: ``(N, ...)`` by key.
            base_action: ``(N, n)``: the base's scaled actions, for a residual actor.
            explore: Whether to try something out.
        """
        features = self._seen(obs, shift=False)
        base = self._base(base_action)
        if explore:
            noise = Noise(self.cfg.actor.explore_std, generator=self.generator)
            return self.whole(features, self.actor.sample(features, base, self.correction_scale, noise).action)
        return self._best(features, base).clamp(-1.0, 1.0)

    def whole(self, features: Features, action: Tensor) -> Tensor:
        """Scaled actions ``(B, n)`` of the actor's, ``(B, n - 1)`` where a critic moves the gripper."""
        return action if self.gripper is None else self.gripper.completed(features, action)

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
            own_eyes = not self.encoder.learns or self.cfg.chunk_steps  # A clone has eyes of its own.
            eyes = None if own_eyes else self._seen(batch.obs, shift=True)
            return metrics | self._update_actor(batch, features.detached(), clone_weight, eyes)

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
        features = self._seen(batch.next_obs, shift=True)
        chosen = self._next_choice(features, self._base(batch.next_base_action), smooth)
        heads = subset_of_heads(cfg.critic.heads, cfg.critic.target_heads, self.generator)
        action = self.whole(features, chosen.action.clamp(-1.0, 1.0))
        value = self.critic_target(features, action, heads).amin(0)
        if chosen.log_prob is not None and cfg.actor.temperature.backup:
            value = value - self.log_temperature.exp() * chosen.log_prob
        target = batch.returns + batch.discount * value
        return target if cfg.critic.target_range is None else target.clamp(*cfg.critic.target_range)

    def state_dict(self) -> dict[str, Any]:
        """Everything that an exact continuation needs, and a policy: scalers included."""
        return {
            "networks": {name: network.state_dict() for name, network in self._networks().items()},
            "log_temperature": self.log_temperature.detach().clone(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._descent.optimizers.items()},
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
            load_weights(self._networks(), state["networks"])
            for name, optimizer in self._descent.optimizers.items():
                optimizer.load_state_dict(state["optimizers"][name])
        except (KeyError, RuntimeError, ValueError) as error:
            text = " ".join(str(error).split())
            raise GantryError(f"What was saved does not fit this learner's configuration: {text}") from error
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])
        self.generator.set_state(state["generator"].cpu())
        self.critic_updates, self.actor_updates = state["critic_updates"], state["actor_updates"]

    def _networks(self) -> dict[str, nn.Module]:
        more = {"gripper": self.gripper, "gripper_target": self.gripper_target}
        return {
            **{name: network for name, network in more.items() if network is not None},
            "encoder": self.encoder,
            "actor": self.actor,
            "actor_target": self.actor_target,
            "critic": self.critic,
            "critic_target": self.critic_target,
            "action_scaler": self.action_scaler,
            "state_scaler": self.state_scaler,
        }

    def _seen(self, obs: Observation, shift: bool) -> Features:
        """Features of images, shifted at random if wanted, and of the state standardised."""
        if shift and self.encoder.keys:
            obs = shifted(obs, self.cfg.encoder.shift_pixels, self.generator)
        features = self.encoder.features({**obs, STATE: self.state_scaler(obs[STATE])})
        return replace(features, obs=obs) if self.cfg.chunk_steps else features

    def _base(self, base_action: Tensor | None) -> Tensor | None:
        if not self.cfg.actor.residual:
            return None
        if base_action is None:
            raise GantryError("A residual actor needs the base's action, but there is none.")
        return base_action

    def _best(self, features: Features, base: Tensor | None) -> Tensor:
        """Deterministic scaled actions ``(B, n)``, with their gradient."""
        return self.whole(features, self.actor.act_deterministic(features, base, self.correction_scale).action)

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
        features = self._seen(batch.obs, shift=True)
        values = self.critic(features, batch.action[:, : self.valued_size])
        loss = critic_loss(values, target, cfg.critic.loss)
        if cfg.critic.conservative_weight:
            loss = loss + cfg.critic.conservative_weight * self._overrating(batch, features, values)
        trained = ("critic", "encoder") if self.encoder.learns else ("critic",)
        norm = self._descent.step(loss, *trained)
        self._descent.follow("critic", cfg.critic.tau)
        self.critic_updates += 1
        gripper = {} if self.gripper is None else self._update_gripper(self.gripper, batch, features.detached())
        if not told:
            return features, {}
        values = values.detach()
        return features, {
            "critic_loss": loss.detach(),
            "critic_grad_norm": norm,
            "value": values.mean(),
            "value_spread": (values.amax(0) - values.amin(0)).mean(),
            "target": target.mean(),
            **gripper,
        }

    def _overrating(self, batch: Batch, features: Features, values: Tensor) -> Tensor:
        """Excess of the values of the policy's own plans over those ``(K, B)`` of recorded ones, a scalar."""
        assert batch.to_go is not None
        noise = Noise(self.cfg.actor.target_std, self.cfg.actor.target_std_clip, self.generator)
        with torch.no_grad():
            own = self.actor.sample(features, None, 1.0, noise).action
        return conservative_loss(values, self.critic(features, own), batch.to_go)

    def _update_gripper(self, gripper: GripperCritic, batch: Batch, features: Features) -> dict[str, Tensor]:
        """One update of the critic that moves the gripper: the only one that sees penalties."""
        assert self.gripper_target is not None
        with torch.no_grad():
            following = self._seen(batch.next_obs, shift=True)
            chosen = gripper(following).argmax(-1, keepdim=True)
            value = self.gripper_target(following).gather(1, chosen).squeeze(1)
            earned = batch.returns if batch.penalties is None else batch.returns + batch.penalties
            target = earned + batch.discount * value
        loss = gripper.loss(features, batch.action, target)
        self._descent.step(loss, "gripper")
        self._descent.follow("gripper", self.cfg.gripper.tau)
        return {"gripper_loss": loss.detach()}

    def _update_actor(
        self, batch: Batch, features: Features, clone_weight: float | None = None, eyes: Features | None = None
    ) -> dict[str, Tensor]:
        """One update of the actor; cloning trains the encoder as well where it gets features with their gradient."""
        cfg = self.cfg.actor
        base = self._base(batch.base_action)
        if cfg.kind == "sac":
            chosen = self.actor.sample(features, base, self.correction_scale, Noise(0.0, generator=self.generator))
        else:
            chosen = self.actor.act_deterministic(features, base, self.correction_scale)
        heads = heads_for_policy_loss(cfg.gradient, self.cfg.critic.heads, self.generator)
        value = reduced(self.critic(features, self.whole(features, chosen.action), heads), cfg.gradient)
        loss = -value.mean()
        taught: dict[str, Tensor] = {}
        seen = features if eyes is None else eyes
        if clone_weight is None or self.cfg.teaching.mode == "only":
            loss, taught = self._taught_loss(loss, batch, seen, base, value)
        else:
            # The value is divided by its own size, so that the weight means the same for every reward.
            loss = loss / mean_size(value) + clone_weight * self._cloning_loss(seen, base, batch)
        if chosen.log_prob is not None:
            loss = loss + self.log_temperature.detach().exp() * chosen.log_prob.mean()
        if cfg.penalty:
            loss = loss + cfg.penalty * chosen.correction.square().mean()
        norm = self._descent.step(loss, *(("actor",) if eyes is None else ("actor", "encoder")))
        if cfg.kind == "td3":
            self._descent.follow("actor", cfg.tau)
        self.actor_updates += 1
        metrics = {
            "actor_loss": loss.detach(),
            "actor_grad_norm": norm,
            "own_action": chosen.correction.detach().abs().mean(),
            **taught,
        }
        return metrics if chosen.log_prob is None else metrics | self._update_temperature(chosen.log_prob.detach())

    def _cloning_loss(self, features: Features, base: Tensor | None, batch: Batch) -> Tensor:
        """Distance of the actor from what was recorded, a scalar, dimensionless."""
        if isinstance(self.actor, PlanActor):
            assert batch.is_real is not None
            return self.actor.imitation_loss(features, batch.action, batch.is_real)
        return (self._best(features, base) - batch.action).square().sum(-1).mean()

    def _taught_loss(
        self, loss: Tensor, batch: Batch, features: Features, base: Tensor | None, value: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The actor's loss with its share of imitation, if any, and scalars worth a curve; values ``(B,)``."""
        cfg = self.cfg.teaching
        if cfg.mode == "none":
            return loss, {}
        own, is_taught = self._best(features, base), batch.is_demo | batch.is_intervention
        if cfg.mode == "only":
            loss = imitation_loss(own, batch.action, equal_weight(is_taught))
            return loss, {"imitation_loss": loss.detach()}
        with torch.no_grad():
            shown, ours = self.critic(features, batch.action).mean(0), self.critic(features, own).mean(0)
            weight = worth(shown, ours, self.critic_updates, cfg) * is_taught
        imitation = cfg.weight * imitation_loss(own, batch.action, weight)
        count = is_taught.sum().clamp(min=1)
        return loss / mean_size(value) + imitation, {
            "imitation_loss": imitation.detach(),
            "corrections_better": weight.sum() / count,
        }

    def _update_temperature(self, log_prob: Tensor) -> dict[str, Tensor]:
        cfg = self.cfg.actor.temperature
        entropy = -log_prob.mean()
        if cfg.learning_rate:
            size = self.action_size - (self.gripper is not None)
            excess = entropy - cfg.entropy_per_action * size
            self.log_temperature.grad = excess.detach().clone()  # of log_temperature * excess
            processes.average_([self.log_temperature.grad])
            self._descent.optimizers["temperature"].step()
        return {"entropy": entropy, "temperature": self.log_temperature.detach().exp()}

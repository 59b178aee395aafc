"""Steps of a fleet: actors that each simulate environments with a copy of the policy.

Actors collect while the learner learns. Each answer is followed by an order with the newest weights. With K actors and
a learner that is the slower part, a step was chosen by weights that are up to K stretches' updates old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gantry_policies.common.batched_env import BatchedEnv
from gantry_policies.off_policy.bases import BasePolicy
from gantry_policies.off_policy.collecting.collector import Collector
from gantry_policies.off_policy.collecting.step_collector import StepCollector
from gantry_policies.off_policy.collecting.tally import EpisodeTally
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.policy import acting_parts
from gantry_policies.off_policy.replay.buffer import ReplayBuffer

STRETCH_STEPS = 20
"""Steps that each environment of an actor makes for an order."""
WAIT_S = 0.2
"""Longest wait for an actor before something else is looked after, s."""


@dataclass(frozen=True)
class Order:
    """Work for an actor."""

    weights: Mapping[str, Any]
    """Policy that acts, see :func:`acting_weights`."""
    warmup: str | None
    """Policy of a warm-up in place of the learner's, see :meth:`StepCollector.step`."""
    noise: float
    """Half-width of the noise around a base's action in a warm-up, in scaled units."""
    steps: int = STRETCH_STEPS
    """Steps of each environment."""


@dataclass(frozen=True)
class Stretch:
    """Answer to an order."""

    transitions: Sequence[Mapping[str, Any]]
    """Arguments of ``ReplayBuffer.add`` but the environments, by name, one for each step; tensors are on the CPU."""
    episodes: Sequence[tuple[bool, float]]
    """Success and sum of rewards of each episode that was finished."""
    is_first: bool
    """Whether environments began anew, so that the first step follows nothing."""


class Fleet(Protocol):
    """Actors somewhere, each with as many environments."""

    actors: int
    """Number of actors."""
    envs: int
    """Environments of each."""

    def ask(self, actor: int, order: Order) -> None:
        """Send an order to an actor that has none."""
        ...

    def next(self, patience_s: float) -> tuple[int, Stretch | None] | None:
        """Wait for an answer, for ``patience_s`` seconds at most.

        Returns:
            Number of an actor, which has no order now, and its answer: None if it was lost and has begun again. None in
            place of both if no actor has answered.

        Raises:
            GantryError: If an actor fails, or was lost too often.
        """
        ...


def acting_weights(learner: Learner) -> dict[str, Any]:
    """Copy of what a learner acts with, on the CPU."""
    parts = {
        name: {key: value.detach().cpu().clone() for key, value in part.state_dict().items()}
        for name, part in acting_parts(learner).items()
    }
    return {"parts": parts, "actor_updates": learner.actor_updates}


def load_acting_weights(learner: Learner, weights: Mapping[str, Any]) -> None:
    """Let a learner act like the one that the weights are a copy of."""
    for name, part in acting_parts(learner).items():
        part.load_state_dict(weights["parts"][name])
    learner.actor_updates = weights["actor_updates"]


class FleetActor:
    """Steps environments with a copy of the learner's policy.

    Args:
        env: Environments of this actor.
        learner: Of the same configuration as the fleet's; acts alone.
        base: Base of these environments; None without one.
        generator: Of the noise in warm-up, on the environments' device.
    """

    def __init__(self, env: BatchedEnv, learner: Learner, base: BasePolicy | None, generator: torch.Generator) -> None:
        env.keep_final_obs = True
        self._learner, self._episodes = learner, EpisodeTally(limit=None)
        self._record = _Record(learner.cfg.actor.residual, set(env.obs_shapes))
        self._collector = Collector(env, learner, self._record, base, generator, episodes=self._episodes)

    def collect(self, order: Order) -> Stretch:
        """Follow an order.

        Raises:
            GantryError: As of :meth:`Collector.step`.
        """
        load_acting_weights(self._learner, order.weights)
        for _ in range(order.steps):
            self._collector.step(order.warmup, order.noise)
        transitions, is_first = self._record.take_all()
        return Stretch(transitions, self._episodes.take_all(), is_first)


class FleetCollector(StepCollector):
    """Collector of the steps that a fleet makes.

    Args:
        fleet: The actors; those of place k write to the columns of the buffer from ``k * fleet.envs`` on.
        learner: Its weights go with each order.
        replay: Buffer of all environments of the fleet.
        warmup_steps: Steps of all environments that a warm-up's policy makes; orders beyond them are the learner's,
            also while answers to earlier ones are awaited.
    """

    def __init__(self, fleet: Fleet, learner: Learner, replay: ReplayBuffer, warmup_steps: int) -> None:
        super().__init__()
        self._fleet, self._learner, self._replay = fleet, learner, replay
        self._warmup_steps = warmup_steps
        self._ordered: list[int] = []

    def step(self, warmup: str | None = None, noise: float = 0.0) -> None:
        """Store what one actor has collected, if any has, and send it its next order.

        Args:
            warmup: As of :meth:`StepCollector.step`.
            noise: As there.

        Raises:
            GantryError: If an actor fails, or was lost too often.
        """
        if not self._ordered:
            self._ordered = [0] * self._fleet.actors
            weights = acting_weights(self._learner)
            for actor in range(self._fleet.actors):
                self._ask(actor, weights, warmup, noise)
        found = self._fleet.next(WAIT_S)
        if found is None:
            return
        actor, stretch = found
        self._ordered[actor] = 0
        if stretch is not None:
            self.env_steps += len(stretch.transitions) * self._fleet.envs
        # First the order, so that the actor collects while this is stored and learned from.
        self._ask(actor, acting_weights(self._learner), warmup, noise)
        if stretch is not None:
            self._store(actor, stretch)

    def _ask(self, actor: int, weights: Mapping[str, Any], warmup: str | None, noise: float) -> None:
        if self.env_steps + sum(self._ordered) >= self._warmup_steps:
            warmup = None
        order = Order(weights, warmup, noise)
        self._fleet.ask(actor, order)
        self._ordered[actor] = order.steps * self._fleet.envs

    def _store(self, actor: int, stretch: Stretch) -> None:
        rows = torch.arange(actor * self._fleet.envs, (actor + 1) * self._fleet.envs, device=self._replay.device)
        if stretch.is_first:
            self._replay.end_episodes(rows)
        for transition in stretch.transitions:
            self._replay.add(**transition, env_ids=rows)
        for succeeded, earned in stretch.episodes:
            self.episodes.add(succeeded, earned)


class _Record:
    """Transitions of an actor since the last stretch; a :class:`TransitionSink`.

    Args:
        with_base: Whether the actions of a base policy are stored along.
        seen: Keys of observations that the buffer stores.
    """

    NAMES = ("obs", "action", "reward", "next_obs", "terminated", "truncated")

    def __init__(self, with_base: bool, seen: Set[str]) -> None:
        self.with_base = with_base
        self._seen = seen
        self._transitions: list[dict[str, Any]] = []
        self._is_first = True

    def add(self, *parts: Any, **more: Any) -> None:
        """Note one transition of each environment."""
        named = {**dict(zip(self.NAMES, parts, strict=True)), **more}
        for name in ("obs", "next_obs"):
            named[name] = {key: value for key, value in named[name].items() if key in self._seen}
        self._transitions.append({name: _copied_to_cpu(value) for name, value in named.items()})

    def end_episodes(self) -> None:
        """Environments begin anew."""
        self._is_first = True

    def take_all(self) -> tuple[list[dict[str, Any]], bool]:
        """Noted transitions, and whether environments began anew before them; empty afterwards."""
        found = self._transitions, self._is_first
        self._transitions, self._is_first = [], False
        return found


def _copied_to_cpu(value: Any) -> Any:
    """Copies of tensors, which environments may write to again, on the CPU."""
    if isinstance(value, dict):
        return {key: _copied_to_cpu(part) for key, part in value.items()}
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value

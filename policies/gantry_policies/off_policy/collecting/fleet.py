"""Steps of a fleet: actors that each simulate environments with a copy of the policy.

Actors collect while the learner learns. Each answer is followed by an order with the newest weights, so with a learner
that is the slower part an actor's steps are behind by the updates of as many stretches as there are actors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gantry_policies.common.batched_env import BatchedEnv
from gantry_policies.off_policy.bases import BasePolicy
from gantry_policies.off_policy.collecting.collector import Collector
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
    how: str | None
    """Policy of a warm-up in place of the learner's, see :meth:`Collector.step`."""
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
        """An actor without an order, and its answer, None of one that was lost and has begun again; None where every
        actor still works after ``patience_s`` seconds.

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
        self._learner, self._episodes = learner, _Episodes()
        self._record = _Record(learner.cfg.actor.residual, set(env.obs_shapes))
        self._collector = Collector(env, learner, self._record, base, generator)
        self._collector.episodes = self._episodes

    def collect(self, order: Order) -> Stretch:
        """Follow an order.

        Raises:
            GantryError: As of :meth:`Collector.step`.
        """
        load_acting_weights(self._learner, order.weights)
        for _ in range(order.steps):
            self._collector.step(order.how, order.noise)
        transitions, is_first = self._record.taken()
        return Stretch(transitions, self._episodes.taken(), is_first)


class FleetCollector:
    """Takes the place of the collector that steps environments: a fleet does.

    Args:
        fleet: The actors; those of place k write to the columns of the buffer from ``k * fleet.envs`` on.
        learner: Its weights go with each order.
        replay: Buffer of all environments of the fleet.
    """

    env: BatchedEnv | None = None

    def __init__(self, fleet: Fleet, learner: Learner, replay: ReplayBuffer) -> None:
        self._fleet, self._learner, self._replay = fleet, learner, replay
        self._has_begun = False
        self.env_steps = 0
        """Steps of all environments together."""
        self.episodes = EpisodeTally()

    def reset(self) -> None:
        """No effect: evaluations have environments of their own."""

    def step(self, how: str | None = None, noise: float = 0.0) -> None:
        """Store what one actor has collected, if any has, and send it its next order.

        Args:
            how: As of :meth:`Collector.step`.
            noise: As there.

        Raises:
            GantryError: If an actor fails, or was lost too often.
        """
        if not self._has_begun:
            order = Order(acting_weights(self._learner), how, noise)
            for actor in range(self._fleet.actors):
                self._fleet.ask(actor, order)
            self._has_begun = True
        found = self._fleet.next(WAIT_S)
        if found is None:
            return
        actor, stretch = found
        # First the order, so that the actor collects while this is stored and learned from.
        self._fleet.ask(actor, Order(acting_weights(self._learner), how, noise))
        if stretch is None:
            return
        rows = torch.arange(actor * self._fleet.envs, (actor + 1) * self._fleet.envs, device=self._replay.device)
        if stretch.is_first:
            self._replay.end_episodes(rows)
        for transition in stretch.transitions:
            self._replay.add(**transition, env_ids=rows)
        for succeeded, earned in stretch.episodes:
            self.episodes.add(succeeded, earned)
        self.env_steps += len(stretch.transitions) * self._fleet.envs

    def state(self, *, inside: bool = True) -> dict[str, Any]:
        """Counters; environments begin new episodes in a continuation."""
        del inside
        return {"env_steps": self.env_steps, **self.episodes.state(), "inside": None}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put them back."""
        self.env_steps = state["env_steps"]
        self.episodes.restore(state)
        self._replay.end_episodes()


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
        self._transitions.append({name: _kept(value) for name, value in named.items()})

    def end_episodes(self) -> None:
        """Environments begin anew."""
        self._is_first = True

    def taken(self) -> tuple[list[dict[str, Any]], bool]:
        """Noted transitions, and whether environments began anew before them; empty afterwards."""
        found = self._transitions, self._is_first
        self._transitions, self._is_first = [], False
        return found


class _Episodes(EpisodeTally):
    """Episodes that were finished since the last stretch."""

    def __init__(self) -> None:
        super().__init__()
        self._new: list[tuple[bool, float]] = []

    def add(self, succeeded: bool, earned: float) -> None:
        self._new.append((succeeded, earned))

    def taken(self) -> list[tuple[bool, float]]:
        """Those; none afterwards."""
        found, self._new = self._new, []
        return found


def _kept(value: Any) -> Any:
    """Copies of tensors, which environments may write to again, on the CPU."""
    if isinstance(value, dict):
        return {key: _kept(part) for key, part in value.items()}
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value

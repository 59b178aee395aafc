"""Steps of the environments into the replay buffer, with the base asked in the only order that is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import BatchedEnv, EnvStep, Observation, on_device
from gantry_policies.common.border import require_finite
from gantry_policies.corrections.person import HelpTally, Person
from gantry_policies.off_policy.bases import BasePolicy
from gantry_policies.off_policy.collecting.step_collector import StepCollector
from gantry_policies.off_policy.collecting.tally import EpisodeTally
from gantry_policies.off_policy.config import WARMUPS
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.replay.penalties import GripperPenalties


@runtime_checkable
class Resumable(Protocol):
    """Capability of an environment or a base with which a training can be continued exactly."""

    def training_state(self) -> dict[str, Any]:
        """Tensors and plain values."""
        ...

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Put them back."""
        ...


class TransitionSink(Protocol):
    """Destination of transitions: a :class:`~gantry_policies.off_policy.replay.buffer.ReplayBuffer`, or a record of
    them that is sent to one."""

    with_base: bool
    """Whether the actions of a base policy are stored along."""

    def add(self, *parts: Any, **more: Any) -> None:
        """Store one transition of each environment; arguments as of ``ReplayBuffer.add``."""
        ...

    def end_episodes(self) -> None:
        """Mark that the next transition of every environment does not follow its last one."""
        ...


class Collector(StepCollector):
    """Acts, steps, asks the base, and stores.

    After a step the base is asked about the last observation of episodes that ran out of time, without using anything
    up; then its queues of *all* ended episodes are emptied, however they ended; then it acts on what is seen now.

    A person may act in place of the policy. What was executed is stored, and what a person did goes into ``taught`` as
    well. The base plans anew in every step after one of a person, since a plan from before is for another place.

    Args:
        env: N environments.
        learner: Acts, and holds the scalers.
        replay: Destination of the transitions.
        base: The base; None without one.
        generator: Of the noise in warm-up, on the environments' device.
        person: Corrects the policy; None for none.
        taught: Buffer of demonstrations and corrections, of as many environments; needed with a person.
        episodes: Tally of finished episodes; None for a new one.
    """

    def __init__(
        self,
        env: BatchedEnv,
        learner: Learner,
        replay: TransitionSink,
        base: BasePolicy | None,
        generator: torch.Generator,
        person: Person | None = None,
        taught: ReplayBuffer | None = None,
        episodes: EpisodeTally | None = None,
    ) -> None:
        super().__init__(episodes)
        if person is not None and taught is None:
            raise GantryError("A person's corrections need a buffer of their own, but there is none.")
        self.env = env
        self.learner = learner
        self.replay = replay
        self.base = base
        self.person = person
        self.taught = taught
        self.help = HelpTally(env.num_envs)
        """Counts of what a person did."""
        self._generator = generator
        self._penalties = GripperPenalties(env.num_envs, learner.cfg.gripper.charge, learner.device)
        self._obs: Observation | None = None
        self._base_action: Tensor | None = None
        self._succeeded = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        self._earned = torch.zeros(env.num_envs, device=env.device)

    @property
    def own_env(self) -> BatchedEnv:
        """The environments."""
        return self.env

    def reset(self) -> None:
        """New episodes everywhere; what is stored next does not follow what was stored last."""
        self.replay.end_episodes()
        self._succeeded.zero_()
        self._earned.zero_()
        self._penalties.reset()
        self.help.reset()
        for part in (self.base, self.person):
            if part is not None:
                part.reset()
        self._obs = self.env.reset()
        require_finite([(f"an observation '{key}'", value) for key, value in self._obs.items()], "a reset")
        self._base_action = self._base_acts(self._obs)

    @torch.no_grad()
    def step(self, warmup: str | None = None, noise: float = 0.0) -> None:
        """One step of every environment.

        Args:
            warmup: As of :meth:`StepCollector.step`.
            noise: As there.

        Raises:
            GantryError: If the base should act and there is none, or an action is not finite.
            NotFiniteError: If an environment gave a reward or an observation that is not finite.
        """
        if self._obs is None:
            self.reset()
        assert self._obs is not None
        action = self._choose(self._obs, warmup, noise)
        if not bool(torch.isfinite(action).all()):
            raise GantryError(f"The policy's action is not finite after {self.env_steps} environment steps.")
        action, by_person = self._corrected(self._obs, action)
        executed = self.learner.action_scaler.unscale(action)
        step = self.env.step(executed.to(self.env.device))
        seen = [(f"an observation '{key}'", part[key]) for part in (step.next_obs, step.obs) for key in part]
        require_finite([("a reward", step.reward), *seen], f"the step after {self.env_steps} environment steps")
        next_base, now_base = self._base_after(step, by_person)
        self._store(action, executed, by_person, step, next_base)
        self._count(step, by_person)
        self._obs, self._base_action = step.obs, now_base
        self.env_steps += self.env.num_envs

    def _corrected(self, obs: Observation, action: Tensor) -> tuple[Tensor, Tensor]:
        """Scaled actions ``(N, n)`` that are executed, and ``(N,)`` bool where they are a person's."""
        if self.person is None:
            return action, torch.zeros(len(action), dtype=torch.bool, device=action.device)
        scaler = self.learner.action_scaler
        acts, theirs = self.person.decide(obs, scaler.unscale(action).to(self.env.device))
        acts = acts.to(action.device)
        # Scaled first and executed then, so that a limit holds for what is done and for what is stored.
        return torch.where(acts[:, None], scaler.scale(theirs.to(action.device)), action), acts

    def _store(
        self, action: Tensor, executed: Tensor, by_person: Tensor, step: EnvStep, next_base: Tensor | None
    ) -> None:
        """A transition of each environment; those of a person into both buffers."""
        assert self._obs is not None
        penalty = self._penalties.of(executed)
        self._penalties.reset((step.terminated | step.truncated).to(penalty.device))
        now_base = self._base_action
        if not self.replay.with_base:  # Without a correction to learn, what the base wanted is not stored.
            now_base = next_base = None
        parts = (self._obs, action, step.reward, step.next_obs, step.terminated, step.truncated)
        self.replay.add(
            *parts, base_action=now_base, next_base_action=next_base, is_intervention=by_person, penalty=penalty
        )
        if self.taught is None:
            return
        rows = by_person.nonzero().squeeze(1)
        if not rows.numel():
            return

        def those(values: Tensor) -> Tensor:
            return values[rows.to(values.device)]

        obs, _, reward, next_obs, terminated, truncated = parts
        self.taught.add(
            {key: those(value) for key, value in obs.items()},
            those(action),
            those(reward),
            {key: those(value) for key, value in next_obs.items()},
            those(terminated),
            those(truncated),
            base_action=None if now_base is None else those(now_base),
            next_base_action=None if next_base is None else those(next_base),
            is_intervention=those(by_person),
            penalty=those(penalty),
            env_ids=rows,
        )

    def state(self, *, inside: bool = True) -> dict[str, Any]:
        """State for an exact continuation; of environments that offer their state, and of others the counters.

        Args:
            inside: Whether to ask the environments for their state; not where they have broken down.
        """
        state = super().state()
        whole = inside and self._resumes_inside() and (self.base is None or isinstance(self.base, Resumable))
        if self._obs is not None and whole:
            state["inside"] = {
                "obs": self._obs,
                "base_action": self._base_action,
                "succeeded": self._succeeded,
                "earned": self._earned,
                "env": self.env.training_state() if isinstance(self.env, Resumable) else None,
                "base": self.base.training_state() if isinstance(self.base, Resumable) else None,
            }
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put it back; environments that do not offer their state begin new episodes."""
        super().restore(state)
        inside = state["inside"]
        if inside is None:
            self.replay.end_episodes()
            self._obs = None
            return
        self._obs = on_device(inside["obs"], self.env.device)
        wanted = inside["base_action"]
        self._base_action = None if wanted is None else wanted.to(self.learner.device)
        self._succeeded = inside["succeeded"].to(self.env.device)
        self._earned = inside.get("earned", self._earned).to(self.env.device)
        if isinstance(self.env, Resumable):
            self.env.restore_training_state(inside["env"])
        if isinstance(self.base, Resumable):
            self.base.restore_training_state(inside["base"])

    def _resumes_inside(self) -> bool:
        """Whether the environments can go on inside their episodes."""
        return isinstance(self.env, Resumable) and getattr(self.env, "resumes_inside", True)

    def _choose(self, obs: Observation, warmup: str | None, noise: float) -> Tensor:
        """``(N, n)``: scaled actions as they are executed, so as they are stored."""
        if warmup in (None, WARMUPS[2]):
            return self.learner.act(on_device(obs, self.learner.device), self._base_action, explore=True)
        shape, device = (self.env.num_envs, self.env.action_size), self.env.device
        drawn = (2.0 * torch.rand(shape, generator=self._generator, device=device) - 1.0).to(self.learner.device)
        if warmup == WARMUPS[1]:
            return drawn
        if self._base_action is None:
            raise GantryError("The warm-up is 'base_noise', but there is no base; expected 'uniform' or 'policy'.")
        return (self._base_action + noise * drawn).clamp(-1.0, 1.0)

    def _base_acts(self, obs: Observation) -> Tensor | None:
        return None if self.base is None else self._scaled(self.base.act(obs))

    def _scaled(self, action: Tensor) -> Tensor:
        return self.learner.action_scaler.scale(action.to(self.learner.device))

    def _base_after(self, step: EnvStep, by_person: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The base's scaled actions at ``next_obs``, and at ``obs`` with which the next step begins."""
        if self.base is None:
            return None, None
        ended = (step.terminated | step.truncated).nonzero().squeeze(1)
        late = (step.truncated & ~step.terminated).nonzero().squeeze(1)
        peeked = None
        if late.numel():
            at_end = {key: value[late] for key, value in step.next_obs.items()}
            peeked = self._scaled(self.base.peek(at_end, late))
        stale = (step.terminated | step.truncated | by_person.to(step.terminated.device)).nonzero().squeeze(1)
        if stale.numel():
            self.base.reset(stale)
        now = self._base_acts(step.obs)
        assert now is not None
        following = now.clone()
        following[ended.to(now.device)] = 0.0  # of no effect after an end for good
        if peeked is not None:
            following[late.to(now.device)] = peeked
        return following, now

    def _count(self, step: EnvStep, by_person: Tensor) -> None:
        self._succeeded |= step.success
        self._earned += step.reward.to(self._earned.device)
        ended = step.terminated | step.truncated
        if self.person is not None:
            self.help.add(by_person, ended, self._succeeded)
            ids = ended.nonzero().squeeze(1)
            if ids.numel():
                self.person.reset(ids)
        # In one copy, since each waits for a GPU.
        for is_over, succeeded, earned in torch.stack((ended, self._succeeded, self._earned), dim=1).tolist():
            if is_over:
                self.episodes.add(bool(succeeded), earned)
        self._succeeded &= ~ended
        self._earned[ended] = 0.0

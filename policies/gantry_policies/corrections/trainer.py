"""Off-policy training on steps that actors elsewhere make: the collector takes them from a stream.

Everything else is :class:`gantry_policies.off_policy.trainer.OffPolicyTrainer`. Updates follow the steps at the
configured ratio and no faster, so that a learner that resumes, or whose robot waits, does not flood gradient steps.
Buffers are not part of checkpoints: the link's journal brings every acknowledged step again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from gantry_deploy.session.snapshot import LearnerFacts
from gantry_hardware.errors import GantryError
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_policies.common.batched_env import BatchedEnv
from gantry_policies.common.checkpoint import UnusableCheckpointError, load_newest, save_checkpoint
from gantry_policies.corrections.feed import BufferFeed, StepStream
from gantry_policies.corrections.live import live_weights
from gantry_policies.off_policy.bases import BasePolicy, is_same_base
from gantry_policies.off_policy.collecting.step_collector import StepCollector
from gantry_policies.off_policy.config import OffPolicyCfg
from gantry_policies.off_policy.counters import Counters
from gantry_policies.off_policy.replay.demos import Demo
from gantry_policies.off_policy.trainer import OffPolicyTrainer

Publish = Callable[[Mapping[str, NDArray[Any]]], object]
"""Sends weights to the actors."""
WAIT_S = 0.05
"""Longest wait for steps before something else is looked after, s."""
MOST = 256
"""Steps that are taken at once."""
PUBLISH_S = 1.0
"""Shortest time between two sets of weights, s."""
RATE_S = 5.0
"""Time over which updates per second are told, s."""


class StreamCollector(StepCollector):
    """Collector of the steps that a session's actors make; its episodes are attempts, with or without help.

    Args:
        stream: From the actors.
        feed: To the buffers.
    """

    def __init__(self, stream: StepStream, feed: BufferFeed) -> None:
        super().__init__()
        self._stream, self.feed = stream, feed
        self._earned: dict[str, float] = {}

    def step(self, warmup: str | None = None, noise: float = 0.0) -> None:
        """Take steps that have come; the arguments are of collectors that act."""
        del warmup, noise
        for actor, step in self._stream.drain(WAIT_S, MOST):
            self.feed.take(actor, step)
            self.env_steps = max(self.env_steps, self.feed.steps)
            self._earned[actor] = self._earned.get(actor, 0.0) + step.reward
            if step.is_last:
                self.episodes.add(step.success, self._earned.pop(actor))

    def catch_up(self, steps: int, patience_s: float) -> None:
        """Take again what an earlier process had taken: ``steps`` of them, or until none has come for a while."""
        self.env_steps, last_s, before = steps, time.monotonic(), -1
        while self.feed.steps < steps and time.monotonic() - last_s < patience_s:
            self.step()
            if self.feed.steps != before:
                before, last_s = self.feed.steps, time.monotonic()


class StreamTrainer(OffPolicyTrainer):
    """Learns from actors' steps, and publishes weights.

    Args:
        env: Environments like the actors', for sizes alone; as many as actors may bring steps side by side.
        cfg: How; nothing is evaluated in between.
        run_dir: Folder for metrics and checkpoints; None to write nothing.
        stream: From the actors.
        publish: Sends weights to them.
        tell: Sends facts to them.
        base: Frozen base of a residual.
        demos: Demonstrations, if any.
        device: Of the learner and its buffers.
        learn_threads: Threads of torch while learning.
    """

    def __init__(
        self,
        env: BatchedEnv,
        cfg: OffPolicyCfg,
        run_dir: Path | None,
        stream: StepStream,
        publish: Publish,
        tell: Callable[[LearnerFacts], None] = lambda facts: None,
        *,
        base: BasePolicy | None = None,
        demos: Sequence[Demo] = (),
        device: str = "cpu",
        learn_threads: int = 1,
    ) -> None:
        cfg = replace(cfg, eval_every_steps=0)
        super().__init__(env, cfg, run_dir, base=base, demos=demos, device=device, learn_threads=learn_threads)
        taught = self.taught = self._taught_buffer(env, demos)
        feed = BufferFeed(self.replay, taught, self.learner.action_scaler)
        self.collector = self._collected = StreamCollector(stream, feed)
        self._publish, self._tell_actors = publish, tell
        self._published_s, self._published_updates = 0.0, -1
        self._rates: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def prepare(self) -> None:
        """Let scalers and buffers know the demonstrations, which the first weights need."""
        if not self.counters.prepared:
            self._prepare()

    def publish(self) -> None:
        """Send the weights as they are.

        Raises:
            DivergedError: If a loss since the last reading was not finite.
        """
        self._losses.require_finite()
        self._published_s, self._published_updates = time.monotonic(), self.learner.critic_updates
        self._publish(live_weights(self.learner))

    def facts(self, text: str) -> LearnerFacts:
        """Facts for the actors."""
        now_s, updates = time.monotonic(), self.learner.critic_updates
        self._rates.append((now_s, updates))
        while len(self._rates) > 2 and now_s - self._rates[0][0] > RATE_S:
            self._rates.popleft()
        first_s, first = self._rates[0]
        rate = (updates - first) / max(1e-6, now_s - first_s)
        return LearnerFacts(
            connected=True,
            updates=updates,
            updates_per_s=rate,
            transitions=len(self.replay),
            corrections=self._collected.feed.corrections,
            text=text,
        )

    def resume(self) -> Path:
        """Continue from the newest checkpoint; the steps of its time come again from the journal.

        Raises:
            UnusableCheckpointError: If there is none, or it does not fit this training's configuration.
        """
        if self.run_dir is None:
            raise UnusableCheckpointError("There is nothing to resume without a folder of the run.")
        path, state = load_newest(self.run_dir / CHECKPOINTS)
        if not is_same_base(state.get("base"), self._fingerprint):
            raise UnusableCheckpointError(f"Checkpoint {path} was trained on another base; begin a new run.")
        try:
            self.counters = Counters(**state["counters"])
            if self._demonstrated:
                self._prepare()
            self.learner.load_state_dict(state["learner"])
            self.wall_s, self.rows = state["wall_s"], state["rows"]
        except (GantryError, KeyError, TypeError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split())
            raise UnusableCheckpointError(f"Checkpoint {path} does not fit this run's configuration: {text}") from error
        self._collected.catch_up(int(state["collector"]["env_steps"]), patience_s=5.0)
        self._saved = self._learned()
        return path

    def _write_checkpoint(self, *, inside: bool) -> Path | None:
        del inside
        if self.run_dir is None:
            return None
        state = {
            "learner": self.learner.state_dict(),
            "counters": asdict(self.counters),
            "wall_s": self.wall_s,
            "rows": self.rows,
            "collector": {"env_steps": self.collector.env_steps},
            "base": self._fingerprint,
        }
        path = save_checkpoint(self.run_dir / CHECKPOINTS, self.collector.env_steps, state)
        self._saved = self._learned()
        # The newest checkpoint is what is exported, and so what acts in the end.
        if 0 <= self._published_updates != self.learner.critic_updates:
            self.publish()
        return path

    def _learn(self, update: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        metrics = super()._learn(update)
        updates = self.learner.critic_updates
        if updates != self._published_updates and time.monotonic() - self._published_s >= PUBLISH_S:
            self.publish()
            self._tell_actors(self.facts("learning"))
        return metrics

"""A training from demonstrations to the last evaluation, in phases that can be stopped and continued anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_hardware.training.losses import UnreadLosses
from gantry_hardware.training.trainer import DivergedError, Report, Trainer
from gantry_policies.common import processes
from gantry_policies.common.batched_env import STATE, BatchedEnv
from gantry_policies.common.checkpoint import UnusableCheckpointError, all_finite, random_state, restore_random_state
from gantry_policies.common.evaluation import ActingPolicy, Evaluation, StoppedError, evaluate
from gantry_policies.common.memory import OutOfMemoryError
from gantry_policies.corrections.person import Person
from gantry_policies.imitation.policy import BcPolicy, make_base
from gantry_policies.off_policy.actors import PlanActor
from gantry_policies.off_policy.bases import BasePolicy, fingerprint
from gantry_policies.off_policy.collecting.collector import Collector, Resumable
from gantry_policies.off_policy.collecting.fleet import Fleet, FleetCollector
from gantry_policies.off_policy.collecting.step_collector import StepCollector
from gantry_policies.off_policy.config import OffPolicyCfg
from gantry_policies.off_policy.counters import Counters
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.policy import LearnedPolicy
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.replay.demos import (
    Demo,
    add_demos,
    demo_action_rows,
    demo_buffer,
    demo_frames,
    demo_states,
)
from gantry_policies.off_policy.requirements import require_as_saved, require_parts
from gantry_policies.off_policy.saving import Saver


class OffPolicyTrainer(Trainer):
    """Trains a fresh learner in parallel environments.

    Args:
        env: What to train in; stepped with one thread. With a fleet, what to evaluate in.
        cfg: How.
        run_dir: Folder for metrics and checkpoints; None to write nothing, so that what was learned lives no longer
            than this object.
        base: Frozen base of a residual, or for the warm-up alone.
        demos: Demonstrations, if any.
        eval_env: What to evaluate in; ``env`` if None, whose episodes are then cut short by every evaluation.
        eval_base: The base of these environments; needed with ``eval_env`` if there is a base.
        person: Corrects the policy while it learns; not with a folder, since a person cannot be continued.
        fleet: Actors that collect in environments like ``env``; None to collect in ``env``.
        clone: Policy that plans chunks and is learned further from ``demos``, where the configuration says so.
        device: Of the learner and its buffers.
        learn_threads: Threads of torch while learning.

    Raises:
        GantryError: If the configuration asks for a base or demonstrations that are not there, the replay buffer does
            not fit into memory, or a launcher has started several processes.
    """

    def __init__(
        self,
        env: BatchedEnv,
        cfg: OffPolicyCfg,
        run_dir: Path | None = None,
        *,
        base: BasePolicy | None = None,
        demos: Sequence[Demo] = (),
        eval_env: BatchedEnv | None = None,
        eval_base: BasePolicy | None = None,
        person: Person | None = None,
        fleet: Fleet | None = None,
        clone: BcPolicy | None = None,
        device: str = "cpu",
        learn_threads: int = 1,
    ) -> None:
        super().__init__(run_dir, cfg.save_every_s, processes.count(), writes=processes.is_first())
        if person is not None and run_dir is not None:
            raise GantryError("A training with a person beside it keeps no checkpoints; leave out its folder.")
        if person is not None and fleet is not None:
            raise GantryError("A person corrects the policy in environments of this process, and a fleet has its own.")
        require_parts(cfg, env, base, demos, eval_env, eval_base)
        env.keep_final_obs = True
        self.cfg = cfg = cfg.share_of(processes.count())
        self.unit = "update" if cfg.is_offline else self.unit
        residual = cfg.agent.actor.residual
        self.learner = Learner(cfg.agent, env.obs_shapes, env.action_size, device, cfg.seed, clone)
        self.learner.share_first()
        columns = env.num_envs if fleet is None else fleet.actors * fleet.envs
        self.replay = ReplayBuffer(cfg.capacity, columns, env.obs_shapes, env.action_size, residual, device)
        self.demos: ReplayBuffer | None = None
        self.taught = None if person is None else self._taught_buffer(env, demos)
        """Demonstrations and corrections; None without a person."""
        self.counters = Counters()
        generator = torch.Generator(env.device)
        generator.manual_seed(cfg.seed + 1)
        self.collector: StepCollector = (
            Collector(env, self.learner, self.replay, base, generator, person, self.taught)
            if fleet is None
            else FleetCollector(fleet, self.learner, self.replay, cfg.warmup_steps)
        )
        self._actors = 0 if fleet is None else fleet.actors
        self._generator = generator
        self._demonstrated, self._base, self._person = demos, base, person
        self._fingerprint = None if base is None else fingerprint(base, env.obs_shapes)
        self._eval_env = eval_env or env
        self._policy = self._acting((eval_base if eval_env else base) if residual else None)
        self._threads = learn_threads
        self._losses = UnreadLosses("critic's loss")
        self._saver = None if self.source is None else Saver(self.source)
        self._saved = self._learned()

    @property
    def done(self) -> int:
        """Control steps of all environments so far; updates where nothing is collected."""
        if not self.cfg.is_offline:
            return self.env_steps
        return self.counters.critic_warmed + self.counters.pretrained

    @property
    def total(self) -> int:
        """Control steps of all processes, or updates, of the whole training."""
        cfg = self.cfg
        updates = cfg.critic_warmup_updates + cfg.pretrain_updates
        return updates if cfg.is_offline else cfg.total_steps * processes.count()

    @property
    def env_steps(self) -> int:
        """Control steps of all environments so far, those of all processes."""
        return self.collector.env_steps * processes.count()

    @property
    def is_complete(self) -> bool:
        """Whether all phases are over, the last evaluation included."""
        cfg, counters, steps = self.cfg, self.counters, self.collector.env_steps
        learned = counters.pretrained >= cfg.pretrain_updates and counters.critic_warmed >= cfg.critic_warmup_updates
        is_judged = not cfg.eval_every_steps or self.done < counters.next_evaluation
        return counters.prepared and learned and steps >= cfg.total_steps and counters.updates_due < 1.0 and is_judged

    def work(self) -> Iterator[Report | None]:
        """The phases, piece by piece: demonstrations, warm-up, critic alone, learning."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for report in self._phases():
                yield report
                if processes.any_of(self.is_stopping):
                    return
        finally:
            torch.set_num_threads(threads)

    def evaluate(self, episodes: int | None = None) -> Evaluation:
        """The policy as it is, without exploring; the training's own environments begin new episodes if they are used.

        Args:
            episodes: How many; as configured if None.
        """
        return self._evaluated(episodes or self.cfg.eval_episodes)

    def _acting(self, base: BasePolicy | None) -> ActingPolicy:
        """The policy as it learns, in the environments to evaluate in, on top of a base of theirs."""
        actor, execute = self.learner.actor, self.cfg.agent.n_step
        if isinstance(actor, PlanActor):
            return make_base(actor.policy, self._eval_env.num_envs, execute=execute, device=self.learner.device)
        return LearnedPolicy(self.learner, base)

    def _evaluated(self, episodes: int, is_stopped: Callable[[], bool] = lambda: False) -> Evaluation:
        try:
            return evaluate(self._eval_env, self._policy, episodes, is_stopped)
        finally:
            if self._eval_env is self.collector.own_env:
                self.collector.reset()

    def save_checkpoint(self) -> Path | None:
        """Write everything that an exact continuation needs: networks, buffers, counters, random generators; nothing
        without a folder."""
        self._losses.require_finite()
        if self._saver is not None and not all_finite(self.learner.state_dict()):
            raise DivergedError("learner's weights", f"in update {self.learner.critic_updates}")
        return self._write_checkpoint(inside=True)

    def _write_checkpoint(self, *, inside: bool) -> Path | None:
        """Save; without what is inside the environments, they begin new episodes in a continuation."""
        if self.run_dir is None or self._saver is None:
            return None
        looks = self._eval_env if inside and isinstance(self._eval_env, Resumable) else None
        state = {
            "learner": self.learner.state_dict(),
            "counters": asdict(self.counters),
            "processes": processes.count(),
            "actors": self._actors,
            "wall_s": self.wall_s,
            "rows": self.rows,
            "collector": self.collector.state(inside=inside),
            "eval_env": None if looks is None else looks.training_state(),
            "warmup_generator": self._generator.get_state(),
            "random": random_state(),
            "base": self._fingerprint,
        }
        path = self._saver.save(self.done, state, self.replay, self.demos)
        self._saved = self._learned()
        return path

    def save_after_error(self) -> Path | None:
        """Save what was learned since the last checkpoint, though the environments may have broken down."""
        if self._learned() == self._saved or not all_finite(self.learner.state_dict()):
            return None
        return self._write_checkpoint(inside=False)

    def _learned(self) -> tuple[int, ...]:
        """Numbers that grow with whatever is worth saving."""
        return self.collector.env_steps, self.learner.actor_updates, self.learner.critic_updates

    def resume(self) -> Path:
        """Continue from the newest intact checkpoint of the run folder; says so where newer ones are damaged.

        Environments and bases that offer ``training_state`` and ``restore_training_state`` go on inside their
        episodes; others begin new ones.

        Raises:
            UnusableCheckpointError: If there is none, or it does not fit this training's configuration.
        """
        if (saver := self._saver) is None:
            raise UnusableCheckpointError("There is nothing to resume without a folder of the run.")
        path, state = saver.newest()
        require_as_saved(path, state, self._actors, self._fingerprint)
        try:
            self.learner.load_state_dict(state["learner"])
            self.counters = Counters(**state["counters"])
            self.wall_s, self.rows = state["wall_s"], state["rows"]
            self.demos = saver.load_demos(state, self.learner.device, self._demo_buffer if self._demonstrated else None)
            saver.load_replay(path, state, self.replay)
            alone = {} if processes.is_first() else {"inside": None}  # Episodes of others are their own.
            self.collector.restore(state["collector"] | alone)
            if state["eval_env"] is not None and isinstance(self._eval_env, Resumable):
                self._eval_env.restore_training_state(state["eval_env"])
            self._generator.set_state(state["warmup_generator"])
            restore_random_state(state["random"])
            processes.draw_apart(self.cfg.seed + self.collector.env_steps, self._generator, self.learner.generator)
        except OutOfMemoryError:
            raise
        except (GantryError, KeyError, TypeError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split())
            raise UnusableCheckpointError(f"Checkpoint {path} does not fit this run's configuration: {text}") from error
        self._saved = self._learned()
        return path

    def _phases(self) -> Iterator[Report | None]:
        """The phases; yields after every piece of work, with numbers when they are due."""
        cfg, counters, steps = self.cfg, self.counters, self.collector
        if not counters.prepared:
            self._prepare()
        if cfg.is_offline:
            yield from self._critic_warmup(self.demos, None)
        while counters.pretrained < cfg.pretrain_updates:
            if cfg.is_offline:
                yield from self._evaluations("pretrain")
            assert self.demos is not None
            demos = self.demos
            metrics = self._learn(lambda demos=demos: self.learner.pretrain(demos, cfg.clone_weight))
            counters.pretrained += 1
            yield self._told("pretrain", metrics, counters.pretrained - 1, counters.pretrained)
        self._losses.require_finite()
        yield from self._evaluations("pretrain" if cfg.is_offline else "warmup")
        while steps.env_steps < min(cfg.warmup_steps, cfg.total_steps):
            before = steps.env_steps
            steps.step(cfg.warmup, cfg.warmup_noise)
            yield self._told("warmup", {}, before, steps.env_steps)
        if not counters.scaled:
            states = self.replay.stored(STATE)
            self.learner.state_scaler.fit(processes.gathered(states[: processes.fewest(len(states))]))
            self.learner.share_first()
            counters.scaled = True
        yield from self._critic_warmup(self.replay, self.demos)
        # First, so that a training that was stopped among the updates of a stretch continues with those that are due.
        yield from self._updates(steps.env_steps)
        while True:
            # First in the loop, so that a training that was stopped before an evaluation continues with it.
            yield from self._evaluations("learn")
            if steps.env_steps >= cfg.total_steps:
                return
            before = steps.env_steps
            steps.step()
            counters.updates_due += (steps.env_steps - before) * cfg.updates_per_step / cfg.agent.critic_updates
            yield from self._updates(before)

    def _updates(self, before: int) -> Iterator[Report | None]:
        """The updates that are due; ``before`` is the number of steps before those that they follow."""
        counters, metrics = self.counters, {}
        while counters.updates_due >= 1.0:
            metrics = self._learn(lambda: self.learner.update(self.replay, self.demos))
            counters.updates_due -= 1.0
            if self._actors and counters.updates_due >= 1.0:  # Many updates follow a stretch.
                yield None
        self._losses.require_finite()  # The next step waits for its actions anyway.
        yield self._told("learn", metrics, before, self.collector.env_steps)

    def _critic_warmup(self, replay: ReplayBuffer | None, demos: ReplayBuffer | None) -> Iterator[Report | None]:
        """Updates of the critic alone, from two buffers."""
        counters = self.counters
        while counters.critic_warmed < self.cfg.critic_warmup_updates:
            assert replay is not None
            metrics = self._learn(lambda: self.learner.update_critic(replay, demos))
            counters.critic_warmed += 1
            yield self._told("critic_warmup", metrics, counters.critic_warmed - 1, counters.critic_warmed)

    def _prepare(self) -> None:
        cfg, demos = self.cfg, self._demonstrated
        if demos:
            if cfg.scale_actions:
                self.learner.action_scaler.fit(demo_action_rows(demos), cfg.agent.actor.action_scale)
            self.learner.state_scaler.fit(demo_states(demos))
            self.counters.scaled = True
            self.demos = self._demo_buffer()
        self.counters.prepared = True

    def _demo_buffer(self) -> ReplayBuffer:
        learner, penalty = self.learner, self.cfg.agent.gripper.charge
        base = self._base if self.cfg.agent.actor.residual else None
        if self.taught is None:
            gamma = learner.cfg.gamma if learner.cfg.chunk_steps else None
            return demo_buffer(self._demonstrated, learner.action_scaler, base, learner.device, penalty, gamma)
        add_demos(self.taught, self._demonstrated, learner.action_scaler, base, penalty)
        return self.taught

    def _taught_buffer(self, env: BatchedEnv, demos: Sequence[Demo]) -> ReplayBuffer:
        """An empty buffer for demonstrations and corrections."""
        room = env.num_envs * demo_frames(demos) + self.cfg.capacity // 2
        residual = self.cfg.agent.actor.residual
        return ReplayBuffer(room, env.num_envs, env.obs_shapes, env.action_size, residual, self.learner.device)

    def _evaluations(self, phase: str) -> Iterator[Report | None]:
        counters, every, steps = self.counters, self.cfg.eval_every_steps, self.done
        if not every or steps < counters.next_evaluation:
            return
        # A policy that has not learned since the first evaluation need not be looked at again.
        self._losses.require_finite()
        before = 0 if self.cfg.is_offline else self.cfg.pretrain_updates
        due, learned = counters.next_evaluation, self.learner.actor_updates > before
        counters.next_evaluation = (steps // every + 1) * every
        if due != 0 and not learned:
            return
        if not processes.is_first():
            yield None  # All yield equally often, since they vote on a stop after each.
            return
        began, result = time.perf_counter(), self._look()
        self.wall_s -= time.perf_counter() - began
        if result is None:
            counters.next_evaluation = due  # for the continuation
            yield None
        else:
            yield self._report(phase, {}, result)

    def _look(self) -> Evaluation | None:
        """An evaluation, None if it was left; its own environments are then as they were before."""
        env = self._eval_env
        own = env if env is not self.collector.own_env and isinstance(env, Resumable) else None
        before = None if own is None else own.training_state()
        try:
            return self._evaluated(self.cfg.eval_episodes, lambda: self.is_stopping)
        except StoppedError:
            if own is not None and before is not None:
                own.restore_training_state(before)
            return None

    def _learn(self, update: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        if self.demos is None and self.taught is not None and len(self.taught):
            self.demos = self.taught
        torch.set_num_threads(self._threads)
        metrics = update()
        torch.set_num_threads(1)
        self._losses.add(metrics["critic_loss"], self.learner.critic_updates)
        return metrics

    def _told(self, phase: str, metrics: dict[str, Tensor], before: int, now: int) -> Report | None:
        every = self.cfg.log_every_steps
        return None if now // every == before // every else self._report(phase, metrics)

    def _report(self, phase: str, metrics: dict[str, Tensor], evaluation: Evaluation | None = None) -> Report:
        self._losses.require_finite()
        numbers = {"updates": self.learner.critic_updates, **{name: float(value) for name, value in metrics.items()}}
        episodes = self.collector.episodes
        if evaluation is None and episodes.success_rate is not None:
            numbers["success_in_training"] = episodes.success_rate
            numbers["return_in_training"] = episodes.mean_return
        if self._person is not None and isinstance(self.collector, Collector):
            numbers |= self.collector.help.metrics(self.collector.env.dt_s)
        return Report(phase, numbers, evaluation)

"""The on-policy training loop around rsl_rl: threads, schedule, progress, log, checkpoints, resume, Ctrl-C."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner

from gantry_deploy.observations.mirrors import MirrorMap
from gantry_hardware.errors import GantryError
from gantry_hardware.training.trainer import CHECKPOINTS, DivergedError, Report, Trainer, TrainingError
from gantry_policies.common import processes
from gantry_policies.common.batched_env import IMAGE_PREFIX
from gantry_policies.common.border import NotFiniteError, require_finite
from gantry_policies.common.checkpoint import (
    UnusableCheckpointError,
    all_finite,
    load_newest,
    random_state,
    restore_random_state,
    save_checkpoint,
    set_aside_newer,
    weights_difference,
)
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.ppo import CRITIC, FewSamplePPO
from gantry_policies.on_policy.teacher_protocol import Teacher

STOP_WITHIN_S = 5.0
"""Time in which an iteration may end by itself after a stop; then it is left between two steps, unfinished."""


class Resumable(Protocol):
    """State that an environment carries through a resume beside its configuration (curriculum, counters)."""

    def training_state(self) -> dict[str, Any]:
        """Tensors and plain values."""
        ...

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Put them back."""
        ...

    def step_metrics(self) -> dict[str, torch.Tensor]:
        """Scalars worth a curve, of the control step just taken."""
        ...


@contextlib.contextmanager
def _as_one_process() -> Iterator[None]:
    """Hide the launcher from rsl_rl, which asks for nccl and averages what it has not changed here."""
    before = os.environ.pop("WORLD_SIZE", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["WORLD_SIZE"] = before


class _LeftError(Exception):
    """An iteration was left unfinished, because a stop was asked for."""


class PpoTrainer(Trainer):
    """Trains on one environment by rsl_rl's collection and :class:`FewSamplePPO`'s updates.

    Args:
        env: Vectorised environment that is also :class:`Resumable`.
        cfg: Learner.
        run_dir: Folder for log and checkpoints; None to write nothing.
        device: Device of the learner.
        mirror: Symmetry maps, or None.
        learn_threads: Threads of torch while learning; environments are stepped with one (more only slow them down).
        layout: Of the actor's observation; networks that look at a map need it.
        teacher: Teacher that guides the learner, or None; the environment gives what it reads.

    Raises:
        GantryError: If a launcher has started several processes, or environment and learner do not fit.
    """

    unit = "iteration"

    def __init__(
        self,
        env: VecEnv,
        cfg: PpoCfg,
        run_dir: Path | None,
        device: str,
        mirror: dict[str, MirrorMap] | None = None,
        learn_threads: int | None = None,
        layout: ObservationLayout | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        super().__init__(run_dir, cfg.save_every_s, processes.count(), writes=processes.is_first())
        threads = learn_threads or torch.get_num_threads()
        split = threads if device == "cpu" else 1
        samples = cfg.steps_per_env * env.num_envs
        seen = env.get_observations()
        groups = [str(name) for name in seen.keys()]  # noqa: SIM118 - a TensorDict
        if cfg.labels > (shown := seen[CRITIC].shape[-1] if CRITIC in groups else 0):
            raise GantryError(f"learner.labels is {cfg.labels}, and the critic is shown {shown} numbers.")
        images = tuple(sorted(name for name in groups if name.startswith(IMAGE_PREFIX)))
        with _as_one_process():
            runner = OnPolicyRunner(env, cfg.as_rsl_rl(mirror, split, layout, teacher, samples, images), None, device)
        self.env, self.device = env, device
        self.alg: FewSamplePPO = runner.alg  # type: ignore[assignment]
        self.ppo_cfg = cfg
        self.iteration = 0
        self.stop_within_s = STOP_WITHIN_S if processes.count() == 1 else math.inf
        self._env_steps = 0
        self._threads = threads
        self._stop_at_s: float | None = None
        """When an iteration is left after a stop was asked for, on the steady clock; None before."""
        self._saved = 0
        """Iteration of the newest checkpoint."""
        self._env_state: dict[str, Any] = {}
        """The environment's at that iteration, for a checkpoint after it has broken down."""
        self.alg.share_first()
        alg, storage = self.alg, self.alg.storage
        alg._minibatches = self._watched(alg._minibatches)  # type: ignore[method-assign]
        storage.mini_batch_generator = self._watched(storage.mini_batch_generator)  # type: ignore[method-assign]

    @property
    def done(self) -> int:
        """Iterations so far."""
        return self.iteration

    @property
    def total(self) -> int:
        """Iterations of the whole training."""
        return self.iterations

    @property
    def env_steps(self) -> int:
        """Control steps of all environments so far."""
        return self._env_steps

    @property
    def iterations(self) -> int:
        """Iterations that make up the whole training."""
        per_iteration = self.ppo_cfg.steps_per_env * self.env.num_envs * processes.count()
        return max(1, -(-self.ppo_cfg.total_steps // per_iteration))

    def stop(self) -> None:
        """End after the current iteration, or between two of its steps if it takes longer than ``stop_within_s``;
        checkpoint included. Safe to call from a signal handler."""
        super().stop()
        if self._stop_at_s is None:
            self._stop_at_s = time.monotonic() + self.stop_within_s

    def work(self) -> Iterator[Report]:
        """Iterations: a rollout and its updates."""
        threads = torch.get_num_threads()
        if self.source is not None:
            self._env_state = self.env.training_state()  # type: ignore[attr-defined]
        try:
            obs = self.env.get_observations().to(self.device)
            self._require_finite(obs, "the first observation")
            self.alg.train_mode()
            while not self.is_complete and not processes.any_of(self.is_stopping):
                obs, metrics = self._iterate(obs)
                yield Report("learn", metrics)
        except _LeftError:
            self.alg.storage.clear()
            self.redone = f"iteration {self.iteration + 1}"
        finally:
            torch.set_num_threads(threads)

    def save_checkpoint(self) -> Path | None:
        """Write everything that an exact continuation needs; nothing without a folder."""
        if self.run_dir is None:
            return None
        self._env_state = self.env.training_state()  # type: ignore[attr-defined]
        return self._write_checkpoint()

    def _write_checkpoint(self) -> Path | None:
        assert self.run_dir is not None
        state = self.alg.save() | {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "processes": processes.count(),
            "wall_s": self.wall_s,
            "rows": self.rows,
            "random": random_state(),
            "environment": self._env_state,
        }
        path = save_checkpoint(self.run_dir / CHECKPOINTS, self.iteration, state)
        self._saved = self.iteration
        return path

    def save_after_error(self) -> Path | None:
        """Save the iterations since the last checkpoint, though the environment may have broken down."""
        if self.run_dir is None or self.iteration == self._saved or not all_finite(self.alg.save()):
            return None
        with contextlib.suppress(Exception):
            self._env_state = self.env.training_state()  # type: ignore[attr-defined]
        return self._write_checkpoint()

    def resume(self, *, policy_only: bool = False) -> Path:
        """Continue from the newest intact checkpoint of the run folder; says so where newer ones are damaged.

        Args:
            policy_only: Leave environment and random generators alone: the policy is to be looked at, not trained.

        Raises:
            UnusableCheckpointError: If there is none, or it is of another task or another network.
        """
        assert self.source is not None
        path, state = load_newest(self.source / CHECKPOINTS)
        if not policy_only:
            processes.require_as_begun(state.get("processes", 1))
        try:
            needed = ("actor",) if policy_only else ("actor", "critic")
            self._require_same_networks(path, state, needed)
            self.alg.load(state, {"actor": True, "iteration": True} if policy_only else None, True)
            self.iteration, self._env_steps = state["iteration"], state["env_steps"]
            self.wall_s, self.rows = state["wall_s"], state["rows"]
            if not policy_only:
                self.env.restore_training_state(state["environment"])  # type: ignore[attr-defined]
                restore_random_state(state["random"])
                processes.draw_apart(state["iteration"], *getattr(self.env, "generators", ()))
                if processes.is_first():
                    set_aside_newer(path)
            self._saved = self.iteration
        except (KeyError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split()).removesuffix(".")
            text = f"configuration: it has no {reason}" if isinstance(error, KeyError) else f"configuration: {reason}"
            raise UnusableCheckpointError(f"Checkpoint {path} does not fit this run's {text}.") from error
        return path

    def _require_same_networks(self, path: Path, state: dict[str, Any], needed: tuple[str, ...]) -> None:
        own = self.alg.save()
        for name in needed:
            difference = weights_difference(own[f"{name}_state_dict"], state[f"{name}_state_dict"])
            if difference:
                raise UnusableCheckpointError(
                    f"Checkpoint {path} does not fit this run's configuration; it is of another task or another "
                    f"network: of the {name}'s weights, {difference}."
                )

    def _iterate(self, obs: Any) -> tuple[Any, dict[str, float]]:
        start = time.perf_counter()
        torch.set_num_threads(1)
        self._schedule()
        obs, sums = self._collect(obs)
        collected = time.perf_counter()
        torch.set_num_threads(self._threads)
        explained = self._explained()
        losses = self._update()
        end = time.perf_counter()
        steps = self.ppo_cfg.steps_per_env * self.env.num_envs * processes.count()
        self.iteration += 1
        self._env_steps += steps
        metrics = {name: float(value) / self.ppo_cfg.steps_per_env for name, value in sums.items()}
        metrics |= {f"loss_{name}": value for name, value in losses.items() if name != "symmetry"}
        metrics["value_explained"] = explained
        metrics["action_std"] = self.alg.get_policy().output_std.detach().mean().item()
        metrics["learning_rate"] = self.alg.learning_rate
        speeds = {"steps_per_s": steps / (end - start), "collect_steps_per_s": steps / (collected - start)}
        return obs, {name: round(value, 1) for name, value in speeds.items()} | metrics

    def _collect(self, obs: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        sums: dict[str, torch.Tensor] = {}
        count = self.ppo_cfg.steps_per_env
        with torch.inference_mode():
            for number in range(1, count + 1):
                self._leave_if_late()
                obs, rewards, dones, extras = self.env.step(self.alg.act(obs).to(self.env.device))
                obs, rewards, dones = obs.to(self.device), rewards.to(self.device), dones.to(self.device)
                self._require_finite(obs, f"step {number} of {self._where()}", rewards)
                self.alg.process_env_step(obs, rewards, dones, extras)
                step = {"reward": rewards.mean(), **self.env.step_metrics()}  # type: ignore[attr-defined]
                for name, value in step.items():
                    sums[name] = sums[name] + value if name in sums else value
                self.on_step(number, count)
            self.alg.compute_returns(obs)
        return obs, sums

    def _require_finite(self, obs: Any, when: str, rewards: torch.Tensor | None = None) -> None:
        parts = [] if rewards is None else [("a reward", rewards)]
        parts += [(f"an observation '{group}'", values) for group, values in obs.items()]
        try:
            require_finite(parts, when)
        except NotFiniteError as error:
            raise TrainingError(str(error)) from error

    def _leave_if_late(self) -> None:
        if self._stop_at_s is not None and time.monotonic() >= self._stop_at_s:
            raise _LeftError

    def _watched(self, batches: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """The same minibatches, until it is time to leave."""

        def watched(*args: Any, **kwargs: Any) -> Iterator[Any]:
            for batch in batches(*args, **kwargs):
                self._leave_if_late()
                yield batch

        return watched

    def _explained(self) -> float:
        """Share of the variance of the rollout's returns that the critic foresaw; below 0 it is worse than a mean."""
        storage = self.alg.storage
        returns = storage.returns
        left = (returns - storage.values).var() / returns.var().clamp(min=1e-12)
        return 1.0 - left.item()

    def _update(self) -> dict[str, float]:
        try:
            losses = self.alg.update()
        except RuntimeError:
            self._check_finite({})  # torch refuses to sample with NaN, and says nothing of where that comes from
            raise
        self._check_finite(losses)
        return losses

    def _check_finite(self, losses: dict[str, float]) -> None:
        """Stop before a policy of NaNs replaces the last good checkpoint."""
        wrong = [name for name, value in losses.items() if not math.isfinite(value)]
        networks = (*self.alg.actor.parameters(), *self.alg.critic.parameters())
        if wrong or not torch.stack([torch.isfinite(values).all() for values in networks]).all():
            what = f"losses ({', '.join(wrong)})" if wrong else "network's weights"
            raise DivergedError(what, f"in {self._where()}")

    def _where(self) -> str:
        return f"iteration {self.iteration + 1} of {self.iterations}"

    def _schedule(self) -> None:
        cfg = self.ppo_cfg
        self.alg.entropy_coef = cfg.entropy_at(self.iteration)
        self.alg.clip_param = cfg.clip_at(self.iteration, self.iterations)
        if cfg.desired_kl is None:
            self.alg.set_learning_rate(cfg.learning_rate_at(self.iteration, self.iterations))
        self.alg.begin_iteration(self.iteration)

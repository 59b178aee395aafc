"""Behaviour cloning from the first update to the last policy; can be stopped and continued anywhere."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import as_plain, parse_json
from gantry_hardware.training.losses import UnreadLosses
from gantry_hardware.training.trainer import CHECKPOINTS, CheckpointError, DivergedError, Report, Trainer
from gantry_policies.common.batched_env import STATE, BatchedEnv
from gantry_policies.common.checkpoint import (
    all_finite,
    load_newest,
    load_weights,
    save_checkpoint,
    set_aside_newer,
)
from gantry_policies.common.evaluation import Evaluation, StoppedError, evaluate
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.data import ChunkData, Chunks, Shuffle
from gantry_policies.imitation.policy import BcPolicy, make_base, save_policy
from gantry_policies.off_policy.augment import shifted

_MAY_CHANGE = ("eval_every_steps", "eval_episodes", "log_every_steps", "save_every_s")
"""Settings that a continuation may change; everything else would change what is learned."""


class CloningTrainer(Trainer):
    """Clones demonstrations.

    Args:
        data: To learn from.
        cfg: How.
        run_dir: Folder for metrics, checkpoints and policies; None to write nothing.
        validation: Other episodes, to see how well they are predicted.
        eval_env: Environments to evaluate in; None for none.
        provenance: What is known of the data, as JSON can hold it; goes into every policy.
        device: Of the network; the data is wherever it is.
        threads: Threads of torch while learning.

    Raises:
        GantryError: If the data does not fit the configuration, or validation or environments do not fit the data.
    """

    unit = "update"

    def __init__(
        self,
        data: ChunkData,
        cfg: BcCfg,
        run_dir: Path | None = None,
        *,
        validation: ChunkData | None = None,
        eval_env: BatchedEnv | None = None,
        provenance: Mapping[str, Any] | None = None,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        super().__init__(run_dir, cfg.save_every_s)
        _check(data, cfg, validation, eval_env)
        self.cfg, self.data = cfg, data
        self.step = 0
        """Updates so far."""
        with torch.random.fork_rng():
            torch.manual_seed(cfg.seed)
            self.policy = BcPolicy(cfg, data.obs_shapes, data.action_size).to(device)
        self.policy.fit(data)
        self._validation, self._eval_env = validation, eval_env
        self._provenance = dict(provenance or {})
        self._device, self._threads = device, threads
        self._optimizer = torch.optim.AdamW(_groups(self.policy, cfg), weight_decay=cfg.weight_decay)
        self._order = Shuffle(len(data), cfg.seed)
        self._noise = torch.Generator(device)
        self._losses = UnreadLosses()
        self._sums: dict[str, Any] = {}
        """Losses and norms of gradients since the last report: tensors of one number, floats after a continuation."""
        self._summed = 0
        self._saved = 0
        """Updates at the newest checkpoint."""

    @property
    def done(self) -> int:
        """Updates so far."""
        return self.step

    @property
    def total(self) -> int:
        """Updates of the whole training."""
        return self.cfg.steps

    def work(self) -> Iterator[Report | None]:
        """Updates; the policy is written whenever it is evaluated, and at the end, also of a run that stops early."""
        cfg, threads, kept = self.cfg, torch.get_num_threads(), -1
        torch.set_num_threads(self._threads)
        try:
            while not self.is_complete and not self.is_stopping:
                self._update()
                due = self.is_complete or self.step % cfg.log_every_steps == 0
                yield Report("clone", self._metrics()) if due else None
                if self.is_complete or (cfg.eval_every_steps and self.step % cfg.eval_every_steps == 0):
                    kept = self.step
                    self._keep()
                    yield from self._evaluations()
            if self.step and kept != self.step and not self.is_complete:
                self._keep()
        finally:
            torch.set_num_threads(threads)

    def evaluate(self, episodes: int | None = None) -> Evaluation:
        """The policy as it is in the environments.

        Args:
            episodes: How many; as configured if None.

        Raises:
            GantryError: If there are no environments.
        """
        if self._eval_env is None:
            raise GantryError("There are no environments to evaluate in; the training was made without eval_env.")
        return self._evaluated(lambda: False, episodes)

    def _evaluated(self, is_stopped: Callable[[], bool], episodes: int | None = None) -> Evaluation:
        assert self._eval_env is not None
        # Whatever the environments draw from torch's global generator must not change what is learned.
        with torch.random.fork_rng():
            base = make_base(self.policy, self._eval_env.num_envs, device=self._device)
            return evaluate(self._eval_env, base, episodes or self.cfg.eval_episodes, is_stopped)

    @torch.no_grad()
    def validate(self) -> float | None:
        """Mean absolute error on the other episodes, in units of the actions' standard deviations; None without any."""
        if self._validation is None:
            return None
        self.policy.eval()
        total, count = 0.0, 0
        for begin in range(0, len(self._validation), self.cfg.batch_size):
            frames = torch.arange(begin, min(begin + self.cfg.batch_size, len(self._validation)))
            chunks = self._at_device(self._validation.chunks(frames, self.cfg.chunk_steps))
            steps = int(chunks.real.sum())
            total, count = total + float(self.policy.losses(chunks)["l1"]) * steps, count + steps
        return total / count

    def save_checkpoint(self) -> Path | None:
        """Write everything that an exact continuation needs: network, optimiser, counters; nothing without a folder.

        Chance needs nothing there, since each update draws from its own number.
        """
        if self.run_dir is None:
            return None
        self._require_finite()
        state = {
            "cfg": json.dumps(asdict(self.cfg)),
            "frames": len(self.data),
            "policy": self.policy.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self.step,
            "wall_s": self.wall_s,
            "rows": self.rows,
            "sums": {name: float(total) for name, total in self._sums.items()},
            "summed": self._summed,
        }
        path = save_checkpoint(self.run_dir / CHECKPOINTS, self.step, state, keep=2)
        self._saved = self.step
        return path

    def save_after_error(self) -> Path | None:
        """Save the updates since the last checkpoint."""
        worth = self.step > self._saved and all_finite([self.policy.state_dict(), self._optimizer.state_dict()])
        return self.save_checkpoint() if worth else None

    def resume(self) -> Path:
        """Continue from the newest intact checkpoint of the run folder; says so where newer ones are damaged.

        Raises:
            CheckpointError: If there is none, or it belongs to another configuration or other data.
        """
        if self.run_dir is None:
            raise CheckpointError("There is nothing to resume without a folder of the run.")
        path, state = load_newest(self.run_dir / CHECKPOINTS)
        try:
            self._refuse_other(path, state)
            load_weights({"policy": self.policy}, {"policy": state["policy"]})
            self._optimizer.load_state_dict(state["optimizer"])
            self.step, self.wall_s, self.rows = state["step"], state["wall_s"], state["rows"]
            self._sums, self._summed = dict(state["sums"]), state["summed"]
            self._saved = self.step
            set_aside_newer(path)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split())
            raise CheckpointError(f"Checkpoint {path} does not fit this training: {text}") from error
        return path

    def _refuse_other(self, path: Path, state: dict[str, Any]) -> None:
        mine, theirs = as_plain(asdict(self.cfg)), parse_json(state["cfg"], "its cfg", allow_nan=True)
        other = [name for name in mine if name not in _MAY_CHANGE and mine[name] != theirs.get(name)]
        if other:
            name = other[0]
            raise CheckpointError(
                f"Checkpoint {path} was trained with learner.{name} {theirs.get(name)}, expected {mine[name]} as now."
            )
        if state["frames"] != len(self.data):
            raise CheckpointError(
                f"Checkpoint {path} was trained on {state['frames']} frames, expected {len(self.data)} as now."
            )

    def _update(self) -> None:
        cfg, begin = self.cfg, self.step * self.cfg.batch_size
        frames = self._order.numbers(begin, begin + cfg.batch_size)
        # Seeded by the update's number, so that a continuation draws what would have been drawn.
        seed = cfg.seed * 1_000_003 + self.step
        self._noise.manual_seed(seed)
        chunks = self._blurred(self._at_device(self.data.chunks(frames, cfg.chunk_steps)))
        share = learning_rate_share(cfg, self.step)
        for group in self._optimizer.param_groups:
            group["lr"] = group["highest"] * share
        self.policy.train()
        with torch.random.fork_rng([] if self._device == "cpu" else [self._device]):
            torch.manual_seed(seed)  # Dropout and styles know only the global generator.
            losses = self.policy.losses(chunks)
        self._optimizer.zero_grad(set_to_none=True)
        losses["loss"].backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), cfg.max_grad_norm)
        self._optimizer.step()
        self.step += 1
        for name, value in {**losses, "grad_norm": norm}.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach().double()
        self._summed += 1
        self._losses.add(losses["loss"].detach(), self.step)

    def _require_finite(self) -> None:
        """Stop before a network of NaNs replaces the last good one."""
        self._losses.require_finite()
        if not all_finite(self.policy.state_dict()):
            raise DivergedError("network's weights", f"in update {self.step}")

    def _blurred(self, chunks: Chunks) -> Chunks:
        """With shifted images and noise on the states."""
        cfg = self.cfg
        obs = shifted(chunks.obs, cfg.network.image_encoder.shift_pixels, self._noise)
        if cfg.state_noise:
            state = obs[STATE]
            noise = torch.randn(state.shape, generator=self._noise, device=state.device)
            noise[:, self.policy.numbers :] = 0.0  # Words stay words.
            obs = {**obs, STATE: state + cfg.state_noise * self.policy.state_scaler.std * noise}
        return Chunks(obs, chunks.action, chunks.real, chunks.labels)

    def _at_device(self, chunks: Chunks) -> Chunks:
        obs = {key: value.to(self._device) for key, value in chunks.obs.items()}
        labels = None if chunks.labels is None else chunks.labels.to(self._device)
        return Chunks(obs, chunks.action.to(self._device), chunks.real.to(self._device), labels)

    def _metrics(self) -> dict[str, float]:
        self._losses.require_finite()
        means = {name: float(total) / self._summed for name, total in self._sums.items()}
        self._sums, self._summed = {}, 0
        predicted = self.validate()
        others = {} if predicted is None else {"validation_l1": predicted}
        return {**means, **others, "learning_rate": float(self._optimizer.param_groups[0]["lr"])}

    def _keep(self) -> None:
        """Write the policy as it is."""
        if self.run_dir is not None:
            self._require_finite()
            save_policy(self.policy, self.run_dir, self.step, self._provenance)

    def _evaluations(self) -> Iterator[Report]:
        if self._eval_env is None:
            return
        began = time.perf_counter()
        found = None
        with contextlib.suppress(StoppedError):
            found = self._evaluated(lambda: self.is_stopping)
        self.wall_s -= time.perf_counter() - began  # Evaluations are no training time.
        if found is not None:
            yield Report("clone", {}, found)


def learning_rate_share(cfg: BcCfg, step: int) -> float:
    """Learning rate of an update as a share of the highest: a linear rise, then half a cosine to zero."""
    if step < cfg.warmup_steps:
        return (step + 1) / cfg.warmup_steps
    done = (step - cfg.warmup_steps) / max(1, cfg.steps - cfg.warmup_steps)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def _groups(policy: BcPolicy, cfg: BcCfg) -> list[dict[str, Any]]:
    """Parameters with their highest learning rates; images have their own."""
    image_encoder: list[Tensor] = list(policy.network.image_encoder.parameters())
    seen = {id(parameter) for parameter in image_encoder}
    rest = [parameter for parameter in policy.parameters() if id(parameter) not in seen]
    groups = [{"params": rest, "highest": cfg.learning_rate}]
    return groups + (
        [{"params": image_encoder, "highest": cfg.network.image_encoder.learning_rate}] if image_encoder else []
    )


def _check(data: ChunkData, cfg: BcCfg, validation: ChunkData | None, eval_env: BatchedEnv | None) -> None:
    if validation is not None and (validation.obs_shapes, validation.action_size) != (
        data.obs_shapes,
        data.action_size,
    ):
        raise GantryError(
            f"Validation has {validation.obs_shapes}, expected {data.obs_shapes} as what is learned from."
        )
    if eval_env is None:
        if cfg.eval_every_steps:
            raise GantryError(
                f"learner.eval_every_steps is {cfg.eval_every_steps}, but there are no environments (eval_env)."
            )
        return
    for key, shape in data.obs_shapes.items():
        if eval_env.obs_shapes.get(key) != shape:
            raise GantryError(f"The environments observe {eval_env.obs_shapes}, the data has {key} of shape {shape}.")
    if eval_env.action_size != data.action_size:
        raise GantryError(f"Actions of the environments have {eval_env.action_size} numbers, data {data.action_size}.")

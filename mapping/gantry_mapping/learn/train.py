"""Training of the mapping network: frames on the fly, checkpoints, exact resumption."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gantry_hardware.files.checked_files import read_checked, write_checked
from gantry_hardware.files.json_file import as_plain, parse_json, read_json
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.whole_files import write_whole_json
from gantry_hardware.training.losses import UnreadLosses
from gantry_hardware.training.trainer import CheckpointError, DivergedError, Report, Trainer
from gantry_mapping.errors import MappingError
from gantry_mapping.learn.heightfields import Heights
from gantry_mapping.learn.losses import beta_nll, mapping_loss
from gantry_mapping.learn.samples import Frames, FrameSource, SampleCfg
from gantry_mapping.learn.unet import GuidedMapNet, MapNet, make_net

CHECKPOINT, OLDER, CONFIG = "mapper.pt", "mapper.older.pt", "config.json"
"""Files of a training's folder: the newest checkpoint, the one before, and the configuration."""
SAVE_EVERY_S = 60.0
"""Time between two checkpoints."""
_HELD_OUT_STEP = 1 << 40
"""Steps from here on make the frames that the training is judged by, which it never sees."""

_MADE_TOGETHER = 4


@dataclass(frozen=True)
class TrainCfg:
    """A training of the mapping network."""

    samples: SampleCfg = field(default_factory=SampleCfg)
    """Training samples."""
    network: str = "guided"
    """``paper`` or ``guided``; see :mod:`gantry_mapping.learn.unet`."""
    steps: int = 6000
    """Updates."""
    batch: int = 64
    """Frames per update."""
    distinct_batches: int = 0
    """Batches that are made; afterwards they come again, every second time with left and right exchanged. On a CPU,
    making frames costs as much as learning from them. 0 for new frames at every update."""
    learning_rate: float = 5e-3
    """At the beginning; falls to a fiftieth along a cosine."""
    warm_up_steps: int = 100
    """Updates during which the rate rises from 0."""
    weight_floor: float = 0.8
    """Share of the samples' weights that does not depend on total variation; 0 as in the paper, which sees 54 million
    frames. With a few hundred thousand, deep pits drown all else: on frames that it was not trained on, measured cells
    were off by 11.8 cm (median 6.6) at 0.2, by 8.3 cm (median 3.6) at 0.8."""
    absolute: float = 1.0
    """Weight of the absolute error, see :func:`gantry_mapping.learn.losses.mapping_loss`; 0 as in the paper."""
    grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    seed: int = 1
    """Of everything random."""
    judge_every: int = 250
    """Updates between judgements and checkpoints."""
    judge_batch: int = 1024
    """Frames that it is judged by."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "judge_every", "judge_batch"):
            if getattr(self, name) < 1:
                raise MappingError(f"{name} is {getattr(self, name)}, expected 1 or more.")


class MapTrainer(Trainer):
    """A training of the mapping network that can stop anywhere and go on as if it had not.

    Args:
        cfg: What to do.
        folder: Where checkpoints and the curve go; created.
        rasters: Locomotion terrains by name; none where None.
        resume: Go on from the folder's checkpoint.

    Raises:
        MappingError: If there is nothing to resume, or it was begun with another configuration.
        GantryError: If a launcher has started several processes.
    """

    unit = "update"

    def __init__(
        self, cfg: TrainCfg, folder: Path, rasters: Mapping[str, Heights] | None = None, *, resume: bool = False
    ) -> None:
        super().__init__(folder, SAVE_EVERY_S)
        self.cfg = cfg
        self.folder = folder
        self.source = FrameSource(cfg.samples, cfg.seed, rasters)
        self.step = 0
        self.metrics: dict[str, float] = {}
        torch.manual_seed(cfg.seed)
        self.net = make_net(cfg.network)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=cfg.learning_rate)
        self._saved = 0
        """Updates at the newest checkpoint."""
        self._losses = UnreadLosses()
        self._held_out: Frames | None = None
        self._made: dict[int, Frames] = {}
        if resume:
            self.resume()
        else:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole_json(folder / CONFIG, asdict(cfg))

    @property
    def done(self) -> int:
        """Updates so far."""
        return self.step

    @property
    def total(self) -> int:
        """Updates of the whole training."""
        return self.cfg.steps

    def work(self) -> Iterator[Report | None]:
        """Updates, judged now and then on frames that training never sees.

        Raises:
            DivergedError: If the loss is not finite any more.
        """
        while not self.is_complete and not self.is_stopping:
            loss = self._update()
            if self.step % self.cfg.judge_every and not self.is_complete:
                yield None
                continue
            self._losses.require_finite()
            self.metrics |= {"loss": float(loss), **self.judge()}
            yield Report("learn", {"frames": self.step * self.cfg.batch, **self.metrics})
        if "weighted_loss" not in self.metrics:  # Stopped before it was judged, or nothing was left to do.
            self.metrics |= self.judge()

    def judge(self) -> dict[str, float]:
        """Scores on frames that training never sees: losses, errors in cm, and how honest the deviation is."""
        if self._held_out is None:
            self._held_out = self.source.batch(_HELD_OUT_STEP, self.cfg.judge_batch)
        return judge_frames(self.net, self._held_out)

    def save_checkpoint(self) -> Path:
        """Write the checkpoint with its SHA-256, and keep the one before.

        Raises:
            CheckpointError: If it cannot be written; those before are untouched.
            DivergedError: If the loss or the network is not finite any more.
        """
        self._losses.require_finite()
        if not self._is_finite():
            raise DivergedError("network's weights", f"in update {self.step}")
        state = {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "wall_s": self.wall_s,
            "rows": self.rows,
            "config": json.dumps(asdict(self.cfg)),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        path, older, fresh = (self.folder / name for name in (CHECKPOINT, OLDER, f"{CHECKPOINT}.new"))
        try:
            write_checked(fresh, lambda file: file.write(buffer.getbuffer()))
            if path.is_file():
                os.replace(path, older)  # killed here, a continuation takes the older one
            os.replace(fresh, path)
        except OSError as error:
            raise CheckpointError(f"Cannot write the checkpoint '{path}': {error.strerror or error}.") from error
        self._saved = self.step
        return path

    def save_after_error(self) -> Path | None:
        """Save the updates since the last checkpoint."""
        return self.save_checkpoint() if self._is_finite() and self.step > self._saved else None

    def _is_finite(self) -> bool:
        return all(bool(torch.isfinite(values).all()) for values in self.net.parameters())

    def _update(self) -> torch.Tensor:
        """One update; returns its loss, a scalar, without waiting for it."""
        cfg = self.cfg
        frames = self._frames(self.step)
        rate = cfg.learning_rate * learning_rate_share(self.step, cfg.steps, cfg.warm_up_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        mean, log_variance = self.net(frames.z_m)
        loss = mapping_loss(mean, log_variance, frames.target_m, floor=cfg.weight_floor, absolute=cfg.absolute)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), cfg.grad_norm)
        self.optimizer.step()
        self.step += 1
        self._losses.add(loss.detach(), self.step)
        return loss.detach()

    def _frames(self, step: int) -> Frames:
        """The frames of an update, a function of the configuration and the step alone."""
        count = self.cfg.distinct_batches
        if not count:
            return self.source.batch(step, self.cfg.batch)
        which = step % count
        if which not in self._made:
            # Frames are cheaper by the hundred.
            together, first = self.cfg.batch * _MADE_TOGETHER, which - which % _MADE_TOGETHER
            made = self.source.batch(which // _MADE_TOGETHER, together)
            parts = zip(made.z_m.split(self.cfg.batch), made.target_m.split(self.cfg.batch), strict=True)
            self._made |= {first + i: Frames(*part) for i, part in enumerate(parts)}
        frames = self._made[which]
        mirrored = (step // count) % 2 == 1
        return Frames(frames.z_m.flip(-1), frames.target_m.flip(-1)) if mirrored else frames

    def resume(self) -> Path:
        """Continue from the newest intact checkpoint; says so where the newer one is damaged.

        Raises:
            MappingError: If there is none, or it was begun with another configuration.
        """
        path, state = _newest(self.folder)
        if parse_json(state["config"], "its config", allow_nan=True, error=MappingError) != as_plain(asdict(self.cfg)):
            raise MappingError(f"The training in '{self.folder}' was begun with another configuration; see {CONFIG}.")
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.wall_s, self.rows = int(state["step"]), float(state["wall_s"]), int(state["rows"])
        self._saved = self.step
        damaged = self.folder / CHECKPOINT
        if path != damaged and damaged.exists():  # it must not take the place of the intact one
            os.replace(damaged, damaged.with_name(f"{CHECKPOINT}.damaged"))
        return path


def learning_rate_share(step: int, steps: int, warm_up_steps: int) -> float:
    """Share of the full learning rate: a linear rise, then a cosine down to 0.02."""
    if step < warm_up_steps:
        return (step + 1) / warm_up_steps
    done = (step - warm_up_steps) / max(steps - warm_up_steps, 1)
    return 0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))


def judge_frames(net: torch.nn.Module, frames: Frames, chunk: int = 256) -> dict[str, float]:
    """Scores of a network on frames.

    Returns:
        ``beta_nll`` (unweighted) and ``weighted_loss``; ``mae_measured_cm`` and ``mae_empty_cm`` over cells that held
        a point and over those that did not, ``input_mae_cm`` of the measured cells as they came in; ``within_1_sigma``.
    """
    net.eval()
    parts = []
    with torch.inference_mode():
        for z in frames.z_m.split(chunk):
            parts.append(net(z))
    net.train()
    mean, log_variance = (torch.cat(part) for part in zip(*parts, strict=True))
    error = (mean - frames.target_m).abs()
    measured = frames.z_m > -1.99
    return {
        "beta_nll": float(beta_nll(mean, log_variance, frames.target_m).mean()),
        "weighted_loss": float(mapping_loss(mean, log_variance, frames.target_m)),
        "mae_measured_cm": 100.0 * float(error[measured].mean()),
        "input_mae_cm": 100.0 * float((frames.z_m - frames.target_m).abs()[measured].mean()),
        "mae_empty_cm": 100.0 * float(error[~measured].mean()),
        "within_1_sigma": float((error <= torch.exp(0.5 * log_variance)).float().mean()),
    }


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """The newest intact checkpoint of a folder, tensors and plain values only; says so where it is the older one.

    Raises:
        MappingError: If there is none.
    """
    return _newest(folder)[1]


def _newest(folder: Path) -> tuple[Path, dict[str, Any]]:
    problems: list[str] = []
    for name in (CHECKPOINT, OLDER):
        path = folder / name
        try:
            state = torch.load(io.BytesIO(read_checked(path)), map_location="cpu", weights_only=True)
        except FileNotFoundError:
            continue
        except MemoryError:
            raise
        except Exception as error:  # torch raises many kinds for what is no checkpoint
            reason = (str(error).splitlines() or [type(error).__name__])[0].removesuffix(".")
            problems.append(f"Cannot read the checkpoint '{path}': {reason}.")
        else:
            if problems:
                print(f"{problems[0]} Using the older '{path}', which is intact.", file=sys.stderr, flush=True)
            return path, state
    raise MappingError(" ".join(problems) or f"There is no checkpoint '{folder / CHECKPOINT}' to go on from.")


def read_config(folder: Path) -> TrainCfg:
    """The configuration that the training in a folder was begun with.

    Raises:
        MappingError: If it is missing or is none.
    """
    path = folder / CONFIG
    try:
        data = read_json(path, allow_nan=True)
    except (OSError, ValueError) as error:
        raise MappingError(f"'{folder}' holds no training of a mapper: {error}") from error
    return from_plain(TrainCfg, data, CONFIG, MappingError)


def load_net(folder: Path) -> MapNet | GuidedMapNet:
    """The network of a training, as of its last checkpoint."""
    net = make_net(read_config(folder).network)
    net.load_state_dict(read_checkpoint(folder)["net"])
    return net.eval()


def same_resolution(resolution_m: float, cfg: SampleCfg) -> None:
    """Refuse rasters whose cells are not those of the patches.

    Raises:
        MappingError: Naming both.
    """
    if not np.isclose(resolution_m, cfg.resolution_m):
        raise MappingError(f"The rasters have cells of {resolution_m} m, expected {cfg.resolution_m} m.")

"""Reward classifiers: from labelled frames to an ONNX file for the robot side (after HIL-SERL, arXiv 2410.21845)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from gantry_deploy.policy.onnx_policy import OBSERVATION
from gantry_deploy.session.classifier import PROBABILITY, SETTINGS
from gantry_deploy.session.steps import SessionStep
from gantry_hardware.errors import GantryError
from gantry_mapping.learn.export import to_onnx
from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.off_policy.augment import shifted
from gantry_policies.off_policy.config import EncoderCfg
from gantry_policies.off_policy.encoders import Encoder, Summary
from gantry_policies.off_policy.scalers import StateScaler


@dataclass(frozen=True)
class ClassifierCfg:
    """Network and training of a reward classifier."""

    uses_state: bool = True
    """Whether the state is looked at beside images, if there are any."""
    hidden: tuple[int, ...] = (64,)
    """Hidden layers behind encoder and state."""
    image_size: int = 32
    """Numbers that all image tokens are summed up in."""
    encoder: EncoderCfg = field(default_factory=EncoderCfg)
    """Of images; trained like everything else."""
    learning_rate: float = 1e-3
    """Of AdamW."""
    updates: int = 400
    """Gradient steps."""
    batch_size: int = 64
    """Frames of an update, half of them successes."""
    held_out: float = 0.2
    """Share of the frames that are not learned from, by which threshold and accuracy are told."""
    threshold: float = 0.9
    """Probability from which a step counts on the robot."""
    confirmations: int = 3
    """Steps in a row that make a success there."""
    seed: int = 0
    """Of weights, split and batches."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.held_out < 1.0 or not 0.0 < self.threshold < 1.0:
            raise GantryError(
                f"held_out is {self.held_out} and threshold {self.threshold}, expected shares from 0 to below 1."
            )
        if min(self.updates, self.batch_size - 1, self.confirmations, self.image_size) < 1:
            raise GantryError("updates, confirmations and image_size are at least 1, batch_size at least 2.")


@dataclass(frozen=True)
class LabelledFrames:
    """M frames and whether the task is done in them."""

    obs: Observation
    """``(M, ...)`` by key."""
    success: Tensor
    """``(M,)`` bool."""

    def __post_init__(self) -> None:
        sizes = {key: len(value) for key, value in self.obs.items()}
        if set(sizes.values()) != {len(self.success)}:
            raise GantryError(f"There are {len(self.success)} labels for frames {sizes}.")

    @classmethod
    def of_steps(cls, steps: Sequence[SessionStep]) -> LabelledFrames:
        """Frames of a session: what followed a success is one, everything before it and every failure is none."""
        rows = [(step.obs, False) for step in steps]
        rows += [(step.last_obs, step.success) for step in steps if step.last_obs is not None]
        if not rows:
            raise GantryError("There are no steps to take frames of.")
        obs = {key: torch.stack([torch.as_tensor(frame[key]) for frame, _ in rows]) for key in rows[0][0]}
        if STATE in obs:
            obs[STATE] = obs[STATE].flatten(1)
        return cls(obs, torch.tensor([won for _, won in rows]))


@dataclass(frozen=True)
class ClassifierScores:
    """Scores on the frames that were not learned from, or on all where none were held out."""

    accuracy: float
    """Mean over both labels of the share of frames that are told rightly at a probability of 0.5."""
    false_successes: float
    """Share of the failures whose probability is over the threshold."""
    missed_successes: float
    """Share of the successes whose probability is below it."""


class RewardClassifier(nn.Module):
    """Logits of success.

    Args:
        cfg: Sizes.
        obs_shapes: Shape of one observation, by key.
    """

    def __init__(self, cfg: ClassifierCfg, obs_shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.encoder = Encoder(obs_shapes, cfg.encoder)
        self.uses_state = STATE in obs_shapes and (cfg.uses_state or not self.encoder.keys)
        size = obs_shapes[STATE][0] if self.uses_state else 0
        self.state_scaler = StateScaler(size) if self.uses_state else None
        self.summary = Summary(self.encoder.tokens, self.encoder.width, cfg.image_size) if self.encoder.keys else None
        inputs = size + (cfg.image_size if self.encoder.keys else 0)
        layers: list[nn.Module] = []
        for width in cfg.hidden:
            layers += [nn.Linear(inputs, width), nn.LayerNorm(width), nn.ReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, 1))

    def forward(self, obs: Observation) -> Tensor:
        """Logits ``(B,)`` of observations ``(B, ...)`` by key, as the environment gives them."""
        parts = [] if self.state_scaler is None else [self.state_scaler(obs[STATE])]
        tokens = self.encoder(obs)
        if self.summary is not None and tokens is not None:
            parts.append(self.summary(tokens))
        return self.layers(torch.cat(parts, dim=-1)).squeeze(-1)


def train_classifier(frames: LabelledFrames, cfg: ClassifierCfg) -> tuple[RewardClassifier, ClassifierScores]:
    """Train on labelled frames, in balanced batches.

    Raises:
        GantryError: If one of the labels is missing among those to be learned from.
    """
    random = torch.Generator().manual_seed(cfg.seed)
    learned, held = _split(frames.success, cfg.held_out, random)
    shapes = {key: tuple(value.shape[1:]) for key, value in frames.obs.items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cfg.seed)
        network = RewardClassifier(cfg, shapes)
    if network.state_scaler is not None:
        network.state_scaler.fit(frames.obs[STATE][learned].float())
    optimizer = torch.optim.AdamW(network.parameters(), cfg.learning_rate)
    won, other = (learned[frames.success[learned] == label] for label in (True, False))
    half = cfg.batch_size // 2
    target = torch.cat((torch.ones(half), torch.zeros(half)))
    for _ in range(cfg.updates):
        rows = torch.cat([part[torch.randint(len(part), (half,), generator=random)] for part in (won, other)])
        obs = shifted({key: value[rows] for key, value in frames.obs.items()}, cfg.encoder.shift_pixels, random)
        loss = functional.binary_cross_entropy_with_logits(network(obs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval().requires_grad_(False)
    return network, _scores(network, frames, held if len(held) else learned, cfg.threshold)


def export_classifier(
    network: RewardClassifier, obs_shapes: Mapping[str, tuple[int, ...]], cfg: ClassifierCfg
) -> bytes:
    """The ONNX file for :class:`gantry_deploy.session.classifier.SuccessClassifier`.

    Raises:
        MappingError: If torch cannot express it.
    """
    cameras = network.encoder.keys
    inputs: dict[str, Tensor] = {}
    if network.uses_state:
        inputs[OBSERVATION] = torch.zeros(1, *obs_shapes[STATE])
    inputs |= {key: torch.zeros(1, *obs_shapes[key], dtype=torch.uint8) for key in cameras}
    module = _Probability(network).eval()
    model = to_onnx(module, tuple(inputs.values()), list(inputs), [PROBABILITY])
    said = model.metadata_props.add()
    said.key = SETTINGS
    said.value = json.dumps({"threshold": cfg.threshold, "confirmations": cfg.confirmations})
    return model.SerializeToString()


class _Probability(nn.Module):
    """The classifier with inputs one by one."""

    def __init__(self, network: RewardClassifier) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> Tensor:
        keys = ([STATE] if self.network.uses_state else []) + list(self.network.encoder.keys)
        return torch.sigmoid(self.network(dict(zip(keys, inputs, strict=True))))


def _split(success: Tensor, share: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows to learn from, and held-out ones, of both labels alike."""
    learned, held = [], []
    for label, name in ((True, "a success"), (False, "a failure")):
        rows = (success == label).nonzero().squeeze(1)
        rows = rows[torch.randperm(len(rows), generator=random)]
        count = int(share * len(rows))
        if not len(rows) - count:
            raise GantryError(f"No frame is {name}; a classifier needs frames of both kinds.")
        held.append(rows[:count])
        learned.append(rows[count:])
    return torch.cat(learned), torch.cat(held)


@torch.no_grad()
def _scores(network: RewardClassifier, frames: LabelledFrames, rows: Tensor, threshold: float) -> ClassifierScores:
    parts = [torch.sigmoid(network({key: value[at] for key, value in frames.obs.items()})) for at in rows.split(256)]
    found, success = torch.cat(parts), frames.success[rows]

    def share(hit: Tensor, label: Tensor) -> float:
        return float(hit[label].float().mean()) if bool(label.any()) else 1.0

    right = (share(found >= 0.5, success) + share(found < 0.5, ~success)) / 2.0
    return ClassifierScores(
        accuracy=right,
        false_successes=share(found >= threshold, ~success) if bool((~success).any()) else 0.0,
        missed_successes=1.0 - share(found >= threshold, success),
    )

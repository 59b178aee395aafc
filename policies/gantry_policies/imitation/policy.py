"""A cloned policy: raw observations in, chunks of actions in the environment's units out, without state."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import parse_json
from gantry_hardware.files.structured import from_plain
from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.common.checkpoint import CheckpointError, load_checkpoint, load_weights, tell_stderr, write_state
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.data import ChunkData, Chunks
from gantry_policies.imitation.flow import ChunkFlow
from gantry_policies.imitation.networks import ChunkTransformer, make_network
from gantry_policies.imitation.sight import numbers_of
from gantry_policies.off_policy.bases import ChunkedBase
from gantry_policies.off_policy.scalers import StateScaler

POLICIES = "policies"
"""Folder of a run's policies, ``policy_<step>.pt``."""
FORMAT = 1
"""Of these files."""


class BcPolicy(nn.Module):
    """Network, statistics of the data and limits in one.

    Args:
        cfg: Of the training.
        obs_shapes: Shape of one observation, by key.
        action_size: n.
    """

    def __init__(self, cfg: BcCfg, obs_shapes: Mapping[str, tuple[int, ...]], action_size: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.obs_shapes = {key: tuple(shape) for key, shape in obs_shapes.items()}
        self.action_size = action_size
        self.state_scaler = StateScaler(self.obs_shapes[STATE][0])
        self.action_scaler = StateScaler(action_size)
        self.label_scaler = StateScaler(cfg.network.labels) if cfg.network.labels else None
        self.numbers = numbers_of(self.obs_shapes, cfg.network)
        """Numbers of a state that are standardised; word tokens follow them."""
        self.network = make_network(self.obs_shapes, action_size, cfg.chunk_steps, cfg.network)

    def fit(self, data: ChunkData) -> None:
        """Take the statistics of demonstrations.

        Raises:
            GantryError: If an action is beyond the limit.
        """
        limit, largest = self.cfg.action_limit, float(data.action.abs().max())
        if limit is not None and largest > limit + 1e-4:
            raise GantryError(
                f"Demonstrated actions go up to {largest:.3g}, and learner.action_limit is {limit}; "
                "expected none for actions in units of their own."
            )
        self.state_scaler.fit(data.obs[STATE])
        self.state_scaler.mean[self.numbers :], self.state_scaler.std[self.numbers :] = 0.0, 1.0
        self.action_scaler.fit(data.action)
        if self.label_scaler is not None and data.labels is not None:
            self.label_scaler.fit(data.labels)

    def forward(self, obs: Observation) -> Tensor:
        """``(B, T, n)``: what to do next, in the actions' own units, within the limit.

        Args:
            obs: ``(B, ...)`` by key, as the environment gives it.
        """
        action, limit = self.unlimited(obs), self.cfg.action_limit
        return action if limit is None else action.clamp(-limit, limit)

    def unlimited(self, obs: Observation) -> Tensor:
        """``(B, T, n)``: the same before the limit, for a gradient that must pass it."""
        planned = self.network({**obs, STATE: self.state_scaler(obs[STATE])})
        return planned * self.action_scaler.std + self.action_scaler.mean

    def losses(self, chunks: Chunks) -> dict[str, Tensor]:
        """Scalars: ``l1``, the mean absolute error of real steps in units of the actions' standard deviations, of a
        flow in evaluation mode alone; with styles ``divergence``, in nats; with labels ``labels``, their mean squared
        error in units of their variances; and ``loss``, what is to be made small.
        """
        obs = {**chunks.obs, STATE: self.state_scaler(chunks.obs[STATE])}
        losses, summary = self._action_losses(obs, self.action_scaler(chunks.action), chunks.real)
        head, scaler = self.network.label_head, self.label_scaler
        if self.training and head is not None and scaler is not None and chunks.labels is not None:
            losses["labels"] = (head(summary) - scaler(chunks.labels)).square().mean()
            losses["loss"] = losses["loss"] + self.cfg.label_weight * losses["labels"]
        return losses

    def _action_losses(self, obs: Observation, action: Tensor, real: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        """Losses of standardised chunks ``(B, T, n)``, and a summary ``(B, w)`` of what is seen, None while it is not
        needed."""
        network = self.network
        if isinstance(network, ChunkFlow):
            if self.training:
                error, summary = network.error(obs, action, real)
                return {"loss": error}, summary
            error = masked_l1(network(obs), action, real)
            return {"loss": error, "l1": error}, None
        if not isinstance(network, ChunkTransformer) or network.style is None:
            planned, summary = network.planned(obs)
            error = masked_l1(planned, action, real)
            return {"loss": error, "l1": error}, summary
        style = network.style(obs[STATE], action, real)
        planned, summary = network.planned(obs, style.sample() if self.training else None)
        error, divergence = masked_l1(planned, action, real), style.divergence().mean()
        loss = error + self.cfg.latent_weight * divergence
        return {"loss": loss, "l1": error, "divergence": divergence}, summary


def masked_l1(planned: Tensor, action: Tensor, real: Tensor) -> Tensor:
    """Mean absolute difference of chunks ``(B, T, n)`` over the steps of ``(B, T)`` that are real."""
    counted = real[..., None].expand_as(action)
    return ((planned - action).abs() * counted).sum() / counted.sum()


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy from a run folder."""

    policy: BcPolicy
    """Frozen, on the CPU, in evaluation mode."""
    step: int
    """Updates that it was trained with."""
    provenance: dict[str, Any]
    """Facts that the training recorded about its data."""


def save_policy(policy: BcPolicy, run_dir: Path, step: int, provenance: Mapping[str, Any]) -> Path:
    """Write ``policies/policy_<step>.pt``, whole or not at all.

    Raises:
        CheckpointError: If it cannot be written.
    """
    path = run_dir / POLICIES / f"policy_{step}.pt"
    shapes = {key: list(shape) for key, shape in policy.obs_shapes.items()}
    state = {
        "format": FORMAT,
        "cfg": json.dumps(asdict(policy.cfg)),
        "obs_shapes": shapes,
        "action_size": policy.action_size,
        "step": step,
        "provenance": json.dumps(dict(provenance)),
        "weights": {name: value.cpu() for name, value in policy.state_dict().items()},
    }
    write_state(path, state, "the policy")
    return path


def list_policies(run_dir: Path) -> dict[int, Path]:
    """Policies of a run by the updates that they were trained with, fewest first."""
    names = ((re.fullmatch(r"policy_(\d+)\.pt", path.name), path) for path in (run_dir / POLICIES).glob("policy_*.pt"))
    return dict(sorted((int(match[1]), path) for match, path in names if match))


def load_policy(run_dir: str | Path, step: int | None = None) -> LoadedPolicy:
    """A policy of a run.

    Args:
        run_dir: Folder of the run.
        step: Updates that it was trained with; the most trained one that is intact if None.

    Raises:
        CheckpointError: If there is none, it is damaged, or it is no such policy.
    """
    known = list_policies(Path(run_dir))
    if not known or (step is not None and step not in known):
        asked = "policy" if step is None else f"policy of step {step}"
        raise CheckpointError(f"There is no {asked} in '{run_dir}'; it has steps {list(known) or '(none)'}.")
    path, state = _intact(known) if step is None else (known[step], load_checkpoint(known[step]))
    try:
        if state["format"] != FORMAT:
            raise CheckpointError(f"Policy {path} has format {state['format']}, expected {FORMAT}.")
        cfg = from_plain(BcCfg, parse_json(state["cfg"], "its cfg", allow_nan=True), "bc")
        policy = BcPolicy(cfg, state["obs_shapes"], state["action_size"])
        load_weights({"policy": policy}, {"policy": state["weights"]})
        loaded = LoadedPolicy(
            policy, int(state["step"]), parse_json(state["provenance"], "its provenance", allow_nan=True)
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} is no cloned policy: {' '.join(str(error).split())}") from error
    policy.requires_grad_(False).eval()
    return loaded


def _intact(known: dict[int, Path]) -> tuple[Path, dict[str, Any]]:
    """The most trained policy that can be read; says which were left out."""
    problems: list[str] = []
    for path in reversed(known.values()):
        try:
            state = load_checkpoint(path)
        except CheckpointError as error:
            problems.append(str(error))
        else:
            if problems:
                tell_stderr(f"{' '.join(problems)} Using the older {path.name}, which is intact.")
            return path, state
    raise CheckpointError(" ".join(problems))


class Planner:
    """Plans chunks for :class:`~gantry_policies.off_policy.bases.ChunkedBase` with a frozen policy.

    Args:
        policy: Is moved to the device and set to evaluation mode.
        device: Where to compute.
    """

    def __init__(self, policy: BcPolicy, device: str = "cpu") -> None:
        self.policy = policy.to(device).eval()
        self._device = device

    @torch.no_grad()
    def __call__(self, obs: Observation) -> Tensor:
        """``(m, T, n)`` of observations ``(m, ...)`` of any number m.

        Raises:
            GantryError: If an observation is missing or has another shape than in training.
        """
        seen = {}
        for key, shape in self.policy.obs_shapes.items():
            if key not in obs or tuple(obs[key].shape[1:]) != shape:
                found = {name: tuple(value.shape[1:]) for name, value in obs.items()}
                raise GantryError(f"The cloned policy was trained on '{key}' of shape {shape}; there is {found}.")
            seen[key] = obs[key].to(self._device)
        return self.policy(seen)


def make_base(policy: BcPolicy, num_envs: int, *, execute: int | None = None, device: str = "cpu") -> ChunkedBase:
    """A cloned policy as the base of N environments.

    Args:
        policy: The policy; several bases may share it.
        num_envs: N.
        execute: Steps of a chunk that are executed; as in its training's configuration if None.
        device: Where to compute, and of the actions.
    """
    return ChunkedBase(Planner(policy, device), num_envs, execute or policy.cfg.execute_steps, device)

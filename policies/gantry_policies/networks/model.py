"""The networks that look at maps or pictures or read words as models of rsl_rl: encoder, head, distribution, export."""

from __future__ import annotations

import copy
from typing import Any

import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict
from torch import Tensor, nn

from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.networks.ame1 import Ame1Encoder
from gantry_policies.networks.ame2 import Ame2Encoder
from gantry_policies.networks.bev import BevEncoder
from gantry_policies.networks.encoding import Encoding
from gantry_policies.networks.language.instructed import InstructedEncoder
from gantry_policies.networks.layout import MAP_TERM, RASTER_TERM, ObservationLayout
from gantry_policies.networks.scan_mlp import ScanEncoder
from gantry_policies.networks.sizes import AmeCfg, BevNetCfg, WordsNetCfg

ENCODERS: dict[str, type[nn.Module]] = {
    "ame2": Ame2Encoder,
    "ame1": Ame1Encoder,
    "scan_mlp": ScanEncoder,
    "bev": BevEncoder,
    "words": InstructedEncoder,
}
"""Encoders by the name that a configuration gives them."""


class PerceptiveModel(MLPModel):
    """An encoder of a map or a raster and all other terms in front of rsl_rl's MLP and distribution.

    Args:
        args: As for rsl_rl's ``MLPModel``.
        encoder: A name of :data:`ENCODERS`.
        sizes: Of the encoder.
        layout: Of the flat observation.
        labels: Numbers that a head predicts from the latent while learning; it is not exported.
        kwargs: As for rsl_rl's ``MLPModel``. ``obs_normalization`` leaves map, raster and words alone: a map's metres
            share the coordinates' scale, a statistic per cell would undo what convolutions share, and a word is a name.

    Raises:
        UnknownNameError: If there is no such encoder.
        GantryError: If the observation has another size than the layout.
    """

    raw_columns: Tensor

    def __init__(
        self,
        *args: Any,
        encoder: str,
        sizes: AmeCfg | BevNetCfg | WordsNetCfg,
        layout: ObservationLayout,
        labels: int = 0,
        **kwargs: Any,
    ) -> None:
        if encoder not in ENCODERS:
            raise UnknownNameError("encoder", encoder, ENCODERS)
        self._build = (ENCODERS[encoder], layout, sizes)  # rsl_rl asks for the latent's size while it builds the head
        super().__init__(*args, **kwargs)
        self.label_head = nn.Linear(self._latent_size, labels) if labels else None
        if self.obs_dim != layout.size:
            raise GantryError(f"The observation has {self.obs_dim} numbers, its layout says {layout.size}.")
        raw = torch.zeros(layout.size, dtype=torch.bool)
        for term in layout.terms:
            if term.name in (MAP_TERM, RASTER_TERM, INSTRUCTION_TERM):
                raw[term.start : term.stop] = True
        self.register_buffer("raw_columns", raw, persistent=False)

    def get_latent(self, obs: TensorDict, masks: Tensor | None = None, hidden_state: Any = None) -> Tensor:
        """Input of the action head, (N, latent_size)."""
        return self.encode(obs).latent

    def encode(self, obs: TensorDict) -> Encoding:
        """Latent, embedding and attention of observation groups (N, ...), scaled; see :class:`Encoding` for shapes."""
        return self.encode_flat(torch.cat([obs[group] for group in self.obs_groups], dim=-1))

    def encode_flat(self, observation: Tensor) -> Encoding:
        """Latent, embedding and attention of flat observations (N, size)."""
        return self.encoder(_normalized(self, observation))

    def as_onnx(self, verbose: bool = False) -> ExportedPolicy:
        """The deterministic policy, (N, size) -> (N, n); see :meth:`ExportedPolicy.with_attention`."""
        return ExportedPolicy(self)

    def as_jit(self) -> nn.Module:
        """Not offered: policies leave as ONNX.

        Raises:
            GantryError: Always.
        """
        raise GantryError("Perceptive networks are exported as ONNX, not as TorchScript.")

    def _get_latent_dim(self) -> int:
        build, layout, sizes = self._build
        self.encoder = build(layout, sizes)
        self._latent_size: int = self.encoder.latent_size  # type: ignore[assignment]
        return self._latent_size


class PerceptiveCritic(PerceptiveModel):
    """The same for a critic that sees the actor's observation and, in further groups after it, its own.

    Args:
        obs: Groups of observations.
        obs_groups: Names of the groups by set; the first one of ``obs_set`` is the actor's.
        obs_set: The critic's set.
        args: As for :class:`PerceptiveModel`.
        layout: Of the actor's observation.
        kwargs: As for :class:`PerceptiveModel`.
    """

    def __init__(
        self,
        obs: TensorDict,
        obs_groups: dict[str, list[str]],
        obs_set: str,
        *args: Any,
        layout: ObservationLayout,
        **kwargs: Any,
    ) -> None:
        for group in obs_groups[obs_set][1:]:
            layout = layout.with_more(group, obs[group].shape[-1])
        super().__init__(obs, obs_groups, obs_set, *args, layout=layout, **kwargs)


class ExportedPolicy(nn.Module):
    """A copy of a perceptive model's deterministic part.

    Nothing of what a stochastic forward pass leaves in the model comes along.
    """

    def __init__(self, model: PerceptiveModel) -> None:
        super().__init__()
        self.obs_normalization = model.obs_normalization
        self.obs_normalizer = copy.deepcopy(model.obs_normalizer)
        self.register_buffer("raw_columns", model.raw_columns.clone(), persistent=False)
        self.encoder = copy.deepcopy(model.encoder)
        self.mlp = copy.deepcopy(model.mlp)
        self.deterministic_output = (
            nn.Identity() if model.distribution is None else model.distribution.as_deterministic_output_module()
        )

    def forward(self, observation: Tensor) -> Tensor:
        """Observations (N, size) to actions (N, n)."""
        return self.act(observation)[0]

    def act(self, observation: Tensor) -> tuple[Tensor, Encoding]:
        """Observations (N, size) to actions (N, n), and what the encoder made of the observations."""
        encoding: Encoding = self.encoder(_normalized(self, observation))
        return self.deterministic_output(self.mlp(encoding.latent)), encoding

    def with_attention(self) -> nn.Module:
        """The same policy with a second output: attention weights, averaged over heads, (N, rows, cols).

        Raises:
            GantryError: If this network does not attend.
        """
        if not self.attends:
            raise GantryError("This network has no attention to export.")
        return _WithAttention(self)

    @property
    def attends(self) -> bool:
        """Whether there is attention to show."""
        return any(name == "attention" for name, _ in self.encoder.named_children())


class _WithAttention(nn.Module):
    def __init__(self, policy: ExportedPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Observations (N, size) to actions (N, n) and attention (N, rows, cols)."""
        action, encoding = self.policy.act(observation)
        return action, attention_map(encoding, self.policy.encoder.layout)  # type: ignore[arg-type]


def attention_map(encoding: Encoding, layout: ObservationLayout) -> Tensor:
    """Head-averaged attention weights on the window, (N, rows, cols); they add up to 1.

    Raises:
        GantryError: If the encoder does not attend.
    """
    if encoding.weights is None:
        raise GantryError("This network has no attention.")
    window = layout.require_window()
    return encoding.weights.mean(dim=1).reshape(-1, window.rows, window.cols)


def _normalized(model: Any, observation: Tensor) -> Tensor:
    if not model.obs_normalization:
        return observation
    return torch.where(model.raw_columns, observation, model.obs_normalizer(observation))

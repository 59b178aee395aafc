"""Actor of pictures, numbers and words for PPO: rsl_rl's convolutions beside the encoder of numbers under words."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from rsl_rl.models.cnn_model import CNNModel
from tensordict import TensorDict
from torch import Tensor, nn

from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM
from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE
from gantry_policies.networks.language.instructed import InstructedEncoder
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.sizes import PictureNetCfg, WordsNetCfg


class PictureModel(CNNModel):
    """Convolutions over each camera's picture, an encoder of the numbers, and rsl_rl's MLP and distribution on both.

    Args:
        obs: Groups of observations, pictures (N, 3, height, width) uint8 among them.
        args: As for rsl_rl's ``CNNModel``.
        pictures: Sizes of the convolutions.
        words: Sizes of the encoder of numbers, where there is an instruction.
        layout: Of the flat numbers.
        labels: As for :class:`gantry_policies.networks.model.PerceptiveModel`.
        kwargs: As for rsl_rl's ``CNNModel``. ``obs_normalization`` leaves words and pictures alone.

    Raises:
        GantryError: If there is no picture among the groups.
    """

    raw_columns: Tensor

    def __init__(
        self,
        obs: TensorDict,
        *args: Any,
        pictures: PictureNetCfg,
        words: WordsNetCfg,
        layout: ObservationLayout,
        labels: int = 0,
        **kwargs: Any,
    ) -> None:
        if not any(str(group).startswith(IMAGE_PREFIX) for group in obs.keys()):  # noqa: SIM118 - a TensorDict
            raise GantryError("The network of kind 'pictures' sees pictures; these environments show none.")
        self._build = (layout, words)  # rsl_rl asks for the latent's size while it builds the head
        layers = {
            "output_channels": list(pictures.channels),
            "kernel_size": list(pictures.kernels),
            "stride": list(pictures.strides),
            "padding": "zeros",
            "activation": "elu",
        }
        super().__init__(obs, *args, cnn_cfg=layers, **kwargs)
        self.label_head = nn.Linear(self._latent_size, labels) if labels else None
        raw = torch.zeros(layout.size, dtype=torch.bool)
        for term in layout.terms:
            if term.name == INSTRUCTION_TERM:
                raw[term.start : term.stop] = True
        self.register_buffer("raw_columns", raw, persistent=False)

    def get_latent(self, obs: TensorDict, masks: Tensor | None = None, hidden_state: Any = None) -> Tensor:
        """Input of the action head, (N, latent_size)."""
        numbers = torch.cat([obs[group] for group in self.obs_groups], dim=-1)
        return latent_of(self, numbers, {group: obs[group] for group in self.obs_groups_2d})

    def as_onnx(self, verbose: bool = False) -> PictureActor:
        """The deterministic policy, of an observation by key."""
        return PictureActor(self)

    def _get_latent_dim(self) -> int:
        layout, words = self._build
        self.numbers = InstructedEncoder(layout, words) if layout.vocabulary else None
        size = self.obs_dim if self.numbers is None else self.numbers.latent_size
        self._latent_size: int = size + self.cnn_latent_dim
        return self._latent_size


class PictureActor(nn.Module):
    """A copy of a picture model's deterministic part.

    Args:
        model: The model, of which nothing else comes along.
    """

    def __init__(self, model: PictureModel) -> None:
        super().__init__()
        self.obs_normalizer, self.cnns = copy.deepcopy(model.obs_normalizer), copy.deepcopy(model.cnns)
        self.numbers, self.mlp = copy.deepcopy(model.numbers), copy.deepcopy(model.mlp)
        self.obs_groups_2d = list(model.obs_groups_2d)
        self.register_buffer("raw_columns", model.raw_columns.clone(), persistent=False)
        self.deterministic_output = (
            nn.Identity() if model.distribution is None else model.distribution.as_deterministic_output_module()
        )

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Actions (N, n), dimensionless, of observations (N, ...) by key: ``state`` and pictures, uint8."""
        latent = latent_of(self, obs[STATE], {group: obs[group] for group in self.obs_groups_2d})
        return self.deterministic_output(self.mlp(latent))


def latent_of(model: Any, numbers: Tensor, pictures: Mapping[str, Tensor]) -> Tensor:
    """Latent (N, size), dimensionless, of a model's encoders.

    Args:
        model: Has convolutions, encoder and normaliser.
        numbers: ``(N, obs)``, scaled.
        pictures: ``(N, 3, height, width)`` uint8 by group.
    """
    numbers = torch.where(model.raw_columns, numbers, model.obs_normalizer(numbers))
    encoded = numbers if model.numbers is None else model.numbers(numbers).latent
    seen = [model.cnns[group](pictures[group].to(numbers.dtype) / 255.0 - 0.5) for group in model.obs_groups_2d]
    return torch.cat((encoded, *seen), dim=-1)

"""Actor of pictures, numbers and words for PPO: key points of each picture beside the encoder of numbers, both under
words."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from rsl_rl.models.mlp_model import MLPModel
from tensordict import TensorDict
from torch import Tensor, nn

from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM
from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE
from gantry_policies.networks.keypoints import Keypoints
from gantry_policies.networks.language.instructed import InstructedEncoder
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.sizes import KeypointsCfg, WordsNetCfg


class PictureModel(MLPModel):
    """Key points of each camera's picture, an encoder of the numbers, and rsl_rl's MLP and distribution on both.

    Args:
        obs: Groups of observations, pictures (N, 3, height, width) uint8 among them.
        args: As for rsl_rl's ``MLPModel``.
        pictures: Sizes of the encoder of each picture.
        words: Sizes of the encoder of numbers, where there is an instruction.
        layout: Of the flat numbers.
        labels: As for :class:`gantry_policies.networks.model.PerceptiveModel`.
        kwargs: As for rsl_rl's ``MLPModel``. ``obs_normalization`` leaves words and pictures alone.

    Raises:
        GantryError: If there is no picture among the groups.
    """

    raw_columns: Tensor

    def __init__(
        self,
        obs: TensorDict,
        *args: Any,
        pictures: KeypointsCfg,
        words: WordsNetCfg,
        layout: ObservationLayout,
        labels: int = 0,
        **kwargs: Any,
    ) -> None:
        if not any(str(group).startswith(IMAGE_PREFIX) for group in obs.keys()):  # noqa: SIM118 - a TensorDict
            raise GantryError("The network of kind 'pictures' sees pictures; these environments show none.")
        self._build = (layout, words, pictures)  # rsl_rl asks for the latent's size while it builds the head
        super().__init__(obs, *args, **kwargs)
        self.label_head = nn.Linear(self._latent_size, labels) if labels else None
        raw = torch.zeros(layout.size, dtype=torch.bool)
        for term in layout.terms:
            if term.name == INSTRUCTION_TERM:
                raw[term.start : term.stop] = True
        self.register_buffer("raw_columns", raw, persistent=False)

    def get_latent(self, obs: TensorDict, masks: Tensor | None = None, hidden_state: Any = None) -> Tensor:
        """Input of the action head, (N, latent_size)."""
        numbers = torch.cat([obs[group] for group in self.obs_groups], dim=-1)
        return latent_of(self, numbers, {key: obs[key] for key in self.picture_keys})

    def as_onnx(self, verbose: bool = False) -> PictureActor:
        """The deterministic policy, of an observation by key."""
        return PictureActor(self)

    def _get_obs_dim(self, obs: TensorDict, obs_groups: dict[str, list[str]], obs_set: str) -> tuple[list[str], int]:
        self.picture_keys = [group for group in obs_groups[obs_set] if group.startswith(IMAGE_PREFIX)]
        self._channels = [obs[key].shape[1] for key in self.picture_keys]
        flat = [group for group in obs_groups[obs_set] if group not in self.picture_keys]
        return flat, sum(obs[group].shape[-1] for group in flat)

    def _get_latent_dim(self) -> int:
        layout, words, pictures = self._build
        self.numbers = InstructedEncoder(layout, words) if layout.vocabulary else None
        size, said = (self.obs_dim, 0) if self.numbers is None else (self.numbers.latent_size, words.width)
        self.cameras = nn.ModuleList(Keypoints(channels, pictures, said) for channels in self._channels)
        self._latent_size: int = size + len(self.cameras) * 2 * pictures.keypoints
        return self._latent_size


class PictureActor(nn.Module):
    """A copy of a picture model's deterministic part.

    Args:
        model: The model, of which nothing else comes along.
    """

    def __init__(self, model: PictureModel) -> None:
        super().__init__()
        self.obs_normalizer, self.cameras = copy.deepcopy(model.obs_normalizer), copy.deepcopy(model.cameras)
        self.numbers, self.mlp = copy.deepcopy(model.numbers), copy.deepcopy(model.mlp)
        self.picture_keys = list(model.picture_keys)
        self.register_buffer("raw_columns", model.raw_columns.clone(), persistent=False)
        self.deterministic_output = (
            nn.Identity() if model.distribution is None else model.distribution.as_deterministic_output_module()
        )

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Actions (N, n), dimensionless, of observations (N, ...) by key: ``state`` and pictures, uint8."""
        latent = latent_of(self, obs[STATE], {key: obs[key] for key in self.picture_keys})
        return self.deterministic_output(self.mlp(latent))


def latent_of(model: Any, numbers: Tensor, pictures: Mapping[str, Tensor]) -> Tensor:
    """Latent (N, size), dimensionless, of a model's encoders.

    Args:
        model: Has an encoder per picture, one of the numbers, and their normaliser.
        numbers: ``(N, obs)``, scaled.
        pictures: ``(N, 3, height, width)`` uint8 by key.
    """
    numbers = torch.where(model.raw_columns, numbers, model.obs_normalizer(numbers))
    said, latent = None, [numbers]
    if model.numbers is not None:
        said = model.numbers.said(numbers)
        latent = [model.numbers.numbers(numbers, said), said]
    for key, camera in zip(model.picture_keys, model.cameras, strict=True):
        latent.append(camera(pictures[key].to(numbers.dtype) / 255.0 - 0.5, said))
    return torch.cat(latent, dim=-1)

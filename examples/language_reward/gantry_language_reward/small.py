"""A small scorer for laptops and tests: few convolutions for the picture, a table for the sentences it knows.

It is taught as CLIP is (arXiv 2103.00020), pictures and sentences towards each other, with pictures of our own
simulator and what it knows of them (:mod:`gantry_language_reward.lessons`). It understands no language.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.json_file import parse_json
from gantry_hardware.files.structured import from_plain
from gantry_language_reward.cfg import BAD_GOAL, GOOD_GOAL, PICTURE
from gantry_language_reward.frames import check_frames

SMALL_FILE = Path(__file__).resolve().parent / "small.safetensors"
"""The scorer that comes along."""
WIDTH = 16
"""Numbers of an embedding."""
_MAX_BATCH = 256


class SmallScorer(nn.Module):
    """Cosines of pictures and the sentences of a table.

    Args:
        goals: Sentences that it knows.
        layout: Of the pictures that it knows.
        margin: See :class:`~gantry_language_reward.scorer.Scorer`; found while it is taught.
    """

    def __init__(
        self, goals: Sequence[str] = (BAD_GOAL, GOOD_GOAL), layout: BevLayout = PICTURE, margin: float = 1.0
    ) -> None:
        super().__init__()
        self.goals, self.layout, self.margin = tuple(goals), layout, margin
        self.asked = list(range(len(self.goals)))
        """Which sentences are compared with, in order."""
        self.table = nn.Embedding(len(self.goals), WIDTH)
        cells = math.ceil(layout.pixels / 16) ** 2
        self.eye = nn.Sequential(
            nn.Conv2d(3, 8, 5, 2, 2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 24, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(24, 24, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24 * cells, WIDTH),
        )

    def cosines(self, frames: Tensor) -> Tensor:
        """``(N, G)`` of pictures uint8 ``(N, 3, H, W)`` and all sentences of the table, with gradients."""
        check_frames(frames)
        if tuple(frames.shape[2:]) != (self.layout.pixels, self.layout.pixels):
            raise GantryError(
                f"Pictures have {frames.shape[2]} x {frames.shape[3]} pixels, the scorer knows {self.layout.pixels}."
            )
        seen = self.eye(frames.to(self.table.weight.device).float() / 127.5 - 1.0)
        return nn.functional.normalize(seen, dim=-1) @ nn.functional.normalize(self.table.weight, dim=-1).T

    @torch.no_grad()
    def forward(self, frames: Tensor) -> Tensor:
        """``(N, G)`` of pictures uint8 ``(N, 3, H, W)`` and the sentences that are asked for."""
        parts = [self.cosines(part)[:, self.asked] for part in frames.split(_MAX_BATCH)]
        return torch.cat(parts)

    def ask(self, goals: Sequence[str]) -> SmallScorer:
        """Compare with these sentences alone, in this order.

        Raises:
            UnknownNameError: If it does not know one.
        """
        for goal in goals:
            if goal not in self.goals:
                raise UnknownNameError("goal of the small scorer", goal, self.goals)
        self.asked = [self.goals.index(goal) for goal in goals]
        return self

    def save(self, path: Path) -> None:
        """Write weights, sentences, margin and layout as safetensors."""
        from safetensors.torch import save_file

        told = {"goals": self.goals, "margin": self.margin, "picture": asdict(self.layout)}
        save_file(
            {name: values.contiguous() for name, values in self.state_dict().items()},
            path,
            {name: json.dumps(value) for name, value in told.items()},
        )


def load_small(path: str, goals: Sequence[str], device: str = "cpu", layout: BevLayout = PICTURE) -> SmallScorer:
    """Read a small scorer.

    Args:
        path: File; empty for the one that comes along.
        goals: Sentences to compare with, the bad one first.
        device: Where it computes.
        layout: Of the pictures that it will be shown.

    Raises:
        GantryError: If the file is missing or damaged, or the scorer knows other sentences or pictures.
    """
    file = Path(path).expanduser() if path else SMALL_FILE
    if not file.is_file():
        raise GantryError(f"There is no small scorer '{file}'; expected a file, or none for the one that comes along.")
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError as error:
        raise GantryError(
            "env.reward.options.scorer 'small' needs safetensors: pip install 'gantry-rl[train]'."
        ) from error
    try:
        with safe_open(file, framework="pt") as opened:
            told = {name: parse_json(text, f"{file}: {name}") for name, text in opened.metadata().items()}
            weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  it is no mapping
        known = from_plain(BevLayout, told["picture"], f"{file}: picture")
        scorer = SmallScorer(told["goals"], known, told["margin"])
        scorer.load_state_dict(weights)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise GantryError(f"'{file}' is no small scorer: {type(error).__name__} {text}") from error
    if known != layout:
        raise GantryError(
            f"The small scorer '{file}' was taught with other pictures.\n  scorer: {known}\n  asked:  {layout}\n"
            "Leave env.reward.options.picture as it is, or teach another one."
        )
    return scorer.ask(goals).to(device).eval().requires_grad_(False)

"""CLIP (arXiv 2103.00020) as a scorer, from a local folder and without a network.

VLM-RL compares with ViT-bigG-14 of OpenCLIP; whatever ``transformers`` loads as a CLIP model will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import read_json_object
from gantry_language_reward.frames import check_frames

CLIP_MARGIN = 0.03
"""VLM-RL's (arXiv 2412.15544): CLIP's cosines differ little between pictures of one kind."""
MAX_BATCH = 64
"""Most pictures at once, as in VLM-RL."""
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Of the colours that CLIP was trained on; a model's ``preprocessor_config.json`` may say otherwise."""
_FILES = ("config.json", "model.safetensors")


_NEEDS_TRANSFORMERS = (
    "env.reward.options.scorer 'clip' needs transformers, which is not installed: "
    "pip install 'gantry-language-reward[clip]'."
)


class ClipScorer:
    """Cosines of CLIP's embeddings of pictures and sentences.

    Args:
        folder: A CLIP model as ``save_pretrained`` writes it: configuration, weights in safetensors, tokenizer. The
            name of a model on the hub is refused, for nothing is downloaded.
        goals: Sentences, the bad one first.
        device: Where it computes.

    Raises:
        GantryError: If ``transformers`` is missing or broken, or the folder does not hold such a model.
    """

    margin = CLIP_MARGIN

    def __init__(self, folder: str, goals: Sequence[str], device: str = "cpu") -> None:
        path = _checked_folder(folder)
        model, tokenizer = _load(path)
        self.model: Any = model.to(device).eval().requires_grad_(False)
        self.device = device
        self.pixels = int(self.model.config.vision_config.image_size)
        mean, std = _colours(path)
        self._mean = torch.tensor(mean, device=device)[:, None, None]
        self._std = torch.tensor(std, device=device)[:, None, None]
        self._text = self._embed_goals(tokenizer, list(goals))

    @torch.no_grad()
    def __call__(self, frames: Tensor) -> Tensor:
        """Cosines ``(N, G)`` of pictures uint8 ``(N, 3, H, W)`` and the sentences."""
        check_frames(frames)
        found = [self._text.new_zeros(0, len(self._text))]
        for start in range(0, len(frames), MAX_BATCH):
            part = frames[start : start + MAX_BATCH]
            seen = _features(self.model.get_image_features(pixel_values=self.prepared(part)))
            found.append(torch.nn.functional.normalize(seen, dim=-1) @ self._text.T)
        return torch.cat(found)

    def prepared(self, frames: Tensor) -> Tensor:
        """Pictures uint8 ``(N, 3, H, W)`` as CLIP wants them, ``(N, 3, pixels, pixels)``.

        The whole picture is kept, widened with black to a square where it is none; CLIP's usual cut of the middle would
        lose what is ahead.
        """
        height, width = frames.shape[2:]
        wide, high = max(0, height - width), max(0, width - height)
        pad = (wide // 2, wide - wide // 2, high // 2, high - high // 2)
        square = torch.nn.functional.pad(frames.to(self.device).float() / 255.0, pad)
        size = (self.pixels, self.pixels)
        sized = torch.nn.functional.interpolate(square, size, mode="bicubic", antialias=True, align_corners=False)
        return (sized.clamp(0.0, 1.0) - self._mean) / self._std

    @torch.no_grad()
    def _embed_goals(self, tokenizer: Any, goals: list[str]) -> Tensor:
        longest = int(self.model.config.text_config.max_position_embeddings)
        tokens = tokenizer(goals, padding=True, return_tensors="pt")
        if tokens["input_ids"].shape[1] > longest:
            raise GantryError(
                f"The goals {goals} have {tokens['input_ids'].shape[1]} tokens, expected at most the model's {longest}."
            )
        given = {name: tokens[name].to(self.device) for name in ("input_ids", "attention_mask")}
        return torch.nn.functional.normalize(_features(self.model.get_text_features(**given)), dim=-1)


def _features(answer: Any) -> Tensor:
    """The projected embedding; since its version 5 ``transformers`` wraps it in its output of a whole model."""
    return answer if isinstance(answer, Tensor) else answer.pooler_output


def require_clip(folder: str) -> None:
    """See that there is a CLIP model, and something that loads it, without loading it.

    Raises:
        GantryError: If the folder does not look like one, or ``transformers`` is not installed.
    """
    _checked_folder(folder)
    if find_spec("transformers") is None:
        raise GantryError(_NEEDS_TRANSFORMERS)


def _checked_folder(folder: str) -> Path:
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise GantryError(
            f"There is no folder '{path}' with a CLIP model; expected one as transformers' save_pretrained writes it. "
            "Nothing is downloaded: fetch the weights yourself and name the folder in env.reward.options.path."
        )
    there = sorted(item.name for item in path.iterdir())
    missing = [name for name in _FILES if name not in there]
    # Large models come in several files, and an index that names them.
    if missing == ["model.safetensors"] and "model.safetensors.index.json" in there:
        return path
    if missing:
        raise GantryError(
            f"'{path}' is no CLIP model: {', '.join(missing)} missing. It holds: {', '.join(there) or 'nothing'}. "
            "Weights must be safetensors; files that may run code when they are opened are not loaded."
        )
    return path


def _load(path: Path) -> tuple[Any, Any]:
    try:
        from transformers import AutoTokenizer, CLIPModel
        from transformers.utils import logging
    except ModuleNotFoundError as error:
        if error.name == "transformers":
            raise GantryError(_NEEDS_TRANSFORMERS) from error
        raise _broken(error) from error
    except (ImportError, RuntimeError) as error:
        raise _broken(error) from error
    logging.disable_progress_bar()
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        model, told = CLIPModel.from_pretrained(path, use_safetensors=True, output_loading_info=True, **local)
        tokenizer = AutoTokenizer.from_pretrained(path, **local)
    except Exception as error:  # many kinds, of transformers, safetensors, tokenizers and json
        text = " ".join(str(error).split())
        raise GantryError(f"'{path}' cannot be loaded as a CLIP model: {type(error).__name__} {text}") from error
    # transformers draws at random what a file lacks, and only warns.
    lacking = sorted(told["missing_keys"])
    if lacking:
        raise GantryError(f"'{path}' lacks {len(lacking)} of a CLIP model's weights: {', '.join(lacking[:3])}...")
    return model.float(), tokenizer


def _broken(error: Exception) -> GantryError:
    cause = error.__cause__ or error
    text = " ".join(str(cause).split())
    return GantryError(f"transformers is installed but cannot load CLIP: {text} Packages that do not fit each other?")


def _colours(path: Path) -> tuple[Sequence[float], Sequence[float]]:
    try:
        told = read_json_object(path / "preprocessor_config.json")
        return told.get("image_mean", MEAN), told.get("image_std", STD)
    except FileNotFoundError:
        return MEAN, STD
    except (OSError, ValueError, AttributeError) as error:
        raise GantryError(f"'{path / 'preprocessor_config.json'}' is damaged: {error}") from error

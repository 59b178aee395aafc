"""CLIP from a local folder: a tiny one with weights drawn at random, and what is refused."""

import json
import math
import sys

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_language_reward.cfg import BAD_GOAL, GOOD_GOAL, LanguageCfg
from gantry_language_reward.clip import CLIP_MARGIN, ClipScorer
from gantry_language_reward.scorer import make_scorer

GOALS = (BAD_GOAL, GOOD_GOAL)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A CLIP model of two layers that reads letters, saved as transformers saves one."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny") / "clip"
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    transformers.CLIPTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[]).save_pretrained(folder)
    layers = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = layers | {
        "vocab_size": len(words),
        "max_position_embeddings": 77,
        "bos_token_id": len(words) - 2,
        "eos_token_id": len(words) - 1,
        "pad_token_id": len(words) - 1,
    }
    torch.manual_seed(1)
    cfg = transformers.CLIPConfig(
        text_config=text, vision_config=layers | {"image_size": 32, "patch_size": 8}, projection_dim=8
    )
    transformers.CLIPModel(cfg).eval().save_pretrained(folder)
    return folder


def pictures(count, height=24, width=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator)


def test_cosines_are_those_of_the_whole_model(tiny):
    """CLIPModel's own logits, for pictures and sentences together, are the cosines times its scale."""
    from transformers import AutoTokenizer, CLIPModel

    scorer = make_scorer(LanguageCfg(scorer="clip", path=str(tiny)))
    frames = pictures(5)
    found = scorer(frames)
    model = CLIPModel.from_pretrained(tiny).eval()
    tokens = AutoTokenizer.from_pretrained(tiny)(list(GOALS), padding=True, return_tensors="pt")
    with torch.no_grad():
        whole = model(**tokens, pixel_values=scorer.prepared(frames)).logits_per_image / model.logit_scale.exp()
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=0.0)
    assert found.shape == (5, 2)
    assert found.abs().max() <= 1.0 + 1e-6
    assert (found[:, 0] - found[:, 1]).abs().min() > 0.0
    assert scorer.margin == CLIP_MARGIN == 0.03


def test_batches_do_not_matter(tiny):
    scorer = ClipScorer(str(tiny), GOALS)
    frames = pictures(70)  # More than are scored at once.
    torch.testing.assert_close(scorer(frames), torch.cat([scorer(frames[:3]), scorer(frames[3:])]))
    assert scorer(frames[:0]).shape == (0, 2)


def test_pictures_are_kept_whole_and_normalised(tiny):
    """White keeps its colour; what is added to a picture that is no square is black."""
    (tiny / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.25] * 3}))
    white = torch.full((1, 3, 64, 32), 255, dtype=torch.uint8)
    try:
        prepared = ClipScorer(str(tiny), GOALS).prepared(white)
    finally:
        (tiny / "preprocessor_config.json").unlink()
    assert prepared.shape == (1, 3, 32, 32)
    torch.testing.assert_close(prepared[..., 12:20], torch.full((1, 3, 32, 8), 2.0))
    torch.testing.assert_close(prepared[..., :6], torch.full((1, 3, 32, 6), -2.0))
    usual = ClipScorer(str(tiny), GOALS).prepared(white)[0, :, 16, 16]
    assert usual.tolist() == pytest.approx([(1 - 0.48145466) / 0.26862954, 2.0749, 2.1459], abs=1e-3)


def test_what_is_no_model_is_refused(tiny, tmp_path):
    with pytest.raises(GantryError, match=r"no folder 'openai/clip-vit-base-patch32'.*Nothing is downloaded"):
        ClipScorer("openai/clip-vit-base-patch32", GOALS)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(GantryError, match=r"model\.safetensors missing.*pytorch_model\.bin.*not loaded"):
        ClipScorer(str(tmp_path), GOALS)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(GantryError, match="cannot be loaded as a CLIP model"):
        ClipScorer(str(tmp_path), GOALS)


def test_weights_that_are_missing_are_not_drawn_at_random(tiny, tmp_path):
    from safetensors.torch import load_file, save_file

    for item in tiny.iterdir():
        (tmp_path / item.name).write_bytes(item.read_bytes())
    weights = load_file(tiny / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(GantryError, match=r"lacks 1 of a CLIP model's weights: visual_projection\.weight"):
        ClipScorer(str(tmp_path), GOALS)


def test_long_goals_and_wrong_pictures_are_refused(tiny):
    with pytest.raises(GantryError, match="tokens, expected at most the model's 77"):
        ClipScorer(str(tiny), ("a" * 90, "b"))
    with pytest.raises(GantryError, match=r"shape \(2, 3, 8, 8\) and type torch.float32"):
        ClipScorer(str(tiny), GOALS)(torch.zeros(2, 3, 8, 8))


def test_without_transformers_it_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)

    class Missing:
        """Stands in for an environment without the package."""

        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "transformers":
                raise ModuleNotFoundError(f"No module named '{name}'", name="transformers")

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with pytest.raises(GantryError, match=r"not installed: pip install 'gantry-language-reward\[clip\]'"):
        ClipScorer(str(tmp_path), GOALS)


def test_a_margin_of_nothing_is_refused():
    with pytest.raises(GantryError, match=r"options.margin is 0\.0"):
        LanguageCfg(margin=0.0)
    assert math.isclose(LanguageCfg(margin=0.1).margin or 0.0, 0.1)

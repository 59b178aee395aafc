"""Policies of the real LeRobot with random weights, saved and opened as teachers.

LeRobot's pins exclude Gantry's torch, so that it has an environment of its own: `scripts/test_lerobot.sh`.
"""

import numpy as np
import pytest

pytest.importorskip("lerobot", reason="lerobot is not installed (scripts/test_lerobot.sh)")

import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig

from gantry_deploy.openpi.description import CameraNeed
from gantry_policies.teachers.registry import make_teacher
from gantry_policies.teachers.teacher import TeacherError, TeacherQuestion

SIZE = 96
FEATURES = {
    "input_features": {
        "observation.state": PolicyFeature(FeatureType.STATE, (6,)),
        "observation.images.wrist": PolicyFeature(FeatureType.VISUAL, (3, SIZE, SIZE)),
    },
    "output_features": {"action": PolicyFeature(FeatureType.ACTION, (2,))},
    "device": "cpu",
}
MEAN, STD = torch.tensor([3.0, -5.0]), torch.tensor([0.5, 2.0])
STATISTICS = {
    "observation.state": {"mean": torch.zeros(6), "std": torch.ones(6), "min": -torch.ones(6), "max": torch.ones(6)},
    "observation.images.wrist": {
        name: torch.full((3, 1, 1), value) for name, value in (("mean", 0.5), ("std", 0.25), ("min", 0.0), ("max", 1.0))
    },
    "action": {"mean": MEAN, "std": STD, "min": MEAN - STD, "max": MEAN + STD},
}
ACT = {"chunk_size": 4, "n_action_steps": 4, "dim_model": 32, "n_heads": 2, "dim_feedforward": 32}
DIFFUSION = {"down_dims": (32, 64), "num_inference_steps": 3, "crop_shape": None, "spatial_softmax_num_keypoints": 4}


def save(folder, config, statistics=STATISTICS):
    """A policy with random weights and its processors, as LeRobot's training saves them."""
    torch.manual_seed(0)
    policy = get_policy_class(config.type)(config)
    policy.save_pretrained(folder)
    for pipeline in make_pre_post_processors(config, dataset_stats=statistics):
        pipeline.save_pretrained(folder)
    return policy


def question(rows, seed=0, text="pick it up"):
    rng = np.random.default_rng(seed)
    images = {"wrist": rng.integers(0, 256, (rows, SIZE, SIZE, 3), np.uint8)}
    return TeacherQuestion(images, rng.normal(size=(rows, 6)).astype(np.float32), [text] * rows)


def tiny_vlm(folder):
    """A vision-language model of two layers with its tokenizer and processor, in place of the one on the hub."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor
    from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor

    special = ["<unk>", "<pad>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]
    words = {word: i for i, word in enumerate([*special, "pick", "it", "up", "wipe"])}
    made = Tokenizer(models.WordLevel(words, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(
        zip(
            ("image_token", "fake_image_token", "global_image_token", "end_of_utterance_token"),
            special[2:],
            strict=True,
        )
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", extra_special_tokens=names
    )
    processor = SmolVLMProcessor(SmolVLMImageProcessor(), tokenizer, SmolVLMVideoProcessor(), image_seq_len=4)
    processor.save_pretrained(folder)
    heads = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 32}
    text = {"model_type": "llama", "num_key_value_heads": 2, "head_dim": 16, "vocab_size": len(words), **heads}
    vision = {"model_type": "smolvlm_vision", "image_size": 64, "patch_size": 16, **heads}
    SmolVLMConfig(
        text_config={**text, "pad_token_id": 1}, vision_config=vision, scale_factor=2, image_token_id=2, pad_token_id=1
    ).save_pretrained(folder)
    return str(folder)


def smolvla(folder, **changes):
    return SmolVLAConfig(
        **FEATURES,
        vlm_model_name=tiny_vlm(folder),
        chunk_size=5,
        n_action_steps=5,
        num_steps=2,
        num_vlm_layers=2,
        resize_imgs_with_padding=(64, 64),
        **changes,
    )


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_act_plans_in_the_units_of_its_dataset(tmp_path):
    policy = save(tmp_path, ACTConfig(**FEATURES, **ACT, pretrained_backbone_weights=None))
    teacher, asked = make_teacher(f"lerobot:{tmp_path}"), question(3)
    told = teacher.description
    assert (told.state_size, told.action_size, told.horizon, told.instruction) == (6, 2, 4, False)
    assert told.cameras == (CameraNeed("wrist", SIZE, SIZE),)
    found = teacher.plan(asked)
    pictures = torch.tensor(asked.images["wrist"]).permute(0, 3, 1, 2) / 255.0
    batch = {"observation.state": torch.tensor(asked.state), "observation.images.wrist": (pictures - 0.5) / 0.25}
    with torch.no_grad():
        raw = policy.eval().predict_action_chunk(batch)
    np.testing.assert_allclose(found, (raw * STD + MEAN).numpy(), rtol=1e-4, atol=1e-4)
    # Rows and questions do not depend on one another.
    single = TeacherQuestion({"wrist": asked.images["wrist"][1:2]}, asked.state[1:2], [""])
    np.testing.assert_allclose(teacher.plan(single)[0], found[1], rtol=1e-4, atol=1e-4)
    assert not np.allclose(found[0], found[1], atol=1e-5)
    teacher.close()


def test_diffusion_answers_from_the_present_alone(tmp_path):
    save(
        tmp_path,
        DiffusionConfig(**FEATURES, **DIFFUSION, horizon=8, n_action_steps=4, pretrained_backbone_weights=None),
    )
    teacher = make_teacher(f"lerobot:{tmp_path}")
    answers = []
    for other in (1, 2):
        teacher.plan(question(2, seed=other))
        torch.manual_seed(0)
        answers.append(teacher.plan(question(2)))
    assert answers[0].shape == (2, 4, 2)
    np.testing.assert_array_equal(answers[0], answers[1])


def test_smolvla_follows_pictures_state_and_text(tmp_path):
    save(tmp_path / "policy", smolvla(tmp_path / "vlm"))
    teacher = make_teacher(f"lerobot:{tmp_path / 'policy'}")

    def answer(asked):
        torch.manual_seed(0)  # The noise of flow matching.
        return teacher.plan(asked)

    asked = question(2)
    found = answer(asked)
    assert found.shape == (2, 5, 2)
    np.testing.assert_array_equal(answer(asked), found)
    other = question(2, seed=1)
    for changed in (
        question(2, text="wipe"),
        TeacherQuestion(other.images, asked.state, asked.instructions),
        TeacherQuestion(asked.images, other.state, asked.instructions),
    ):
        assert not np.array_equal(answer(changed), found)
    assert teacher.description.instruction
    with pytest.raises(TeacherError, match="follows an instruction, and a row of the question has none"):
        teacher.plan(question(2, text=""))


def test_a_policy_saved_without_its_statistics_is_refused(tmp_path):
    """LeRobot itself loads it, and its actions are not un-normalised, in silence."""
    save(tmp_path, ACTConfig(**FEATURES, **ACT, pretrained_backbone_weights=None), statistics=None)
    with pytest.raises(TeacherError, match="comes without the statistics of its normaliser"):
        make_teacher(f"lerobot:{tmp_path}")


def test_weights_that_are_missing_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    save(tmp_path, ACTConfig(**FEATURES, **ACT, pretrained_backbone_weights=None))
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("model.action_head.weight")
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(TeacherError, match=r"cannot be loaded: RuntimeError: .*action_head.weight"):
        make_teacher(f"lerobot:{tmp_path}")

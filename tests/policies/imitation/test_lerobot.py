"""What the real ``lerobot`` package wrote trains a clone, where that package is installed.

Its pins are older than Gantry's, so that it lives in an environment of its own, where what other tests of policies need
is missing: ``pytest --confcutdir=tests/policies/imitation tests/policies/imitation/test_lerobot.py``.
"""

import os

import numpy as np
import pytest

pytest.importorskip("lerobot")
os.environ["HF_HUB_OFFLINE"] = "1"

from lerobot.datasets.lerobot_dataset import LeRobotDataset

from gantry_policies.imitation.config import BcCfg, ImageEncoderCfg, NetworkCfg
from gantry_policies.imitation.data import load_chunks, split_episodes
from gantry_policies.imitation.policy import load_policy
from gantry_policies.imitation.trainer import CloningTrainer


def test_a_dataset_written_by_lerobot_trains_a_clone(tmp_path, demos, monkeypatch):
    monkeypatch.setattr(pytest.importorskip("datasets.config"), "HF_DATASETS_CACHE", tmp_path / "cache")
    features = {
        "observation.state": {"dtype": "float32", "shape": (2,), "names": ["pos", "goal"]},
        "action": {"dtype": "float32", "shape": (1,), "names": ["step"]},
        "observation.images.front": {"dtype": "video", "shape": (64, 96, 3), "names": ["height", "width", "channels"]},
    }
    theirs = LeRobotDataset.create("someone/something", fps=10, features=features, root=tmp_path / "d")
    walked, frame = demos(5), 0
    for length in walked.lengths:
        for _ in range(length):
            state, action = walked.obs["state"][frame].numpy(), walked.action[frame].numpy()
            picture = np.full((64, 96, 3), int(100 + 90 * state[0]), np.uint8)
            numbers = {"observation.state": state, "action": action}
            theirs.add_frame({**numbers, "observation.images.front": picture, "task": "walk"})
            frame += 1
        theirs.save_episode(parallel_encoding=False)
    theirs.finalize()

    whole = load_chunks(tmp_path / "d")
    assert whole.lengths == walked.lengths
    np.testing.assert_array_equal(whole.obs["state"], walked.obs["state"])
    np.testing.assert_array_equal(whole.action, walked.action)
    shades = whole.obs["image/front"].float().mean((1, 2, 3))
    np.testing.assert_allclose(shades, 100 + 90 * walked.obs["state"][:, 0], atol=8)

    learned, kept = (load_chunks(tmp_path / "d", episodes=part) for part in split_episodes(5, 0.2, seed=0))
    cfg = BcCfg(
        network=NetworkCfg(hidden=(32,), image_encoder=ImageEncoderCfg(stem_width=2, width=4)),
        chunk_steps=4,
        execute_steps=2,
        steps=60,
        batch_size=32,
        warmup_steps=5,
        learning_rate=5e-3,
        log_every_steps=10,
    )
    told = []
    CloningTrainer(learned, cfg, tmp_path / "run", validation=kept).train(told.append)
    assert told[-1].metrics["l1"] < 0.6 * told[0].metrics["l1"]
    planned = load_policy(tmp_path / "run").policy({key: value[:3] for key, value in kept.obs.items()})
    assert planned.shape == (3, 4, 1)

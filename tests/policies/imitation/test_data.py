"""Chunks of demonstrations: what is in them at an episode's end, in which order they come, and where they come from."""

import numpy as np
import pytest
import torch

from gantry_deploy.dataset import LOSSLESS, DatasetWriter, camera, vector
from gantry_deploy.errors import DatasetError
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.imitation.data import ChunkData, Shuffle, load_chunks, split_episodes


def test_a_chunk_ends_with_its_episode():
    states = torch.arange(5.0)[:, None]
    data = ChunkData({"state": states}, 10.0 * states, lengths=[3, 2])
    chunks = data.chunks(torch.tensor([0, 1, 2, 3, 4]), steps=3)
    assert chunks.obs["state"][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert chunks.action[..., 0].tolist() == [[0, 10, 20], [10, 20, 20], [20, 20, 20], [30, 40, 40], [40, 40, 40]]
    real = [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]]
    assert chunks.real.int().tolist() == real


def test_every_round_of_the_shuffle_has_all_numbers_and_any_place_can_be_begun_at():
    stream = Shuffle(7, seed=5).numbers(0, 21)
    rounds = [stream[begin : begin + 7].tolist() for begin in (0, 7, 14)]
    assert all(sorted(numbers) == list(range(7)) for numbers in rounds)
    assert rounds[0] != rounds[1] != rounds[2]
    later = Shuffle(7, seed=5)
    assert torch.equal(later.numbers(5, 16), stream[5:16])
    assert torch.equal(later.numbers(16, 21), stream[16:])
    assert Shuffle(7, seed=6).numbers(0, 21).tolist() != stream.tolist()


@pytest.mark.parametrize(("count", "share", "others"), [(10, 0.2, 2), (10, 0.01, 1), (10, 0.0, 0), (1, 0.5, 0)])
def test_split_by_episodes(count, share, others):
    learned, kept = split_episodes(count, share, seed=0)
    assert len(kept) == others
    assert sorted(learned + kept) == list(range(count))
    assert split_episodes(count, share, seed=0) == (learned, kept)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three episodes with two cameras, one of them a film without loss."""
    path, draw = tmp_path_factory.mktemp("data") / "set", np.random.default_rng(0)
    front, wrist = "observation.images.front", "observation.images.wrist.left"
    features = {"observation.state": vector(3), "observation.environment_state": vector(2), "action": vector(2)}
    features |= {front: camera(16, 24), wrist: camera(8, 8, video=False)}
    with DatasetWriter(path, 20, features, codec=LOSSLESS) as writer:
        for length in (4, 1, 3):
            for _ in range(length):
                frame = {name: draw.normal(size=features[name].shape).astype(np.float32) for name in list(features)[:3]}
                frame |= {name: draw.integers(0, 256, features[name].shape, dtype=np.uint8) for name in (front, wrist)}
                writer.add_frame(frame)
            writer.end_episode("look")
    return path


def test_episodes_of_a_dataset(folder):
    from gantry_deploy.dataset import Dataset

    stored = Dataset(folder)
    data = load_chunks(folder, episodes=[2, 0], state_keys=("observation.environment_state", "observation.state"))
    assert data.lengths == [3, 4]
    assert data.obs_shapes == {"state": (5,), "image/front": (3, 16, 24), "image/wrist.left": (3, 8, 8)}
    frames = [stored.frames(episode) for episode in (2, 0)]
    parts = [np.hstack((part["observation.environment_state"], part["observation.state"])) for part in frames]
    np.testing.assert_array_equal(data.obs["state"], np.concatenate(parts))
    np.testing.assert_array_equal(data.action, np.concatenate([part["action"] for part in frames]))
    for name in ("front", "wrist.left"):
        expected = np.concatenate([part[f"observation.images.{name}"] for part in frames])
        np.testing.assert_array_equal(data.obs[f"image/{name}"].permute(0, 2, 3, 1), expected)
    assert set(load_chunks(folder, cameras=["front"]).obs) == {"state", "image/front"}
    assert set(load_chunks(folder, cameras=[]).obs) == {"state"}


def test_what_a_dataset_lacks_is_named(folder):
    with pytest.raises(UnknownNameError, match=r"Unknown feature 'observation\.states'.*'observation\.state'"):
        load_chunks(folder, state_keys=("observation.states",))
    with pytest.raises(UnknownNameError, match=r"Unknown camera 'fronts'.*Did you mean 'front'"):
        load_chunks(folder, cameras=["fronts"])
    with pytest.raises(GantryError, match=r"'observation\.images\.front' is video of shape"):
        load_chunks(folder, action_key="observation.images.front")
    with pytest.raises(DatasetError, match="no episode 3"):
        load_chunks(folder, episodes=[3])


def test_data_that_contradicts_itself_is_refused():
    ones = torch.ones(4, 1)
    with pytest.raises(GantryError, match="expected 5 of each"):
        ChunkData({"state": ones}, ones, lengths=[3, 2])
    with pytest.raises(GantryError, match="expected finite numbers"):
        ChunkData({"state": ones * torch.nan}, ones, lengths=[4])
    with pytest.raises(UnknownNameError, match="'state'"):
        ChunkData({"image/front": torch.zeros(4, 3, 8, 8)}, ones, lengths=[4])

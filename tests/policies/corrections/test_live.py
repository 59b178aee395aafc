"""The acting network on the robot's side computes what the learner does, with weights that change."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.live_policy import WEIGHTS_SHA256, LivePolicy, weights_sha256
from gantry_deploy.testing.legs import contract_for, tiny_robot
from gantry_policies.corrections.live import live_graph, live_weights
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.learner import Learner
from gantry_sim.training.algorithms import off_policy

SEED = 4
SHAPES = {"state": (7,), "image/front": (3, 32, 32)}
WORDS = 5


def learner_of(name: str, seed: int) -> Learner:
    """Of a preset; of a name with ``told`` one that reads words, with ``vit`` one with that encoder."""
    keys = SHAPES if "image" in name else {"state": (7,)}
    cfg = presets.PRESETS[name.split(" ")[0]]().agent
    if "told" in name:
        keys = {**keys, "state": (7 + MAX_WORDS,)}
        cfg = replace(cfg, encoder=replace(cfg.encoder, vocabulary=WORDS))
    if "vit" in name:
        cfg = replace(cfg, encoder=replace(cfg.encoder, kind="vit"))
    made = Learner(cfg, keys, 3, seed=seed)
    with torch.no_grad():  # A residual starts at zero, and scalers at nothing.
        for value in (*made.actor.state_dict().values(), *made.action_scaler.state_dict().values()):
            value.add_(0.02 * torch.rand(value.shape, generator=torch.Generator().manual_seed(seed)) - 0.01)
    return made


def seen_of(name: str, rng: np.random.Generator):
    obs = {"state": rng.normal(size=(1, 7)).astype(np.float32)}
    if "told" in name:
        tokens = np.zeros((1, MAX_WORDS), np.float32)
        tokens[0, :3] = rng.integers(1, 2 + WORDS, 3)
        obs["state"] = np.concatenate((obs["state"], tokens), axis=1)
    if "image" in name:
        obs["image/front"] = rng.integers(0, 255, (1, 3, 32, 32), dtype=np.uint8)
    base = rng.uniform(-0.5, 0.5, (1, 3)).astype(np.float32) if "resfit" in name else None
    return obs, base


@pytest.mark.parametrize("name", ["rlpd", "resfit", "resfit_images", "rlpd told", "resfit_images told vit"])
def test_it_acts_as_the_learner_before_and_after_new_weights(name):
    rng, live = np.random.default_rng(SEED), None
    for seed in (1, 2):
        learner = learner_of(name, seed)
        live = live or LivePolicy(live_graph(learner))
        live.load(live_weights(learner))
        for _ in range(5):
            obs, base = seen_of(name, rng)
            scaled = None if base is None else learner.action_scaler.scale(torch.from_numpy(base))
            expected = learner.act({key: torch.from_numpy(value) for key, value in obs.items()}, scaled)
            expected = learner.action_scaler.unscale(expected).numpy()
            images = {"front": obs["image/front"][0]} if "image/front" in obs else None
            action, spread = live.act(obs["state"], images, base)
            np.testing.assert_allclose(action, expected, atol=1e-5, err_msg=f"seed {SEED}")
            assert spread >= 0.0
            noisy, _ = live.act(obs["state"], images, base, np.ones((1, 3), np.float32))
            assert np.abs(noisy - action).max() > 1e-4


def test_the_noise_of_a_gaussian_has_its_own_deviation():
    learner = learner_of("sac", 3)
    live = LivePolicy(live_graph(learner))
    live.load(live_weights(learner))
    rng, state = np.random.default_rng(SEED), np.full((1, 7), 0.3, np.float32)
    drawn = np.concatenate([live.act(state, noise=rng.normal(size=(1, 3)).astype(np.float32))[0] for _ in range(2000)])
    many = {"state": torch.from_numpy(state).expand(2000, 7)}
    expected = learner.action_scaler.unscale(learner.act(many, explore=True)).numpy()
    np.testing.assert_allclose(drawn.std(0), expected.std(0), rtol=0.1, err_msg=f"seed {SEED}")
    np.testing.assert_allclose(drawn.mean(0), expected.mean(0), atol=0.05, err_msg=f"seed {SEED}")


def test_weights_that_do_not_fit_change_nothing():
    learner = learner_of("sac", 3)
    live, weights = LivePolicy(live_graph(learner)), live_weights(learner)
    with pytest.raises(PolicyError, match="no weights yet"):
        live.act(np.zeros((1, 7), np.float32))
    before = live.load(weights)
    assert before == weights_sha256(weights)
    wrong = {**weights, "actor.last.bias": np.zeros(2, np.float32)}
    with pytest.raises(PolicyError):
        live.load(wrong)
    with pytest.raises(PolicyError, match="not finite"):
        live.load({**weights, "actor.last.bias": np.full_like(weights["actor.last.bias"], np.nan)})
    with pytest.raises(PolicyError):
        live.load({**weights, "actor.nothing": np.zeros(2, np.float32)})
    assert live.sha256 == before
    live.act(np.zeros((1, 7), np.float32))


def test_hashes_tell_weights_apart_whatever_their_order():
    weights = live_weights(learner_of("hil_serl", 1))
    backwards = dict(reversed(list(weights.items())))
    assert (
        weights_sha256(backwards) == weights_sha256(weights) == weights_sha256(live_weights(learner_of("hil_serl", 1)))
    )
    name = next(name for name, value in weights.items() if value.size > 1)
    changed = weights[name].copy()
    changed.flat[0] = np.nextafter(changed.flat[0], np.float32(9.0))
    assert weights_sha256({**weights, name: changed}) != weights_sha256(weights)
    assert weights_sha256({**weights, name: weights[name].reshape(-1)}) != weights_sha256(weights)


def test_a_bundle_says_which_weights_it_was_exported_from(monkeypatch):
    said = {}
    monkeypatch.setattr(off_policy, "export_bundle", lambda module, *parts, **options: said.update(options))
    learner = learner_of("hil_serl", 2)
    off_policy._write_bundle(learner, None, contract_for(tiny_robot()), {}, None, card={"training": 1})
    assert said["card"] == {"training": 1, WEIGHTS_SHA256: weights_sha256(live_weights(learner))}

"""A reward classifier learns with its eyes open, and the robot side needs more than one frame to believe it."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from gantry_deploy.errors import PolicyError
from gantry_deploy.session.classifier import SuccessClassifier
from gantry_deploy.session.steps import Actor, SessionStep
from gantry_hardware.errors import GantryError
from gantry_policies.corrections.classifier import (
    ClassifierCfg,
    LabelledFrames,
    RewardClassifier,
    export_classifier,
    train_classifier,
)

SEED = 6
STATE_SHAPES = {"state": (4,)}
IMAGE_SHAPES = {"state": (4,), "image/front": (3, 24, 24)}
QUICK = ClassifierCfg(updates=150, seed=SEED, learning_rate=3e-3)


def of_states(count=600, share=0.1):
    """Success is a second number above 0.5; one frame in ten."""
    draw = torch.Generator().manual_seed(SEED)
    state = torch.rand(count, 4, generator=draw) - 0.55
    won = torch.rand(count, generator=draw) < share
    state[:, 1] = torch.where(won, 0.8, state[:, 1])
    return LabelledFrames({"state": state}, won)


def of_pictures(count=160):
    """Success is a bright square somewhere in a noisy picture; the state says nothing."""
    draw = torch.Generator().manual_seed(SEED)
    images = torch.randint(0, 90, (count, 3, 24, 24), generator=draw, dtype=torch.uint8)
    won = torch.arange(count) % 4 == 0
    for index in won.nonzero().flatten().tolist():
        row, column = torch.randint(2, 14, (2,), generator=draw).tolist()
        images[index, :, row : row + 8, column : column + 8] = 230
    return LabelledFrames({"state": torch.rand(count, 4, generator=draw), "image/front": images}, won)


def test_it_learns_a_rare_success_from_states():
    network, scores = train_classifier(of_states(), QUICK)
    assert scores.accuracy > 0.95, f"seed {SEED}"
    assert scores.false_successes < 0.05
    wins = torch.sigmoid(network({"state": torch.tensor([[0.0, 0.8, 0.0, 0.0], [0.0, -0.3, 0.0, 0.0]])}))
    assert wins[0] > 0.9 > 0.1 > wins[1]


def test_the_encoder_trains():
    frames = of_pictures()
    cfg = dataclasses.replace(QUICK, uses_state=False, updates=80)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        before = copy.deepcopy(RewardClassifier(cfg, IMAGE_SHAPES).encoder.state_dict())
    network, scores = train_classifier(frames, cfg)
    after = network.encoder.state_dict()
    assert set(after) == set(before)
    for name, value in before.items():
        assert (after[name] - value).abs().max() > 1e-3, name
    assert scores.accuracy > 0.9, f"seed {SEED}"


def test_batches_are_balanced_and_both_labels_are_needed():
    with pytest.raises(GantryError, match="No frame is a success"):
        train_classifier(LabelledFrames({"state": torch.zeros(9, 4)}, torch.zeros(9, dtype=torch.bool)), QUICK)
    with pytest.raises(GantryError, match="3 labels for frames"):
        LabelledFrames({"state": torch.zeros(9, 4)}, torch.zeros(3, dtype=torch.bool))
    # With one success in a hundred, unbalanced batches would call everything a failure.
    network, _ = train_classifier(of_states(1000, 0.01), QUICK)
    assert torch.sigmoid(network({"state": torch.tensor([[0.0, 0.8, 0.0, 0.0]])})) > 0.9, f"seed {SEED}"


def test_the_robot_side_says_what_torch_says():
    found = of_pictures()
    shapes = {key: tuple(value.shape[1:]) for key, value in found.obs.items()}
    cfg = dataclasses.replace(QUICK, updates=20, threshold=0.7, confirmations=2)
    network, _ = train_classifier(found, cfg)
    judge = SuccessClassifier(export_classifier(network, shapes, cfg))
    assert (judge.threshold, judge.confirmations) == (0.7, 2)
    expected = torch.sigmoid(network(found.obs)).numpy()
    for index in range(12):
        seen = {key: value[index].numpy() for key, value in found.obs.items()}
        assert judge.see(seen) == pytest.approx(float(expected[index]), abs=1e-5)


@pytest.fixture(scope="module")
def judge_of():
    """``judge_of(...)`` gives a judge over states."""
    network, _ = train_classifier(of_states(), QUICK)
    model = export_classifier(network, STATE_SHAPES, QUICK)
    return lambda **options: SuccessClassifier(model, **options)


WON, OTHER = ({"state": np.array([0.0, value, 0.0, 0.0], np.float32)} for value in (0.8, -0.3))


def test_one_frame_is_no_success_and_a_gap_begins_anew(judge_of):
    judge = judge_of(confirmations=3)
    assert not judge.verdict().done
    done = []
    for seen in (WON, WON, OTHER, WON, WON, WON):
        judge.see(seen)
        done.append(judge.verdict().done)
    assert done == [False, False, False, False, False, True]
    judge.begin()
    assert judge.probability is None
    assert not judge.verdict().done


def test_a_gate_over_the_robots_own_readings_has_the_last_word(judge_of):
    judge = judge_of(confirmations=1, gate=lambda obs: float(obs["state"][0]) > 0.5)
    judge.see(WON)
    assert judge.probability > 0.9
    assert not judge.verdict().done
    judge.see({"state": np.array([0.6, 0.8, 0.0, 0.0], np.float32)})
    assert judge.verdict().done


def test_a_person_takes_a_success_back(judge_of):
    judge = judge_of(confirmations=2)
    for _ in range(2):
        judge.see(WON)
    assert judge.verdict().done
    judge.veto()
    for _ in range(5):
        judge.see(WON)
    assert not judge.verdict().done, "the same success does not come back by itself"
    for seen in (OTHER, WON, WON):
        judge.see(seen)
    assert judge.verdict().done


def test_a_session_gives_frames_with_labels():
    def step(index, last, success=False):
        return SessionStep(
            0,
            index,
            0.1 * index,
            {"state": np.full((1, 4), index, np.float32)},
            np.zeros(1, np.float32),
            np.zeros(1, np.float32),
            Actor.POLICY,
            terminated=last,
            success=success,
            last_obs={"state": np.full((1, 4), index + 1, np.float32)} if last else None,
        )

    frames = LabelledFrames.of_steps([step(0, False), step(1, True, success=True), step(5, True)])
    assert frames.obs["state"][:, 0].tolist() == [0, 1, 5, 2, 6]
    assert frames.success.tolist() == [False, False, False, True, False]


def test_odd_files_are_refused(tmp_path, judge_of):
    with pytest.raises(PolicyError, match="Cannot read the classifier"):
        SuccessClassifier.from_file(tmp_path / "nothing.onnx")
    (tmp_path / "odd.onnx").write_bytes(b"odd")
    with pytest.raises(PolicyError):
        SuccessClassifier.from_file(tmp_path / "odd.onnx")
    judge = judge_of()
    with pytest.raises(PolicyError, match="needs 'state'"):
        judge.see({"image/front": np.zeros((3, 8, 8), np.uint8)})
    with pytest.raises(PolicyError, match="between 0 and 1"):
        judge_of(threshold=1.0)

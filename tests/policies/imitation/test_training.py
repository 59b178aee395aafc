"""Behaviour cloning as a whole: it walks to the goal, continues exactly, and refuses to continue something else."""

from dataclasses import replace

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_hardware.training.trainer import DivergedError
from gantry_policies.common.checkpoint import CheckpointError
from gantry_policies.imitation.config import BcCfg, NetworkCfg
from gantry_policies.imitation.policy import list_policies, load_policy
from gantry_policies.imitation.trainer import CloningTrainer, learning_rate_share

CFG = BcCfg(
    network=NetworkCfg(hidden=(32,), dropout=0.1),
    chunk_steps=4,
    execute_steps=2,
    steps=20,
    batch_size=16,
    warmup_steps=5,
    state_noise=0.1,
    log_every_steps=8,
)


def test_a_clone_walks_to_the_goal(tmp_path, demos, walk):
    cfg = replace(CFG, steps=400, network=NetworkCfg(hidden=(64,)), state_noise=0.0, eval_every_steps=200)
    cfg = replace(cfg, batch_size=64, log_every_steps=100, learning_rate=3e-3)
    trainer = CloningTrainer(
        demos(40), cfg, tmp_path, validation=demos(5, 9), eval_env=walk(), provenance={"episodes": 40}
    )
    before = trainer.evaluate(24).success_once.mean
    told = []
    assert trainer.train(told.append)
    assert before < 0.5
    assert told[-1].evaluation.success_once.mean > 0.9
    rows = read_metrics(tmp_path / METRICS_FILE)
    assert [(row["kind"], row["update"]) for row in rows] == [
        *[("train", 100), ("train", 200), ("eval", 200)],
        *[("train", 300), ("train", 400), ("eval", 400)],
    ]
    assert rows[-2]["l1"] < 0.5 * rows[0]["l1"]
    assert rows[-2]["validation_l1"] == pytest.approx(trainer.validate())
    assert list(list_policies(tmp_path)) == [200, 400]
    obs = walk().reset()
    assert torch.equal(load_policy(tmp_path, 400).policy(obs), trainer.policy.eval()(obs))


def test_a_stopped_training_continues_exactly(tmp_path, demos):
    data, other = demos(6), demos(2, 9)
    whole = CloningTrainer(data, CFG, tmp_path / "whole", validation=other)
    assert whole.train()
    first = CloningTrainer(data, CFG, tmp_path / "parts", validation=other)

    def stop_at_eight(progress):
        first.stop()

    assert not first.train(stop_at_eight)
    assert first.step == 8
    assert list(list_policies(tmp_path / "parts")) == [8]
    torch.rand(3)  # Chance goes on meanwhile.
    second = CloningTrainer(data, replace(CFG, save_every_s=0.0), tmp_path / "parts", validation=other)
    assert second.resume().name == "model_8.pt"
    assert second.train()
    for name, value in whole.policy.state_dict().items():
        assert torch.equal(value, second.policy.state_dict()[name]), name
    rows = [read_metrics(tmp_path / part / METRICS_FILE) for part in ("whole", "parts")]
    for row in (*rows[0], *rows[1]):
        row.pop("wall_s")
    assert rows[0] == rows[1]
    assert [row["update"] for row in rows[0]] == [8, 16, 20]


@pytest.mark.parametrize(
    ("save_every_s", "where"),
    [(0.0, "weights stopped being finite in update 8;"), (1e9, "loss stopped being finite in updates 9 to 16;")],
)
def test_a_network_of_nan_is_never_saved(tmp_path, demos, save_every_s, where):
    trainer = CloningTrainer(demos(4), replace(CFG, save_every_s=save_every_s), tmp_path)

    def break_it(progress):
        with torch.no_grad():
            next(trainer.policy.parameters()).fill_(torch.nan)

    with pytest.raises(DivergedError, match=where):
        trainer.train(break_it)
    assert not list_policies(tmp_path)
    saved = {path.name for path in tmp_path.glob("checkpoints/*.pt")}
    assert saved == (set() if save_every_s else {"model_6.pt", "model_7.pt"})


def test_something_else_is_not_continued(tmp_path, demos):
    data = demos(4)
    CloningTrainer(data, replace(CFG, steps=2), tmp_path).train()
    with pytest.raises(CheckpointError, match=r"learner\.learning_rate 0\.001, expected 0\.5 as now"):
        CloningTrainer(data, replace(CFG, steps=2, learning_rate=0.5), tmp_path).resume()
    with pytest.raises(CheckpointError, match="frames, expected"):
        CloningTrainer(demos(5), replace(CFG, steps=2), tmp_path).resume()
    with pytest.raises(CheckpointError, match="without a folder"):
        CloningTrainer(data, CFG).resume()


def test_data_and_environments_that_do_not_fit_are_refused(demos, walk):
    class Wide(walk):
        obs_shapes = {"state": (3,)}  # noqa: RUF012

    with pytest.raises(GantryError, match=r"the data has state of shape \(2,\)"):
        CloningTrainer(demos(2), CFG, eval_env=Wide())
    with pytest.raises(GantryError, match="no environments"):
        CloningTrainer(demos(2), replace(CFG, eval_every_steps=5))


def test_the_learning_rate_rises_in_a_line_and_falls_along_a_cosine():
    cfg = replace(CFG, steps=105, warmup_steps=5)
    shares = [learning_rate_share(cfg, step) for step in (0, 4, 5, 55, 105)]
    assert shares == pytest.approx([0.2, 1.0, 1.0, 0.5, 0.0])

"""``gantry map``: a training of a few updates, its comparison, its resumption, and its mistakes."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import gantry_sim
from gantry_deploy.cli.main import main
from gantry_mapping.elevation.grid import LOCAL_GRID_FULL, LOCAL_GRID_NEAR
from gantry_mapping.learn.heightfields import load_rasters, save_rasters
from gantry_mapping.mapper import OnnxMapper
from gantry_sim.cli.map import held_out_rasters, mapping_for

FEW = ["--set", "steps=3", "--set", "batch=4", "--set", "judge_every=2", "--set", "judge_batch=8"]
FEW += ["--set", "samples.patches=4", "--set", "samples.renewed=1"]
SHORT = ["--walkers", "1", "--walk-seconds", "0.4"]


@pytest.fixture
def ground(tmp_path):
    """Two small rasters in a file."""
    rng = np.random.default_rng(0)
    tiles = {f"blocks/{i}": np.kron(rng.uniform(-0.1, 0.1, (16, 16)), np.ones((10, 10))) for i in range(2)}
    save_rasters(tmp_path / "ground.npz", tiles, 0.04)
    return tmp_path / "ground.npz"


@pytest.mark.slow
def test_train_resume_and_eval(tmp_path, ground, capsys):
    folder, out = tmp_path / "run", tmp_path / "out.json"
    begun = ["map", "train", "--run-dir", str(folder), "--rasters", str(ground), "--minutes", "0", "--no-eval", *FEW]
    assert main(begun) == 0
    assert f"gantry map train --resume {folder}" in capsys.readouterr().out
    assert load_rasters(folder / "rasters.npz")[0].keys() == {"blocks/0", "blocks/1"}
    assert main(["map", "train", "--resume", str(folder), "--no-eval", "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["complete"] is True
    assert result["training"]["updates"] == 3
    assert result["training"]["frames"] == 12
    mapper = OnnxMapper(folder / "mapper.onnx")
    assert mapper.info.provenance["updates"] == 3
    assert json.loads((folder / "card.json").read_text())["training"]["terrain_tiles"] == 2
    assert main(["map", "eval", str(folder), "--rasters", str(ground), "--json", str(out), *SHORT]) == 0
    result = json.loads(out.read_text())
    assert set(result["conditions"]["all"]) == {"learned", "classical"}
    assert result["better"].keys() == result["conditions"].keys()


def test_the_comparison_walks_over_held_out_terrains_only():
    names = {name.partition("/")[0] for name in held_out_rasters(instances=1)}
    assert names == {"t1_stones", "t2_course", "t3_parkour", "t4_debris"}


@pytest.mark.parametrize(("name", "grid"), [("mapper-go2", LOCAL_GRID_FULL), ("mapper-go2-near", LOCAL_GRID_NEAR)])
def test_the_mappers_that_come_along_are_what_their_cards_say(name, grid):
    folder = Path(gantry_sim.__file__).parent / "pretrained" / name
    card = json.loads((folder / "card.json").read_text())
    mapper = OnnxMapper(folder / "mapper.onnx")
    assert mapper.info.local_grid == mapping_for(mapper).local_grid == grid
    assert mapper.info.provenance["frames"] == card["training"]["frames"]
    assert card["mapper_sha256"] == hashlib.sha256((folder / "mapper.onnx").read_bytes()).hexdigest()
    for scores in card["evaluation"]["conditions"].values():
        assert scores["learned"]["all"]["mae_occluded_cm"] < scores["classical"]["all"]["mae_occluded_cm"]
    for columns in card["evaluation"]["better"].values():
        assert all(won for name, won in columns.items() if name != "within_1_sigma")
    assert not card["training"]["git_commit"].endswith("-dirty")


def test_mistakes_are_answered_in_one_message(tmp_path, ground, capsys):
    assert main(["map", "train", "--resume", str(tmp_path), "--seed", "3"]) == 2
    assert "--resume continues" in capsys.readouterr().err
    assert main(["map", "train", "--set", "step=3"]) == 2
    assert "Did you mean 'steps'" in capsys.readouterr().err
    assert main(["map", "eval", str(tmp_path / "nothing.onnx")]) == 2
    assert "There is no mapper" in capsys.readouterr().err
    assert main(["map", "train", "--resume", str(tmp_path)]) == 2
    assert "holds no training" in capsys.readouterr().err
    save_rasters(tmp_path / "coarse.npz", {"a": np.zeros((200, 200))}, 0.1)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "card.json").touch()
    assert main(["map", "train", "--run-dir", str(tmp_path / "used")]) == 2
    assert "is in use already" in capsys.readouterr().err
    assert main(["map", "train", "--run-dir", str(tmp_path / "r"), "--rasters", str(tmp_path / "coarse.npz")]) == 2
    assert "cells of 0.1 m" in capsys.readouterr().err

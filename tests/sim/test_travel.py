"""Checkpoints of a GPU's teacher in parts: the same policy comes out, and changed parts are refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch


def travel() -> ModuleType:
    """The script's module."""
    path = Path(__file__).parents[2] / "scripts" / "gpu" / "travel.py"
    spec = importlib.util.spec_from_file_location("travel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def state() -> dict:
    """Of a training: an actor, a critic of several parts in half precision, and moments."""
    generator = torch.Generator().manual_seed(3)
    critic = {"weight": torch.randn(300, 300, generator=generator), "count": torch.tensor(7)}
    moments = {"state": {0: {"exp_avg": torch.ones(300, 300)}}, "param_groups": [{"lr": 1e-3, "params": [0]}]}
    actor = {"weight": torch.randn(40, 40, generator=generator)}
    return {
        "actor_state_dict": actor,
        "critic_state_dict": critic,
        "optimizer_state_dict": moments,
        "iteration": 5,
    }


def test_a_checkpoint_comes_out_of_its_parts(tmp_path, monkeypatch, state):
    module = travel()
    monkeypatch.setattr(module, "PART_MIB", 0.05)
    torch.save(state, tmp_path / "model_5.pt")
    module.pack(tmp_path / "model_5.pt", tmp_path / "run")
    parts = sorted((tmp_path / "run").glob("travel.[0-9]*"))
    assert len(parts) >= 3
    assert max(path.stat().st_size for path in parts) <= 0.05 * 2**20
    path = module.unpack(tmp_path / "run", tmp_path / "run" / "checkpoints")
    again = torch.load(path, weights_only=True)
    assert path.name == "model_5.pt"
    assert again["iteration"] == 5
    assert torch.equal(again["actor_state_dict"]["weight"], state["actor_state_dict"]["weight"])
    wanted = state["critic_state_dict"]["weight"]
    assert again["critic_state_dict"]["weight"].dtype == torch.float32
    # Half precision keeps eleven bits.
    assert torch.allclose(again["critic_state_dict"]["weight"], wanted, rtol=2.0**-11, atol=1e-7)
    assert again["critic_state_dict"]["count"] == 7
    assert again["optimizer_state_dict"] == {"state": {}, "param_groups": [{"lr": 1e-3, "params": [0]}]}


def test_parts_that_changed_and_other_names_are_refused(tmp_path, state):
    module = travel()
    torch.save(state, tmp_path / "model_5.pt")
    module.pack(tmp_path / "model_5.pt", tmp_path)
    listed = json.loads((tmp_path / "travel.json").read_text())
    (tmp_path / "travel.json").write_text(json.dumps(listed | {"checkpoint": "../model_5.pt"}))
    with pytest.raises(ValueError, match=r"'\.\./model_5\.pt' in travel\.json names no checkpoint"):
        module.unpack(tmp_path, tmp_path / "out")
    (tmp_path / "travel.json").write_text(json.dumps(listed))
    content = bytearray((tmp_path / "travel.000").read_bytes())
    content[100] ^= 1
    (tmp_path / "travel.000").write_bytes(content)
    with pytest.raises(ValueError, match="not those that were written"):
        module.unpack(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()

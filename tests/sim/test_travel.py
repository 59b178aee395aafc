"""A GPU's training in parts: the same policy comes out and trains on, and changed parts are refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from gantry_deploy.cli.main import main
from gantry_policies.common.checkpoint import load_newest, save_checkpoint

SHORT = ("--set", "env.num_envs=2", "--set", "learner.minibatches=1", "--set", "learner.steps_per_env=4")


@pytest.fixture
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
def run(tmp_path: Path) -> Path:
    """Folder of a run: an actor, a critic of 351 KiB in half precision with a number beyond it, and moments."""
    generator = torch.Generator().manual_seed(3)
    critic = {"weight": torch.randn(600, 300, generator=generator), "count": torch.tensor(7), "far": torch.tensor(1e6)}
    moments = {"state": {0: {"exp_avg": torch.ones(300, 300)}}, "param_groups": [{"lr": 1e-3, "params": [0]}]}
    actor = {"weight": torch.randn(40, 40, generator=generator)}
    state = {"actor_state_dict": actor, "critic_state_dict": critic, "optimizer_state_dict": moments}
    folder = tmp_path / "there" / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "tensorboard").mkdir()
    for iteration in (4, 5):
        save_checkpoint(folder / "checkpoints", iteration, state | {"iteration": iteration})
    (folder / "config.json").write_text("{}")
    (folder / "tensorboard" / "events").write_bytes(b"curve")
    return folder


def weights(folder: Path) -> tuple[dict, dict, dict]:
    """Actor, critic and optimiser of the newest checkpoint of a run."""
    _, state = load_newest(folder / "checkpoints")
    return state["actor_state_dict"], state["critic_state_dict"], state["optimizer_state_dict"]


def test_a_run_comes_out_of_its_parts(tmp_path, travel, run):
    newest, size_mib = travel.pack(run, run.parent / "parts", 0.1)
    assert newest.name == "model_5.pt"
    parts = sorted((run.parent / "parts").iterdir())
    assert [path.name for path in parts] == [*(f"travel.{n:03d}" for n in range(len(parts) - 1)), "travel.json"]
    assert max(path.stat().st_size for path in parts) <= 0.1 * 2**20
    assert 0.34 < size_mib < 0.40
    assert travel.unpack(run.parent / "parts", tmp_path / "here") == 5
    actor, critic, optimizer = weights(tmp_path / "here")
    wanted = weights(run)
    assert torch.equal(actor["weight"], wanted[0]["weight"])
    assert critic["weight"].dtype == torch.float32
    assert torch.equal(critic["weight"], wanted[1]["weight"].half().float())
    assert (critic["count"], critic["far"]) == (7, 1e6)
    assert optimizer == {"state": {}, "param_groups": [{"lr": 1e-3, "params": [0]}]}
    files = {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*") if path.is_file()}
    assert files == {"checkpoints/model_5.pt", "config.json", "tensorboard/events"}
    assert travel.unpack(run.parent / "parts", tmp_path / "here") is None
    assert travel.unpack(tmp_path / "nothing", tmp_path / "here") is None


def test_parts_that_are_no_further_leave_a_run_alone_and_newer_ones_replace_it(travel, run):
    parts = run.parent / "parts"
    travel.pack(run, parts)
    _, state = load_newest(run / "checkpoints")
    save_checkpoint(run / "checkpoints", 6, state | {"iteration": 6})
    assert travel.unpack(parts, run) is None
    travel.pack(run, parts)
    (run / "checkpoints" / "model_6.pt").unlink()
    (run / "config.json").write_text("old")
    assert travel.unpack(parts, run) == 6
    assert (run / "config.json").read_text() == "{}"
    assert load_newest(run / "checkpoints")[0].name == "model_6.pt"


def test_a_damaged_newest_checkpoint_is_neither_kept_nor_taken_as_progress(capsys, travel, run):
    parts, held = run.parent / "parts", run / "checkpoints"
    travel.pack(run, parts)
    (held / "model_5.pt").write_bytes(b"cut off")
    assert travel.reached(run) == 4
    newest, _ = travel.pack(run, run.parent / "others")
    travel.keep_only(newest)
    assert sorted(path.name for path in held.iterdir()) == ["model_4.pt", "model_5.pt.damaged"]
    (held / "model_5.pt.damaged").rename(held / "model_5.pt")
    assert travel.unpack(parts, run) == 5, "the damaged file of that number does not count"
    assert load_newest(held)[0].name == "model_5.pt"
    (held / "model_9.pt").write_bytes(b"cut off")
    (held / "model_5.pt").unlink()
    (held / "model_4.pt").unlink()
    assert travel.reached(run) is None
    assert travel.unpack(parts, run) == 5


def test_the_command_says_what_it_did(capsys, monkeypatch, travel, run):
    monkeypatch.setattr("sys.argv", ["travel.py", str(run.parent)])
    assert travel.main() == 2
    assert "There are no parts of a run in" in capsys.readouterr().err
    travel.pack(run, run.parent / "parts")
    assert travel.main() == 0
    assert "stays as it is, at iteration 5" in capsys.readouterr().out
    (run / "checkpoints" / "model_5.pt").unlink()
    assert travel.main() == 0
    assert "its training has reached iteration 5." in capsys.readouterr().out


def test_parts_that_changed_or_are_missing_are_refused(tmp_path, travel, run):
    parts = run.parent / "parts"
    travel.pack(run, parts)
    content = bytearray((parts / "travel.000").read_bytes())
    content[100] ^= 1
    (parts / "travel.000").write_bytes(content)
    with pytest.raises(ValueError, match="not those that were written"):
        travel.unpack(parts, tmp_path / "here")
    (parts / "travel.000").unlink()
    with pytest.raises(ValueError, match=r"no travel\.000 in"):
        travel.unpack(parts, tmp_path / "here")
    assert not (tmp_path / "here").exists()


@pytest.mark.slow
def test_a_training_goes_on_from_its_parts_on_another_machine(tmp_path, one_thread, travel):
    first, other = tmp_path / "a" / "run", tmp_path / "b" / "run"
    options = [*SHORT, "--steps", "8", "--episodes", "0", "--no-export", "--run-dir", str(first)]
    assert main(["train", "velocity-flat-go2", "--preset", "cpu", *options]) == 0
    travel.pack(first, tmp_path / "parts")
    assert travel.unpack(tmp_path / "parts", other) == 1
    wanted, found = weights(first), weights(other)
    assert all(torch.equal(found[0][name], wanted[0][name]) for name in wanted[0])
    assert all(torch.allclose(found[1][name], wanted[1][name], rtol=2.0**-11, atol=1e-7) for name in wanted[1])
    assert main(["train", "--resume", str(other), "--steps", "16", "--episodes", "0", "--no-export"]) == 0
    rows = [json.loads(line) for line in (other / "metrics.jsonl").read_text().splitlines()]
    assert [row["env_steps"] for row in rows if row.get("kind") == "train"] == [8, 16]
    assert load_newest(other / "checkpoints")[0].name == "model_2.pt"

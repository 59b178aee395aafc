"""Several processes that learn one policy: as one with the same batch, and what happens when one of them is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gantry_fixtures.torchrun import run_together
from gantry_hardware.errors import GantryError
from gantry_hardware.training.launcher import Launched, launched
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_policies.common import processes
from gantry_policies.common.checkpoint import list_checkpoints

SCRIPT = Path(__file__).parent / "learn_together.py"
TORCHRUN = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def start(kind, folder, count):
    """The script with so many processes."""
    folder.mkdir()
    return run_together(count, SCRIPT, kind, folder)


def weights(folder, rank=0):
    state = torch.load(folder / f"weights-{rank}.pt", weights_only=True)
    return {**state["actor_state_dict"], **{f"critic {name}": v for name, v in state["critic_state_dict"].items()}}


def largest_difference(one, other):
    return max(float((one[name].float() - other[name].float()).abs().max()) for name in one)


@pytest.mark.slow
def test_two_processes_learn_what_one_does_with_the_same_batch(tmp_path):
    for name, count in (("one", 1), ("two", 2)):
        done = start("ppo", tmp_path / name, count)
        assert done.returncode == 0, done.stderr
    first, second = weights(tmp_path / "two"), weights(tmp_path / "two", 1)
    assert largest_difference(first, second) == 0.0, "the processes keep the same weights, normalisers included"
    alone = weights(tmp_path / "one")
    assert any("normalizer" in name for name in alone)
    # Sums of other rounding, through four iterations of Adam.
    assert largest_difference(first, alone) < 2e-5
    assert int(first["obs_normalizer.count"]) == int(alone["obs_normalizer.count"]) == 8 * 10 * 4
    folders = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert folders == sorted([*(path.name for path in (tmp_path / "one").iterdir()), "weights-1.pt"])


@pytest.mark.soak
def test_half_of_the_batch_would_learn_something_else(tmp_path):
    """The comparison above can fail: a process that kept its gradients to itself would be as far off as this."""
    for kind in ("half", "ppo"):
        done = start(kind, tmp_path / kind, 1)
        assert done.returncode == 0, done.stderr
    assert largest_difference(weights(tmp_path / "half"), weights(tmp_path / "ppo")) > 1e-3


@pytest.mark.slow
def test_a_process_that_is_lost_costs_its_time_alone(tmp_path):
    done = start("lost", tmp_path / "run", 2)
    assert done.returncode != 0
    assert "Process 0 of 2 has lost another one" in done.stderr
    assert "Start all of them again with --resume" in done.stderr
    newest = list_checkpoints(tmp_path / "run" / CHECKPOINTS)[0]
    state = torch.load(newest, weights_only=True)
    assert state["iteration"] == 3, "what was learned before is saved"


def test_the_place_among_processes_is_that_of_torchrun():
    assert launched({}) == launched({"WORLD_SIZE": "1"}) == Launched(0, 0, 1)
    assert launched(TORCHRUN) == Launched(1, 1, 2)
    for wrong, said in (
        ({"RANK": "2"}, "RANK is 2"),
        ({"RANK": ""}, "RANK not set"),
        ({"MASTER_PORT": ""}, "MASTER_PORT not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', expected a whole number"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "as mpirun sets it"),
    ):
        with pytest.raises(GantryError, match=said):
            launched({**TORCHRUN, **wrong})


def test_alone_nothing_is_sent():
    rows = torch.ones(2, 3)
    with processes.joined(Launched(), "cpu"):
        assert processes.gathered(rows) is rows
        processes.average_([rows])
        processes.share_first_([rows])
        assert processes.any_of(True)
        assert not processes.any_of(False)
        assert processes.text_of_first("run") == "run"
    assert float(rows.sum()) == 6.0

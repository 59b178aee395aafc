"""Off-policy learning in two processes of torchrun: as one with the same batches; stopped, continued, and counted."""

from pathlib import Path

import pytest
import torch

from gantry_fixtures.torchrun import run_together
from gantry_hardware.errors import GantryError
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_policies.off_policy.presets import sac
from gantry_policies.off_policy.trainer import OffPolicyTrainer

SCRIPT = Path(__file__).parent / "learn_together.py"
KINDS = ("sac", "rlpd", "taught", "imitating")


def results(kind, folder, count):
    """Files of all processes."""
    folder.mkdir()
    done = run_together(count, SCRIPT, kind, folder)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{kind}-{rank}.pt", weights_only=True) for rank in range(count)]


def largest_difference(one, other, kind=""):
    return max(float((one[name] - other[name]).abs().max()) for name in one if name.startswith(kind))


@pytest.mark.slow
def test_two_processes_update_as_one_does_with_their_batches_joined(tmp_path):
    (alone,) = results("updates", tmp_path / "one", 1)
    first, second = results("updates", tmp_path / "two", 2)
    for kind in KINDS:
        assert largest_difference(first, second, kind) == 0.0
        # Sums of other rounding; a process that kept its gradients to itself is off by more than 1e-2.
        assert largest_difference(first, alone, kind) < 2e-6, kind


@pytest.mark.slow
def test_two_processes_collect_apart_stop_together_and_go_on(tmp_path, reach):
    first, second = results("train", tmp_path / "two", 2)
    assert first["ended"] == second["ended"] == [False, True], "a stop of the first one stops both"
    for moment, steps in (("before", 64), ("resumed", 64), ("after", 128)):
        one, other = first[moment], second[moment]
        assert one["steps"] == other["steps"] == (steps, steps, steps // 2), "each makes half of the steps"
        assert largest_difference(one["weights"], other["weights"]) == 0.0
        assert not one["draws"].equal(other["draws"])
    states = [found["before"]["states"] for found in (first, second)]
    warmup = torch.cat([rows[:16] for rows in states])
    scaler = {name.split()[1]: value for name, value in first["after"]["weights"].items() if "state_scaler" in name}
    assert scaler["mean"].allclose(warmup.mean(0), atol=1e-6), "states of both"
    assert scaler["std"].allclose(warmup.std(0, unbiased=False), atol=1e-6)
    assert not states[0].equal(states[1]), "episodes of its own in each"
    resumed = [found["resumed"]["states"] for found in (first, second)]
    assert resumed[0].equal(states[0])
    assert resumed[1].equal(states[0]), "the buffer of the first one, which alone is saved"
    new = [found["after"]["states"][32:] for found in (first, second)]
    assert not torch.isclose(new[0][:, None], new[1][None]).all(-1).any(), "and episodes of its own again"
    run = tmp_path / "two" / "run"
    rows = read_metrics(run / METRICS_FILE)
    assert [int(row["env_steps"]) for row in rows if row["kind"] == "eval"] == [0, 64, 96, 128]
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", METRICS_FILE, "tensorboard"]
    assert len(list((run / "tensorboard").iterdir())) == 2, "one for each session of the first process"
    with pytest.raises(GantryError, match="begun by 2 processes, and there are 1"):
        OffPolicyTrainer(reach(4), sac(), run).resume()

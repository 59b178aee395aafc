"""What was learned outlives damaged files, environments that raise, kills between steps, and a want of memory."""

import random
import signal
import subprocess
import sys

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_hardware.files.checked_files import DamagedFileError
from gantry_hardware.training.trainer import TrainingError
from gantry_policies.common.checkpoint import (
    UnusableCheckpointError,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    save_checkpoint,
)
from gantry_policies.common.memory import OutOfMemoryError, available_bytes, explaining_memory, require_memory
from gantry_policies.off_policy.replay.buffer import ReplayBuffer


def flip(path, dice):
    data = bytearray(path.read_bytes())
    place = dice.randrange(len(data))
    data[place] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def test_one_flipped_bit_anywhere_falls_back_and_says_so(tmp_path, capsys):
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    for number in (1, 2):
        save_checkpoint(tmp_path, number, {"iteration": number, "weights": torch.randn(500)})
    whole = (tmp_path / "model_2.pt").read_bytes()
    for _ in range(40):
        flip(tmp_path / "model_2.pt", dice)
        with pytest.raises(UnusableCheckpointError, match=r"Cannot read checkpoint .*model_2\.pt"):
            load_checkpoint(tmp_path / "model_2.pt")
        assert load_newest(tmp_path)[1]["iteration"] == 1
        told = capsys.readouterr().err
        assert "model_2.pt" in told
        assert "Using the older model_1.pt" in told
        (tmp_path / "model_2.pt").write_bytes(whole)
    assert load_newest(tmp_path)[1]["iteration"] == 2
    assert capsys.readouterr().err == ""


def test_what_belongs_to_a_checkpoint_counts_as_well(tmp_path):
    for number in (1, 2):
        save_checkpoint(tmp_path, number, {"iteration": number})

    def companion(path, state):
        if state["iteration"] == 2:
            raise DamagedFileError("replay_2.npz is missing")

    told = []
    assert load_newest(tmp_path, companion=companion, tell=told.append)[0].name == "model_1.pt"
    assert "model_2.pt (replay_2.npz is missing)" in told[0]


def test_a_run_goes_on_from_the_older_one_and_keeps_what_it_then_learns(make_runner, tmp_path):
    """Two damaged ones must not push out what is written after them."""
    make_runner(tmp_path, save_every_s=0.0).train()
    folder = tmp_path / "checkpoints"
    assert [path.name for path in list_checkpoints(folder)] == ["model_4.pt", "model_5.pt", "model_6.pt"]
    for number in (5, 6):
        flip(folder / f"model_{number}.pt", random.Random(number))
    runner = make_runner(tmp_path, total_steps=80 * 20)
    assert runner.resume().name == "model_4.pt"
    runner.train(lambda progress: runner.stop())
    assert [path.name for path in list_checkpoints(folder)] == ["model_4.pt", "model_5.pt"]
    assert load_newest(folder)[1]["iteration"] == 5
    assert sorted(path.name for path in folder.glob("*.damaged")) == ["model_5.pt.damaged", "model_6.pt.damaged"]


@pytest.mark.parametrize("error", [ValueError("fell over"), MemoryError(), KeyboardInterrupt()], ids=repr)
def test_an_environment_that_raises_costs_nothing_that_was_learned(make_runner, tmp_path, error, capsys):
    runner = make_runner(tmp_path)
    step = runner.env.step

    def breaks(actions):
        if runner.env.level >= 35:
            raise error
        return step(actions)

    runner.env.step = breaks
    with pytest.raises(type(error)):
        runner.train()
    assert load_newest(tmp_path / "checkpoints")[1]["iteration"] == 3
    assert "What was learned until then is saved" in capsys.readouterr().err
    resumed = make_runner(tmp_path)
    resumed.resume()
    assert resumed.train()


def test_an_environment_whose_state_cannot_be_asked_for_any_more(make_runner, tmp_path):
    runner = make_runner(tmp_path)

    def breaks(*args):
        raise RuntimeError("the simulator is gone")

    def after_three(progress):
        if progress.done == 3:
            runner.env.step = runner.env.training_state = breaks

    with pytest.raises(RuntimeError, match="the simulator is gone"):
        runner.train(after_three)
    assert load_newest(tmp_path / "checkpoints")[1]["iteration"] == 3


def test_an_observation_that_is_not_finite_is_named_and_spoils_no_statistics(make_runner, tmp_path):
    runner = make_runner(tmp_path, normalize=True)
    seen = runner.env.get_observations

    def spoilt():
        obs = seen()
        if runner.env.level >= 25:
            obs["critic"][3, 1] = torch.nan
        return obs

    runner.env.get_observations = spoilt
    with pytest.raises(TrainingError, match=r"Environment 3 gave an observation 'critic' of nan at place 1 in step 5"):
        runner.train()
    state = load_newest(tmp_path / "checkpoints")[1]
    assert state["iteration"] == 2
    assert torch.isfinite(state["critic_state_dict"]["obs_normalizer._mean"]).all()


def test_a_stop_leaves_an_iteration_that_takes_long(make_runner, tmp_path):
    runner = make_runner(tmp_path)
    runner.stop_within_s = 0.0
    steps = []

    def on_step(number, count):
        steps.append(number)
        if len(steps) == 13:
            runner.stop()

    assert not runner.train(on_step=on_step)
    assert steps == [*range(1, 11), 1, 2, 3]
    assert runner.redone == "iteration 2"  # What a stop has cost is said where it is told of.
    assert load_newest(tmp_path / "checkpoints")[1]["iteration"] == 1


def test_memory_is_refused_before_it_is_taken():
    with pytest.raises(
        OutOfMemoryError, match=r"2000000000000 frames needs .* TB of memory on cpu, .*learner\.capacity"
    ):
        ReplayBuffer(2 * 10**12, 4, {"state": (30,)}, 6)
    assert available_bytes() > 0
    require_memory(1000, "A little", "nothing helps")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 288 bytes"),
        RuntimeError("not enough memory: you tried to allocate 288000000000 bytes."),
        OSError(12, "Cannot allocate memory"),
    ],
    ids=repr,
)
def test_a_want_of_memory_is_one_message_with_the_setting(error):
    said = r"The memory is not enough.*; a smaller env\.num_envs helps\."
    with pytest.raises(OutOfMemoryError, match=said), explaining_memory("a smaller env.num_envs helps"):
        raise error
    with pytest.raises(RuntimeError, match="something else"), explaining_memory("nothing"):
        raise RuntimeError("something else")


def test_torchrun_is_refused_by_every_trainer(make_runner, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(GantryError, match="WORLD_SIZE is '2', as torchrun sets it"):
        make_runner()


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from gantry_policies.common.checkpoint import load_newest, save_checkpoint
folder, at = Path(sys.argv[1]), int(sys.argv[2])
save_checkpoint(folder, 1, {"iteration": 1})
calls = 0
def watched(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call
for name in ("fsync", "replace", "open", "unlink"):
    setattr(os, name, watched(getattr(os, name)))
for number in (2, 3, 4, 5):
    save_checkpoint(folder, number, {"iteration": number}, keep=2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [4, 9, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 2, 3, 5, 6, 8))])
def test_killed_between_any_two_steps_of_saving_one_is_whole(tmp_path, at):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(at)], check=False)
    assert done.returncode == -signal.SIGKILL
    path, state = load_newest(tmp_path, tell=lambda text: pytest.fail(text))
    assert path.name == f"model_{state['iteration']}.pt"
    for other in list_checkpoints(tmp_path):
        load_checkpoint(other)

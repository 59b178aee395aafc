"""Stopping and resuming: what comes out is what an uninterrupted training gives."""

import re
import shutil

import pytest
import torch

from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_hardware.training.trainer import TrainingError
from gantry_policies.common.checkpoint import (
    CheckpointError,
    UnusableCheckpointError,
    list_checkpoints,
    load_newest,
    save_checkpoint,
)


def curve(folder):
    return read_metrics(folder / METRICS_FILE)


def numbers(folder):
    return [int(row["iteration"]) for row in curve(folder)]


def train_until(runner, iteration):
    """Train and stop after an iteration, as Ctrl-C does."""
    return runner.train(lambda progress: runner.stop() if progress.done == iteration else None)


def tensors(value, path=""):
    """Every tensor and number of a nested state by its path."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return {path: value}
    return {key: leaf for name, item in items for key, leaf in tensors(item, f"{path}/{name}").items()}


LEARNERS = {
    "plain": {},
    "normalised, linear schedule": {"normalize": True, "final_learning_rate_factor": 0.2},
    "adaptive rate": {"desired_kl": 0.01, "normalize": True},
    "two cores": {"threads": 2, "normalize": True},
}


@pytest.mark.parametrize("name", LEARNERS)
def test_six_iterations_are_three_and_three(make_runner, tmp_path, name):
    """Everything that a continuation needs is restored: the toy is deterministic, so all numbers must be equal."""
    options = LEARNERS[name]
    straight = make_runner(tmp_path / "straight", **options)
    assert straight.train()
    first = make_runner(tmp_path / "halves", **options)
    assert not train_until(first, 3)
    second = make_runner(tmp_path / "halves", **(options | {"seed": 99}))  # its own numbers must not matter
    assert second.resume().name == "model_3.pt"
    assert (second.iteration, second.env_steps) == (3, 240)
    assert second.wall_s == first.wall_s > 0
    assert second.train()

    states = [load_newest(tmp_path / folder / "checkpoints")[1] for folder in ("straight", "halves")]
    for state in states:
        state.pop("wall_s")
    one, other = map(tensors, states)
    assert one.keys() == other.keys()
    assert {"/iteration", "/env_steps", "/environment/pos", "/random/torch"} < one.keys()
    assert any("exp_avg_sq" in path for path in one)
    assert any("_std" in path for path in one) == bool(options.get("normalize"))
    for path, value in one.items():
        same = torch.equal(value, other[path]) if isinstance(value, torch.Tensor) else value == other[path]
        assert same, path
    timings = ("wall_s", "steps_per_s", "collect_steps_per_s")
    rows = [
        [{k: v for k, v in row.items() if k not in timings} for row in curve(tmp_path / n)]
        for n in ("straight", "halves")
    ]
    assert rows[0] == rows[1]
    assert [int(row["env_steps"]) for row in rows[0]] == [80, 160, 240, 320, 400, 480]


def test_a_resume_is_no_fresh_start(make_runner, tmp_path):
    """The counterpart of the test above: without the checkpoint, the second half comes out differently."""
    train_until(make_runner(tmp_path), 3)
    fresh = make_runner(tmp_path / "other", seed=99)
    train_until(fresh, 3)
    resumed = make_runner(tmp_path, seed=99)
    resumed.resume()
    pairs = zip(fresh.alg.actor.parameters(), resumed.alg.actor.parameters(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_rows_after_the_checkpoint_are_done_again_once(make_runner, tmp_path):
    """A kill comes some iterations after the last checkpoint, and may cut the curve's last line."""
    runner = make_runner(tmp_path, total_steps=10 * 80)
    train_until(runner, 4)
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "kept")
    train_until_7 = make_runner(tmp_path, total_steps=10 * 80)
    train_until_7.resume()
    train_until(train_until_7, 7)
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "kept").rename(tmp_path / "checkpoints")
    before = curve(tmp_path)
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write('{"kind": "train", "iteration": 8, "env')
    resumed = make_runner(tmp_path, total_steps=10 * 80)
    resumed.resume()
    assert resumed.iteration == 4
    assert resumed.train()
    assert numbers(tmp_path) == list(range(1, 11))
    assert curve(tmp_path)[:4] == before[:4]
    walls = [float(row["wall_s"]) for row in curve(tmp_path)]
    assert walls == sorted(walls)
    assert not list(tmp_path.glob("*.part"))


def test_tensorboard_hides_what_was_done_again_and_nothing_else(make_runner, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train_until(make_runner(tmp_path), 3)
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "kept")
    middle = make_runner(tmp_path)
    middle.resume()
    train_until(middle, 5)
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "kept").rename(tmp_path / "checkpoints")
    last = make_runner(tmp_path)
    last.resume()
    last.train()
    # Event files are named by second and process; the order in which they were written is what counts.
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"), purge_orphaned_data=True)
    events.Reload()
    assert [event.step for event in events.Scalars("train/reward")] == [80, 160, 240, 320, 400, 480]


def test_a_complete_run_is_left_as_it_is(make_runner, tmp_path):
    runner = make_runner(tmp_path)
    assert runner.train()
    before = curve(tmp_path)
    again = make_runner(tmp_path)
    again.resume()
    assert again.train()
    assert (again.iteration, again.env_steps, curve(tmp_path)) == (6, 480, before)


def test_checkpoints_come_by_the_clock_and_the_last_iteration_always_leaves_one(make_runner, tmp_path):
    make_runner(tmp_path / "often", save_every_s=0.0).train()
    make_runner(tmp_path / "seldom").train()
    found = {name: [p.name for p in list_checkpoints(tmp_path / name / "checkpoints")] for name in ("often", "seldom")}
    assert found == {"often": ["model_4.pt", "model_5.pt", "model_6.pt"], "seldom": ["model_6.pt"]}


def test_a_policy_can_be_looked_at_without_its_environment(make_runner, tmp_path):
    """The environment of an evaluation has another size, and its state stays its own."""
    train_until(make_runner(tmp_path, normalize=True), 2)
    small = make_runner(tmp_path, num_envs=2, normalize=True)
    pos = small.env.pos.clone()
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    small.resume(policy_only=True)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(small.env.pos, pos)
    trained = load_newest(tmp_path / "checkpoints")[1]
    for name, value in small.alg.get_policy().state_dict().items():
        assert torch.equal(value, trained["actor_state_dict"][name])


def test_a_checkpoint_of_another_network_is_refused(make_runner, tmp_path):
    train_until(make_runner(tmp_path), 2)
    with pytest.raises(UnusableCheckpointError) as refusal:
        make_runner(tmp_path, hidden=(24,)).resume()
    text = str(refusal.value)
    assert "model_2.pt does not fit this run's configuration; it is of another task or another network: of" in text
    assert text.count("\n") == 0
    assert "size mismatch" not in text
    assert re.search(r"actor's weights, '\S+weight' is \d+ x \d+ there and 24 x \d+ here, and \d+ more\.$", text)


def test_a_checkpoint_without_weights_is_refused(make_runner, tmp_path):
    save_checkpoint(tmp_path / "checkpoints", 3, {"iteration": 3})
    with pytest.raises(UnusableCheckpointError, match=r"configuration: it has no 'actor_state_dict'\."):
        make_runner(tmp_path).resume()


def test_nothing_is_written_without_a_folder(make_runner, tmp_path):
    assert make_runner(None).train()
    assert not list(tmp_path.iterdir())


def test_a_log_that_cannot_be_written_is_one_clear_message(make_runner, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(TrainingError, match=r"Cannot write the log in '.*file': (Not a directory|File exists)"):
        make_runner(tmp_path / "file").train()


def test_a_disk_that_fills_during_training_is_one_clear_message(make_runner, tmp_path):
    resource = pytest.importorskip("resource")
    train_until(make_runner(tmp_path), 1)
    runner = make_runner(tmp_path, total_steps=10**6)
    runner.resume()
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        with pytest.raises((TrainingError, CheckpointError), match="File too large"):
            runner.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    again = make_runner(tmp_path)
    again.resume()
    assert again.iteration == 1
    again.train()
    assert numbers(tmp_path) == [1, 2, 3, 4, 5, 6]

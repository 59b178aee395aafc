"""What `gantry train` and others say of a driving task before, or instead of, beginning."""

import resource

import pytest

from gantry_deploy.cli import main as cli
from gantry_sim.tasks.registry import find_task
from gantry_sim.training.run_folder import RunCfg, create_run

LANE = "drive-lane"


pytestmark = pytest.mark.usefixtures("one_thread")
"""Everything is written below the temporary folder, by one thread."""


def gantry(capsys, *words):
    code = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_checkpoints_that_cannot_be_read_are_one_message_and_no_way_to_go_on(capsys, tmp_path):
    folder = create_run(RunCfg(find_task(LANE), "cpu", find_task(LANE).preset("cpu"), "cpu", 1), tmp_path / "run")
    (folder / "checkpoints").mkdir()
    for number in (2, 4):
        (folder / "checkpoints" / f"model_{number}.pt").write_bytes(b"PK" * number)
    code, _, err = gantry(capsys, "train", "--resume", folder)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"Error: No usable checkpoint in {folder}/checkpoints: model_4.pt (cut short, ")
    assert "), model_2.pt (" in err


def sets(*changes):
    return [word for change in changes for word in ("--set", change)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (sets("env.reward.kind=aditive"), "Error: Unknown env.reward.kind 'aditive'. Did you mean 'additive'?"),
        (sets("env.reward.options.path=x"), "is {'path': 'x'}, but kind 'multiplicative' has no options."),
        (sets("env.reward.steering_smoothness=nan"), "steering_smoothness is 'nan', expected a finite number."),
        (sets("env.reward.steering_smoothness=2"), "Error: env.reward.steering_smoothness is 2.0, expected 0 to 1."),
        (sets("learner.gamma=1.5"), "Error: learner.gamma is 1.5, expected more than 0 and at most 1."),
    ],
)
def test_what_cannot_work_is_found_before_anything_is_written(capsys, tmp_path, words, text):
    code, out, err = gantry(capsys, "train", LANE, "--run-dir", "run", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err
    assert not list(tmp_path.iterdir())


def test_a_race_has_no_driver_by_rules_to_learn_from(capsys, tmp_path):
    code, out, err = gantry(capsys, "train", "drive-race", "--run-dir", "run", "--teacher", "scripted")
    said = "Task 'drive-race' has no scripted policy."
    assert (code, out, err) == (2, "", f"Error: {said}\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("existed", [False, True])
def test_a_run_that_fails_before_it_learns_leaves_nothing(capsys, tmp_path, existed):
    run = tmp_path / "run"
    if existed:
        run.mkdir()
    words = sets("env.num_envs=4", "env.map_count=1", "learner.steps_per_env=8", "learner.total_steps=64")
    code, _, err = gantry(capsys, "train", LANE, "--run-dir", run, *words, "--set", "learner.learning_rate=1e30")
    assert (code, err.count("\n")) == (2, 1)
    assert "stopped being finite in iteration 1 of 2" in err
    assert list(tmp_path.rglob("*")) == ([run] if existed else [])


def test_a_policy_that_is_not_there_is_missed_before_the_display(capsys, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    code, _, err = gantry(capsys, "play", "nowhere")
    assert (code, err) == (2, "Error: There is no run folder and no bundle at nowhere.\n")


def test_a_film_that_does_not_fit_on_the_disk_leaves_nothing(capsys, tmp_path):
    """No file may grow beyond a limit; a picture is larger, what may lie beside it is not."""
    words = ["play", LANE, "--driver", "steady", "--seconds", "0.5", "--stills", "moments.png"]
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        code, _, err = gantry(capsys, *words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    assert code == 2
    assert "Cannot write 'moments.png': File too large." in err
    assert not list(tmp_path.iterdir())

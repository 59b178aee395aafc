"""``gantry train`` as a real process: killed, interrupted, and started twice in one folder."""

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time

import pytest

from gantry_deploy.cli import main as cli
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_policies.common.checkpoint import list_checkpoints, load_checkpoint, load_newest

ITERATIONS, ENVS, STEPS = 40, 64, 8
CONFIG = {
    "env.num_envs": ENVS,
    "learner.steps_per_env": STEPS,
    "learner.total_steps": ITERATIONS * ENVS * STEPS,
    "learner.hidden": [16],
    "learner.critic_hidden": [16],
    "learner.normalize": "true",
    "learner.save_every_s": 0.1,
    "learner.epochs": 1,
    "learner.minibatches": 2,
}
PATIENCE_S = 120.0

# Processes that are forked from one that has imported the simulator: importing it anew in each would take most of the
# time of these tests.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["gantry_sim.training.train", "gantry_sim.tasks.locomotion.presets"])


def run_command(words, log):
    """What a process of its own does: the command, its output in a file."""
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(cli.main(words))


class Training:
    """A process of ``gantry train`` and the files that it leaves."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None

    def begin(self, **more):
        config = CONFIG | {f"learner.{name}": value for name, value in more.items()}
        changes = [word for name, value in config.items() for word in ("--set", f"{name}={value}")]
        return self.start("velocity-flat-go2", "--run-dir", self.folder, "--episodes", 0, "--no-export", *changes)

    def resume(self):
        return self.start("--resume", self.folder, "--episodes", 0, "--no-export")

    def start(self, *words):
        command = ["train", *map(str, words)]
        self.process = FORKS.Process(target=run_command, args=(command, self.folder.with_suffix(".log")))
        self.process.start()
        return self

    def wait_until(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if not self.process.is_alive():
                return False
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.01)
        return True

    def end(self, number=None):
        if number is not None:
            with contextlib.suppress(ProcessLookupError):  # It may have come to its end by itself.
                os.kill(self.process.pid, number)
        self.process.join(PATIENCE_S)
        return self.process.exitcode

    def output(self):
        return self.folder.with_suffix(".log").read_text()

    def rows(self):
        """Whole lines of the learning curve; a kill may have cut the last one."""
        path = self.folder / METRICS_FILE
        return read_metrics(path) if path.is_file() else []

    def check_files(self):
        """What is on the disk is good at any moment: every checkpoint can be read, the curve has no gap."""
        for path in list_checkpoints(self.folder / "checkpoints"):
            state = load_checkpoint(path)
            assert path.name == f"model_{state['iteration']}.pt"
            assert state["env_steps"] == state["iteration"] * ENVS * STEPS
        rows = self.rows()
        assert [int(row["iteration"]) for row in rows] == list(range(1, len(rows) + 1))
        assert [int(row["env_steps"]) for row in rows] == [n * ENVS * STEPS for n in range(1, len(rows) + 1)]
        walls = [float(row["wall_s"]) for row in rows]
        assert walls == sorted(walls)

    def newest(self):
        found = list_checkpoints(self.folder / "checkpoints")
        return int(found[-1].stem.partition("_")[2]) if found else 0


@pytest.fixture(autouse=True, scope="module")
def one_thread_each():
    """The networks are too small to share out; the server of forks takes this over when it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture
def training(tmp_path):
    training = Training(tmp_path / "run")
    yield training
    if training.process is not None and training.process.is_alive():
        training.process.kill()
        training.process.join()


@pytest.mark.soak
@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_to_the_end(training):
    seed = int(os.environ.get("GANTRY_TEST_SEED", random.randrange(2**32)))
    print(f"GANTRY_TEST_SEED={seed}")
    dice = random.Random(seed)
    training.begin()
    # The first kill hits the start, when there may be no checkpoint yet: the run begins again.
    assert training.wait_until((training.folder / "config.json").exists), training.output()
    time.sleep(dice.uniform(0.0, 3.0))
    training.end(signal.SIGKILL)
    training.check_files()
    kills, saved = 1, training.newest()
    while True:
        before = len(training.rows())
        training.resume()
        some_more = min(ITERATIONS - 1, max(saved, before) + dice.randint(1, 8))
        alive = training.wait_until(lambda wanted=some_more: len(training.rows()) >= wanted)
        if alive and kills < 3:
            time.sleep(dice.uniform(0.0, 0.2))
            training.end(signal.SIGKILL)
            kills += 1
        else:
            assert training.end() == 0, training.output()
        training.check_files()
        assert training.newest() >= saved  # no checkpoint is lost
        saved = training.newest()
        if training.process.exitcode == 0:
            break
        assert training.process.exitcode == -signal.SIGKILL, training.output()
    assert kills >= 2
    assert len(training.rows()) == ITERATIONS
    path, state = load_newest(training.folder / "checkpoints")
    assert (path.name, state["iteration"]) == (f"model_{ITERATIONS}.pt", ITERATIONS)
    assert state["actor_state_dict"]["obs_normalizer.count"] >= ITERATIONS * ENVS * STEPS
    leftovers = [path.name for path in training.folder.rglob("*.tmp")]
    assert not leftovers


@pytest.mark.slow
def test_interrupted_it_saves_and_says_how_to_go_on(training, capsys):
    training.begin(total_steps=10**9, save_every_s=1e9)
    assert training.wait_until(lambda: len(training.rows()) >= 2), training.output()
    # While it runs, nobody else may train in its folder ...
    held = f"is being trained by another process ({training.process.pid} on "
    for words, reason in (
        (["--resume", training.folder], held),
        (["velocity-flat-go2", "--run-dir", training.folder], "already holds a run"),
    ):
        assert cli.main(["train", *map(str, words)]) == 2
        message = capsys.readouterr().err
        assert message.startswith("Error: ")
        assert reason in message
        assert len(message.splitlines()) == 1
    # ... and Ctrl-C ends it after the iteration that it is in, which is saved.
    assert training.end(signal.SIGINT) == 130, training.output()
    lines, rows = training.output().splitlines(), len(training.rows())
    assert f"Stopped at iteration {rows} of {-(-(10**9) // (ENVS * STEPS))}; nothing is lost." in lines
    assert f"Continue with: gantry train --resume {training.folder}" in lines
    assert "Traceback" not in training.output()
    assert training.newest() == rows
    training.check_files()
    training.resume()
    assert training.wait_until(lambda: len(training.rows()) >= rows + 2), training.output()
    assert training.end(signal.SIGTERM) == 130  # a batch system asks like this
    training.check_files()
    assert training.newest() == len(training.rows()) >= rows + 2

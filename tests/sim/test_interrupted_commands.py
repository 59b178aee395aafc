"""Ctrl-C at moments drawn at random from the loading and the work of commands that load a simulator."""

import random
import signal
import subprocess
import sys
import time

import pytest

from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_hardware.robots import robot_spec

SEED = 30
PATIENCE_S = 200.0
"""How long a process may take to end on a machine that does much else; one that hangs is killed and fails."""
STARTED = 0.5
"""What Python itself may take to start, before a line of Gantry runs, s; only the delay of the strikes."""

pytestmark = pytest.mark.slow


def strike(words, delay_s, cwd):
    """(exit code, what it said, whether it had ended by itself) after Ctrl-C so long after its entry was imported."""
    code = "import sys\nprint('entered', flush=True)\nfrom gantry_deploy.cli.entry import main\nsys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(STARTED + delay_s)
    ended = process.poll() is not None
    process.send_signal(signal.SIGINT)
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, said, ended


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("tasks", "velocity-flat-go2"), marks=pytest.mark.soak),
        ("train",),
        ("check",),
        pytest.param(("run",), marks=pytest.mark.soak),
        ("launch",),
    ],
)
def test_ctrl_c_at_any_moment_is_130_without_a_traceback(tmp_path, words):
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(robot_spec("go2"))).path
    words = {
        "train": ("train", "velocity-flat-go2", "--set", "env.num_envs=64", "--run-dir", tmp_path / "run"),
        "check": ("check", bundle, "--episodes", "500", "--no-card"),
        "run": ("run", bundle, "--duration", "100000"),
        "launch": ("launch", "sim_walk", f"bundle:={bundle}", "backend:=mock"),
    }.get(words[0], words)
    dice = random.Random(f"{SEED} {words[0]}")
    delays = [dice.uniform(0.0, 3.0), dice.uniform(3.0, 15.0)]
    print(f"seed {SEED}, {words[0]}: struck after {delays} s")
    for index, delay_s in enumerate(delays):
        mine = tuple(f"{word}{index}" if word == tmp_path / "run" else word for word in words)
        code, said, ended = strike(mine, delay_s, tmp_path)
        assert "Traceback" not in said, (delay_s, said)
        # The short one may have ended by itself between the look and the signal.
        done = ended or (words[0] == "tasks" and "Interrupted" not in said)
        assert code == 130 or (done and code == 0), (delay_s, said)

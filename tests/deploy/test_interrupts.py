"""Ctrl-C at any moment: exit code 130, no traceback, and the process ends, also where an import swallows it."""

import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from gantry_deploy.process import interrupts as interrupts_module
from gantry_deploy.process.interrupts import remembering_interrupts
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_hardware.robots import robot_spec

SEED = 30
PATIENCE_S = 120.0
"""How long a process may take to end on a machine that does much else; one that hangs is killed and fails."""
READY = "gantry_deploy.process.interrupts"
"""The first thing that the entry imports."""


def struck(words, imports, after_s=0.0):
    """Run gantry and press Ctrl-C when it has done so many imports; (exit code or None if it had ended, stderr).

    The interpreter tells of every import, so that the moment is the same on a busy machine.
    """
    command = [sys.executable, "-X", "importtime", "-m", "gantry_deploy.cli.entry", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr)
        told, count = [], None
        for line in lines:
            if not line.startswith("import time:"):
                told.append(line)
            elif count is not None:
                count += 1
            elif line.rstrip().endswith(READY):
                count = 0
            if count is not None and count > imports:
                process.send_signal(signal.SIGINT)
                break
        else:
            process.wait(PATIENCE_S)
            return None, "".join(told)
        killer = subprocess.Popen(["sh", "-c", f"sleep {PATIENCE_S}; kill -9 {process.pid}"], start_new_session=True)
        told += [line for line in lines if not line.startswith("import time:")]
        process.wait()
        killer.kill()
        killer.wait()
    return process.returncode, "".join(told)


def assert_interrupted(words, most_imports, strikes, seed=SEED):
    dice = random.Random(f"{seed} {words}")
    moments = sorted(dice.sample(range(1, most_imports), strikes))
    print(f"seed {seed}, {words}: struck after {moments} imports")
    ended = 0
    for imports in moments:
        code, told = struck(words, imports)
        if code is None:  # It was through before.
            continue
        ended += 1
        assert code == 130, (imports, code, told)
        assert "Traceback" not in told, (imports, told)
        assert told.splitlines()[-1] == "Interrupted.", (imports, told)
    assert ended, "nothing was interrupted"


@pytest.mark.parametrize("words", [("--help",), ("trian",), ("inspect", "--help"), ("bench", "runtime", "--help")])
def test_ctrl_c_while_the_command_line_is_read(words):
    assert_interrupted(words, 60, 3)


@pytest.mark.slow
def test_ctrl_c_while_a_bundle_runs_on_the_mock(tmp_path):
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(robot_spec("go2"))).path
    assert_interrupted(("run", bundle, "--backend", "mock", "--duration", "60"), 500, 8)


def python(code):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=600)


def test_leaving_waits_for_no_thread_and_still_clears_up():
    done = python("""
        import atexit, sys, threading, time
        from gantry_deploy.process.interrupts import leave
        threading.Thread(target=time.sleep, args=(3600,)).start()
        atexit.register(print, "cleared up")
        sys.stdout.write("printed, ")
        leave(130)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (130, "printed, cleared up\n", "")


def test_leaving_does_not_wait_for_what_hangs_at_the_end():
    done = python("""
        import atexit, time
        from gantry_deploy.process.interrupts import leave
        atexit.register(time.sleep, 3600)
        leave(130)
    """)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_ends_at_once_until_something_is_at_stake():
    done = python("""
        import os, signal
        from gantry_deploy.process.interrupts import end_on_interrupt
        end_on_interrupt()
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            print("swallowed")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_an_interruption_that_an_import_swallows_is_sent_again(tmp_path, monkeypatch):
    (tmp_path / "swallows.py").write_text(
        "import signal, time\ntry:\n    for _ in range(2):\n        signal.raise_signal(signal.SIGINT)\n"
        "except BaseException:\n    pass\nelse:\n    raise ValueError('the second one has to come at once')\n"
        "while True:\n    time.sleep(0.01)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(interrupts_module, "IMPORT_S", 0.2)
    with remembering_interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            __import__("swallows")
        assert interrupts.is_set()


def import_and_wait(name):
    __import__(name)
    while True:
        time.sleep(0.01)


def test_an_interruption_waits_for_the_end_of_an_import(tmp_path, monkeypatch):
    """Raised in the middle of an extension module in C++, an exception would abort the process."""
    (tmp_path / "whole.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\nsum(range(10**6))\nwhole = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with remembering_interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            import_and_wait("whole")
        assert interrupts.is_set()
    assert sys.modules["whole"].whole


def test_a_handler_is_not_interrupted_twice_by_one_ctrl_c():
    """What clears up imports nothing, and is left alone."""
    done = python("""
        import signal, time
        from gantry_deploy.process.interrupts import INSIST_S, remembering_interrupts
        with remembering_interrupts():
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                time.sleep(4 * INSIST_S)
                print("cleared up")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "cleared up\n", "")


def test_ctrl_c_in_what_runs_when_an_object_dies_leaves_no_traceback():
    done = python("""
        import signal
        from gantry_deploy.process.interrupts import remembering_interrupts

        class Dies:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        with remembering_interrupts() as interrupts:
            Dies()
            assert interrupts.is_set()
    """)
    assert (done.returncode, done.stderr) == (0, "")

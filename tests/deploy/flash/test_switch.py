"""Switch, commit, return and rollback, killed between any two lines: a whole release is current, and one is left to
return to."""

import os
import random
import signal
import sys

import pytest

from gantry_deploy.errors import FlashError
from gantry_deploy.flash import home as home_module
from gantry_deploy.flash import switch as switch_module
from gantry_deploy.flash.home import RobotConfig, RobotHome, State, Trial
from gantry_deploy.flash.switch import clean, commit, give_up, prove_switching, roll_back, switch
from gantry_hardware.files import whole_files

TRACED = {switch_module.__file__, home_module.__file__, whole_files.__file__}
A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def home(tmp_path):
    home = RobotHome(tmp_path)
    for name in (A, B, C):
        (home.releases / name).mkdir(parents=True)
    for name in (A, B):
        switch(home, name, "test")
        commit(home, name, "test")
    return home


def kill_at(step, change):
    """Run a change in a process that kills itself before its given line; whether it came that far."""
    child = os.fork()
    if child == 0:
        count = 0

        def trace(frame, event, argument):
            nonlocal count
            if frame.f_code.co_filename not in TRACED:
                return None
            if event == "line":
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            sys.settrace(trace)
            change()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def restore(home, current, **state):
    home.current_link.unlink(missing_ok=True)
    switch_module.point_current_at(home, current)
    home.state_file.unlink(missing_ok=True)
    home.write_state(**state)


CHANGES = {
    "switch": (lambda home: switch(home, C, "test"), B, State(good=(A, B)), {B, C}),
    "commit": (lambda home: commit(home, C, "test"), C, State(good=(A, B), trial=Trial(C, 1)), {C}),
    "give up": (lambda home: give_up(home, C, "why", "test"), C, State(good=(A, B), trial=Trial(C, 1)), {B, C}),
    "roll back": (lambda home: roll_back(home, "test"), B, State(good=(A, B)), {A, B}),
}


def killed(home, name, first, stride):
    """Kill a change before every so-manyth line of it; what was current afterwards."""
    change, current, state, may_be = CHANGES[name]
    step, seen = first, set()
    while True:
        restore(home, current, good=state.good, trial=state.trial)
        if not kill_at(step, lambda: change(home)):
            break
        found = home.state()
        assert home.current() in may_be
        assert home.current_link.is_dir()  # It leads somewhere.
        assert set(found.good) >= {A, B}
        # What is current is good, or it is on trial, so that the service returns from it.
        assert home.current() in found.good or (found.trial is not None and found.trial.release == home.current())
        seen.add(home.current())
        change(home)  # The next one is not kept from it, and ends as it would have.
        step += stride
    assert step > 20
    return seen


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_killed_at_some_lines(home, name):
    first = random.randint(1, 12)
    print("first line", first)
    killed(home, name, first, 12)


@pytest.mark.soak
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_killed_at_any_line(home, name):
    assert killed(home, name, 1, 1) == CHANGES[name][-1]


def test_a_release_that_failed_is_not_returned_to(home):
    switch(home, B, "test")  # Good once, and on trial again.
    assert give_up(home, B, "fell", "test") == A
    assert home.last_good() == A
    assert home.state().failed == {B: "fell"}
    with pytest.raises(FlashError, match="no good release before the current one"):
        roll_back(home, "test")


def test_a_release_is_not_returned_from_for_the_fault_of_another(home):
    switch(home, C, "test")
    give_up(home, A, "an old run", "test")
    assert home.current() == C
    assert home.state().trial == Trial(C)


def test_cleaning_up_keeps_what_is_returned_to(home):
    old = [f"{i}" * 64 for i in range(6)]
    for age, name in enumerate(old):
        (home.releases / name).mkdir()
        os.utime(home.releases / name, (10**9 + age, 10**9 + age))
    switch(home, C, "test")
    os.utime(home.releases / A, (10, 10))
    os.utime(home.releases / B, (10, 10))
    removed = clean(home, RobotConfig("go2", keep=2))
    assert set(removed) == set(old)
    assert {folder.name for folder in home.releases.iterdir()} == {A, B, C}


def test_the_log_is_only_added_to(home):
    before = home.log_file.read_bytes()
    home.note("something", "ada@bench", A, why="a test")
    assert home.log_file.read_bytes().startswith(before)
    line = home.log()[-1]
    assert (line["what"], line["by"], line["release"], line["why"]) == ("something", "ada@bench", A, "a test")
    with home.log_file.open("ab") as file:
        file.write(b'{"torn')
    assert home.log()[-1] == line


def test_a_file_system_that_cannot_exchange_links(tmp_path):
    prove_switching(RobotHome(tmp_path))
    with pytest.raises(FlashError, match="cannot exchange links"):
        prove_switching(RobotHome(tmp_path / "missing"))

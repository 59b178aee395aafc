"""Keyboard through a pseudo-terminal: real processes, real signals, real bytes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time

import pytest

from gantry_deploy.errors import TeleopError
from gantry_deploy.teleop.keyboard import Keyboard
from gantry_deploy.teleop.keys import KeyParser
from gantry_deploy.teleop.operator import Axis, TeleopEvent

PATIENCE_S = 60.0
ARM = (Axis.X, Axis.Y, Axis.Z, Axis.GRIPPER)
CHILD = """
import os, signal, sys, time
for number in (signal.SIGHUP, signal.SIGQUIT):  # Whoever runs the tests in the background ignores them.
    signal.signal(number, signal.SIG_DFL)
from gantry_deploy.teleop.terminal import CbreakTerminal
how = sys.argv[1]
if how == "at_once":
    from gantry_deploy.process.interrupts import end_on_interrupt
    end_on_interrupt()
terminal = CbreakTerminal(0)
terminal.open()
print("ready", flush=True)
assert os.read(0, 1) == b"g"
if how == "exception":
    raise RuntimeError("on purpose")
if how == "close":
    terminal.close()
    sys.stdin.readline()
if how == "exit":
    sys.exit(3)
time.sleep(600)
"""
DEVICE = """
import json, sys, time
from gantry_deploy.teleop.keyboard import KeyboardDevice
from gantry_fixtures.arm import arm_contract_for
from gantry_hardware.robots import robot_spec
device = KeyboardDevice(arm_contract_for(robot_spec("yam")), hold_s=0.5, first_hold_s=4.0)
device.connect()
print("ready", flush=True)
while True:
    given = device.read(100.0)
    assert given.stamp_s <= 100.0
    axes = {axis.value: value for axis, value in given.axes.items() if value}
    print(json.dumps([given.engaged, axes, [event.value for event in given.events]]), flush=True)
    if "quit" in given.events:
        device.close()
        break
    time.sleep(0.01)
"""


HANG_UP = """
import contextlib, os, sys, time
from gantry_deploy.process.interrupts import interrupt_on_terminate
from gantry_deploy.teleop.terminal import CbreakTerminal
with interrupt_on_terminate():
    terminal = CbreakTerminal(0)
    terminal.open()
    try:
        print("ready", flush=True)
        time.sleep(600)
    except KeyboardInterrupt as reason:
        print(f"damped after {reason}", flush=True)
    terminal.close()
"""


class Terminal:
    """A child process on a terminal of its own."""

    def __init__(self, code, *arguments):
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.read_end, write_end = os.pipe()
        self.child = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=self.slave,
            stdout=write_end,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(write_end)
        self.output = os.fdopen(self.read_end)

    def __enter__(self):
        assert self.output.readline() == "ready\n"
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        self.output.close()
        os.close(self.master)
        os.close(self.slave)

    @property
    def is_cbreak(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    @property
    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def type(self, data):
        os.write(self.master, data)


@pytest.mark.parametrize("how", ["exception", "exit"])
def test_settings_come_back_when_the_process_ends(how):
    with Terminal(CHILD, how) as terminal:
        assert terminal.is_cbreak
        terminal.type(b"g")
        assert terminal.child.wait(PATIENCE_S) == {"exception": 1, "exit": 3}[how]
        assert terminal.is_restored


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_settings_come_back_at_a_signal_that_ends_the_process(number):
    with Terminal(CHILD, "sleep") as terminal:
        assert terminal.is_cbreak
        terminal.child.send_signal(number)
        assert terminal.child.wait(PATIENCE_S) == -number
        assert terminal.is_restored


@pytest.mark.parametrize("how", ["sleep", "at_once"])
def test_control_c_interrupts_and_settings_come_back(how):
    with Terminal(CHILD, how) as terminal:
        terminal.type(b"\x03")
        assert terminal.child.wait(PATIENCE_S) == (-signal.SIGINT if how == "sleep" else 130)
        assert terminal.is_restored


def test_control_z_suspends_nothing_and_close_gives_it_back():
    with Terminal(CHILD, "close") as terminal:
        terminal.type(b"g")  # A suspended child would read nothing.
        deadline_s = time.monotonic() + PATIENCE_S
        while not terminal.is_restored:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        assert terminal.child.poll() is None


def test_keys_through_a_terminal():
    with Terminal(DEVICE) as terminal:

        def until(condition):
            deadline_s = time.monotonic() + PATIENCE_S
            while True:
                seen = json.loads(terminal.output.readline())
                events.extend(seen[2])
                if condition(*seen):
                    return
                assert time.monotonic() < deadline_s, seen

        events = []
        terminal.type(b"\x1b[A")  # Not taken over yet.
        terminal.type(b" ")
        until(lambda engaged, axes, _: engaged and not axes)
        terminal.type(b"\x1b[Ao")
        until(lambda engaged, axes, _: axes == {"x": 1.0, "gripper": 1.0})
        terminal.type(b"sss")
        until(lambda engaged, axes, _: not engaged and not axes)
        assert events == ["success"]
        terminal.type(b"\x1b")
        until(lambda engaged, axes, found: "failure" in found)
        terminal.type(b"X")
        until(lambda engaged, axes, found: "estop" in found)
        terminal.type(b"q")
        until(lambda engaged, axes, found: "quit" in found)
        assert terminal.child.wait(PATIENCE_S) == 0
        assert events == ["success", "failure", "estop", "quit"]
        assert terminal.is_restored


def test_a_terminal_that_is_closed_interrupts_in_order():
    with Terminal(HANG_UP) as terminal:
        os.close(terminal.master)
        terminal.master = os.open(os.devnull, os.O_RDONLY)
        assert terminal.output.readline() == "damped after SIGHUP\n"
        assert terminal.child.wait(PATIENCE_S) == 0


def test_a_pipe_is_refused():
    from gantry_deploy.teleop.terminal import CbreakTerminal

    read_end, write_end = os.pipe()
    with pytest.raises(TeleopError, match="needs a terminal, and standard input is none"):
        CbreakTerminal(read_end).open()
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"\x1b[A", b"\x1b", b"[", b"B"], ["up", "down"]),
        ([b"\x1bOC\x1b[1;5D"], ["right", "left"]),
        ([b"\x1b[5~\x1b[6~"], ["page_up", "page_down"]),
        ([b"S\r\x7f "], ["s", "enter", "backspace", "space"]),
        ([b"\x1b[200~\x1b[15~\x1b[M\xff\xc3\xa4"], []),
        ([b"\x1bs"], []),  # Alt and a letter is no success.
        ([b"\x1b\x1b[A"], ["escape", "up"]),
        ([b"\x1b[" + b"1" * 100 + b"A"], ["up"]),  # As long as it may be, one key.
    ],
)
def test_bytes_of_keys(chunks, expected):
    parser = KeyParser()
    assert [name for chunk in chunks for name in parser.feed(chunk)] == expected
    assert not parser.waits


def test_escape_alone_is_a_key_and_half_a_sequence_is_none():
    parser = KeyParser()
    assert parser.feed(b"\x1b") == []
    assert parser.waits
    assert parser.flush() == ["escape"]
    assert parser.feed(b"\x1b[1;") == []
    assert parser.flush() == []
    assert parser.feed(b"s") == ["s"]


def test_motion_lasts_from_the_first_press_to_the_end_of_the_repetition():
    keys = Keyboard(ARM, hold_s=0.25, first_hold_s=0.6)
    keys.press("space", 0.0)
    keys.press("up", 1.0)
    assert keys.motion(1.59)[Axis.X] == 1.0
    for step in range(10):
        keys.press("up", 1.5 + 0.03 * step)
    assert keys.motion(1.77 + 0.24)[Axis.X] == 1.0
    assert keys.motion(1.77 + 0.26)[Axis.X] == 0.0
    keys.press("down", 1.8)
    assert keys.motion(1.81)[Axis.X] == -1.0


def test_a_held_event_key_is_one_event():
    keys = Keyboard(ARM)
    for step in range(40):
        keys.press("s", 1.0 + (0.5 + 0.03 * step if step else 0.0))
    assert keys.take_events() == (TeleopEvent.SUCCESS,)
    keys.press("s", 9.0)
    assert keys.take_events() == (TeleopEvent.SUCCESS,)
    assert keys.take_events() == ()


def test_a_held_space_toggles_once():
    keys = Keyboard(ARM)
    for step in range(40):
        keys.press("space", 1.0 + 0.03 * step)
    assert keys.engaged


def test_not_taken_over_means_no_motion():
    keys = Keyboard(ARM)
    keys.press("up", 1.0)
    keys.press("space", 1.1)
    assert not any(keys.motion(1.1).values())
    keys.press("up", 1.2)
    keys.press("space", 2.0)
    assert not keys.engaged
    assert not any(keys.motion(2.0).values())


def test_silence_gives_back():
    keys = Keyboard(ARM, timeout_s=2.0)
    keys.press("space", 0.0)
    keys.expire(1.9)
    assert keys.engaged
    keys.expire(2.1)
    assert not keys.engaged
    keys.press("up", 2.2)
    assert not keys.engaged


def test_keys_of_a_car_and_only_those():
    keys = Keyboard((Axis.STEER, Axis.THROTTLE))
    keys.press("space", 0.0)
    keys.press("left", 0.1)
    keys.press("up", 0.1)
    keys.press("i", 0.1)
    assert keys.motion(0.2) == {Axis.STEER: 1.0, Axis.THROTTLE: 1.0}
    text = "\n".join(keys.describe())
    assert "steer" in text
    assert "gripper" not in text

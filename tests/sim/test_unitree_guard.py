"""Guard process of the Unitree driver: it damps when the driver is stopped or killed, and is not seen otherwise."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("cyclonedds")

from gantry_fixtures.unitree import PATIENCE_S, patient_fake, unitree_robot, wait_for
from gantry_hardware import JointCommand, RobotError
from gantry_hardware.unitree import guard
from gantry_hardware.unitree.idl import CLASSES
from gantry_hardware.unitree.link import Link

RUNTIME = """
import sys
from dataclasses import replace
from gantry_fixtures.unitree import PATIENT, controller, stand_again
from gantry_hardware.robots import robot_spec
from gantry_hardware.unitree.robot import UnitreeRobot

robot = UnitreeRobot(
    robot_spec("go2"),
    interface="lo",
    domain=int(sys.argv[1]),
    command_timeout_s=1.0,
    guard_timeout_s=float(sys.argv[2]),
)
robot.connect()
loop = controller(robot, config=replace(PATIENT, max_missed_deadlines=int(sys.argv[3])))
while True:
    stand_again(loop)
    process = robot._loop.guard
    print("stands", process.pid if process else 0, flush=True)
    loop.run(on_tick=lambda report: report.mode == "DAMP" and loop.stop())
    print(robot.fault(), loop.safety.fault, flush=True)
"""


def has_ended(pid):
    """Whether there is no such process any more, or only what its parent has not asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Runtime:
    """A loop in a process of its own that stands on a fake, and stands up again after every fault."""

    def __init__(self, fake, guard_timeout_s, max_missed_deadlines=1000):
        command = [sys.executable, "-c", RUNTIME, *map(str, (fake.domain, guard_timeout_s, max_missed_deadlines))]
        self._fake, self._process = fake, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.pid, self._lines = self._process.pid, queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line.strip())

    def says(self):
        return self._lines.get(timeout=PATIENCE_S)

    def guard_pid(self):
        word, pid = self.says().split()
        assert word == "stands"
        return int(pid)

    def damped_by(self, how):
        """Send it a signal; who damps the robot then."""
        self._fake.say(f"mark {how.name}")
        os.kill(self.pid, how)
        return wait_for("damping", lambda: self._fake.report()["faults"][-1]["how"])

    def close(self):
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()


@pytest.fixture
def fake():
    """A robot that waits half a minute before it damps by itself."""
    process = patient_fake("go2", "--command-timeout-ms", "30000")
    yield process
    process.close()


def test_the_guard_damps_when_the_driver_is_stopped_or_killed(fake):
    runtime = Runtime(fake, 0.5)
    try:
        first = runtime.guard_pid()
        assert os.getsid(first) != os.getsid(runtime.pid), "Ctrl-C in a terminal does not reach it"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(first, number)
        assert runtime.damped_by(signal.SIGSTOP) == "command"
        wait_for("the guard's end", lambda: has_ended(first))
        os.kill(runtime.pid, signal.SIGCONT)
        woken = runtime.says()
        if "stale_state" not in woken:  # The loop was awake before the thread that hears the guard.
            assert "kind='guard'" in woken
            assert "the driver was silent for" in woken
            assert "allowed are 500 ms (guard_timeout_s)" in woken
        second = runtime.guard_pid()
        assert second != first
        assert runtime.damped_by(signal.SIGKILL) == "command"
        wait_for("the guard's end", lambda: has_ended(second))
        assert fake.report()["violations"] == {}
    finally:
        runtime.close()


def test_without_a_guard_the_robot_must_damp_by_itself():
    fake = patient_fake()
    runtime = Runtime(fake, 0, max_missed_deadlines=200)
    try:
        assert runtime.guard_pid() == 0
        assert runtime.damped_by(signal.SIGSTOP) == "timeout"
        wait_for("an old state", lambda: fake.report()["time_ms"] > fake.report()["faults"][0]["at_ms"] + 6000)
        os.kill(runtime.pid, signal.SIGCONT)
        woken = runtime.says()
        assert "stale_state" in woken or "missed_deadlines" in woken, "it notices the lost time, and damps"
        assert runtime.guard_pid() == 0
        assert runtime.damped_by(signal.SIGKILL) == "timeout"
        assert set(fake.report()["violations"]) == {"command_timeout"}
    finally:
        runtime.close()
        fake.close()


def hold(robot, turns):
    for _ in range(turns):
        robot.write(JointCommand.position(robot.spec, robot.spec.array("default_rad")))
        robot.sleep_until(robot.now_s() + 0.02)


def test_nobody_sees_the_guard_of_a_driver_that_works_and_it_ends_with_the_driver(fake):
    robot, other = unitree_robot(fake), Link("lo", fake.domain)
    try:
        robot.connect()
        robot.take_over()
        loop = robot._loop
        pid = loop.guard.pid
        hold(robot, 50)
        commands = other.reader("rt/lowcmd", CLASSES["unitree_go"][1])
        assert len(wait_for("the driver's commands", lambda: other.writers(commands))) == 1
        hold(robot, 25)
        assert (robot.fault(), robot.health()["guarded"]) == (None, 1.0)
        robot.close()
        assert has_ended(pid)
        time.sleep(0.3)
        report = fake.report()
        assert 75 <= report["commands"]["accepted"] <= loop.counts["sent"], (
            "the guard sends nothing after a regular end"
        )
        assert report["violations"] == {}
    finally:
        robot.close()
        other.close()


def test_a_guard_that_has_gone_is_no_fault_and_is_started_again_before_the_robot_stands_up(fake):
    robot = unitree_robot(fake)
    try:
        robot.connect()
        robot.take_over()
        first = robot._loop.guard.pid
        os.kill(first, signal.SIGKILL)
        wait_for("the loss to be told", lambda: robot.health()["guarded"] == 0.0)
        assert robot.fault() is None
        robot.take_over()
        assert robot._loop.guard.pid != first
        assert robot.health()["guarded"] == 1.0
    finally:
        robot.close()


def test_a_guard_that_does_not_find_the_robot_is_refused_with_what_it_misses(fake, monkeypatch):
    monkeypatch.setattr(guard, "READY_S", 3.0)
    alone = guard.Guard(("lo", fake.domain), "rt/lowcmt", "unitree_go", "", 0.5)
    with pytest.raises(
        RobotError, match=r"no reader of 'rt/lowcmt' came within 3 s\. guard_timeout_s=0 does without it"
    ):
        alone.wait_until_ready()
    assert has_ended(alone.pid)
    astray = guard.Guard(("eth99", fake.domain), "rt/lowcmd", "unitree_go", "", 0.5)
    monkeypatch.setattr(guard, "READY_S", 30.0)
    with pytest.raises(RobotError, match="Unknown network interface 'eth99'"):
        astray.wait_until_ready()

"""The service: verdicts on first runs against hand-made times, crashes, and starts that never end well."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import yaml

from gantry_deploy.control.judge import Fault, FaultCode
from gantry_deploy.control.modes import Mode
from gantry_deploy.control.ticks import TickReport
from gantry_deploy.errors import FlashError
from gantry_deploy.flash.home import HealthConfig, RobotHome, Trial
from gantry_deploy.flash.setup import set_up, unit_text
from gantry_deploy.flash.status import STATUS_VARIABLE, Status, publisher_for_service, running_status, unsafe_reason
from gantry_deploy.flash.supervisor import HealthWindow, Supervisor, Verdict, run_command
from gantry_deploy.flash.switch import commit, switch

A, B = "a" * 64, "b" * 64
PATIENCE_S = 60.0


def status(now_s, mode="POLICY", ticks=0, missed=0, fault=""):
    return Status("1:1", mode, fault, ticks, missed, now_s)


def test_a_window_without_a_fault_is_a_proof():
    window = HealthWindow(HealthConfig(window_s=2.0), now_s=100.0)
    assert window.look(None, 105.0) is Verdict.GOING_ON  # Loading takes its time, and does not count.
    assert window.look(status(106.0), 106.0) is Verdict.GOING_ON
    assert window.clean_s == 1.0
    assert window.look(status(107.0, ticks=50), 107.0) is Verdict.PROVED


def test_only_the_time_in_a_mode_counts():
    window = HealthWindow(HealthConfig(window_s=2.0, mode="POLICY"), now_s=0.0)
    assert window.look(status(50.0, mode="PASSIVE"), 50.0) is Verdict.GOING_ON
    assert window.look(status(51.0), 51.0) is Verdict.GOING_ON
    assert window.look(status(52.0), 52.0) is Verdict.PROVED


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ([(None, 31.0)], "it said nothing within 30 s of its start"),
        ([(status(1.0), 1.0), (status(2.0, mode="DAMP", fault="tilted"), 2.0)], "the robot was damped: tilted"),
        ([(status(1.0), 1.0), (status(1.0), 4.5)], "its loop has stood still for 3.5 s"),
        (
            [(status(1.0), 1.0), (status(40.0, ticks=100, missed=21), 40.0)],
            "21 of 100 ticks were late, allowed are 20 %",
        ),
    ],
)
def test_faults_of_a_first_run(looks, why):
    window = HealthWindow(HealthConfig(), now_s=0.0)
    verdicts = [window.look(state, now_s) for state, now_s in looks]
    assert verdicts[-1] is Verdict.FAILED
    assert all(verdict is Verdict.GOING_ON for verdict in verdicts[:-1])
    assert window.why == why


@pytest.fixture
def home(tmp_path):
    home = RobotHome(tmp_path / "robot")
    set_up(home, "go2", "mock", {})
    for name in (A, B):
        (home.releases / name / "bundle").mkdir(parents=True)
    return home


def configure(home, command, **health):
    health = {"window_s": 0.5, "start_s": 60.0, **health}
    home.robot_file.write_text(yaml.safe_dump({"robot": "go2", "run": {"command": command}, "health": health}))


def run_until(home, condition):
    """Run a service in this process until a condition holds."""
    lines = []
    supervisor = Supervisor(home, lines.append)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    end_s = time.monotonic() + PATIENCE_S
    try:
        while not condition():
            assert time.monotonic() < end_s, lines
            time.sleep(0.02)
    finally:
        supervisor.stop()
        thread.join(PATIENCE_S)
    return lines


def test_a_good_release_that_crashes_again_and_again_is_started_no_more(home):
    configure(home, ["sh", "-c", "exit 3"], most_crashes=2)
    switch(home, A, "test")
    commit(home, A, "test")
    run_until(home, lambda: "is started no more" in home.state().note)
    assert "crashed 2 times in 10 minutes (its process ended with exit code 3)" in home.state().note
    assert home.current() == A == home.last_good()
    assert [line["what"] for line in home.log()][-3:] == ["crashed", "crashed", "stopped"]


@pytest.mark.slow
def test_a_release_that_has_proved_itself_and_crashes_then_is_started_again(home, tmp_path):
    """The first run goes on after its proof; what ends it later is a crash of a good release."""
    status, begun = home.status_file, tmp_path / "begun"
    program = f"""
import json, os, pathlib, sys, time
from gantry_deploy.process.identity import process_identity
pathlib.Path({str(begun)!r}).open("a").write("x")
said = {{"process": process_identity(), "mode": "POLICY", "fault": "", "missed_deadlines": 0, "bundle": ""}}
for ticks in range(1, 400):
    said |= {{"ticks": ticks, "stamp_s": time.monotonic()}}
    path = pathlib.Path({str(status)!r})
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(said))
    os.replace(temporary, path)
    if json.loads(pathlib.Path({str(home.state_file)!r}).read_text())["good"] and ticks > 5:
        sys.exit(3)
    time.sleep(0.02)
"""
    configure(home, [sys.executable, "-c", program], most_crashes=3, window_s=0.2)
    switch(home, A, "test")
    run_until(home, lambda: "is started no more" in home.state().note)
    assert home.current() == A == home.last_good()
    assert A not in home.state().failed
    assert len(begun.read_text()) == 3


def test_a_run_that_says_nothing_and_ends_is_no_proof(home):
    configure(home, ["true"])
    switch(home, A, "test")
    run_until(home, lambda: A in home.state().failed)
    assert home.state().failed[A] == "its process ended before it had said anything"
    assert home.current() == ""


def test_a_program_that_does_not_exist(home):
    configure(home, ["no-such-program"])
    switch(home, A, "test")
    run_until(home, lambda: A in home.state().failed)
    assert "there is no program 'no-such-program'" in home.state().failed[A]


def test_a_mistake_in_the_configuration_gives_up_no_release(home):
    switch(home, A, "test")
    home.robot_file.write_text("robot: go2\nhealth: {windows_s: 1}\n")
    with pytest.raises(FlashError, match=r"Unknown field .* 'windows_s'. Did you mean 'window_s'\?"):
        Supervisor(home, print)
    configure(home, [sys.executable, "-c", "import time; time.sleep(100)"])
    supervisor = Supervisor(home, print)
    home.robot_file.write_text("robot: go2\nhealth: {windows_s: 1}\n")
    supervisor.stop()
    assert supervisor._configuration() is None
    supervisor.run()
    assert home.state().trial == Trial(A)


def test_power_cuts_in_the_first_run_lead_back_to_the_good_release(home):
    """The service and the computer die in every first run: SIGKILL, which nothing can answer."""
    configure(home, [sys.executable, "-c", "import time; time.sleep(100)"], most_starts=2)
    switch(home, A, "test")
    commit(home, A, "test")
    switch(home, B, "test")
    for start in (1, 2):
        child = os.fork()
        if child == 0:
            try:
                Supervisor(home, lambda line: None).run()
            finally:
                os._exit(1)
        end_s = time.monotonic() + PATIENCE_S
        while home.state().trial != Trial(B, start):
            assert time.monotonic() < end_s
            time.sleep(0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert home.current() == B
    lines = run_until(home, lambda: home.current() == A)
    assert any("it was started 2 times and never got through its first run" in line for line in lines)
    assert home.state().failed.keys() == {B}
    assert home.last_good() == A


def test_one_service_per_robot(home):
    configure(home, ["true"])
    first = Supervisor(home, print)
    with pytest.raises(FlashError, match=r"service .* is in use by"):
        Supervisor(home, print)
    first.stop()
    first.run()
    Supervisor(home, print)


def test_the_command_line_of_a_release(home):
    home.robot_file.write_text(
        yaml.safe_dump({"robot": "go2", "run": {"backend": "ros", "options": {"k": True}, "arguments": ["--yes"]}})
    )
    words = run_command(home, A)
    assert words[1:5] == ["-m", "gantry_deploy.cli.entry", "run", str(home.releases / A / "bundle")]
    assert words[5:] == ["--backend", "ros", "--status-file", str(home.status_file), "--option", "k=true", "--yes"]
    own = home.releases / A / "config" / "run.yaml"
    own.parent.mkdir()
    own.write_text("command: [sh, '{config}/start.sh', '{bundle}', '{status}']\n")
    folder = home.releases / A
    assert run_command(home, A)[1:] == [f"{folder}/config/start.sh", f"{folder}/bundle", str(home.status_file)]


def test_the_unit_starts_the_service(home):
    text = unit_text(home)
    assert f"ExecStart={sys.executable} -m gantry_deploy.cli.entry onboard service --home {home.root}" in text
    assert (home.root / "gantry-robot.service").read_text() == text


def test_the_status_of_a_runtime_that_the_service_started(tmp_path, monkeypatch):
    monkeypatch.delenv(STATUS_VARIABLE, raising=False)
    assert publisher_for_service() is None
    monkeypatch.setenv(STATUS_VARIABLE, str(tmp_path / "status.json"))
    publisher = publisher_for_service()
    fault = Fault(FaultCode.TILT, "it lies on its side", 1.0)
    for mode in (Mode.POLICY, Mode.DAMP):
        report = TickReport(1.0, mode, fault, None, np.zeros(3), None, None, 0.02, 0.001)
        publisher.note(report, {"ticks": 7, "missed_deadlines": 2})
    publisher.close()
    status = running_status(tmp_path / "status.json")
    assert (status.mode, status.fault, status.ticks, status.missed_deadlines) == ("DAMP", "it lies on its side", 7, 2)
    assert 0.0 <= status.age_s < PATIENCE_S
    assert "the robot is in DAMP" in unsafe_reason(tmp_path / "status.json")
    # A file of a process that has ended says nothing of the present.
    text = (tmp_path / "status.json").read_text().replace(status.process, "1:1")
    (tmp_path / "status.json").write_text(text)
    assert running_status(tmp_path / "status.json") is None
    assert unsafe_reason(tmp_path / "status.json") == ""

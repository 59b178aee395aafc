"""A fake Unitree robot in a process of its own, and a loop that runs on it."""

from __future__ import annotations

import time

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyConfig, SafetyMachine
from gantry_deploy.errors import SafetyError
from gantry_hardware.robots import robot_spec
from gantry_sim.unitree.fake_process import FakeProcess

PATIENCE_S = 60.0
PATIENT = SafetyConfig(state_timeout_s=1.0, max_missed_deadlines=1000, stand_duration_s=0.1, stand_tolerance_rad=3.0)
"""A busy machine is no fault; standing takes a moment."""


def patient_fake(robot="go2", *options, domain=None):
    """A fake that hangs and waits a second for its next command."""
    return FakeProcess(robot, "--hang", "--command-timeout-ms", "1000", *options, domain=domain)


def wait_for(what, condition, patience_s=PATIENCE_S):
    """Poll until a condition gives something true, which is returned."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come about within {patience_s:g} s")


def controller(robot, runner=None, config=PATIENT):
    """A loop over a connected robot."""
    return Controller(robot, runner, SafetyMachine(robot.spec, config), rate_hz=50.0)


def unitree_robot(fake, name="go2", **options):
    """The driver, not connected."""
    from gantry_hardware.unitree.robot import UnitreeRobot

    patient = {"command_timeout_s": 1.0, "guard_timeout_s": 1.0}
    return UnitreeRobot(robot_spec(name), interface="lo", domain=fake.domain, **patient | options)


def run_until(loop, mode: Mode, patience_s=PATIENCE_S):
    """Run the loop until it is in a mode."""
    end_s = time.monotonic() + patience_s

    def look(report):
        if report.mode is mode or time.monotonic() > end_s:
            loop.stop()

    loop.run(on_tick=look)
    assert loop.safety.mode is mode, f"{loop.safety.mode}: {loop.safety.fault}"


def stand_again(loop):
    """Stand, as an operator would have it: reset, then stand as soon as that is granted."""
    refusal = ""
    for _ in range(200):
        loop.run(0.1)
        if loop.safety.mode is Mode.STAND:
            return
        try:
            loop.request("reset" if loop.safety.mode is Mode.DAMP else "stand")
        except SafetyError as error:
            refusal = str(error)
    raise AssertionError(f"The robot does not stand: {loop.safety.fault}, {refusal}")

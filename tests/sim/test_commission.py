"""A first day with a simulated robot that hangs: what readings tell, what only eyes tell, and the stop."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.commission.report import write_report
from gantry_deploy.commission.site import CommissionCfg, Site
from gantry_deploy.commission.steps import commission
from gantry_deploy.commission.still import floor_of
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.robots import robot_spec

SPEC = robot_spec("go2")
CFG = CommissionCfg(readings_s=0.5, period_s=1.0, policy_s=1.0, joints=("FR_hip_joint", "FL_calf_joint"))


class Hanging:
    """A simulated Go2 by its base, read and commanded through an order and signs that may be wrong."""

    def __init__(self, reads=None, writes=None, signs=None):
        self.true = make_backend("mujoco", SPEC, fixed_base=True)
        self.spec = SPEC
        self._reads, self._writes = reads, writes
        self._signs = np.ones(SPEC.num_joints) if signs is None else signs
        self.seen = []
        """True positions of the joints in every tick."""

    def __getattr__(self, name):
        return getattr(self.true, name)

    def read(self):
        state = self.true.read()
        self.seen.append(state.joint_pos_rad.copy())
        order = slice(None) if self._reads is None else self._reads
        names = ("joint_pos_rad", "joint_vel_rad_s", "joint_effort_nm")
        return replace(state, **{name: (getattr(state, name) * self._signs)[order] for name in names})

    def write(self, command):
        order = slice(None) if self._writes is None else self._writes
        names = ("pos_rad", "vel_rad_s", "effort_nm")
        swapped = {name: getattr(command, name)[order] for name in names}
        gains = {name: getattr(command, name)[order] for name in ("stiffness_nm_rad", "damping_nm_s_rad")}
        return self.true.write(replace(command, **swapped, **gains))


class Eyes:
    """An operator who agrees to everything and says truly which joint moved."""

    def __init__(self, robot, press_after=None):
        self.robot, self.press_after = robot, press_after
        self.lines, self.asked = [], []

    def tell(self, text):
        self.lines.append(text)
        if "moving" in text or "Holding" in text:
            self.robot.seen.clear()

    def ask(self, question, answers=("y", "n")):
        self.asked.append(question)
        if not question.startswith("Did "):
            return "y"
        seen = np.array(self.robot.seen)[101:]  # After the second in which gains grow.
        moved = SPEC.joint_names[int(np.abs(seen - seen[0]).max(axis=0).argmax())]
        return "y" if f"Did {moved}," in question else "n"

    def pressed(self):
        return self.press_after is not None and len(self.robot.seen) > self.press_after


def day(robot, steps, cfg=CFG, bundle=None, press_after=None):
    robot.connect()
    site, results = Site(robot, Eyes(robot, press_after), cfg, bundle), []
    commission(site, steps, results)
    return site, {result.name: result for result in results}


def test_a_sound_robot_passes_and_the_report_holds_every_step(tmp_path):
    bundle = load_bundle(find_bundle("pretrained:go2-walk"))
    site, results = day(Hanging(), ("readings", "network", "joints", "policy"), bundle=bundle)
    assert {name: result.verdict for name, result in results.items()} == dict.fromkeys(results, "passed")
    moves = results["joints"].data["moves"]
    assert [move["joint"] for move in moves] == list(CFG.joints)
    for move in moves:
        own = move["moved"][SPEC.joint_index(move["joint"])]
        assert own == pytest.approx(move["asked"], abs=0.06)
    page = write_report(tmp_path / "report", site, "mujoco", list(results.values())).read_text()
    assert "FL_calf_joint" in page
    assert len(json.loads((tmp_path / "report" / "results.json").read_text())["steps"]) == 4


def test_readings_tell_of_exchanged_joints_and_of_a_sign():
    order = np.arange(12)
    order[[0, 3]] = order[[3, 0]]
    _, results = day(Hanging(reads=order), ("joints",))
    assert "FL_hip_joint moved most" in results["joints"].rows[0][1]
    signs = np.ones(12)
    signs[0] = -1.0
    _, results = day(Hanging(signs=signs), ("joints",))
    assert results["joints"].verdict == "failed"
    assert "FR_hip_joint" in str(results["joints"].rows[0])


def test_eyes_tell_of_joints_that_are_exchanged_in_readings_and_commands_alike():
    order = np.arange(12)
    order[[0, 3]] = order[[3, 0]]
    site, results = day(Hanging(reads=order, writes=order), ("joints",))
    assert results["joints"].verdict == "failed"
    assert results["joints"].rows[0][1] == "the operator saw something else"
    assert results["joints"].rows[1][1] == "as commanded"
    assert len(site.operator.asked) == 3


def test_the_stop_damps_and_a_key_during_a_motion_ends_it():
    robot = Hanging()
    _, results = day(robot, ("stop",), press_after=30)
    assert results["stop"].verdict == "passed"
    _, results = day(Hanging(), ("joints",), press_after=130)
    assert results["joints"].verdict == "failed"
    assert "The operator stopped the motion" in results["joints"].text


def test_after_a_failed_step_motions_are_asked_for_again():
    order = np.arange(12)
    order[[0, 1]] = order[[1, 0]]
    robot = Hanging(reads=order)
    robot.connect()

    class Careful(Eyes):
        def ask(self, question, answers=("y", "n")):
            return "n" if "nevertheless" in question else super().ask(question, answers)

    results = []
    commission(Site(robot, Careful(robot), CFG), ("joints", "stop"), results)
    assert [result.verdict for result in results] == ["failed", "skipped"]


def test_the_floor_of_a_camera_that_looks_down_too_steeply():
    rng = np.random.default_rng(2)
    points = np.stack((rng.uniform(0.5, 2.0, 4000), rng.uniform(-1.0, 1.0, 4000), np.full(4000, -0.3)), axis=1)
    flat = floor_of(points)
    assert flat["height_m"] == pytest.approx(0.3)
    assert abs(flat["pitch_rad"]) < 1e-9
    pitch = 0.1
    turn = np.array([[np.cos(pitch), 0, np.sin(pitch)], [0, 1, 0], [-np.sin(pitch), 0, np.cos(pitch)]])
    tilted = floor_of(points @ turn.T)
    assert tilted["pitch_rad"] == pytest.approx(pitch, abs=1e-6)
    assert abs(tilted["roll_rad"]) < 1e-6


def test_a_closed_terminal_ends_the_day_with_a_report(tmp_path):
    options = ["--backend", "mujoco", "--option", "fixed_base=true", "--output", str(tmp_path / "day")]
    command = [
        sys.executable,
        "-m",
        "gantry_deploy.cli.entry",
        "commission",
        "go2",
        *options,
        "--steps",
        "network,joints",
    ]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    assert "No answer comes any more" in done.stderr
    assert "Traceback" not in done.stderr
    steps = json.loads((tmp_path / "day" / "results.json").read_text())["steps"]
    assert [step["name"] for step in steps] == ["network"]
    again = subprocess.run(command, input="", capture_output=True, text=True, timeout=300)
    assert "exists already" in again.stderr

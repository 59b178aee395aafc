"""The Unitree driver on a fake G1 that hangs: the other family of messages, and its kind of machine."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cyclonedds")

from gantry_deploy.control.safety import Mode
from gantry_fixtures.unitree import controller, patient_fake, run_until, stand_again, unitree_robot, wait_for
from gantry_hardware import JointCommand, RobotError
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.robots import robot_spec
from gantry_hardware.unitree.codec import CommandCodec
from gantry_hardware.unitree.idl import CLASSES
from gantry_hardware.unitree.link import Link, send
from gantry_hardware.unitree.models import unitree_model

G1 = robot_spec("g1")


def test_a_g1_is_driven_by_name_and_by_its_kind_of_machine():
    fake = patient_fake("g1")
    try:
        with pytest.raises(RobotError, match="says it is mode_machine 5, expected 2"):
            unitree_robot(fake, "g1", mode_machine=2).connect()
        check_backend(unitree_robot(fake, "g1"), hold_s=0.3, tolerance_rad=3.0, max_age_s=5.0)
        assert fake.report()["violations"] == {}

        other = Link("lo", fake.domain)
        writer = other.writer("rt/lowcmd", CLASSES["unitree_hg"][1])
        command = CommandCodec(unitree_model("g1"), G1).encode(JointCommand.damping(G1), 4)

        def refused():
            send(writer, CLASSES["unitree_hg"][1], command)
            return fake.report()["commands"]["refused"].get("mode_machine")

        assert wait_for("a refusal", refused)
        other.close()

        robot = unitree_robot(fake, "g1", mode_machine=5)
        robot.connect()
        loop = controller(robot)
        stand_again(loop)  # As soon as the limbs hang still.
        assert np.isfinite(robot.read().joint_pos_rad).all()
        fake.say("fault mode_machine value=9")
        run_until(loop, Mode.DAMP)
        assert loop.safety.fault.kind == "mode_machine"
        robot.close()
    finally:
        fake.close()

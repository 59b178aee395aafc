"""A robot of an outside package, with its own embodiment, backend and observation term, over real DDS."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy")

from gantry_deploy.cli.main import main
from gantry_ros.testing import wait_until

pytestmark = [pytest.mark.ros, pytest.mark.slow]


def test_its_policy_drives(own_rig, tmp_path):
    run = tmp_path / "run"
    assert main(["train", "rover-follow", "--steps", "600k", "--episodes", "10", "--run-dir", str(run)]) == 0
    robot = own_rig.process("sim_robot_node", robot="rover", backend="rover", rate_hz=100.0)
    with robot, own_rig.policy(run / "bundle"):
        robot.wait_for_output("on backend 'rover'")
        own_rig.bring_to_policy()

        def driven():
            own_rig.operator.drive(0.3)
            newest = own_rig.operator.commands[-1]
            told = dict(zip(newest.name, newest.position, strict=True))
            return min(told[f"{side}_wheel_joint/velocity"] for side in ("left", "right")) > 1.5

        wait_until(driven, "wheel speeds forwards", patience_s=20.0)

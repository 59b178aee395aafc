"""The scripted operator: its exit code says whether the robot did what it asked for."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray  # noqa: E402
from std_srvs.srv import Trigger  # noqa: E402

from gantry_hardware.errors import GantryError  # noqa: E402
from gantry_ros.convert import robot as convert  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost, answer  # noqa: E402


@pytest.mark.parametrize(
    ("reason", "code", "text"),
    [
        ("", 0, "Profile done."),
        ("it has its own ideas.", 1, "Profile done, but 'policy_node' does not stop: it has its own ideas."),
    ],
)
def test_a_policy_that_does_not_stop_when_asked_is_exit_code_1(own_rig, reason, code, text):
    def stop():
        if reason:
            raise GantryError(reason)
        return "stopped"

    with NodeHost("policy_node") as host:
        node = host.node
        publisher = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.REPORT_QOS)

        def report():
            stamp = node.get_clock().now().to_msg()
            publisher.publish(convert.diagnostics_message(stamp, "policy_node", "go2", "POLICY", {"mode": "POLICY"}))

        node.create_timer(0.05, report)
        node.create_service(Trigger, "~/stop", answer(stop))
        host.start()
        with own_rig.process("operator_node", profile="0.3:0.5,0,0") as drive:
            assert drive.wait() == code
            assert text in drive.output

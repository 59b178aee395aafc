"""What viewers need from live nodes: the description, latched, and frames that hang together, from one node alone."""

from __future__ import annotations

import itertools
import math

import pytest

pytest.importorskip("rclpy")

from gantry_deploy.recording.frames import RATE_HZ
from gantry_hardware.model.description import robot_description
from gantry_hardware.robots import robot_spec
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost
from gantry_ros.testing import wait_until

pytestmark = [pytest.mark.ros, pytest.mark.slow]


@pytest.fixture
def viewer(rig):
    """A node that listens."""
    with NodeHost("viewer") as host:
        host.start()
        yield host.node


def publishers_of(node, topic):
    return {info.node_name for info in node.get_publishers_info_by_topic(topic)}


def test_a_viewer_that_comes_late_gets_the_description_from_the_robot_alone(rig, viewer, bundles):
    from std_msgs.msg import String

    with rig.robot(), rig.policy(bundles / "good") as policy:
        policy.wait_for_output("answers")
        heard = []
        viewer.create_subscription(String, "/robot_description", heard.append, topics.LATCHED_QOS)
        wait_until(lambda: heard, "the description")
        assert heard[0].data == robot_description(robot_spec("go2")).urdf
        assert publishers_of(viewer, "/robot_description") == {"sim_robot_node"}


def test_a_robot_that_another_node_describes_keeps_silent(rig, viewer):
    with rig.robot(publish_body=False):
        rig.operator.fresh_values("sim_robot_node")
        for topic in ("/robot_description", "/tf", "/tf_static"):
            assert publishers_of(viewer, topic) == set()


def test_without_the_messages_of_tf_the_node_says_so_and_runs(rig):
    try:
        import tf2_msgs  # noqa: F401
    except ImportError:
        with rig.robot() as robot:
            assert "No tf, only robot_description: the package tf2_msgs is not installed here" in robot.output
    else:
        pytest.skip("tf2_msgs is installed")


def test_frames_hang_together_from_the_odometry_to_the_feet(rig, viewer, bundles):
    message = pytest.importorskip("tf2_msgs.msg", reason="tf2_msgs is not among the ROS 2 wheels").TFMessage
    moving, static = [], []
    with rig.robot(), rig.policy(bundles / "good") as policy:
        policy.wait_for_output("answers")
        viewer.create_subscription(message, "/tf", moving.append, topics.TF_QOS)
        viewer.create_subscription(message, "/tf_static", static.append, topics.LATCHED_QOS)
        wait_until(lambda: len(moving) > 20 and static, "frames")
        assert publishers_of(viewer, "/tf") == publishers_of(viewer, "/tf_static") == {"sim_robot_node"}
    parents = {t.child_frame_id: t.header.frame_id for t in [*moving[-1].transforms, *static[0].transforms]}
    assert len(parents) == 1 + 12 + 5
    for link in parents:
        while link in parents:
            link = parents[link]
        assert link == "odom"
    stamps = [m.transforms[0].header.stamp for m in moving]
    steps_s = [b.sec - a.sec + 1e-9 * (b.nanosec - a.nanosec) for a, b in itertools.pairwise(stamps)]
    # A node that was held up stamps a reading late and the next one on time, never more often than it may on average.
    assert sum(steps_s) / len(steps_s) > 0.8 / RATE_HZ
    for t in moving[-1].transforms:
        quat = t.transform.rotation
        assert math.isclose(quat.w**2 + quat.x**2 + quat.y**2 + quat.z**2, 1.0, abs_tol=1e-9)

"""Messages that ROS itself has serialised become a dataset, whatever it pads them with."""

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("pyarrow")
pytest.importorskip("av")

from mcap.writer import Writer
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from gantry_deploy.dataset import Dataset
from gantry_deploy.dataset.bags.config import bag_cfg
from gantry_deploy.dataset.bags.convert import convert_bags
from gantry_deploy.dataset.bags.definitions import known_definition


@pytest.mark.ros
def test_padded_messages(tmp_path):
    """A state without velocities has bytes behind its end that mean nothing."""
    with open(tmp_path / "bag.mcap", "wb") as stream:
        writer = Writer(stream)
        writer.start(profile="ros2")
        channels = {}
        for topic, kind in (
            ("/joints", "sensor_msgs/msg/JointState"),
            ("/target", "trajectory_msgs/msg/JointTrajectory"),
        ):
            schema = writer.register_schema(kind, "ros2msg", known_definition(kind).encode())
            channels[topic] = writer.register_channel(topic, "cdr", schema)
        for index in range(6):
            state = JointState(name=["a", "b"], position=[float(index), 1.0])
            point = JointTrajectoryPoint(positions=[2.0 * index])
            target = JointTrajectory(joint_names=["a"], points=[point])
            for topic, message in (("/joints", state), ("/target", target)):
                data = bytes(serialize_message(message))
                writer.add_message(channels[topic], 10**18 + index * 10**8, data, 0)
        assert len(bytes(serialize_message(state))) > 52  # All of its numbers, in plain CDR.
        writer.finish()
    features = {"observation.state": "/joints", "action": "/target"}
    convert_bags([tmp_path / "bag.mcap"], tmp_path / "d", bag_cfg({"fps": 10, "features": features}))
    frames = Dataset(tmp_path / "d").frames(0)
    np.testing.assert_array_equal(frames["observation.state"], [[i, 1] for i in range(6)])
    np.testing.assert_array_equal(frames["action"], [[2 * i] for i in range(6)])

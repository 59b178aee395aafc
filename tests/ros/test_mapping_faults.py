"""What a mapping node makes of wrong stamps, frames and calibrations, over real DDS: refused, told, gone on."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import CameraInfo, Image, PointCloud2, PointField  # noqa: E402

from gantry_mapping.sensing.camera import REALSENSE_LIKE  # noqa: E402
from gantry_ros.convert import map as convert_map  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.simulated.depth_publisher import CAMERA_FRAME  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

TABLE_M = 0.35
HEIGHT_M = 0.32


class Sensors:
    """Odometry, a camera and a scanner of a robot that stands, stamped by this machine's clock."""

    def __init__(self):
        self.host = NodeHost("sensors")
        node = self.host.node
        self.odom = node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
        self.infos = node.create_publisher(CameraInfo, topics.CAMERA_INFO, topics.WRITER_QOS)
        self.images = node.create_publisher(Image, topics.DEPTH, topics.WRITER_QOS)
        self.clouds = node.create_publisher(PointCloud2, topics.POINTS, topics.WRITER_QOS)
        self.maps = []
        self.frames = []
        node.create_subscription(PointCloud2, topics.ELEVATION_MAP, self.on_map, topics.READER_QOS)
        self.host.start()

    def on_map(self, message):
        self.maps.append(convert_map.map_snapshot(message))
        self.frames.append(message.header.frame_id)

    def now_s(self):
        return 1e-9 * self.host.node.get_clock().now().nanoseconds

    def say_pose(self, ahead_s=0.0, frame_id="odom", child="base_link", x=0.0):
        message = Odometry(child_frame_id=child)
        message.header.frame_id = frame_id
        message.header.stamp = convert_map.stamp_from_s(self.now_s() + ahead_s)
        message.pose.pose.position.x, message.pose.pose.position.z = x, HEIGHT_M
        message.pose.pose.orientation.w = 1.0
        self.odom.publish(message)

    def show_table(self, frame_id, ahead_s=0.0):
        """The top of a table before the robot, told in the base's axes at its height over the floor."""
        x, y = np.meshgrid(np.linspace(0.35, 0.75, 40), np.linspace(-0.5, 0.5, 60))
        z = np.full_like(x, TABLE_M if frame_id == "odom" else TABLE_M - HEIGHT_M)
        points = np.stack([x, y, z], axis=-1).reshape(-1, 3).astype("<f4")
        message = PointCloud2(height=1, width=len(points), point_step=12, row_step=12 * len(points))
        message.fields = [PointField(name=name, offset=4 * i, datatype=7, count=1) for i, name in enumerate("xyz")]
        message.data.frombytes(points.tobytes())
        message.header.frame_id = frame_id
        message.header.stamp = convert_map.stamp_from_s(self.now_s() + ahead_s)
        self.clouds.publish(message)

    def show(self, width=48, height=27, *, frame_id=CAMERA_FRAME, ahead_s=0.0, info=None):
        stamp = convert_map.stamp_from_s(self.now_s() + ahead_s)
        info = convert_map.camera_info_message(REALSENSE_LIKE, stamp, frame_id) if info is None else info
        info.header.stamp, info.header.frame_id = stamp, frame_id
        self.infos.publish(info)
        depth = np.full((height, width), 0.8, np.float32)
        self.images.publish(convert_map.depth_image_message(depth, stamp, frame_id))


@pytest.fixture
def sensors():
    made = Sensors()
    yield made
    made.host.close()


def repeat(send, condition, what, patience_s=60.0):
    def done():
        send()
        time.sleep(0.05)
        return condition()

    return wait_until(done, what, patience_s)


def heights_seen(snapshot):
    return snapshot.elevation_m[snapshot.variance_m2 < 0.05]


@pytest.mark.parametrize(
    ("frame_id", "parameters"),
    [
        ("base_link", {}),
        ("odom", {}),
        ("livox_frame", {"frame_poses": "livox_frame=0 0 0 0 0 0"}),
        ("body", {"same_frames": "body=base_link"}),
    ],
)
def test_a_table_is_as_high_as_it_is_in_every_frame_that_is_known(rig, sensors, frame_id, parameters):
    with rig.process("mapping_node", input="points", **parameters) as node:

        def send():
            sensors.say_pose()
            sensors.show_table(frame_id)
            sensors.say_pose()

        repeat(send, lambda: len(sensors.maps) > 3, "maps")
        seen = heights_seen(sensors.maps[-1])
        assert len(seen) > 40
        np.testing.assert_allclose(seen, TABLE_M, atol=0.02)
        assert node.stop() == 0


def test_a_cloud_in_an_unknown_frame_is_refused_by_one_line_with_the_names(rig, sensors):
    with rig.process("mapping_node", input="points", diagnostics_rate_hz=10.0) as node:

        def send():
            sensors.say_pose()
            sensors.show_table("livox_frame")

        repeat(send, lambda: "No map: frames come but none is fused" in node.output, "the reason")
        refused = int(rig.operator.values("mapping_node")["refused messages"])
        repeat(send, lambda: int(rig.operator.values("mapping_node")["refused messages"]) > refused + 20, "more")
        lines = [line for line in node.output.splitlines() if "livox_frame" in line]
        assert len(lines) <= 3, lines  # the refusal, why there is no map, and at most once without the other
        assert all(f"'{name}'" in lines[-1] for name in (CAMERA_FRAME, "base_link", "odom"))
        assert "frame_poses" in lines[-1]
        assert not sensors.maps
        repeat(lambda: (sensors.say_pose(), sensors.show_table("base_link")), lambda: sensors.maps, "a map")
        assert node.stop() == 0


@pytest.mark.parametrize(
    ("pose", "names"),
    [
        ({"frame_id": "map"}, ("'map'", "'odom'")),
        ({"child": "base_footprint"}, ("'base_footprint'", "'base_link'")),
    ],
)
def test_odometry_of_another_frame_or_body_is_refused_with_both_names(rig, sensors, pose, names):
    with rig.process("mapping_node", input="points", diagnostics_rate_hz=10.0) as node:
        say = lambda: rig.operator.values("mapping_node").get("message", "")  # noqa: E731
        repeat(lambda: sensors.say_pose(**pose), lambda: names[0] in say(), "the refusal")
        assert all(name in say() for name in names)
        assert "no odometry from odom yet" in say()
        repeat(lambda: sensors.say_pose(), lambda: "no frames" in say(), "odometry as it should be")
        assert node.stop() == 0


@pytest.mark.parametrize("source", ["pose", "cloud"])
@pytest.mark.parametrize("ahead_s", [1800.0, 0.8])
def test_one_message_from_ahead_costs_itself(rig, sensors, source, ahead_s):
    with rig.process("mapping_node", input="points", diagnostics_rate_hz=20.0) as node:
        values = lambda: rig.operator.values("mapping_node")  # noqa: E731

        def send(pose_s=0.0, cloud_s=0.0):
            sensors.say_pose(pose_s)
            sensors.show_table("base_link", cloud_s - 0.01)
            sensors.say_pose()

        repeat(send, lambda: len(sensors.maps) > 3, "maps")
        before = np.count_nonzero(heights_seen(sensors.maps[-1]))
        key = "poses: stamped ahead of the clock" if source == "pose" else "frames: stamped ahead of the clock"
        wrong = {"pose": (ahead_s, 0.0), "cloud": (0.0, ahead_s)}[source]
        repeat(lambda: send(*wrong), lambda: values().get(key, "0") != "0", "the refusal")
        ahead, fused = int(values()[key]), int(values()["frames: fused"])
        repeat(send, lambda: int(values()["frames: fused"]) > fused + 3, "going on")
        assert "poses: taken: the robot or its clock has started over" not in values()
        assert np.count_nonzero(heights_seen(sensors.maps[-1])) >= before
        assert int(values()[key]) <= ahead + 3
        assert sensors.maps[-1].stamp_s <= sensors.now_s()
        assert node.stop() == 0


def test_a_robot_whose_clock_is_ahead_is_refused_with_the_time_and_taken_with_the_setting(rig, sensors):
    def send():
        sensors.say_pose(3.0)
        sensors.show_table("base_link", 2.99)
        sensors.say_pose(3.0)

    with rig.process("mapping_node", input="points", diagnostics_rate_hz=10.0) as node:
        repeat(send, lambda: "The odometry is stamped ahead of the clock by 3" in node.output, "the refusal")
        assert not sensors.maps
        assert node.stop() == 0
    with rig.process("mapping_node", input="points", max_ahead_s=5.0) as node:
        repeat(send, lambda: sensors.maps, "a map")
        assert node.stop() == 0


def test_a_node_whose_simulated_clock_is_not_told_goes_by_the_poses(rig, sensors):
    with rig.process("mapping_node", input="points", use_sim_time=True) as node:

        def send():
            sensors.say_pose()
            sensors.show_table("base_link", -0.01)
            sensors.say_pose()

        repeat(send, lambda: len(sensors.maps) > 3, "maps")
        assert node.stop() == 0


def test_an_image_that_is_smaller_than_its_calibration_is_told_with_both_sizes_and_binning_is_read(rig, sensors):
    sensor = CameraInfo(width=96, height=54, p=[57.2, 0.0, 47.5, 0.0, 0.0, 57.2, 26.5, 0.0, 0.0, 0.0, 1.0, 0.0])
    with rig.process("mapping_node", diagnostics_rate_hz=10.0) as node:

        def send():
            sensors.say_pose()
            sensors.show(info=sensor, ahead_s=-0.01)
            sensors.say_pose()

        wanted = "an image of 48 x 27 pixels for a camera of 96 x 54 pixels"
        repeat(send, lambda: "No map: frames come but none is fused: another size" in node.output, "the reason")
        assert wanted in node.output
        sensor.binning_x = sensor.binning_y = 2
        repeat(send, lambda: sensors.maps, "a map")
        assert "Camera of 48 x 27 pixels, focal lengths 28.6, 28.6." in node.output
        assert node.stop() == 0


def test_pictures_of_another_camera_are_refused_with_both_names(rig, sensors):
    with rig.process("mapping_node", diagnostics_rate_hz=10.0) as node:
        say = lambda: rig.operator.values("mapping_node").get("message", "")  # noqa: E731

        def send():
            sensors.say_pose()
            sensors.show(frame_id="rear_camera_optical_frame", ahead_s=-0.01)
            sensors.say_pose()

        repeat(send, lambda: "'rear_camera_optical_frame'" in say(), "the refusal")
        assert f"'{CAMERA_FRAME}'" in say()
        repeat(lambda: (sensors.say_pose(), sensors.show()), lambda: sensors.maps, "a map")
        assert node.stop() == 0

"""Depth over ROS 2 for any robot, and a mapping node that opens its cameras itself."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from geometry_msgs.msg import Quaternion, Transform, TransformStamped, Vector3  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import CameraInfo, Image, PointCloud2  # noqa: E402
from std_msgs.msg import Header  # noqa: E402

from gantry_deploy.depth.recorded import Recorded, save_images  # noqa: E402
from gantry_deploy.depth.registry import make_source, parse_choice  # noqa: E402
from gantry_deploy.depth.site import mount_of_pose, product, quat_of_rpy  # noqa: E402
from gantry_deploy.depth.source import DepthError  # noqa: E402
from gantry_fixtures.depth import floor_depth, wait_for  # noqa: E402
from gantry_hardware.backends.state import RobotState  # noqa: E402
from gantry_hardware.errors import UnknownNameError  # noqa: E402
from gantry_mapping.sensing.camera import REALSENSE_LIKE, DepthCamera  # noqa: E402
from gantry_ros.convert import map as convert_map  # noqa: E402
from gantry_ros.convert import robot as convert  # noqa: E402
from gantry_ros.robots.static_transforms import StaticTransforms  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402

TOPIC = "/eye/depth/image"
CAMERA = DepthCamera(48, 32, 24.0, 24.0, 23.5, 15.5)
IMAGE = np.full((32, 48), 1.25, np.float32)


class Driver:
    """A camera's ROS driver."""

    def __init__(self):
        self.host = NodeHost("driver")
        self.infos = self.host.node.create_publisher(CameraInfo, "/eye/depth/camera_info", topics.WRITER_QOS)
        self.images = self.host.node.create_publisher(Image, TOPIC, topics.WRITER_QOS)
        self.depth_m, self.shift_s, self.flowing, self.calibrated = IMAGE, 0.0, True, True
        self.host.create_timer(0.03, self.publish)
        self.host.start()

    def publish(self):
        if not self.flowing:
            return
        now_s = 1e-9 * self.host.node.get_clock().now().nanoseconds
        stamp = convert_map.stamp_from_s(now_s + self.shift_s)
        if self.calibrated:
            self.infos.publish(convert_map.camera_info_message(CAMERA, stamp, "eye"))
        self.images.publish(convert_map.depth_image_message(self.depth_m, stamp, "eye"))


@pytest.fixture
def driver(rig):
    made = Driver()
    yield made
    made.host.close()


def source_of(text):
    return make_source(*parse_choice(text))


def images_after(source, count=1):
    """So many images from now on, read as a loop does."""
    found = []

    def enough():
        found.extend(source.read(time.monotonic()))
        return len(found) >= count

    wait_for(enough, "image")
    return found


def test_a_topic_is_a_camera_of_any_robot_until_it_falls_silent(driver):
    source = source_of(f"ros,topic={TOPIC},pose=0.3 0 0.1 0 0.5 0")
    source.open()
    try:
        assert source.cameras == (mount_of_pose((0.3, 0, 0.1, 0, 0.5, 0)).camera(CAMERA, "eye"),)
        images = images_after(source, 3)
        np.testing.assert_array_equal(images[0].depth_m, IMAGE)
        ages_s = [time.monotonic() - image.stamp_s for image in images]
        assert all(-0.01 <= age_s < 30.0 for age_s in ages_s)
        driver.depth_m = IMAGE[:16]
        wait_for(lambda: "of another size (48 x 16 pixels, expected 48 x 32)" in source.trouble(), "reason")
        driver.depth_m = 1000.0 * IMAGE
        wait_for(lambda: "millimetres are sent as 16UC1" in source.trouble(), "reason")
        driver.depth_m, driver.shift_s = IMAGE, 60.0
        wait_for(lambda: "s ahead of this machine's clock" in source.trouble(), "reason")
        driver.shift_s = 0.0
        images_after(source)
        wait_for(lambda: source.trouble() == "", "images")
        driver.flowing = False
        wait_for(lambda: source.trouble().startswith(f"no image of ros {TOPIC} for"), "silence")
    finally:
        source.close()


def test_a_camera_on_another_clock_is_followed_by_its_arrivals(driver):
    driver.shift_s = 5000.0
    source = source_of(f"ros,topic={TOPIC},pose=0 0 0 0 0 0,clock=arrival")
    source.open()
    try:
        (image, *_) = images_after(source)
        assert abs(time.monotonic() - image.stamp_s) < 30.0
    finally:
        source.close()


def test_what_does_not_come_is_named(driver):
    driver.calibrated = False
    for text, what in (
        (f"ros,topic={TOPIC},pose=0 0 0 0 0 0,wait_s=0.5", "No CameraInfo on '/eye/depth/camera_info' within 0.5 s"),
        (f"ros,topic={TOPIC}", "needs to know where the camera is"),
        (f"ros,topic={TOPIC},pose=0 0 0 0 0 0,tf=true", "choose one"),
        (f"ros,topic={TOPIC},pose=0 0 0 0 0 0,clock=heade", "Did you mean 'header'"),
    ):
        with pytest.raises((DepthError, UnknownNameError), match=what):
            source_of(text).open()


def test_a_fixed_transform_through_several_frames_is_the_cameras_pose():
    def transform(parent, child, pos, quat):
        w, x, y, z = quat
        return TransformStamped(
            header=Header(frame_id=parent),
            child_frame_id=child,
            transform=Transform(
                translation=Vector3(x=pos[0], y=pos[1], z=pos[2]), rotation=Quaternion(w=w, x=x, y=y, z=z)
            ),
        )

    turn = quat_of_rpy(0.0, math.pi / 2, 0.0)  # x to -z
    optical = (0.5, -0.5, 0.5, -0.5)
    known = StaticTransforms()
    known.add([transform("eye_link", "/eye", (0.0, 0.0, 0.0), optical)])
    assert known.pose("base_link", "eye") is None
    known.add(
        [transform("head", "eye_link", (0.1, 0.0, 0.0), turn), transform("base_link", "head", (0.3, 0.0, 0.2), turn)]
    )
    pos, quat = known.pose("base_link", "eye")
    np.testing.assert_allclose(pos, (0.3, 0.0, 0.1), atol=1e-12)
    expected = np.array(product(product(turn, turn), optical))
    np.testing.assert_allclose(abs(np.dot(quat, expected)), 1.0, atol=1e-12)
    known.add([transform("eye", "base_link", (0.0, 0.0, 0.0), turn)])
    assert known.pose("nowhere", "eye") is None  # A circle ends.


def test_the_mapping_node_opens_a_camera_itself_and_says_when_it_ends(rig, tmp_path):
    folder = tmp_path / "images"
    image = floor_depth(REALSENSE_LIKE, 0.32).astype(np.float32)
    save_images(folder, REALSENSE_LIKE, [Recorded(0.05 * k, image) for k in range(120)])
    host = NodeHost("player")
    odometry = host.node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
    maps = []
    host.node.create_subscription(PointCloud2, topics.ELEVATION_MAP, maps.append, topics.READER_QOS)

    def say_pose():
        stamp_s = 1e-9 * host.node.get_clock().now().nanoseconds
        state = RobotState(
            stamp_s, *(np.zeros(12),) * 3, np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3),
            pos_base_in_world_m=np.array([0.0, 0.0, 0.32]), lin_vel_base_in_base_m_s=np.zeros(3),
        )  # fmt: skip
        odometry.publish(convert.odometry_message(state, convert_map.stamp_from_s(stamp_s)))

    host.create_timer(0.02, say_pose)
    host.start()
    try:
        with rig.process("mapping_node", depth_source=f"recorded,path={folder}") as node:
            wait_for(lambda: len(maps) > 3, "maps")
            snapshot = convert_map.map_snapshot(maps[-1])
            sure = snapshot.variance_m2 < 0.01
            assert sure.sum() > 50
            np.testing.assert_allclose(snapshot.elevation_m[sure], 0.0, atol=0.03)
            wait_for(lambda: "no frames: recorded images has ended" in node.output, "reason", 60.0)
        with rig.process("mapping_node", depth_source="recorded,path=nowhere") as refused:
            wait_for(lambda: "There is no recording nowhere" in refused.output, "refusal")
    finally:
        host.close()

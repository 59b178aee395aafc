"""The mapping node over real DDS: the map it makes is the one that training makes, and nothing that arrives ends it."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")
torch = pytest.importorskip("torch")

from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import CameraInfo, Image, PointCloud2  # noqa: E402

from gantry_deploy.control.goals import Goal  # noqa: E402
from gantry_deploy.testing.legs import map_contract_for, tiny_bundle  # noqa: E402
from gantry_hardware.backends.state import RobotState  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_mapping.config import MappingCfg, load_mapping_cfg  # noqa: E402
from gantry_mapping.elevation.elevation_map import ElevationMap  # noqa: E402
from gantry_mapping.elevation.grid import WINDOW_SMALL  # noqa: E402
from gantry_mapping.elevation.snapshot import cfg_of, load_snapshot  # noqa: E402
from gantry_mapping.pipeline import MappingPipeline  # noqa: E402
from gantry_mapping.sensing.camera import REALSENSE_LIKE  # noqa: E402
from gantry_ros.convert import map as convert_map  # noqa: E402
from gantry_ros.convert import robot as convert  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402
from gantry_ros.simulated.depth_publisher import CAMERA_FRAME  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

GO2 = robot_spec("go2")
CAMERA = REALSENSE_LIKE


def pose(k):
    """Walks along a bend, rolling a little."""
    yaw, roll = 0.03 * k, 0.04 * math.sin(k)
    a, b = yaw / 2, roll / 2
    quat = [math.cos(a) * math.cos(b), math.cos(a) * math.sin(b), math.sin(a) * math.sin(b), math.sin(a) * math.cos(b)]
    return np.array([0.04 * k, 0.01 * k, 0.32 + 0.01 * math.sin(k)]), np.array(quat)


def depth(k):
    """Uneven ground, as single precision on the wire."""
    rng = np.random.default_rng(k)
    rows = np.linspace(3.5, 0.4, CAMERA.height)[:, None]
    image = rows + 0.05 * np.sin(0.3 * np.arange(CAMERA.width))[None, :] + rng.normal(0.0, 0.01, (27, 48))
    return np.where(rng.random(image.shape) < 0.1, 0.0, image).astype(np.float32)


def repeat(publish, condition, what):
    """Publish until it has an effect: what is sent before the other side has discovered the writer is lost."""

    def done():
        publish()
        time.sleep(0.05)
        return condition()

    return wait_until(done, what)


class Player:
    """Plays odometry, calibration and depth, and listens to the map."""

    def __init__(self):
        self.host = NodeHost("player")
        node = self.host.node
        self.odom = node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
        self.infos = node.create_publisher(CameraInfo, topics.CAMERA_INFO, topics.WRITER_QOS)
        self.images = node.create_publisher(Image, topics.DEPTH, topics.WRITER_QOS)
        self.clouds = node.create_publisher(PointCloud2, topics.POINTS, topics.WRITER_QOS)
        self.maps = {}
        node.create_subscription(PointCloud2, topics.ELEVATION_MAP, self.on_map, topics.READER_QOS)
        self.host.start()

    def on_map(self, message):
        snapshot = convert_map.map_snapshot(message)
        self.maps[snapshot.stamp_s] = snapshot

    def introduce(self, node):
        """Topics overtake each other: an image that comes before its calibration cannot be used."""
        message = convert_map.camera_info_message(CAMERA, convert_map.stamp_from_s(0.0), CAMERA_FRAME)
        repeat(lambda: self.infos.publish(message), lambda: "Camera of 48 x 27 pixels" in node.output, "the camera")

    def say_pose(self, stamp_s, pos, quat):
        state = RobotState(
            stamp_s, *(np.zeros(12),) * 3, quat, np.zeros(3), np.zeros(3), pos_base_in_world_m=pos,
            lin_vel_base_in_base_m_s=np.zeros(3),
        )  # fmt: skip
        self.odom.publish(convert.odometry_message(state, convert_map.stamp_from_s(stamp_s)))

    def show(self, stamp_s, image):
        stamp = convert_map.stamp_from_s(stamp_s)
        self.infos.publish(convert_map.camera_info_message(CAMERA, stamp, CAMERA_FRAME))
        self.images.publish(convert_map.depth_image_message(image, stamp, CAMERA_FRAME))

    def play(self, stamp_s, pos, quat, image):
        """Send a frame and its pose, again if need be, which changes nothing; returns the map that comes of it."""

        def send():
            self.say_pose(stamp_s, pos, quat)
            self.show(stamp_s, image)

        repeat(send, lambda: stamp_s in self.maps, f"the map of {stamp_s}")
        return self.maps[stamp_s]


@pytest.fixture
def player(rig):
    played = Player()
    yield played
    played.host.close()


@pytest.mark.parametrize("fusion", ["kalman", "wta"])
def test_the_node_makes_the_map_that_the_torch_pipeline_makes(rig, player, tmp_path, fusion):
    """The same stream of depth and poses; the policy's windows agree to within 0.1 mm, and so do their variances."""
    setup = tmp_path / "mapping.yaml"
    setup.write_text(f"fusion: {fusion}\nmap_resolution_m: 0.08\nlocal_grid: {{rows: 26, cols: 16, resolution_m: 0.08, "
                     "center_x_m: 1.0}\n")  # fmt: skip
    cfg = load_mapping_cfg(setup)
    trained = MappingPipeline(cfg, None, torch.zeros(1, dtype=torch.float64))
    times = tmp_path / "times.json"
    with rig.process("mapping_node", mapping=str(setup), idle_rate_hz=0.1, statistics=str(times)) as node:
        player.introduce(node)
        for k in range(12):
            stamp_s, (pos, quat), image = 1000.0 + k / 16, pose(k), depth(k)
            snapshot = player.play(stamp_s, pos, quat, image)
            if k:
                trained.advance(1 / 16)
            as_torch = (torch.tensor(part[None], dtype=torch.float64) for part in (image, pos, quat))
            trained.update(*as_torch)
        assert node.stop() == 0
    told = json.loads(times.read_text())
    assert told["frames"]["fused"] == len(told["samples_s"]["map"]) == told["timing"]["age"]["count"] == 12
    received = ElevationMap(cfg_of(cfg, snapshot), 1, np.zeros(1))
    load_snapshot(received, snapshot)
    yaw = np.array([0.33])
    found = received.query(WINDOW_SMALL, pos[None], yaw)
    expected = trained.map.query(WINDOW_SMALL, torch.tensor(pos[None]), torch.tensor(yaw))
    assert (np.asarray(expected[1]) < 1.0).sum() > 30  # there is something to compare
    assert np.ptp(np.asarray(expected[0])) > 0.05
    np.testing.assert_allclose(found[0], np.asarray(expected[0]), atol=1e-4)
    np.testing.assert_allclose(found[1], np.asarray(expected[1]), rtol=1e-4)


def test_clouds_make_a_map_too(rig, player):
    rays = CAMERA.rays_in_camera(np.zeros(1))
    points = (rays * depth(0).reshape(-1, 1)).astype("<f4")
    message = PointCloud2(height=1, width=len(points), point_step=12, row_step=12 * len(points))
    message.fields = convert_map.map_message(some_map(), convert_map.stamp_from_s(0.0), CAMERA_FRAME).fields[:3]
    message.data.frombytes(points.tobytes())
    message.header.frame_id, message.header.stamp = CAMERA_FRAME, convert_map.stamp_from_s(500.0)
    with rig.process("mapping_node", input="points") as node:

        def play():
            player.say_pose(500.0, *pose(0))
            player.clouds.publish(message)

        repeat(play, lambda: 500.0 in player.maps, "the map")
        assert player.maps[500.0].seen_share(MappingCfg().prior_variance_m2) > 0.02
        assert node.stop() == 0


def some_map():
    from gantry_mapping.elevation.snapshot import MapSnapshot

    return MapSnapshot(np.zeros((3, 3)), np.ones((3, 3)), (0.0, 0.0), 0.1)


def test_nonsense_is_refused_counted_and_survived(rig, player):
    operator = rig.operator
    with rig.process("mapping_node", diagnostics_rate_hz=20.0) as node:
        operator.wait_for("mapping_node", message="no odometry from odom yet")
        values = lambda: operator.values("mapping_node")  # noqa: E731
        repeat(lambda: player.say_pose(9.0, np.full(3, np.nan), pose(0)[1]), lambda: values()["poses"] != "0", "poses")
        for publisher, message, reason in (
            (player.infos, CameraInfo(width=48, height=27), "not calibrated"),
            (player.images, Image(height=2, width=2, encoding="rgb8", step=6), "rgb8"),
        ):
            repeat(lambda: publisher.publish(message), lambda: reason in values()["last refusal"], reason)  # noqa: B023
            player.introduce(node)
        for stamp_s, image, outcome in (
            (10.0, depth(0)[:, :20], "another size than the camera's"),
            (11.0, np.zeros((27, 48), np.float32), "no measurement in it"),
            (12.0, depth(0), "fused"),
        ):
            player.say_pose(stamp_s, *pose(0))
            repeat(lambda: player.show(stamp_s, image), lambda: values()[f"frames: {outcome}"] != "0", outcome)  # noqa: B023
        operator.wait_for("mapping_node", message="mapping")
        assert node.stop() == 0


def test_a_bundle_is_mapped_for_as_its_policy_learned(rig, tmp_path):
    window = map_contract_for(GO2).map_window
    contract = map_contract_for(GO2, map_window=replace(window, mapping=MappingCfg(map_size_m=3.2, fusion="kalman")))
    tiny_bundle(tmp_path / "bundle", contract)
    with rig.process("mapping_node", bundle=str(tmp_path / "bundle")) as node:
        node.wait_for_output("Mapping 3.2 m at 0.04 m, fusion 'kalman'.")
        assert node.stop() == 0


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"input": "deph"}, "Did you mean 'depth'"),
        ({"mapping": "/nowhere.yaml"}, "/nowhere.yaml"),
        ({"mapper": "/nowhere.onnx"}, "/nowhere.onnx"),
        ({"bundle": "/nowhere"}, "no bundle at /nowhere"),
        ({"extent_m": 0.0}, "extent_m"),
        ({"camera": 3}, "the setup has 1"),
    ],
)
def test_a_setup_that_makes_no_sense_is_one_message_and_exit_code_2(rig, parameters, reason):
    with rig.process("mapping_node", **parameters) as node:
        assert node.wait() == 2
        assert reason in node.output
        assert "Traceback" not in node.output


# -- robot, mapping and policy together --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trio(rig, bundles):
    """A simulated robot with eyes, mapping, and a policy that looks at the map."""
    pytest.importorskip("mujoco")
    options = '{"camera": true, "visuals": false, "camera_noise": 1.0}'
    with (
        rig.process("sim_robot_node", robot="go2", backend="mujoco", options=options) as robot,
        rig.process("mapping_node", diagnostics_rate_hz=10.0) as mapping,
    ):
        robot.wait_for_output("on backend 'mujoco'")
        with rig.policy(bundles / "seeing", map_stale_s=1.0, map_lost_s=2.0) as policy:
            rig.operator.wait_for("mapping_node", message="mapping")
            yield rig
            # A busy machine may have lost the map, or the state, since the last test: that damps, and is the exit code.
            damped = rig.operator.values("policy_node").get("mode") == "DAMP"
            assert policy.stop() == int(damped), policy.output
            for process in (mapping, robot):
                assert process.stop() == 0


@pytest.fixture
def walking(trio):
    trio.bring_to_policy()
    yield trio.operator
    assert trio.operator.set_parameter("sim_robot_node", "fault", "") == (True, "")
    trio.operator.wait_for("mapping_node", message="mapping")


def asked_for(operator):
    values = operator.values("policy_node")
    return [float(part) for part in values["command"].split(",")], values["mode"]


def go_to(operator, goal):
    def sent():
        operator.send_to(goal)
        return "goal" in operator.values("policy_node")

    wait_until(sent, "the goal")
    wait_until(lambda: asked_for(operator)[0][0] > 1.0, "the command")


def test_a_goal_becomes_the_command_that_leads_there(walking):
    go_to(walking, Goal(3.0, 1.0, math.pi / 2))
    command, mode = asked_for(walking)
    assert mode == "POLICY"
    # It stands near the origin and looks along x, within what settling on the ground has moved it.
    assert command == pytest.approx([3.0, 1.0, 1.0, 0.0], abs=0.25)
    assert walking.values("policy_node")["goal"] == "3.000, 1.000, 1.571"
    wait_until(lambda: int(walking.values("policy_node")["maps received"]) > 3, "maps")


def test_a_goal_in_another_frame_is_refused(walking):
    go_to(walking, Goal(3.0, 1.0, 0.0))
    walking.send_to(Goal(-5.0, 0.0, 0.0), frame_id="elsewhere")
    walking.fresh_values("policy_node")
    assert walking.fresh_values("policy_node")["goal"] == "3.000, 1.000, 0.000"


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("no_depth", "no frames from the camera for"),
        ("covered", "frames come but none is fused: no measurement in it"),
        ("no_odom", "no odometry from odom for"),
    ],
)
def test_whatever_blinds_it_is_told_and_the_robot_is_asked_to_stay(walking, fault, finding):
    go_to(walking, Goal(3.0, 1.0, 0.0))
    blind = int(walking.values("policy_node")["blind steps"])
    assert walking.set_parameter("sim_robot_node", "fault", fault) == (True, "")
    wait_until(lambda: finding in walking.values("mapping_node")["message"], finding)
    wait_until(lambda: asked_for(walking)[0] == [0.0] * 4, "the command to stay")
    values = walking.fresh_values("policy_node")
    assert values["mode"] == "POLICY", values["message"]
    assert int(values["blind steps"]) > blind
    assert walking.set_parameter("sim_robot_node", "fault", "") == (True, "")
    wait_until(lambda: asked_for(walking)[0][0] > 1.0, "the goal again")


def test_a_policy_without_a_map_stands_but_does_not_start(own_rig, bundles):
    with own_rig.robot() as robot, own_rig.policy(bundles / "seeing") as policy:
        operator = own_rig.operator
        operator.wait_for("policy_node", mode="PASSIVE")
        wait_until(lambda: operator.ask("policy_node/stand")[0], "standing")
        operator.wait_for("policy_node", mode="STAND")
        time.sleep(0.5)
        granted, text = operator.ask("policy_node/start")
        assert not granted
        assert "none has come" in text
        assert policy.stop() in (0, 1)
        assert robot.stop() in (0, 1)  # 1 where its watchdog noticed first that nobody commands it any more.

"""Topics of a mapping: depth and odometry in, elevation map and diagnostics out."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, Image, PointCloud2

from gantry_deploy.control.timing import TimingLog
from gantry_deploy.depth.messages import depth_image, intrinsics
from gantry_deploy.depth.source import DepthImage
from gantry_deploy.perception.maps import default_cfg
from gantry_deploy.recording.ros_messages import BASE_FRAME, ODOM_FRAME
from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.files.text import LINE_LIMIT, plain_text, printable
from gantry_hardware.stamps import MAX_AHEAD_S
from gantry_mapping.config import MappingCfg, load_mapping_cfg
from gantry_mapping.live import CloudFrame, LiveMapping, Outcome
from gantry_mapping.mapper import OnnxMapper
from gantry_mapping.sensing.poses import PoseNews
from gantry_ros.control import bundle_parameters
from gantry_ros.convert import map as convert_map
from gantry_ros.convert import robot as convert
from gantry_ros.mapping import depth_input
from gantry_ros.mapping.depth_input import DepthInput
from gantry_ros.runtime import frames, topics
from gantry_ros.runtime.frames import Frames
from gantry_ros.runtime.host import NodeHost, Parameter, positive
from gantry_ros.simulated.depth_publisher import CAMERA_FRAME

INPUTS = ("depth", "points")
"""Values of the parameter ``input``."""

PARAMETERS = (
    *bundle_parameters.PARAMETERS,
    Parameter(
        "mapping",
        "",
        "Path of a YAML file with the fields of gantry_mapping.config.MappingCfg; empty: the setup that "
        "the bundle's policy learned with, or defaults.",
    ),
    Parameter("mapper", "", "Path of a mapping network (ONNX); empty for the bundle's, or for none without a bundle."),
    Parameter("input", "depth", "'depth' for images with their CameraInfo, 'points' for point clouds."),
    depth_input.PARAMETER,
    Parameter("camera", 0, "Which camera of the mapping's setup the images or clouds come from."),
    *frames.PARAMETERS,
    Parameter("max_ahead_s", MAX_AHEAD_S, "Messages stamped further ahead of this node's clock are refused, s."),
    Parameter("reliable", False, "Ask for reliable images; the writer must be reliable too. For large ones over DDS."),
    Parameter("extent_m", 5.0, "Edge length of the published square around the robot, m."),
    Parameter("idle_rate_hz", 2.0, "How often the map is published while nothing new comes, Hz."),
    Parameter("diagnostics_rate_hz", 2.0, "Rate of the published diagnostics, Hz."),
    Parameter("statistics", "", "Path of a JSON file for the times of the frames at the end; empty for none."),
)
"""Of a node that maps."""


RECENT_FRAMES = 200
"""Frames that the published percentiles are about."""
KEPT_FRAMES = 20_000
"""Frames whose times are kept for the statistics: 20 minutes at 15 Hz."""
TIMES = ("map", "publish", "age")
"""Of a frame: making the map of it, handing the map out, and from the picture to the map that is out, s."""
POSE_QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=100, reliability=ReliabilityPolicy.BEST_EFFORT)
"""Of odometry: while a frame is being fused, many poses come, and the next frame lies between two of them."""


class MappingTopics:
    """Topics around one :class:`LiveMapping`. All callbacks come from the host's executor, one at a time.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.

    Raises:
        GantryError: If a parameter, the setup, the network or the bundle is refused.
    """

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        if values["input"] not in INPUTS:
            raise UnknownNameError("input", values["input"], INPUTS)
        for name in ("extent_m", "idle_rate_hz", "diagnostics_rate_hz", "max_ahead_s"):
            positive(values, name)
        self._host = host
        self._frames = Frames.of(values)
        self._camera: int = values["camera"]
        self._extent_m: float = values["extent_m"]
        self._own = DepthInput(values["depth_source"]) if values["depth_source"] else None
        try:
            self.live = _make_live(values, self._own)
            """The pipeline."""
        except BaseException:
            self.close()
            raise
        if not 0 <= self._camera < len(self.live.cfg.cameras):
            raise GantryError(f"Parameter 'camera' is {self._camera}, the setup has {len(self.live.cfg.cameras)}.")
        self._map_frame = ODOM_FRAME
        self._timing = TimingLog(("map",), RECENT_FRAMES)
        self._times = TimingLog(TIMES, KEPT_FRAMES)
        self._counts = {"poses": 0, "refused messages": 0, "maps published": 0}
        self._refusal = ""
        self._refusals: dict[str, str] = {}
        self._said: dict[str, str] = {}
        self._no_map = host.wait_reason("No map")
        self._heard: dict[str, float] = {}
        self._published_s = -math.inf
        self._calibrated = self._own is not None

    def open(self, values: dict[str, Any]) -> None:
        """Begin to listen and to publish."""
        node = self._host.node
        reliability = ReliabilityPolicy.RELIABLE if values["reliable"] else ReliabilityPolicy.BEST_EFFORT
        # Two, so that a picture that comes while another is fused is the next one and not lost.
        sensor = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=2, reliability=reliability)
        node.create_subscription(Odometry, topics.ODOM, partial(self._guarded, "odometry", self._on_odometry), POSE_QOS)
        if self._own is not None:
            self._own.start(self._host, self._now_s, self._on_own_depth)
        elif values["input"] == "depth":
            node.create_subscription(
                CameraInfo, topics.CAMERA_INFO, partial(self._guarded, "camera", self._on_info), sensor
            )
            node.create_subscription(Image, topics.DEPTH, partial(self._guarded, "frames", self._on_depth), sensor)
        else:
            node.create_subscription(
                PointCloud2, topics.POINTS, partial(self._guarded, "frames", self._on_points), sensor
            )
        self._clouds = node.create_publisher(PointCloud2, topics.ELEVATION_MAP, topics.WRITER_QOS)
        self._grids = self._grid_publisher()
        self._diagnostics = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.REPORT_QOS)
        self._host.create_timer(1.0 / values["idle_rate_hz"], self._on_idle)
        self._host.create_timer(1.0 / values["diagnostics_rate_hz"], self._report)

    def _grid_publisher(self) -> Any:
        try:
            from grid_map_msgs.msg import GridMap
        except ImportError:
            return None
        return self._host.node.create_publisher(GridMap, topics.GRID_MAP, topics.WRITER_QOS)

    def _guarded(self, what: str, take: Callable[[Any], None], message: Any) -> None:
        """Take a message; whatever is wrong with it, the node goes on."""
        try:
            take(message)
        except GantryError as error:
            self._refuse(what, str(error))
        except Exception as error:  # numpy and onnxruntime fail in ways of their own
            self._refuse(what, f"{type(error).__name__}: {error}")
        else:
            self._refusals.pop(what, None)

    def _refuse(self, what: str, reason: str) -> None:
        self._counts["refused messages"] += 1
        self._refusal = self._refusals[what] = reason
        self._say(what, f"Refused: {reason}")

    def _say(self, what: str, text: str) -> None:
        """Log what is wrong once, and again when it is something else; other numbers are nothing else."""
        key = re.sub(r"[-+.\d]+", "#", text)
        if self._said.get(what) != key:
            self._said[what] = key
            self._host.node.get_logger().error(printable(text, LINE_LIMIT))

    def _now_s(self) -> float | None:
        """The clock of the stamps; None where simulated time is asked for and nothing tells it."""
        return 1e-9 * self._host.node.get_clock().now().nanoseconds or None

    def _stamp_s(self, header: Any, what: str) -> float:
        stamp_s, now_s = convert_map.seconds(header.stamp), self._now_s()
        if stamp_s == 0.0 and now_s is not None and now_s > self.live.track.max_ahead_s:
            raise RobotError(f"{what} has no stamp, so that it has no place in time.")
        return stamp_s

    def _on_odometry(self, message: Odometry) -> None:
        self._counts["poses"] += 1
        convert.require_odometry(message, self._frames)
        stamp_s, now_s = self._stamp_s(message.header, "The odometry"), self._now_s()
        pose, news = convert_map.odometry_pose(message), []
        self._work(lambda: news.append(self.live.add_pose(stamp_s, *pose, now_s)))
        if news[0] is PoseNews.AHEAD and now_s is not None:
            raise RobotError(f"The odometry is {news[0]} by {stamp_s - now_s:.3g} s.")
        if news[0] is PoseNews.NOT_NEWER:
            raise RobotError(f"The odometry is {news[0]}.")
        if news[0] is PoseNews.NO_POSE:
            raise RobotError("The odometry holds a number that is not finite, or no orientation.")
        if news[0] in (PoseNews.TAKEN, PoseNews.STARTED_OVER):
            self._heard["odometry"] = time.monotonic()
            self._map_frame = message.header.frame_id or ODOM_FRAME
        if news[0] is PoseNews.STARTED_OVER:
            self._host.node.get_logger().warning("The robot or its clock has started over: the map begins anew.")

    def _on_info(self, message: CameraInfo) -> None:
        self._frames.require(message.header.frame_id, CAMERA_FRAME, "The camera's calibration is told")
        if self.live.set_intrinsics(self._camera, *intrinsics(message)) or not self._calibrated:
            camera = self.live.cfg.cameras[self._camera]
            self._host.node.get_logger().info(
                f"Camera of {camera.width} x {camera.height} pixels, focal lengths {camera.fx:.1f}, {camera.fy:.1f}."
            )
        self._calibrated = True

    def _on_depth(self, message: Image) -> None:
        self._heard["frames"] = time.monotonic()
        self._frames.require(message.header.frame_id, CAMERA_FRAME, "Depth images are taken")
        if not self._calibrated:
            self.live.counts[Outcome.NO_CAMERA] += 1
            return
        self._take(message.header, partial(self.live.add_depth, depth_m=depth_image(message)))

    def _on_own_depth(self, image: DepthImage, now_s: float) -> None:
        """Take an image of a camera that this node has opened itself."""
        self._heard["frames"] = time.monotonic()
        add = partial(self.live.add_depth, image.stamp_s, image.depth_m, image.camera, now_s)
        self._guarded("frames", lambda _: self._work(add), None)

    def _on_points(self, message: PointCloud2) -> None:
        self._heard["frames"] = time.monotonic()
        frame = self._cloud_frame(message.header.frame_id)
        points = convert_map.cloud_points(message)
        self._take(message.header, partial(self.live.add_points, points_m=points, frame=frame))

    def _cloud_frame(self, name: str) -> CloudFrame | None:
        """In which frame a cloud is; None for the camera's.

        Raises:
            RobotError: If that is none of those that are known.
        """
        if self._frames.same(name, CAMERA_FRAME):
            return None
        if self._frames.same(name, BASE_FRAME):
            return CloudFrame()
        if self._frames.same(name, ODOM_FRAME):
            return CloudFrame(in_world=True)
        pose = self._frames.pose(name)
        if pose is None:
            raise RobotError(
                f"The point cloud is in frame {plain_text(name)}, expected '{CAMERA_FRAME}', '{BASE_FRAME}' or "
                f"'{ODOM_FRAME}'. Set frame_poses to where that frame sits in the base, or same_frames to which of "
                "these it is."
            )
        return CloudFrame(pose.pos_m, pose.quat_wxyz)

    def _take(self, header: Any, add: Callable[..., None]) -> None:
        stamp_s, now_s = self._stamp_s(header, "A frame"), self._now_s()
        self._work(lambda: add(stamp_s, camera=self._camera, now_s=now_s))

    def _work(self, take: Callable[[], None]) -> None:
        """Hand something in, a frame or the pose that one has waited for; a new map is published, and timed."""
        before_s, begin_s = self.live.newest_frame_s, time.perf_counter()
        take()
        if self.live.newest_frame_s == before_s:
            return
        mapped_s = time.perf_counter()
        self._publish()
        done_s = time.perf_counter()
        age_s = 1e-9 * self._host.node.get_clock().now().nanoseconds - self.live.newest_frame_s
        self._timing.add("map", mapped_s - begin_s)
        for name, duration_s in zip(TIMES, (mapped_s - begin_s, done_s - mapped_s, age_s), strict=True):
            self._times.add(name, duration_s)

    def _publish(self) -> None:
        snapshot = self.live.snapshot(self._extent_m)
        if snapshot is None:
            return
        # The stamp is that of the newest frame, so that readers can tell a new map from a repeated one.
        stamp = convert_map.stamp_from_s(snapshot.stamp_s)
        self._clouds.publish(convert_map.map_message(snapshot, stamp, self._map_frame))
        if self._grids is not None:
            self._grids.publish(convert_map.grid_map_message(snapshot, stamp, self._map_frame))
        self._counts["maps published"] += 1
        self._published_s = time.monotonic()

    def _on_idle(self) -> None:
        if "odometry" in self._heard:
            # The clock of the stamps is known by what arrives; where nothing arrives, time passes all the same.
            self.live.pass_time(self.live.track.poses.newest_s + self._age_s("odometry"))
        if not math.isinf(self.live.newest_frame_s) and time.monotonic() - self._published_s > 0.4:
            self._publish()

    def _age_s(self, what: str) -> float:
        return time.monotonic() - self._heard.get(what, -math.inf)

    def _finding(self) -> str:
        """Problem in words, empty if there is none."""
        limit_s = self.live.cfg.stale_after_s
        if self._own is not None and (trouble := self._own.trouble()):
            return f"no frames: {trouble}"
        for what, source in (("odometry", topics.ODOM), ("frames", "the camera")):
            if self._age_s(what) > limit_s:
                heard = what in self._heard
                told = f": {self._refusals[what]}" if what in self._refusals else ""
                return f"no {what} from {source}" + (f" for {self._age_s(what):.1f} s" if heard else " yet") + told
        if not float(self.live.pipeline.since_frame_s[0]) <= limit_s or math.isinf(self.live.newest_frame_s):
            refused = self._refusals.get("frames") or (None if self._calibrated else self._refusals.get("camera"))
            return f"frames come but none is fused: {refused or self.live.last_text or Outcome.NO_CAMERA}"
        return ""

    def statistics(self) -> dict[str, Any]:
        """Counts of frames and maps, and of each frame that was fused the :data:`TIMES`; plain data for JSON."""
        return {
            "frames": {str(outcome): count for outcome, count in self.live.counts.items()},
            **self._counts,
            **({} if self._own is None else self._own.statistics()),
            "timing": self._times.summary(),
            "samples_s": {name: self._times.samples_s(name).round(6).tolist() for name in TIMES},
        }

    def close(self) -> None:
        """Release cameras that this node has opened itself."""
        if self._own is not None:
            self._own.close()

    def _report(self) -> None:
        finding = self._finding()
        self._no_map.note(finding)
        snapshot = self.live.snapshot(self._extent_m)
        seen = 0.0 if snapshot is None else snapshot.seen_share(self.live.cfg.prior_variance_m2)
        values: dict[str, object] = {f"frames: {outcome}": count for outcome, count in self.live.counts.items()}
        values.update(self._counts)
        values.update({} if self._own is None else self._own.statistics())
        values.update({f"poses: {news}": count for news, count in self.live.track.counts.items() if count})
        values["seen share"] = seen
        values["newest frame s"] = self.live.newest_frame_s
        values["last refusal"] = self._refusal
        for statistic, value in self._timing.summary().get("map", {}).items():
            values[f"map {statistic}"] = value
        node = self._host.node
        self._diagnostics.publish(
            convert.diagnostics_message(
                node.get_clock().now().to_msg(), node.get_name(), "", finding or "mapping", values, error=bool(finding)
            )
        )


def _make_live(values: dict[str, Any], own: DepthInput | None) -> LiveMapping:
    bundle = bundle_parameters.load_named_bundle(values) if values["bundle"] else None
    model: str | bytes | None = values["mapper"] or (None if bundle is None else bundle.mapper_bytes)
    mapper = None if model is None else OnnxMapper(model)
    window = None if bundle is None else bundle.contract.map_window
    trained = None if window is None else window.mapping
    cfg: MappingCfg = load_mapping_cfg(values["mapping"]) if values["mapping"] else trained or default_cfg(mapper)
    return LiveMapping(cfg if own is None else own.into(cfg), mapper, values["max_ahead_s"])

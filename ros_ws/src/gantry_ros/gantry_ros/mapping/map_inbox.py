"""The newest elevation map of a mapping node, and when its newest frame became known."""

from __future__ import annotations

from sensor_msgs.msg import PointCloud2

from gantry_hardware.errors import RobotError
from gantry_hardware.stamps import StampGate, StampVerdict
from gantry_mapping.elevation.snapshot import MapSnapshot
from gantry_ros.convert import map as convert_map
from gantry_ros.runtime.frames import Frames


class MapInbox:
    """Takes maps of one mapping node.

    Args:
        frames: Which names mean the same frame.
        max_latency_s: A map stamped longer ago than this, by the clock of the reader, is refused; 0 where clocks are
            not synchronised, which looks at no latency.
    """

    def __init__(self, frames: Frames, max_latency_s: float = 0.0) -> None:
        self._frames, self._max_latency_s = frames, max_latency_s
        self._gate = StampGate()
        self.newest: tuple[MapSnapshot, float] | None = None
        """The map, and the local monotonic time at which its newest frame became known."""

    def take(self, message: PointCloud2, odom_frame: str, received_s: float, now_s: float | None) -> None:
        """Take a map. One that is sent again with the stamp of the one before holds no new frame.

        Args:
            message: The map.
            odom_frame: Name of the odometry's frame, in which it must be.
            received_s: Local monotonic time.
            now_s: The clock of the stamps; None where it is not known.

        Raises:
            RobotError: If it is in another frame, no map, stamped ahead of the clock, or older than is allowed.
        """
        self._frames.require(message.header.frame_id, odom_frame, "The map is told")
        snapshot = convert_map.map_snapshot(message)
        if self._max_latency_s > 0.0 and now_s is not None and now_s - snapshot.stamp_s > self._max_latency_s:
            raise RobotError(
                f"The map's newest frame was taken {now_s - snapshot.stamp_s:.3g} s ago by this machine's clock, "
                f"allowed are {self._max_latency_s:g} s (map_max_latency_s)."
            )
        verdict = self._gate.judge(snapshot.stamp_s, now_s)
        if verdict is StampVerdict.NOT_NEWER:
            if self.newest is not None and snapshot.stamp_s == self.newest[0].stamp_s:
                self.newest = (snapshot, self.newest[1])
            return
        if not verdict.believed:
            raise RobotError(f"The map {self._gate.text(verdict, snapshot.stamp_s, now_s)}.")
        self.newest = (snapshot, received_s)

"""Inputs of a car's policy beside the car itself, from ROS 2 topics: route, goal, tracked objects, scan, stop line.

Ages are those of the messages' stamps, on the ROS clock of the machine that runs the policy: what was long on its way,
or comes from a machine whose clock is wrong, is as old as it says.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import OccupancyGrid, Path
from sensor_msgs.msg import LaserScan, PointCloud2

from gantry_deploy.contract.drive_spec import DRIVE
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Mode
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import ContractError, SafetyError
from gantry_deploy.observations.lidar_scan import GAP_RAD
from gantry_deploy.observations.surroundings import STOP_GO
from gantry_deploy.perception.road import RoadView, Route, needs
from gantry_deploy.recording.ros_messages import BASE_FRAME
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.model.cars import STANDSTILL_M_S
from gantry_hardware.plugins import load_named
from gantry_hardware.stamps import StampGate, StampVerdict
from gantry_ros.convert import car as convert_car
from gantry_ros.convert import map as convert_map
from gantry_ros.robots.senses import TopicSenses
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter, positive

PATH, LANES = "path", "lanes"
ROUTE_MESSAGES = (PATH, LANES)
"""Values of ``route_message``."""

STOP, END, IGNORE = "stop", "end", "ignore"
ROUTE_ENDS = (STOP, END, IGNORE)
"""Values of ``route_end``: what happens where the route ends; ``ignore`` leaves it to the policy, for example one that
parks at a goal."""

PARAMETERS = (
    Parameter("steering", "commanded", "A car's steering angle: 'commanded', or 'joint_states' where it is measured."),
    Parameter("route_message", PATH, "A car's route: 'path' (nav_msgs/Path) or 'lanes' (a table with limits)."),
    Parameter("route_speed_limit_m_s", 5.0, "Speed limit of a route that is told as a path, m/s."),
    Parameter("route_width_m", 3.5, "Width of the lane of a route that is told as a path, m."),
    Parameter("scan_gap_rad", GAP_RAD, "A hole in a scan up to this wide takes the nearer of its edges, rad."),
    Parameter("road_markings", False, "A road map's cells of 1 and 2 percent are broken and solid lane markings."),
    Parameter(
        "route_end",
        STOP,
        "At the route's end a car's policy is stopped ('stop'), the node ends as well ('end'), or the policy goes on "
        "('ignore').",
    ),
    Parameter("route_end_m", 0.0, "So far before the end, m; from there on the car needs its braking distance."),
)
"""Additional parameters of a node that drives a car."""


class RosRoad(RoadView):
    """A :class:`RoadView` that topics tell; nothing is heard before :meth:`open`.

    Args:
        contract: Has a drive.
        host: Whose node listens.
        robot: In whose odometry's frame everything must be told.
        values: Of :data:`PARAMETERS`.

    Raises:
        ContractError: If the contract drives no car.
        GantryError: If a value makes no sense.
    """

    def __init__(self, contract: PolicyContract, host: NodeHost, robot: TopicSenses, values: dict[str, Any]) -> None:
        super().__init__(contract, values.get("scan_gap_rad", GAP_RAD))
        for name, known in (("route_message", ROUTE_MESSAGES), ("route_end", ROUTE_ENDS)):
            if values[name] not in known:
                raise UnknownNameError(name, values[name], known)
        for name in ("route_speed_limit_m_s", "route_width_m"):
            positive(values, name)
        if not values.get("scan_gap_rad", GAP_RAD) >= 0.0:
            raise GantryError(f"Parameter 'scan_gap_rad' is {values['scan_gap_rad']}, expected 0 or more.")
        if not values["route_end_m"] >= 0.0:  # The route would never end.
            raise GantryError(f"Parameter 'route_end_m' is {values['route_end_m']}, expected 0 or more.")
        if unheard := [name for name in needs(contract) if name not in self._kinds(values["route_message"])]:
            raise ContractError(f"The policy sees {', '.join(unheard)}, of which no topic tells.")
        self._wanted, self._host, self._robot, self._values = needs(contract), host, robot, values
        self._heard: dict[str, int] = {}
        self._refused = 0
        self._told: Route | None = None
        self._map_text = ""
        self._gates: dict[str, StampGate] = {}

    def open(self) -> None:
        """Listen from now on for what the policy needs, once the robot is connected and its frame is known."""
        node, kinds = self._host.node, self._kinds(self._values["route_message"])
        for name in self._wanted:
            kind, topic, take = kinds[name]
            callback = self._callback(name, take)
            if name == "goal":  # An operator's; there may be several operators.
                node.create_subscription(kind, topic, callback, topics.READER_QOS)
            else:
                self._robot.listen(kind, topic, callback, topics.STATE_QOS)
            if name in ("route", "goal", "road"):
                # Latched topics are asked for the last message; a publisher that does not latch would not match such a
                # reader.
                node.create_subscription(kind, topic, callback, topics.LATCHED_QOS)

    def values(self) -> dict[str, object]:
        """For diagnostics: what has been heard and how old it is."""
        now_s, found = time.monotonic(), {}
        for name in self._wanted:
            dated = self._dated.get(name)
            found[f"{name} received"] = self._heard.get(name, 0)
            if dated is not None:
                found[f"{name} age s"] = now_s - dated[1]
        if self.left_m is not None:
            found["route left m"] = self.left_m
        return {**found, "road messages refused": self._refused}

    def _kinds(self, route_message: str) -> dict[str, tuple[Any, str, Callable[[Any], None]]]:
        """Message, topic and reader of everything that can be heard."""
        lanes, path = (PointCloud2, topics.ROUTE_LANES, self._on_lanes), (Path, topics.ROUTE, self._on_path)
        return {
            "route": lanes if route_message == LANES else path,
            "goal": (PoseStamped, topics.GOAL_POSE, self._on_goal),
            "objects": (PointCloud2, topics.OBJECTS, self._on_objects),
            "scan": (LaserScan, topics.SCAN, self._on_scan),
            "stop_line": (PointCloud2, topics.STOP_LINE, self._on_stop_line),
            "road": (OccupancyGrid, topics.ROAD_MAP, self._on_road),
        }

    def _callback(self, name: str, take: Callable[[Any], None]) -> Callable[[Any], None]:
        def callback(message: Any) -> None:
            try:
                take(message)
            except GantryError as error:
                self._refused += 1
                what = name.replace("_", " ")
                self._host.node.get_logger().error(f"The {what} is refused: {error}", throttle_duration_sec=1.0)
                return
            self._heard[name] = self._heard.get(name, 0) + 1

        return callback

    def _on_path(self, message: Path) -> None:
        limit, width = self._values["route_speed_limit_m_s"], self._values["route_width_m"]
        self._tell(convert_car.route_of_path(message, self._odom_frame(message), limit, width))

    def _on_lanes(self, message: PointCloud2) -> None:
        self._tell(convert_car.route_of_lanes(message, self._odom_frame(message)))

    def _tell(self, route: Route) -> None:
        """A route that is repeated is no news: the car would be looked for on the whole of it again."""
        names = ("points_in_world_m", "speed_limit_m_s", "left_m", "right_m")
        told = self._told
        if told is not None and all(np.array_equal(getattr(route, name), getattr(told, name)) for name in names):
            return
        self._told = route
        self.set_route(route)
        length_m = float(route.along_m[-1])
        self._host.node.get_logger().info(f"Route: {len(route.points_in_world_m)} points, {length_m:.1f} m.")

    def _on_goal(self, message: PoseStamped) -> None:
        goal = convert_map.goal(message, self._odom_frame(message))
        self.set_goal((goal.x_in_world_m, goal.y_in_world_m, goal.yaw_in_world_rad))

    def _on_objects(self, message: PointCloud2) -> None:
        stamp_s = self._stamp_s("objects", message.header.stamp)
        objects, kinds = convert_car.objects_of(message, self._odom_frame(message))
        self.set_objects(objects, stamp_s, kinds)

    def _on_road(self, message: OccupancyGrid) -> None:
        markings = self._values["road_markings"]
        self.set_road(*convert_car.road_of_grid(message, self._odom_frame(message), markings=markings))
        info = message.info
        text = f"Road map: {info.height} x {info.width} cells of {info.resolution:g} m"
        text += ", with lane markings." if markings else ", without lane markings (road_markings)."
        if text != self._map_text:  # A latched map arrives twice, and others send theirs again and again.
            self._map_text = text
            self._host.node.get_logger().info(text)

    def _on_scan(self, message: LaserScan) -> None:
        stamp_s = self._stamp_s("scan", message.header.stamp)
        frames, name = self._robot.frames, message.header.frame_id
        pose = None if frames.same(name, convert_car.SCAN_FRAME) else frames.pose(name)
        if pose is None:
            frames.require(name, convert_car.SCAN_FRAME, "Scans are taken")
        ranges = convert_car.scan_ranges(message)
        lidar = self._drive.lidar
        angles = convert_car.scan_angles(message, pose, 0.0 if lidar is None else lidar.pos_x_in_base_m)
        self.set_scan(ranges, *angles, stamp_s, convert_car.scan_text(message))

    def _on_stop_line(self, message: PointCloud2) -> None:
        self._robot.frames.require(message.header.frame_id, BASE_FRAME, "Stop lines are told")
        line = convert_car.stop_line_of(message)
        self.set_stop_line(*(line or (np.inf, STOP_GO)), self._stamp_s("stop_line", message.header.stamp))

    def _odom_frame(self, message: Any) -> str:
        """The odometry's frame, by the name that a message in it calls it."""
        return self._robot.frames.told(message.header.frame_id, self._robot.odom_frame)

    def _stamp_s(self, name: str, stamp: Time) -> float:
        """A stamp on the local monotonic clock, at most now.

        Raises:
            RobotError: If there is none, since nothing would grow old then, or if it is from the future, as every stamp
                is while a simulated clock stands still.
        """
        if stamp.sec == 0 and stamp.nanosec == 0:
            raise RobotError("it has no stamp, so that its age is unknown.")
        clock_s, gate = 1e-9 * self._host.node.get_clock().now().nanoseconds, self._gates.setdefault(name, StampGate())
        stamp_s = stamp.sec + 1e-9 * stamp.nanosec
        if (verdict := gate.judge(stamp_s, clock_s)) in (StampVerdict.AHEAD, StampVerdict.NO_TIME):
            raise RobotError(f"it {gate.text(verdict, stamp_s, clock_s)}.")
        return time.monotonic() - max(0.0, clock_s - stamp_s)


class RouteEnd:
    """Stops a policy where its route ends; beyond that point it has no command.

    Args:
        road: What the policy sees.
        controller: Of the policy.
        values: Of :data:`PARAMETERS`.
    """

    def __init__(self, road: RoadView, controller: Controller, values: dict[str, Any]) -> None:
        self._road, self._controller = road, controller
        self._kind, self._before_m = values["route_end"], values["route_end_m"]
        self._over = False

    def on_tick(self, report: TickReport) -> bool:
        """Ask for a stop at the end of the route.

        Returns:
            Whether the node shall end: the route is driven and the car stands.
        """
        if self._kind == IGNORE:
            return False
        left_m = self._road.left_m
        if report.mode is Mode.POLICY and left_m is not None:
            self._over = left_m <= self._before_m
            if self._over:
                with contextlib.suppress(SafetyError):  # A fault was quicker.
                    self._controller.request("stop")
        if not self._over or self._kind != END or report.mode is not Mode.STAND or report.state is None:
            return False
        return abs(float(report.state.joint_vel_rad_s[DRIVE])) <= STANDSTILL_M_S


def ros_road(contract: PolicyContract, host: NodeHost, robot: Robot, values: dict[str, Any]) -> RosRoad | None:
    """Make the source of a policy's surroundings; None for an embodiment that sees none."""
    made_by = embodiment_of(contract).ros_surroundings
    return load_named(made_by)(contract, host, robot, values) if made_by else None

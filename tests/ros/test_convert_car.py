"""Messages of cars against hand-made numbers."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from builtin_interfaces.msg import Time  # noqa: E402
from geometry_msgs.msg import PoseStamped  # noqa: E402
from nav_msgs.msg import OccupancyGrid, Odometry, Path  # noqa: E402
from sensor_msgs.msg import JointState, LaserScan, PointCloud2  # noqa: E402

from gantry_deploy.errors import SurroundingsError  # noqa: E402
from gantry_deploy.observations.surroundings import NO_ROAD, OBJECT_FIELDS, ROAD, ROAD_BROKEN, ROAD_SOLID, VEHICLE  # noqa: E402
from gantry_deploy.perception.road import Route  # noqa: E402
from gantry_hardware.errors import RobotError, UnknownNameError  # noqa: E402
from gantry_hardware.model.cars import car_spec  # noqa: E402
from gantry_ros.convert import car as convert_car  # noqa: E402
from gantry_ros.robots import car_commands  # noqa: E402
from gantry_ros.runtime.frames import SensorPose  # noqa: E402

BMW = car_spec("bmw_320i")
STAMP = Time(sec=12, nanosec=500_000_000)
ROUTE = Route(
    np.array([[5.0e5, 4.0e6], [5.0e5 + 1.0, 4.0e6], [5.0e5 + 1.0, 4.0e6 + 2.0]]),
    np.array([8.0, 5.0, 2.0]),
    np.array([1.75, 1.5, 1.25]),
    np.array([1.0, 0.9, 0.8]),
)


def test_odometry_tells_place_heading_speed_and_yaw_rate():
    odometry = Odometry()
    odometry.pose.pose.position.x, odometry.pose.pose.position.y = 3.0, -2.0
    odometry.pose.pose.orientation.w = odometry.pose.pose.orientation.z = math.sqrt(0.5)
    odometry.twist.twist.linear.x, odometry.twist.twist.angular.z = 4.0, 0.25
    state = convert_car.car_state(odometry, 0.1, -0.2, 7.0)
    np.testing.assert_array_equal(state.pos_base_in_world_m, [3.0, -2.0, 0.0])
    np.testing.assert_allclose(state.quat_base_to_world_wxyz, [math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)])
    np.testing.assert_array_equal(state.lin_vel_base_in_base_m_s, [4.0, 0.0, 0.0])
    np.testing.assert_array_equal(state.ang_vel_base_in_base_rad_s, [0.0, 0.0, 0.25])
    np.testing.assert_array_equal(state.joint_pos_rad, [0.1, 0.0])
    np.testing.assert_array_equal(state.joint_vel_rad_s, [-0.2, 4.0])
    assert state.stamp_s == 7.0


def test_odometry_without_an_orientation_is_refused():
    odometry = Odometry()
    odometry.pose.pose.orientation.w = 0.0
    with pytest.raises(RobotError, match="no unit quaternion: norm 0"):
        convert_car.car_state(odometry, 0.0, 0.0, 0.0)


def test_steering_is_found_by_its_name_among_other_joints():
    joints = JointState(name=["wheel", "steering"], position=[3.0, -0.2], velocity=[9.0, 0.4])
    assert convert_car.steering_of(joints) == (-0.2, 0.4)
    assert convert_car.steering_of(JointState(name=["steering"], position=[0.3])) == (0.3, 0.0)
    with pytest.raises(RobotError, match="their joints are wheel"):
        convert_car.steering_of(JointState(name=["wheel"], position=[3.0]))


def test_a_route_with_lanes_keeps_every_digit():
    back = convert_car.route_of_lanes(convert_car.lanes_message(ROUTE, STAMP, "map"), "map")
    for name in ("points_in_world_m", "speed_limit_m_s", "left_m", "right_m"):
        np.testing.assert_array_equal(getattr(back, name), getattr(ROUTE, name))


def test_a_path_has_the_points_and_the_widths_that_are_given():
    message = convert_car.path_message(ROUTE, STAMP, "odom")
    assert message.poses[0].pose.orientation.z == pytest.approx(0.0)
    assert message.poses[1].pose.orientation.z == pytest.approx(math.sin(math.pi / 4))
    back = convert_car.route_of_path(message, "odom", 6.0, 3.0)
    np.testing.assert_array_equal(back.points_in_world_m, ROUTE.points_in_world_m)
    np.testing.assert_array_equal(back.speed_limit_m_s, [6.0] * 3)
    np.testing.assert_array_equal(back.left_m, [1.5] * 3)
    np.testing.assert_array_equal(back.right_m, [1.5] * 3)


def test_wrong_routes_are_refused():
    message = convert_car.path_message(ROUTE, STAMP, "map")
    with pytest.raises(RobotError, match="in frame 'map', expected 'odom'"):
        convert_car.route_of_path(message, "odom", 6.0, 3.0)
    with pytest.raises(SurroundingsError, match="P >= 2"):
        convert_car.route_of_path(Path(poses=[PoseStamped()]), "odom", 6.0, 3.0)
    with pytest.raises(SurroundingsError, match=r"shape \(0, 2\)"):
        convert_car.route_of_path(Path(), "odom", 6.0, 3.0)
    with pytest.raises(RobotError, match="no floating-point field speed_limit"):
        convert_car.route_of_lanes(convert_car.objects_message(np.zeros((0, 7)), STAMP, "odom"), "odom")
    message = convert_car.path_message(ROUTE, STAMP, "odom")
    message.poses[1].pose.position.x = math.nan
    with pytest.raises(SurroundingsError, match="not finite"):
        convert_car.route_of_path(message, "odom", 6.0, 3.0)


def test_objects_come_back_in_order_and_free_slots_do_not_travel():
    objects = np.array([[1.0, 2.0, 0.5, 3.0, 4.5, 1.8, 1.0], [9.0] * 6 + [0.0], [-1.0, -2.0, -0.5, 0.0, 0.6, 0.6, 1.0]])
    message = convert_car.objects_message(objects, STAMP, "odom")
    assert (message.width, message.header.stamp.sec) == (2, 12)
    back, kinds = convert_car.objects_of(message, "odom")
    np.testing.assert_array_equal(back, objects[[0, 2]])
    np.testing.assert_array_equal(kinds, [0.0, 0.0])
    told = convert_car.objects_message(objects, STAMP, "odom", np.array([2.0, 0.0, 1.0]))
    np.testing.assert_array_equal(convert_car.objects_of(told, "odom")[1], [2.0, 1.0])
    strange = convert_car.objects_message(objects, STAMP, "odom", np.array([7.0, 0.0, math.nan]))
    np.testing.assert_array_equal(convert_car.objects_of(strange, "odom")[1], [VEHICLE, VEHICLE])
    plain = convert_car.table_message(OBJECT_FIELDS[:-1], objects[:1, :-1], STAMP, "odom")
    assert convert_car.objects_of(plain, "odom")[1] is None
    with pytest.raises(RobotError, match="Objects are told in frame 'odom', expected 'map'"):
        convert_car.objects_of(message, "map")


def test_an_empty_road_is_an_empty_table():
    message = convert_car.objects_message(np.zeros((0, 7)), STAMP, "odom")
    objects, kinds = convert_car.objects_of(message, "odom")
    assert (objects.shape, kinds.shape) == ((0, 7), (0,))


def test_objects_need_their_columns():
    with pytest.raises(RobotError, match="no floating-point field x, y, yaw"):
        convert_car.objects_of(PointCloud2(), "")


def test_a_road_map_is_what_is_known_to_be_free():
    grid = OccupancyGrid()
    grid.header.frame_id, grid.info.resolution = "odom", 0.5
    grid.info.height, grid.info.width = 2, 3
    grid.info.origin.position.x, grid.info.origin.position.y = -4.0, 7.0
    grid.data = [0, 100, -1, 50, 51, 0]
    cells, corner, cell_m = convert_car.road_of_grid(grid, "odom")
    np.testing.assert_array_equal(cells, [[ROAD, NO_ROAD, NO_ROAD], [ROAD, NO_ROAD, ROAD]])
    np.testing.assert_array_equal(corner, [-4.0, 7.0])
    assert cell_m == 0.5
    grid.data = [0, 1, 2, 3, 50, -1]
    np.testing.assert_array_equal(convert_car.road_of_grid(grid, "odom")[0], [[ROAD] * 3, [ROAD, ROAD, NO_ROAD]])
    told = [[ROAD, ROAD_BROKEN, ROAD_SOLID], [ROAD, ROAD, NO_ROAD]]
    np.testing.assert_array_equal(convert_car.road_of_grid(grid, "odom", markings=True)[0], told)
    grid.info.origin.orientation.z = 0.1
    with pytest.raises(RobotError, match="turned against its frame"):
        convert_car.road_of_grid(grid, "odom")


def test_a_road_map_comes_back_with_its_markings_and_without_them_where_nobody_asks():
    cells = np.array([[NO_ROAD, ROAD, ROAD_BROKEN], [ROAD_SOLID, ROAD, NO_ROAD]], np.uint8)
    message = convert_car.grid_message(cells, np.array([5.0e5, -3.25]), 0.25, STAMP, "odom")
    assert list(message.data) == [100, 0, 1, 2, 0, 100]
    assert (message.info.height, message.info.width) == (2, 3)
    back, corner, cell_m = convert_car.road_of_grid(message, "odom", markings=True)
    np.testing.assert_array_equal(back, cells)
    np.testing.assert_array_equal(corner, [5.0e5, -3.25])
    assert cell_m == 0.25
    np.testing.assert_array_equal(convert_car.road_of_grid(message, "odom")[0] != NO_ROAD, cells != NO_ROAD)
    with pytest.raises(RobotError, match="A road map is told in frame 'odom', expected 'map'"):
        convert_car.road_of_grid(message, "map")


def test_one_stop_line_or_none():
    assert convert_car.stop_line_of(convert_car.stop_line_message((12.5, 0.5), STAMP)) == (12.5, 0.5)
    assert convert_car.stop_line_of(convert_car.stop_line_message(None, STAMP)) is None
    both = convert_car.table_message(("distance", "state"), np.ones((2, 2)), STAMP, "")
    with pytest.raises(RobotError, match="2 stop lines"):
        convert_car.stop_line_of(both)


def test_ranges_that_cannot_be_are_told_apart_from_no_return():
    """REP-117; and 0, which many drivers send for no measurement, is none."""
    scan = LaserScan(range_min=0.1, range_max=10.0, angle_min=-1.0, angle_increment=0.5)
    scan.ranges = [0.0, 0.05, 5.0, 11.0, math.inf, -math.inf, math.nan]
    expected = [math.nan, math.nan, 5.0, math.inf, math.inf, -math.inf, math.nan]
    np.testing.assert_array_equal(convert_car.scan_ranges(scan), expected)
    with pytest.raises(RobotError, match="A scan has 0 ranges"):
        convert_car.scan_ranges(LaserScan(angle_increment=0.1))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"range_max": 0.0}, "range_max is 0 m and its range_min 0.1 m"),
        ({"range_max": 0.1}, "range_max is 0.1 m"),
        ({"range_max": math.nan}, "range_max is nan m"),
        ({"range_min": math.nan}, "range_min nan m"),
        ({"range_min": -math.inf}, "range_min -inf m"),
        ({"angle_increment": 0.0}, "steps of 0.0 rad"),
        ({"angle_increment": math.nan}, "steps of nan rad"),
        ({"angle_increment": math.inf}, "steps of inf rad"),
        ({"angle_min": math.nan}, "from nan rad"),
        ({"angle_max": 2.5}, "end at 1 rad, angle_max says 2.5 rad"),
        ({"angle_increment": -0.5}, "end at -3 rad, angle_max says 1 rad"),
    ],
)
def test_a_scan_whose_numbers_contradict_each_other_is_refused(fields, reason):
    scan = LaserScan(range_min=0.1, range_max=10.0, angle_min=-1.0, angle_max=1.0, angle_increment=0.5)
    scan.ranges = [3.0] * 5
    np.testing.assert_array_equal(convert_car.scan_ranges(scan), [3.0] * 5)
    for name, value in fields.items():
        setattr(scan, name, value)
    with pytest.raises(RobotError) as refused:
        convert_car.scan_ranges(scan)
    assert reason in str(refused.value)


def test_zero_is_no_reading_whatever_the_smallest_range_is():
    scan = LaserScan(range_min=0.0, range_max=10.0, angle_increment=0.5)
    scan.ranges = [0.0, -0.0, 3.0, math.nan]
    np.testing.assert_array_equal(convert_car.scan_ranges(scan), [math.nan, math.nan, 3.0, math.nan])
    assert convert_car.scan_text(scan) == "of its 4 ranges 2 are 0, 1 are not a number"
    scan.range_min, scan.ranges = 0.5, [0.25, 0.0, 3.0]
    assert convert_car.scan_text(scan) == "of its 3 ranges 1 are 0, 1 are below its range_min of 0.5 m"
    scan.ranges = [3.0, math.inf]
    assert convert_car.scan_text(scan) == ""


def test_a_scan_of_ours_comes_back_as_it_was():
    ranges = np.array([0.0, 2.0, 10.0])
    back = convert_car.scan_ranges(convert_car.scan_message(ranges, -0.5, 0.5, STAMP, 10.0))
    np.testing.assert_array_equal(back, [-np.inf, 2.0, 10.0])


def test_a_scanner_that_is_turned_or_hangs_upside_down_tells_its_angles_in_the_base():
    scan = LaserScan(range_max=10.0, angle_min=-1.0, angle_max=1.0, angle_increment=0.5)
    assert convert_car.scan_angles(scan, None, 0.3) == (-1.0, 0.5)
    turned = SensorPose((0.3, 0.0, 0.1), 0.0, 0.0, 0.5 * math.pi)
    assert convert_car.scan_angles(scan, turned, 0.3) == (pytest.approx(0.5 * math.pi - 1.0), 0.5)
    hanging = SensorPose((0.3, 0.0, 0.1), math.pi, 0.0, 0.0)
    assert convert_car.scan_angles(scan, hanging, 0.3) == (pytest.approx(1.0), -0.5)
    for pose in (SensorPose((0.3, 0.0, 0.1), 0.0, 0.5, 0.0), SensorPose((-0.3, 0.0, 0.1), 0.0, 0.0, 0.0)):
        with pytest.raises(RobotError, match=r"expected x 0\.3 m, y 0 m, level or upside down"):
            convert_car.scan_angles(scan, pose, 0.3)


def test_a_path_whose_poses_are_in_another_frame_is_refused():
    message = convert_car.path_message(ROUTE, STAMP, "odom")
    message.poses[1].header.frame_id = "map"
    with pytest.raises(RobotError, match="in frame 'map', expected 'odom'"):
        convert_car.route_of_path(message, "odom", 6.0, 3.0)


@pytest.mark.parametrize(("steering", "speed"), [(0.3, 5.0), (-0.2, 10.0), (0.25, -2.0)])
def test_a_twist_tells_the_yaw_rate_of_a_car_that_rolls(steering, speed):
    """A turn of radius R = L / tan(steering) at speed v has yaw rate v / R."""
    twist = convert_car.drive_twist_message(steering, speed, BMW.wheelbase_m)
    assert twist.linear.x == speed
    assert twist.angular.z == pytest.approx(speed / (BMW.wheelbase_m / math.tan(steering)))
    back, forward = convert_car.steering_of_twist(twist, BMW.wheelbase_m, 9.0)
    assert (back, forward) == (pytest.approx(steering), speed)


def test_a_twist_at_standstill_leaves_the_steering_as_it_was():
    twist = convert_car.drive_twist_message(0.3, 0.0, BMW.wheelbase_m)
    assert (twist.linear.x, twist.angular.z) == (0.0, 0.0)
    assert convert_car.steering_of_twist(twist, BMW.wheelbase_m, 0.17) == (0.17, 0.0)


def test_an_acceleration_leads_to_the_set_point_in_a_period_within_the_limits():
    assert car_commands.told_acceleration(BMW, 8.2, 8.0, 0.1) == pytest.approx(2.0)
    assert car_commands.told_acceleration(BMW, 7.7, 8.0, 0.1) == pytest.approx(3.0)
    assert car_commands.told_acceleration(BMW, 0.0, 8.0, 0.1) == BMW.brake_limit_m_s2
    assert car_commands.told_acceleration(BMW, 30.0, 8.0, 0.1) == BMW.accel_limit_m_s2
    # 0 would mean "as quickly as possible".
    assert car_commands.told_acceleration(BMW, 8.0, 8.0, 0.1) == pytest.approx(0.05)


def test_an_ackermann_command_tells_angle_speed_acceleration_and_rate():
    """The fields by name, whether the package is installed or not."""
    kind = car_commands.ackermann_type()
    message = SimpleNamespace(header=None, drive=SimpleNamespace()) if kind is None else kind()
    filled = convert_car.fill_ackermann(message, 0.25, 6.0, 1.5, 0.4, STAMP)
    told = {name: getattr(filled.drive, name) for name in ("steering_angle", "speed", "acceleration")}
    assert told == {"steering_angle": 0.25, "speed": 6.0, "acceleration": 1.5}
    assert filled.drive.steering_angle_velocity == pytest.approx(0.4)
    assert (filled.header.stamp, filled.header.frame_id) == (STAMP, "base_link")


def test_the_message_is_chosen_by_what_is_installed():
    installed = car_commands.ackermann_type() is not None
    assert car_commands.chosen_car_message("") == ("ackermann" if installed else "twist")
    assert car_commands.chosen_car_message("twist_stamped") == "twist_stamped"
    with pytest.raises(UnknownNameError, match="Did you mean 'twist'"):
        car_commands.chosen_car_message("twst")
    if not installed:
        with pytest.raises(RobotError, match="needs the package ackermann_msgs"):
            car_commands.chosen_car_message("ackermann")

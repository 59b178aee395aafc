"""Names and qualities of service that both ends of a wire agree on; all names are relative and can be remapped."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

JOINT_STATES = "joint_states"
"""sensor_msgs/JointState, robot to everybody."""
IMU = "imu/data"
"""sensor_msgs/Imu in the base frame, robot to everybody."""
ODOM = "odom"
"""nav_msgs/Odometry, ``odom`` to ``base_link``, robot to everybody; optional."""
FOOT_CONTACTS = "foot_contacts"
"""std_msgs/Float32MultiArray, one number per foot; optional."""
JOINT_COMMAND = "joint_command"
"""sensor_msgs/JointState with ``<joint>/<interface>`` names, policy to robot."""
ROBOT_DESCRIPTION = "robot_description"
"""std_msgs/String of URDF, latched; of a simulated robot its node's, of a real one its driver's."""
TF, TF_STATIC = "tf", "tf_static"
"""tf2_msgs/TFMessage where that package is installed, by the same; ``odom`` to ``base_link`` to the links."""
ARM_TRAJECTORY = "arm_controller/joint_trajectory"
"""trajectory_msgs/JointTrajectory of one point, policy to an arm's joint_trajectory_controller."""
ARM_POSITIONS = "arm_controller/commands"
"""std_msgs/Float64MultiArray, policy to an arm's forward position controller."""
GRIPPER_TRAJECTORY, GRIPPER_POSITIONS = "gripper_controller/joint_trajectory", "gripper_controller/commands"
"""The same for a gripper with a controller of its own."""
GRIPPER_COMMAND = "gripper_controller/gripper_command"
"""control_msgs/GripperCommand, where that package is installed."""
OBJECT_POSE = "object_pose"
"""geometry_msgs/PoseStamped in the arm's base frame, object tracker to policy."""
OBJECT_GOAL = "object_goal"
"""geometry_msgs/PoseStamped in the arm's base frame, operator to policy: where the object belongs."""
THINGS, ZONES = "things", "zones"
"""geometry_msgs/PoseArray in the arm's base frame, in the order of the task, perception to a policy told in words."""
INSTRUCTION = "instruction"
"""std_msgs/String in plain words, operator to a policy that is told in words; stays until another one."""
TASK_INSTRUCTION = "task_instruction"
"""std_msgs/String, what the task of a simulated workbench asks for, to everybody."""
PICTURE = "camera/{name}/image_raw"
"""sensor_msgs/Image, rgb8 or bgr8, camera to policy; the name is the contract's."""
DEPTH = "camera/depth/image_rect_raw"
"""sensor_msgs/Image, 32FC1 in m or 16UC1 in mm, camera to mapping."""
CAMERA_INFO = "camera/depth/camera_info"
"""sensor_msgs/CameraInfo of those images."""
POINTS = "points"
"""sensor_msgs/PointCloud2 in a camera's optical frame or in the base frame, sensor to mapping."""
ELEVATION_MAP = "elevation_map"
"""sensor_msgs/PointCloud2, x, y, z and variance of every cell around the robot, mapping to everybody."""
GRID_MAP = "elevation_grid"
"""grid_map_msgs/GridMap of the same, where that package is installed."""
GOAL_POSE = "goal_pose"
"""geometry_msgs/PoseStamped in the odometry's frame, operator to a policy that walks or parks at goals."""
DRIVE = "drive"
"""ackermann_msgs/AckermannDriveStamped where that package is installed, policy to car."""
DRIVE_TWIST = "drive_twist"
"""geometry_msgs/Twist (or TwistStamped), policy to car where that is chosen; not cmd_vel, on which operators speak."""
SCAN = "scan"
"""sensor_msgs/LaserScan, scanner to policy."""
ROUTE = "route"
"""nav_msgs/Path in the odometry's frame, planner to a car's policy; without widths and speed limits."""
ROUTE_LANES = "route_lanes"
"""sensor_msgs/PointCloud2 of the route's points with speed limit, left and right, planner to a car's policy."""
OBJECTS = "objects"
"""sensor_msgs/PointCloud2 in the odometry's frame, one point per tracked object, perception to a car's policy."""
ROAD_MAP = "road_map"
"""nav_msgs/OccupancyGrid in the odometry's frame, map server to a car's policy that sees a road map; free is road."""
STOP_LINE = "stop_line"
"""sensor_msgs/PointCloud2 of one point, or none: the next stop line, perception to a car's policy."""
CMD_VEL = "cmd_vel"
"""geometry_msgs/Twist (or TwistStamped), operator to policy."""
HEARTBEAT = "heartbeat"
"""std_msgs/Empty, operator to policy."""
JOY = "joy"
"""sensor_msgs/Joy, joystick's driver to a correction session."""
DELTA_TWIST = "~/delta_twist_cmds"
"""geometry_msgs/TwistStamped (or Twist) in the base frame, each number in [-1, 1], operator to a session's node."""
GRIPPER_OPENING = "~/gripper_opening"
"""std_msgs/Float64, 0 closed to 1 open, the same; nothing leaves the gripper as it is."""
DEAD_MAN = "~/dead_man"
"""std_msgs/Bool, the same: motion counts while it is true; repeated, as silence is letting go."""
EVENT_SERVICES = {
    "episode/start": "start_episode",
    "episode/success": "success",
    "episode/failure": "failure",
    "episode/rerecord": "rerecord_episode",
    "episode/terminate": "terminate_episode",
    "episode/veto": "veto_success",
    "pause": "pause",
    "estop": "estop",
    "quit": "quit",
}
"""std_srvs/Trigger below a session's name -> event of the person, as :class:`gantry_deploy.teleop.operator.TeleopEvent`
names it."""
HAND_SERVICES = {"take_over": True, "give_back": False}
"""The same below a session's name -> whether a person is to act; motion still comes from the device."""
DIAGNOSTICS = "diagnostics"
"""diagnostic_msgs/DiagnosticArray, everybody to the operator."""

WRITER_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.VOLATILE,
)
"""Of what is published at a control rate: reliable, so that every kind of reader matches."""

READER_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=1,
    reliability=ReliabilityPolicy.BEST_EFFORT,
    durability=DurabilityPolicy.VOLATILE,
)
"""Of what a control loop reads: the newest or nothing. Matches any writer, and never asks for an old one again."""

STATE_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=4,
    reliability=ReliabilityPolicy.BEST_EFFORT,
    durability=DurabilityPolicy.VOLATILE,
)
"""The same where one publisher is expected: the last few, so that a second one cannot hide behind the first."""

COMMAND_WATCH_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=16,
    reliability=ReliabilityPolicy.BEST_EFFORT,
    durability=DurabilityPolicy.VOLATILE,
)
"""Of a commander that reads what is on its topic, to see whether it is alone."""

OPERATOR_QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
"""Of what an operator's side sends to us; matches any writer."""

REPORT_QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=10, reliability=ReliabilityPolicy.RELIABLE)
"""Of diagnostics."""

LATCHED_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""QoS of routes and goals, which are sent once: late subscribers receive them, too."""

TF_QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=100, reliability=ReliabilityPolicy.RELIABLE)
"""Of moving frames, as tf2 offers and asks for it."""

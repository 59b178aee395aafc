"""Bags of ROS 2 (rosbag2 folders, MCAP files) as LeRobot datasets; neither needs a ROS 2 installation."""

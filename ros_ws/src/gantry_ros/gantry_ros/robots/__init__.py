"""Robots behind ROS 2 topics, as backends of the control loop."""

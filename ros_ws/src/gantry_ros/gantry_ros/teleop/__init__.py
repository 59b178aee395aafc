"""Operators on ROS 2: a device of a correction session that is fed by topics, and its events as services."""

"""Elevation maps on ROS 2: topics of the mapping, cameras that a node opens itself, maps that another node made."""

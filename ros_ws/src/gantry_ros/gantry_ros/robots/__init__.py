"""Robots behind ROS 2 topics, as backends of the control loop."""

BACKEND_OPTIONS = "backend_options."
"""Group of parameters of a node that drives a robot itself: options of the backend by name."""

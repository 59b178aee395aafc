"""Depth cameras, frames and poses of the robot."""

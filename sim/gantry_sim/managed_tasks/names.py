"""Words of listings that need no simulator."""

NO_ROBOT = "none"
"""Stands for the robot of a task that has none which Gantry knows."""

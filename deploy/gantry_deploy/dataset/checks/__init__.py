"""Checks of a LeRobot dataset, and its agreement with a task."""

"""Recorded sessions: LeRobot datasets written and read as steps, and attempts for a report."""

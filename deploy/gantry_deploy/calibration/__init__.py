"""Calibration of cameras by printed boards, with OpenCV: lenses, and poses on the robot."""

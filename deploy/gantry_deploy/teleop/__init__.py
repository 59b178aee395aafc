"""Devices with which a person moves a robot: keyboard, gamepad, SpaceMouse, leader arm, ROS 2 topics."""

"""Inputs, publishers and faults of simulated robots on ROS 2 topics."""

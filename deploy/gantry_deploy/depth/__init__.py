"""Depth cameras for any robot: sources of depth images, and a robot that looks through them."""

"""Policies that come along, as bundles; registered in the entry-point group ``gantry.pretrained``."""

from pathlib import Path

GO2_WALK = Path(__file__).resolve().parent / "go2-walk"
"""A Go2 that follows velocities on flat ground."""

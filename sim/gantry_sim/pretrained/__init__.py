"""Policies that come along, as bundles; registered in the entry-point group ``gantry.pretrained``."""

from pathlib import Path

AME2_GO2_STUDENT = Path(__file__).resolve().parent / "ame2-go2-student"
"""A Go2 that walks to goals over what its camera has seen; with its mapping network."""
DRIVE_RACE = Path(__file__).resolve().parent / "drive-race"
"""A small car that races round tracks by what its scanner sees."""
DRIVE_TRAFFIC = Path(__file__).resolve().parent / "drive-traffic"
"""A car that follows a road among others."""
GO2_WALK = Path(__file__).resolve().parent / "go2-walk"
"""A Go2 that follows velocities on flat ground."""
YAM_PICK_PLACE = Path(__file__).resolve().parent / "yam-pick-place"
"""A YAM arm that picks a cube up and puts it down at a goal: a frozen clone and a correction of every step."""
YAM_TELL = Path(__file__).resolve().parent / "yam-tell"
"""A YAM arm that lifts, pushes or places the thing that an instruction names, by two cameras."""
YAM_TELL_PUSH = Path(__file__).resolve().parent / "yam-tell-push"
"""A YAM arm that pushes the thing that an instruction names to a zone, by where both are; distilled."""

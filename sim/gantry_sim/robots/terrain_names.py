"""Names of the terrains, without loading what builds them."""

from __future__ import annotations

from gantry_hardware.errors import UnknownNameError

TRAINING: tuple[str, ...] = (
    "rough",
    "stairs_up",
    "stairs_down",
    "boxes",
    "obstacles",
    "climb_up",
    "climb_down",
    "climb_consecutive",
    "gap",
    "pallets",
    "stones",
    "beam",
)
"""Training terrains, in the order of :data:`gantry_sim.terrains.catalogue.SHARES`."""
TESTS: tuple[str, ...] = ("t1_stones", "t2_course", "t3_parkour", "t4_debris")
"""Held-out test terrains."""


def terrain_name(text: str) -> str:
    """The only terrain whose name is, or begins with, ``text``.

    Raises:
        UnknownNameError: If there is none, or several.
    """
    names = (*TRAINING, *TESTS)
    found = [name for name in names if name == text] or [name for name in names if name.startswith(text)]
    if len(found) != 1:
        raise UnknownNameError("terrain", text, names)
    return found[0]

"""Mechanism part of a policy contract: which joints the actions push, and where training began."""

from __future__ import annotations

from dataclasses import dataclass

JOINT_EFFORT = "target/joint/effort"
"""Semantic kind of an action that pushes joints: torques, and forces where a joint slides."""


@dataclass(frozen=True)
class MechanismSpec:
    """Conversion of a mechanism's actions to efforts, and the poses from which it was trained to come to rest.

    ``ActionSpec.scale`` holds shares of the joints' effort limits per unit of action, one number per driven joint, and
    ``ActionSpec.offset_rad`` zeros. The motors' damping acts beside the efforts.
    """

    driven_joints: tuple[str, ...]
    """Joints that the actions push, in the order of an action's numbers."""
    start_lower_rad: tuple[float, ...]
    """Per joint, least position at which an episode of training begins, rad or m."""
    start_upper_rad: tuple[float, ...]
    """Per joint, largest position at which an episode of training begins, rad or m."""

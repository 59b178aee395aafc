"""Mechanisms on a fixed base, such as a pole on a cart: joints with motors, and joints that swing freely."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_hardware.errors import GantryError

PASSIVE_EFFORT_NM = 1e-3
"""Torque limit of a joint without a motor, the least that a :class:`~gantry_hardware.model.spec.JointSpec` can have."""


@dataclass(frozen=True)
class Mechanism:
    """Body of a mechanism: its joints are those of the :class:`~gantry_hardware.model.spec.RobotSpec`."""

    passive_joints: tuple[str, ...] = ()
    """Joints without a motor."""
    endless_joints: tuple[str, ...] = ()
    """Joints that turn for ever, so that a pose is the same after every whole turn of them."""
    fixed_base = True
    """Whether the base is fixed to the world, so that its model gets no free joint."""

    def check_joints(self, robot: str, joint_names: tuple[str, ...]) -> None:
        """Refuse passive or endless joints that the robot has not.

        Raises:
            GantryError: With the joint.
        """
        for kind, names in (("passive", self.passive_joints), ("endless", self.endless_joints)):
            for name in names:
                if name not in joint_names:
                    raise GantryError(
                        f"Robot '{robot}': the {kind} joint '{name}' is none of its joints: {', '.join(joint_names)}."
                    )

"""Left-right mirror images of vectors as index maps: of joints, feet, map windows and actions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gantry_deploy.contract.footstep_spec import STEP_NAMES, STEP_TARGET
from gantry_deploy.contract.policy_contract import MapWindow, ObservationTerm, PolicyContract
from gantry_deploy.observations.sides import partners, sign_of_joint
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_names, robot_spec

MIRRORED_STEPS = ("front_foot_y_m", "rear_foot_y_m", "lin_vel_y_m_s", "ang_vel_z_rad_s", "base_roll_rad")
"""Numbers of an action of steps that change sign in a mirror."""


@dataclass(frozen=True)
class MirrorMap:
    """``mirrored[i] = sign[i] * value[source[i]]``."""

    source: tuple[int, ...]
    """Source index of each entry."""
    sign: tuple[float, ...]
    """Factor on each entry."""

    def __add__(self, other: MirrorMap) -> MirrorMap:
        """The map of two vectors written one after the other."""
        offset = len(self.source)
        return MirrorMap(self.source + tuple(offset + i for i in other.source), self.sign + other.sign)

    @classmethod
    def signs(cls, *sign: float) -> MirrorMap:
        """A vector whose entries stay in place."""
        return cls(tuple(range(len(sign))), sign)


def mirror_names(names: tuple[str, ...], sign: tuple[float, ...], central: Collection[str] = ()) -> MirrorMap:
    """The map of a vector with one entry per named part.

    Args:
        names: Of the parts; sides are found by :func:`gantry_deploy.observations.sides.partners`.
        sign: Factor on each entry.
        central: Parts that lie in the plane of symmetry.

    Raises:
        GantryError: If a part has no counterpart and is not central.
    """
    return MirrorMap(tuple(map(names.index, partners(names, central))), sign)


def mirror_joints(names: tuple[str, ...], central: Collection[str] = ()) -> MirrorMap:
    """The map of joint vectors: sides swap, and axes along x (roll, abduction) and z (yaw) change sign.

    Args:
        names: Of the joints.
        central: Joints that lie in the plane of symmetry, such as a waist.

    Raises:
        GantryError: If a joint has no counterpart and is not central, or its axis cannot be told from its name.
    """
    others = partners(names, central)
    return MirrorMap(tuple(map(names.index, others)), tuple(map(sign_of_joint, names)))


def robot_joint_mirror(robot: str, names: tuple[str, ...]) -> MirrorMap:
    """The map of joint vectors of a robot: as its spec declares it, or told from the joints' names.

    Args:
        robot: Name of the robot; one that is not registered is judged by names alone.
        names: Of its joints, in the order of the vectors.

    Raises:
        GantryError: If nothing is declared and the names do not tell.
    """
    declared = robot_spec(robot).mirrored_joints if robot in robot_names() else ()
    if not declared or robot_spec(robot).joint_names != names:
        return mirror_joints(names, central_joints(robot))
    return MirrorMap(tuple(names.index(name) for name, _ in declared), tuple(sign for _, sign in declared))


def mirror_feet(spec: RobotSpec) -> MirrorMap:
    """The map of a vector with one entry per foot: as the spec declares it, or told from the feet's names.

    Raises:
        GantryError: If nothing is declared and the names do not tell.
    """
    sign = (1.0,) * len(spec.feet)
    if spec.mirrored_feet:
        return MirrorMap(tuple(spec.feet.index(name) for name in spec.mirrored_feet), sign)
    return mirror_names(spec.feet, sign)


def central_joints(robot: str) -> tuple[str, ...]:
    """Joints that a registered robot declares to lie in its plane of symmetry; none for a robot that is not known."""
    return robot_spec(robot).central_joints if robot in robot_names() else ()


def mirror_window(window: MapWindow) -> MirrorMap:
    """The map of a window of elevations, flattened (rows, cols, channels): sides swap, values stay.

    Coordinates are no part of the observation, so cells take the value that lies at their mirror image.

    Raises:
        GantryError: If the window does not lie symmetrically.
    """
    if window.center_y_m != 0.0:
        raise GantryError(f"The map window lies {window.center_y_m:g} m to the left; only a centred one mirrors.")
    rows, cols, channels = range(window.rows), range(window.cols), range(len(window.channels))
    source = tuple(
        (row * len(cols) + len(cols) - 1 - col) * len(channels) + channel
        for row in rows
        for col in cols
        for channel in channels
    )
    return MirrorMap(source, (1.0,) * len(source))


def mirror_action(contract: PolicyContract) -> MirrorMap:
    """The map of the policy's action: of joints, or of steps."""
    if contract.action.kind != STEP_TARGET:
        return mirror_contract_joints(contract)
    return MirrorMap.signs(*(-1.0 if name in MIRRORED_STEPS else 1.0 for name in STEP_NAMES))


def mirror_contract_joints(contract: PolicyContract) -> MirrorMap:
    """The map of vectors with one entry per joint of a contract."""
    return robot_joint_mirror(contract.robot, contract.joint_names)


def mirror_shown_joints(contract: PolicyContract, term: ObservationTerm, image: MirrorMap) -> MirrorMap:
    """The map of a term of joints in the order of those that it names.

    Args:
        contract: Of the policy.
        term: With its ``joints``.
        image: The map of all joints of the contract.

    Raises:
        GantryError: If the term does not show the mirror image of a joint that it shows.
    """
    places = [contract.joint_names.index(joint) for joint in term.joints]
    for place in places:
        if (other := image.source[place]) not in places:
            raise GantryError(
                f"Observation '{term.name}': the mirror image of {contract.joint_names[place]} is "
                f"{contract.joint_names[other]}, which it does not show."
            )
    return MirrorMap(
        tuple(places.index(image.source[place]) for place in places), tuple(image.sign[place] for place in places)
    )


def mirror_contract_window(contract: PolicyContract) -> MirrorMap | None:
    """The map of the contract's window of elevations; None without a window."""
    return None if contract.map_window is None else mirror_window(contract.map_window)

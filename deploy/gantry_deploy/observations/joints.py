"""Joints as observations, of all of a contract or of those that a term names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gantry_deploy.contract.parts import ObservationTerm
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.mirrors import mirror_contract_joints
from gantry_deploy.observations.signals import Signals, TermConstants, TermInfo, given
from gantry_hardware.errors import UnknownNameError
from gantry_mapping.elevation.ops import namespace

Array = Any


def joint_pos(signals: Signals, constants: TermConstants) -> Array:
    """Joint positions relative to the default pose, (N, n), rad."""
    return signals.joint_pos_rad - constants.default_pos_rad


def joint_pos_absolute(signals: Signals, constants: TermConstants) -> Array:
    """Joint positions as they are measured, (N, n), rad."""
    return signals.joint_pos_rad


def joint_cos_sin(signals: Signals, constants: TermConstants) -> Array:
    """Cosines, then sines of joint angles as they are measured, (N, 2 n): equal after every whole turn."""
    xp = namespace(signals.joint_pos_rad)
    return xp.concat((xp.cos(signals.joint_pos_rad), xp.sin(signals.joint_pos_rad)), axis=-1)


def joint_vel(signals: Signals, constants: TermConstants) -> Array:
    """Joint velocities, (N, n), rad/s."""
    return signals.joint_vel_rad_s


def joint_lead(signals: Signals, constants: TermConstants) -> Array:
    """Lead of the last joint targets over the joints, (N, n), rad; an arm that is held up shows it here."""
    return given(signals.joint_target_rad, "joint_lead", "joint targets") - signals.joint_pos_rad


def joint_from_start(signals: Signals, constants: TermConstants) -> Array:
    """Joints minus those at the start of the episode, (N, n), rad."""
    return signals.joint_pos_rad - given(signals.start_joint_pos_rad, "joint_from_start", "joints at the start")


JOINT_TERMS: dict[str, TermInfo] = {
    "joint_pos": TermInfo(joint_pos, "state/joint/position", "", "rad", mirror=mirror_contract_joints),
    "joint_pos_absolute": TermInfo(
        joint_pos_absolute, "state/joint/position", "", "rad", mirror=mirror_contract_joints
    ),
    "joint_cos_sin": TermInfo(joint_cos_sin, "", "", ""),
    "joint_vel": TermInfo(joint_vel, "state/joint/velocity", "", "rad/s", mirror=mirror_contract_joints),
    "joint_lead": TermInfo(joint_lead, "", "", "rad"),
    "joint_from_start": TermInfo(joint_from_start, "", "", "rad"),
}
"""Terms with one number or more for each joint."""


def of_joints(
    term: ObservationTerm, joint_names: tuple[str, ...], function: Callable[[Signals, TermConstants], Array]
) -> Callable[[Signals, TermConstants], Array]:
    """A term's function for the joints that it names; unchanged where it names none.

    Args:
        term: With its ``joints``.
        joint_names: Of the contract.
        function: Gives blocks of one number for each joint of the contract.

    Raises:
        ContractError: If the term is none of joints.
        UnknownNameError: If the contract has no such joint.
    """
    if not term.joints:
        return function
    if term.name not in JOINT_TERMS:
        raise ContractError(
            f"Observation '{term.name}': the contract names the joints {', '.join(term.joints)}, expected none but for "
            f"{', '.join(JOINT_TERMS)}."
        )
    for joint in term.joints:
        if joint not in joint_names:
            raise UnknownNameError(f"joint of observation '{term.name}'", joint, list(joint_names))
    places, every = [joint_names.index(joint) for joint in term.joints], len(joint_names)

    def shown(signals: Signals, constants: TermConstants) -> Array:
        values = function(signals, constants)
        columns = [block + place for block in range(0, values.shape[-1], every) for place in places]
        return namespace(values).concat([values[:, column : column + 1] for column in columns], axis=-1)

    return shown

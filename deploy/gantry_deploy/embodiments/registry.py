"""The registry of embodiments: found by name, or for a contract or a robot."""

from __future__ import annotations

import contextlib

from gantry_deploy.contract.embodiments import embodiment_names, load_embodiment
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.embodiment import Embodiment
from gantry_deploy.errors import ContractError
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec


def find_embodiment(name: str) -> Embodiment:
    """Look an embodiment up by name.

    Raises:
        UnknownNameError: If no installed package offers it.
        ContractError: If what is registered is none, or cannot be loaded here.
    """
    found = load_embodiment(name)
    if not isinstance(found, Embodiment):
        raise ContractError(f"Embodiment '{name}' is a {type(found).__name__}, expected an Embodiment.")
    return found


def embodiment_of(contract: PolicyContract) -> Embodiment:
    """The embodiment of a contract's robot."""
    return find_embodiment(contract.embodiment)


def embodiment_of_robot(spec: RobotSpec) -> Embodiment:
    """The embodiment of a robot.

    Raises:
        UnknownNameError: If no installed package offers it.
        ContractError: If the robot has not the body that it needs.
    """
    found = find_embodiment(spec.embodiment)
    found.require_body(spec)
    return found


def simulated_backends() -> str:
    """The backends that simulate each kind of robot, unless asked otherwise, for help texts."""
    parts = []
    for name in embodiment_names():
        with contextlib.suppress(GantryError):  # What cannot be loaded here is refused when it is asked for.
            parts.append(f"{find_embodiment(name).simulated_backend} for '{name}'")
    return ", ".join(parts)

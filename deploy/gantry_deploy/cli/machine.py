"""Option ``--dynamics`` of commands: the identified dynamics of one machine, and how they fit a policy's training."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from gantry_deploy.cli.command import UsageError
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.contract.trained_range import beyond_training
from gantry_hardware.backends.registry import has_option, moves_metal
from gantry_hardware.model.dynamics import load_dynamics
from gantry_hardware.robots import robot_spec

OPTION = "dynamics"
"""Option of simulated backends that takes the file."""


def add_dynamics_argument(parser: argparse.ArgumentParser, purpose: str = "") -> None:
    """Add ``--dynamics``; what it does beside warning ends its help."""
    parser.add_argument(
        "--dynamics",
        metavar="FILE",
        help="dynamics of one machine, as identified: warn where the policy was not trained for them"
        + (f", and {purpose}" if purpose else ""),
    )


def warn_beyond_training(path: str | None, contract: PolicyContract) -> list[str]:
    """Print a warning for each parameter of a file of dynamics that a policy was not trained for.

    Returns:
        The warnings; none without a file.

    Raises:
        GantryError: If the file is refused, or its dynamics are another robot's.
    """
    if path is None:
        return []
    spec = robot_spec(contract.robot)
    lines = beyond_training(load_dynamics(path, spec), contract, spec)
    for line in lines:
        print(f"warning: {line}")
    if lines and not contract.trained_for:
        print("note: the contract holds no ranges of the training; usual values take their place.")
    return lines


def dynamics_option(path: str | None, backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Option of a backend for a file of dynamics; none without a file, for metal, and where a backend takes none.

    Args:
        path: Of the file.
        backend: Name of the backend.
        options: Options that were given otherwise.

    Raises:
        UsageError: If both say something of the dynamics.
    """
    if path is None:
        return {}
    if OPTION in options:
        raise UsageError("--dynamics does not go with --option dynamics=FILE; give one of them.")
    if moves_metal(backend):
        return {}
    if not has_option(backend, OPTION):
        print(f"note: backend '{backend}' has no option '{OPTION}'; it is simulated as it is.")
        return {}
    return {OPTION: path}

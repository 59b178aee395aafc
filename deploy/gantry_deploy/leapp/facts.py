"""Facts of a policy that a LEAPP bundle has no place for, as metadata of its ONNX file, which its hash covers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import LeappError
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.structured import from_plain

FACTS_KEY = "gantry_facts"
"""Key in the metadata of the ONNX file."""


@dataclass(frozen=True)
class LeappFacts:
    """Numbers of a contract without a place in a LEAPP bundle; joint arrays follow ``joint_names``."""

    robot: str
    """Robot that the policy was trained for."""
    joint_names: tuple[str, ...]
    """Joints of the arrays below."""
    default_pos_rad: tuple[float, ...]
    """Pose in which the policy starts."""
    joint_lower_rad: tuple[float, ...]
    """Lower limits of the targets, inside the graph too."""
    joint_upper_rad: tuple[float, ...]
    """Upper limits of the targets, inside the graph too."""
    effort_limit_nm: tuple[float, ...]
    """Limits of the joint torques."""
    command_lower: tuple[float, ...] = ()
    """Smallest trained command, inside the graph too; empty for a policy without a command."""
    command_upper: tuple[float, ...] = ()
    """Largest trained command, likewise."""

    def __post_init__(self) -> None:
        for name in ("default_pos_rad", "joint_lower_rad", "joint_upper_rad", "effort_limit_nm"):
            if len(getattr(self, name)) != len(self.joint_names):
                found = f"{len(getattr(self, name))} numbers, expected {len(self.joint_names)}"
                raise LeappError(f"{FACTS_KEY}.{name} has {found}.")

    def by_joint(self, name: str) -> dict[str, float]:
        """Joint to its number in one of the arrays, in that array's unit."""
        return dict(zip(self.joint_names, getattr(self, name), strict=True))

    def to_json(self) -> str:
        """JSON in full precision."""
        return json.dumps(asdict(self))


def facts_of(contract: PolicyContract) -> LeappFacts:
    """Facts of a contract."""
    return LeappFacts(
        robot=contract.robot,
        joint_names=contract.joint_names,
        default_pos_rad=contract.default_pos_rad,
        joint_lower_rad=contract.joint_lower_rad,
        joint_upper_rad=contract.joint_upper_rad,
        effort_limit_nm=contract.effort_limit_nm,
        command_lower=contract.command.lower,
        command_upper=contract.command.upper,
    )


def read_facts(metadata: Mapping[str, str]) -> LeappFacts | None:
    """Facts in the metadata of an ONNX file; None where another program wrote it.

    Raises:
        LeappError: If they are there and make no sense.
    """
    if FACTS_KEY not in metadata:
        return None
    data = parse_json_object(metadata[FACTS_KEY], f"The ONNX file's {FACTS_KEY}", error=LeappError)
    return from_plain(LeappFacts, data, FACTS_KEY, LeappError)

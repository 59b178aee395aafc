"""Findings of a diagnosis: what was checked, what is wrong, and by which numbers that is known."""

from __future__ import annotations

from dataclasses import dataclass, field

from gantry_hardware.compat import StrEnum


class FindingKind(StrEnum):
    """Kind of a fault, for programs."""

    PERMUTATION = "permutation"
    """Numbers stand in another order than the robot's."""
    SIGN = "sign"
    """Numbers have the wrong sign."""
    SCALE = "scale"
    """Numbers are in another unit, or multiplied by another factor."""
    OFFSET = "offset"
    """A constant was added."""
    FRAME = "frame"
    """A vector or a quaternion is in another frame or convention."""
    DELAY = "delay"
    """Numbers are older than they should be."""
    CONSTANT = "constant"
    """Numbers do not change although they should."""
    ORDER = "term order"
    """A term of the observation stands in another place, or its frames in another order."""
    LIMIT = "limit"
    """Numbers are beyond what the robot can do."""
    TIMING = "timing"
    """Readings come too rarely, too late, in bursts, or go back in time."""
    CONTRACT = "contract"
    """The log was made under another contract than the bundle's."""
    NETWORK = "network"
    """Another network than the bundle's has answered."""
    WRITER = "writer"
    """Another program commands the robot."""
    UNEXPLAINED = "unexplained"
    """Numbers differ, and no hypothesis explains them."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    kind: FindingKind
    """Kind of the fault."""
    subject: str
    """Quantity that is wrong, for example ``joint_pos`` or ``gyroscope``."""
    text: str
    """Numbers that were found and expected, in words."""
    names: tuple[str, ...] = ()
    """Joints or axes that are concerned, in the order in which they should stand; empty if all are."""


@dataclass(frozen=True)
class Checked:
    """One thing that was looked at and is in order, or could not be judged."""

    subject: str
    """Quantity."""
    text: str
    """Result in words; for what could not be judged, the reason."""
    judged: bool = True
    """Whether it could be judged."""


@dataclass
class Diagnosis:
    """Outcome of a diagnosis; the order is that in which things were looked at."""

    findings: list[Finding] = field(default_factory=list)
    """Faults."""
    checked: list[Checked] = field(default_factory=list)
    """Quantities that are in order or could not be judged."""

    def wrong(self, kind: FindingKind, subject: str, text: str, names: tuple[str, ...] = ()) -> None:
        """Note a fault."""
        self.findings.append(Finding(kind, subject, text, names))

    def fine(self, subject: str, text: str) -> None:
        """Note what is in order."""
        self.checked.append(Checked(subject, text))

    def unknown(self, subject: str, reason: str) -> None:
        """Note what could not be judged."""
        self.checked.append(Checked(subject, reason, judged=False))

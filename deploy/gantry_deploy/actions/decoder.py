"""Protocol of action decoders: from a network's output to joint targets, one call for training and robot.

A decoder works on N rows of any Array API namespace. Which one a policy has follows from the embodiment and the action
kind of its contract; other packages add kinds through the entry-point group ``gantry.action_kinds``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.signals import Signals
from gantry_hardware.model.spec import RobotSpec

Array = Any

GROUP = "gantry.action_kinds"
"""Entry-point group: any name -> :class:`ActionKind` of an embodiment of another package."""
MAX_DIFFERENCE = 1e-5
"""Largest difference between recorded and decoded joint targets, unless a kind allows more, rad."""


class JointTargets(NamedTuple):
    """Targets of N rows of joints for the next control step; n joints, rad and, where a joint slides, m."""

    pos_rad: Array
    """Shape (N, n), positions."""
    vel_rad_s: Array | None = None
    """Shape (N, n), velocities; None for zeros."""
    acc_rad_s2: Array | None = None
    """Shape (N, n), accelerations towards those velocities, for what simulates them; None where nothing is said."""
    effort_nm: Array | None = None
    """Shape (N, n), efforts beside those of stiffness and damping, N m and, where a joint slides, N; None for zeros."""


class ActionDecoder(Protocol):
    """From actions to joint targets."""

    @property
    def targets(self) -> Array | None:
        """Last joint positions (N, n) that the next targets continue from; None for a decoder without memory."""
        ...

    def reset(self, joint_pos_rad: Array, rows: Array | None = None) -> None:
        """Begin anew with targets at joint positions (N, n), rad; ``rows`` is a boolean mask (N,), None for all."""
        ...

    def clip(self, action: Array) -> Array:
        """The action (N, a), dimensionless, within the contract's bounds; this is what ``last_action`` observes."""
        ...

    def __call__(self, action: Array, signals: Signals) -> JointTargets:
        """Joint targets of an action (N, a), dimensionless, from what the policy observed.

        Raises:
            ContractError: If a signal is missing that the targets follow from.
        """
        ...


@runtime_checkable
class InvertibleDecoder(Protocol):
    """Decoder that can also tell the action of given targets, so that what was really sent can be learned from."""

    def action_of(self, pos_rad: Array, vel_rad_s: Array, signals: Signals) -> Array:
        """Action (N, a), dimensionless, in the policy's own frame, that gives targets from the signals of the step.

        Args:
            pos_rad: Shape (N, n), positions that were sent, rad and, where a joint slides, m.
            vel_rad_s: Shape (N, n), velocities that were sent, rad/s or m/s.
            signals: Of the step; a decoder with memory goes back to the targets before it.
        """
        ...


def action_of(decoder: ActionDecoder, pos_rad: Array, vel_rad_s: Array, signals: Signals) -> Array | None:
    """Action (N, a), dimensionless, in the policy's own frame, of targets (N, n) in rad and rad/s, see
    :class:`InvertibleDecoder`; None if the decoder cannot tell."""
    return decoder.action_of(pos_rad, vel_rad_s, signals) if isinstance(decoder, InvertibleDecoder) else None


@dataclass(frozen=True)
class ActionKind:
    """An action kind of an embodiment, and its decoder."""

    kind: str
    """Semantic kind in a contract's ``action.kind``, for example ``target/joint/position``."""
    decoder: str
    """``module:Class`` of an :class:`ActionDecoder`, made of a contract, an array to work like, and a
    :class:`~gantry_hardware.model.spec.RobotSpec` or None."""
    labels: Callable[[PolicyContract], tuple[str, ...]]
    """Names of the numbers of an action, as many as it has."""
    embodiment: str = ""
    """Embodiment that has it; what an embodiment lists itself leaves this empty."""
    tolerance_rad: float = MAX_DIFFERENCE
    """Largest difference between recorded and decoded joint targets, rad; of efforts N m or N."""
    gives_velocity: bool = False
    """Whether targets have velocities, which recordings hold then."""
    gives_effort: bool = False
    """Whether targets have efforts, which recordings hold then."""
    needs_map: Callable[[PolicyContract], bool] = lambda contract: False
    """Whether the decoder looks at the contract's map window, whatever the network observes."""


class DecoderFactory(Protocol):
    """Maker of a decoder: a class, usually."""

    def __call__(self, contract: PolicyContract, like: Array, spec: RobotSpec | None = None) -> ActionDecoder:
        """A decoder for rows like ``like``, any floating array (N, k) of any unit; smaller limits of ``spec`` count."""
        ...


def joint_labels(contract: PolicyContract) -> tuple[str, ...]:
    """The joints' names, of an action with one number per joint."""
    return contract.joint_names

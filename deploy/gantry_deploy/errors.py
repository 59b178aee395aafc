"""Errors of the runtime; each text says what was found, what was expected and what exists."""

from __future__ import annotations

from typing import ClassVar

from gantry_hardware.errors import GantryError


class ContractError(GantryError):
    """A policy's contract is malformed, of a newer version, or does not fit the robot."""


class BundleError(GantryError):
    """A bundle is missing a file, was changed after it was sealed, or carries a bad signature."""


class PolicyError(GantryError):
    """The network's inputs, outputs or numbers are not what its contract says."""


class RecordingError(GantryError):
    """A recording cannot be written or read."""


class DatasetError(GantryError):
    """A dataset of episodes cannot be written or read, or a frame does not fit it."""


class SafetyError(GantryError):
    """A request that the safety state machine does not grant in its present mode."""


class InstructionError(GantryError):
    """An instruction that the policy cannot follow: no word that it knows, too many words, or none given."""


class SurroundingsError(GantryError):
    """An input that a car's policy must see has not come, is too old, or makes no sense."""


class TeleopError(GantryError):
    """An operator's device is missing, cannot be read, or its configuration makes no sense."""


class LinkError(GantryError):
    """Actor and learner cannot talk to each other: address, certificate, identity, message, or disk."""


class SessionError(GantryError):
    """A request that a correction session does not grant in its present state, or a session that cannot begin."""


class PageError(GantryError):
    """The page of a correction session cannot be served: address, certificate, or token."""


class PolicyServerError(GantryError):
    """A policy behind a websocket does not answer, or answers with something that cannot be acted on.

    Args:
        reason: One of :data:`REASONS`.
        message: The text for people.
        details: More of it, such as the traceback that a server has sent.
    """

    REASONS: ClassVar[dict[str, str]] = {
        "slow": "no answer within the deadline",
        "dead": "no connection, or it was cut and did not come back",
        "refused": "the server does not take the client: a key, a certificate, or too many clients",
        "error_frame": "the server has sent an error in place of an answer",
        "malformed": "a message is none of the protocol, too large, or holds what cannot be sent",
        "wrong_shape": "actions are missing, or are of another shape or kind of numbers than expected",
        "not_finite": "actions hold a number that is not finite",
        "other_model": "the server came back with other metadata: it serves another policy",
    }
    """Reasons, for programs, and their meaning."""

    def __init__(self, reason: str, message: str, details: str = "") -> None:
        if reason not in self.REASONS:
            raise ValueError(f"The reason is {reason!r}, expected one of {', '.join(self.REASONS)}.")
        self.reason = reason
        """One of :data:`REASONS`."""
        self.details = details
        """More than the message says, such as the server's traceback; empty for nothing."""
        super().__init__(message)


class MalformedMessageError(PolicyServerError):
    """A message of the policy protocol, or a description in one, that makes no sense; its reason is ``malformed``."""

    def __init__(self, message: str) -> None:
        super().__init__("malformed", message)


class FlashError(GantryError):
    """A release cannot be put onto a robot, or a robot cannot return to one: the reason, and what to do about it."""


class LeappError(BundleError):
    """A LEAPP bundle that cannot be run here, or a policy that cannot be written as one: what stands in the way."""

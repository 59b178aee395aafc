"""Errors of the runtime; each text says what was found, what was expected and what exists."""

from __future__ import annotations

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


class FlashError(GantryError):
    """A release cannot be put onto a robot, or a robot cannot return to one: the reason, and what to do about it."""

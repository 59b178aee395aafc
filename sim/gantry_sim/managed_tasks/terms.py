"""Observation terms of another package's managers as terms of a contract."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gantry_deploy.contract.policy_contract import MapWindow, ObservationTerm
from gantry_deploy.observations.builder import make_term
from gantry_hardware.errors import GantryError

ROUNDING = 1e-6
"""Difference that counts as none."""


class MissingTermError(GantryError):
    """An observation term that no contract can name; the text says why."""


@dataclass(frozen=True)
class ActorTerm:
    """A term of the actor's observation as its manager has it."""

    group: str
    """Name of the group."""
    name: str
    """Name in the group."""
    cfg: Any
    """The package's configuration: ``func``, ``params``, ``scale``, ``clip``, ``history_length``,
    ``flatten_history_dim``."""

    @property
    def where(self) -> str:
        """The term in words, with the function that computes it."""
        func = self.cfg.func
        known = func if hasattr(func, "__qualname__") else type(func)
        return f"observation term '{self.name}' of group '{self.group}' ({known.__module__}.{known.__qualname__})"


@dataclass(frozen=True)
class Driven:
    """The robot that a task drives."""

    env: Any
    """The package's environment."""
    entity_name: str
    """Its name in the scene."""
    joint_names: tuple[str, ...]
    """Joints that an action moves, in the order of its numbers."""

    @property
    def entity(self) -> Any:
        """The package's object of it."""
        return self.env.scene[self.entity_name]


def only_scan(scans: list[ActorTerm]) -> ActorTerm | None:
    """The only height scan of an actor; None for none.

    Raises:
        MissingTermError: If there are several: a contract has one window.
    """
    if len(scans) > 1:
        raise MissingTermError(f"{scans[1].where} is the second height scan, expected one at most.")
    return scans[0] if scans else None


def scan_window(pattern: Any, base_height_m: float) -> MapWindow:
    """Window of the elevation map that a grid of rays around the base shows, one cell for each ray.

    Args:
        pattern: The grid: ``size`` along x and y and ``resolution``, m.
        base_height_m: Height of the base above ground that the scan shows as zero, m.
    """
    rows, cols = (round(size / pattern.resolution) + 1 for size in pattern.size)
    return MapWindow(
        rows, cols, float(pattern.resolution), 0.0, 0.0, ("elevation",), nominal_base_height_m=base_height_m
    )


def shaped(found: ObservationTerm, term: ActorTerm) -> ObservationTerm:
    """A contract's term with scale, clip and history of a manager's term.

    Raises:
        MissingTermError: If they are not what a contract can say.
    """
    cfg = term.cfg
    raw: Any = 1.0 if cfg.scale is None else cfg.scale
    scale = np.unique(np.asarray(raw.cpu().numpy() if hasattr(raw, "cpu") else raw, dtype=np.float64))
    if scale.size != 1:
        raise MissingTermError(f"{term.where} has a scale for each number, {scale.tolist()}, expected one for all.")
    clip = None
    if cfg.clip is not None:
        lower, upper = cfg.clip
        if abs(lower + upper) > ROUNDING:
            raise MissingTermError(f"{term.where} is clipped to [{lower:g}, {upper:g}], expected limits around zero.")
        clip = float(upper)
    if cfg.history_length > 1 and not cfg.flatten_history_dim:
        raise MissingTermError(f"{term.where} keeps its history as an axis, expected it flattened.")
    return replace(found, scale=float(scale[0]), clip=clip, history=max(1, cfg.history_length))


def shown_joints(name: str, joint_ids: Any, term: ActorTerm, driven: Driven) -> ObservationTerm:
    """A contract's term of joints, of all of them or of those that a manager's term shows, in its order.

    Args:
        name: Of the contract's term, with one number for each joint.
        joint_ids: Places among the entity's joints of those that the manager's term shows, or a slice.
        term: The manager's.
        driven: The robot.

    Raises:
        MissingTermError: If it shows joints that the contract has not.
    """
    names = driven.entity.joint_names
    shown = tuple(names[joint_ids] if isinstance(joint_ids, slice) else [names[int(i)] for i in joint_ids])
    if others := [joint for joint in shown if joint not in driven.joint_names]:
        raise MissingTermError(
            f"{term.where} shows {', '.join(others)}; the contract's joints are {', '.join(driven.joint_names)}."
        )
    return replace(make_term(name, len(shown)), joints=() if shown == driven.joint_names else shown)

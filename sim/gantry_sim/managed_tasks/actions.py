"""Actions of other packages' managers as parts of a contract, however the package keeps them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gantry_deploy.contract.mechanism_spec import JOINT_EFFORT, MechanismSpec
from gantry_deploy.contract.policy_contract import Acceptance, ActionSpec, CommandSpec
from gantry_sim.managed_tasks.contract import NoContractError, floats

NO_COMMAND = CommandSpec("", (), (), (), ())
"""Nothing is asked of the policy."""
MIN_BALANCED_RATE = 0.9
"""Share of episodes in which a mechanism must come to rest, for `gantry check`."""
RESET = "reset_joints_by_offset"
"""Event, of the same name in all packages, that draws the joints' positions at the start of an episode."""


@dataclass(frozen=True)
class Parts:
    """Parts of a contract that depend on the kind of action."""

    action: ActionSpec
    """Meaning of the actor's output."""
    command: CommandSpec
    """Commands that the policy accepts."""
    body: Any = None
    """Part of the embodiment."""
    acceptance: Acceptance = field(default_factory=Acceptance)
    """Thresholds of `gantry check`."""


def require_single_of(kinds: dict[str, str], known: Iterable[str]) -> None:
    """Refuse actions that are not a single one of a known kind.

    Args:
        kinds: Name of an action -> its kind.
        known: Kinds that a contract can say.

    Raises:
        NoContractError: If so.
    """
    if len(kinds) != 1 or not set(kinds.values()) <= set(known):
        told = ", ".join(f"'{name}' ({kind})" for name, kind in kinds.items())
        raise NoContractError(f"its actions are {told}; expected a single {' or '.join(known)}.")


def effort_parts(
    efforts: dict[str, float], offsets: Sequence[float], limits: dict[str, float], starts: Any, action_clip: float
) -> Parts:
    """Parts of a mechanism's contract.

    Args:
        efforts: Driven joint -> effort of one unit of action, N m or N.
        offsets: Of the efforts, per driven joint.
        limits: Joint -> its effort limit, N m or N.
        starts: Least and largest position (n,) of the joints at the start of an episode, rad or m.
        action_clip: Bound of the actions.

    Raises:
        NoContractError: If efforts have an offset, or one unit of action is beyond a joint's limit.
    """
    if any(offsets):
        raise NoContractError(f"its efforts have the offset {', '.join(map(str, offsets))}, expected none.")
    for name, effort in efforts.items():
        if abs(effort) > limits[name]:
            raise NoContractError(
                f"its action pushes '{name}' with {effort:g} per unit, beyond the joint's limit {limits[name]:g}; a "
                "joint without a motor has next to none."
            )
    lower, upper = starts
    scale = tuple(effort / limits[name] for name, effort in efforts.items())
    return Parts(
        ActionSpec(JOINT_EFFORT, scale, (0.0,) * len(scale), clip=action_clip),
        NO_COMMAND,
        MechanismSpec(tuple(efforts), floats(lower), floats(upper)),
        Acceptance(min_success_rate=MIN_BALANCED_RATE),
    )


def starts_of(
    events: Iterable[Any], entity_name: str, joints: Sequence[str], default: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest position (n,) of the joints at the start of an episode, as events draw them; default pose for
    joints that none of them moves. Velocities that they draw as well are left out: a mechanism begins at rest.

    Args:
        events: Configurations with ``mode``, ``func`` and ``params``.
        entity_name: Of the robot; events of others are passed over.
        joints: Of the robot, in the order of the arrays.
        default: Positions (n,), rad or m.
        ends: Limits (n, 2) of the joints, rad or m.

    Raises:
        NoContractError: If an event places joints in another way.
    """
    lower, upper = default, default
    for event in events:
        function = getattr(getattr(event, "func", None), "__name__", "")
        chosen = getattr(event, "params", {}).get("asset_cfg")
        if getattr(event, "mode", "") != "reset" or getattr(chosen, "name", entity_name) != entity_name:
            continue
        if function != RESET:
            if "joint" in function:
                raise NoContractError(f"its event {function} places joints; expected {RESET}.")
            continue
        low, high = event.params["position_range"]
        patterns = getattr(chosen, "joint_names", None) or ".*"
        patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        moved = [any(re.fullmatch(pattern, name) for pattern in patterns) for name in joints]
        lower, upper = np.where(moved, default + low, lower), np.where(moved, default + high, upper)
    return np.clip(lower, ends[:, 0], ends[:, 1]), np.clip(upper, ends[:, 0], ends[:, 1])

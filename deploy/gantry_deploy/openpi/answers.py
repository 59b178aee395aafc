"""Answers of policy servers, judged: the actions in them, and metadata that must not change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.errors import PolicyServerError
from gantry_deploy.openpi.description import PolicyDescription
from gantry_hardware.files.text import names_text, plain_text

ACTIONS = "actions"
"""Key of the actions in an answer."""
MOST_CHANGES = 5
"""Changes of metadata that a message lists."""


def checked_answer(
    answer: Mapping[Any, Any],
    description: PolicyDescription,
    before: tuple[int, ...] | None,
    rows: int | None,
    address: str,
) -> NDArray[np.float32]:
    """Actions of an answer, shape (T, n) or, of several questions, (N, T, n), in the server's units.

    Args:
        answer: The message.
        description: Tells the sizes, as far as the server does.
        before: Horizon and n of the last answer, which the sizes that are not told must equal; None for the first.
        rows: Number of questions; None for one; its answer has no such axis.
        address: Of the server, for messages.

    Raises:
        PolicyServerError: If they are missing, of another shape or kind of numbers, or not finite.
    """
    where = f"The policy server {address}"
    actions = answer.get(ACTIONS)
    if not isinstance(actions, np.ndarray):
        holds = names_text(str(key) for key in answer) or "(nothing)"
        found = "has no 'actions'" if actions is None else f"has 'actions' of type {type(actions).__name__}"
        raise PolicyServerError("wrong_shape", f"{where}: an answer {found}, expected an array; it holds: {holds}.")
    if actions.dtype.kind != "f":
        raise PolicyServerError("wrong_shape", f"{where}: 'actions' is {actions.dtype}, expected real numbers.")
    told = (description.horizon, description.action_size)
    sizes = tuple(size if size is not None else (before and before[i]) for i, size in enumerate(told))
    wanted = (() if rows is None else (rows,)) + sizes
    fits = len(wanted) == actions.ndim and all(a in (None, b) for a, b in zip(wanted, actions.shape, strict=True))
    if not fits or not actions.size:
        expected = ", ".join("any" if size is None else str(size) for size in wanted)
        raise PolicyServerError(
            "wrong_shape", f"{where}: 'actions' has shape {actions.shape}, expected ({expected}), not empty."
        )
    with np.errstate(over="ignore"):
        numbers = np.asarray(actions, np.float32)
    if not np.isfinite(numbers).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        raise PolicyServerError("not_finite", f"{where}: 'actions' is not finite: {numbers[place]} at {place}.")
    return numbers


def metadata_changes(first: Mapping[Any, Any], now: Mapping[Any, Any]) -> list[str]:
    """Differences of two servers' metadata, one text each with the key and both values; empty if they are equal."""
    before, after = dict(_leaves(first)), dict(_leaves(now))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    shown = [
        f"{name} was {before.get(name, 'absent')}, is {after.get(name, 'absent')}" for name in names[:MOST_CHANGES]
    ]
    return [*shown, f"{len(names) - MOST_CHANGES} more"] if len(names) > MOST_CHANGES else shown


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Paths of a message's values and texts of them that differ where the values do."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)) and value:
        for i, item in enumerate(value):
            yield from _leaves(item, f"{name}[{i}]")
    elif isinstance(value, np.ndarray):
        yield name, f"{value.dtype} of shape {value.shape} ({_hash_text(value)})"
    else:
        yield name, plain_text(value, 10_000)


def _hash_text(array: NDArray[Any]) -> str:
    """First digits of the SHA-256 of an array of any shape and unit."""
    return f"SHA-256 {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]}"

"""Spaces of gymnasium in the form that learners know: one row of numbers, pictures, and actions in [-1, 1]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces

from gantry_hardware.errors import UnknownNameError
from gantry_sim.gym import border
from gantry_sim.gym.border import GymEnvError as GymEnvError

STATE = "state"
"""Key of the numbers; as in ``gantry_policies.common.batched_env``, which workers do not import for its torch."""
IMAGE_PREFIX = "image/"
"""Keys of pictures begin with it, as there."""
CHANNELS = (1, 3, 4)
"""Numbers per pixel that make an array of bytes a picture."""

Path = tuple[str | int, ...]
"""Keys and places that lead to a part of an observation."""


@dataclass(frozen=True)
class NumbersLayout:
    """A part of an observation that goes into the state."""

    path: Path
    """Path in the space."""
    space: spaces.Space[Any]
    """Space of the entry; choices become ones among zeros."""


@dataclass(frozen=True)
class PictureLayout:
    """A picture of an observation."""

    key: str
    """``image/<name>``."""
    path: Path
    """Path in the space."""
    order: str
    """Its axes: ``HWC``, ``CHW`` or ``HW``."""
    given: tuple[int, ...]
    """Shape as the environment gives it."""
    shape: tuple[int, int, int]
    """(C, H, W) as learners get it."""


@dataclass(frozen=True)
class ObservationLayout:
    """Layout of an observation."""

    numbers: tuple[NumbersLayout, ...]
    """Parts of the state, in their order."""
    pictures: tuple[PictureLayout, ...]
    """Every picture."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each array of :meth:`arrays`, by key."""
        # Learners want a state; where there are only pictures it is a single zero.
        size = sum(spaces.flatdim(part.space) for part in self.numbers) or 1
        return {STATE: (size,), **{picture.key: picture.shape for picture in self.pictures}}

    def arrays(self, obs: Any) -> dict[str, np.ndarray]:
        """An observation of the environment as ``state`` (s,) float32 and ``image/<name>`` (C, H, W) uint8.

        Raises:
            GymEnvError: If a part is missing, is not what its space says, or holds a number that is not finite.
        """
        rows = [border.row(item.space, _at(obs, item.path), _name(item.path)) for item in self.numbers]
        found = {STATE: np.concatenate(rows) if rows else np.zeros(1, np.float32)}
        for picture in self.pictures:
            image = border.picture(_at(obs, picture.path), picture.given, _name(picture.path))
            if picture.order == "HWC":
                image = np.moveaxis(image, -1, 0)
            elif picture.order == "HW":
                image = image[None]
            found[picture.key] = resized(image, *picture.shape[1:])
        return found


def observation_layout(
    space: spaces.Space[Any], image_px: int | None = None, leave_out: Sequence[str] = ()
) -> ObservationLayout:
    """Layout of the observations of a space.

    Bytes in two or three dimensions are pictures, everything else is numbers.

    Args:
        space: ``Dict`` and ``Tuple`` of any depth over ``Box``, ``Discrete``, ``MultiDiscrete`` and ``MultiBinary``.
        image_px: Height and width that pictures are brought to, in pixels; None to leave them as they are.
        leave_out: Names of parts that are not looked at, ``pixels/front`` or ``pixels`` for all below.

    Raises:
        GymEnvError: If a part is neither numbers nor a picture.
        UnknownNameError: If there is no part of a name that is left out.
    """
    leaves = list(_leaves(space))
    names = {_name(path[:depth]) for path, _ in leaves for depth in range(1, len(path) + 1)}
    for name in leave_out:
        if name not in names:
            raise UnknownNameError("part of the observation", name, names)
    kept = [(path, leaf) for path, leaf in leaves if not any(_is_below(path, name) for name in leave_out)]
    pictures = [(path, leaf) for path, leaf in kept if _is_picture(leaf)]
    numbers = [(path, leaf) for path, leaf in kept if not _is_picture(leaf)]
    if not kept:
        raise GymEnvError(f"leave_out is {list(leave_out)}, which leaves nothing to look at of {sorted(names)}.")
    for path, leaf in numbers:
        _require_numbers(path, leaf)
    size = sum(spaces.flatdim(leaf) for _, leaf in numbers)
    if size > border.LARGEST_STATE:
        largest = max(numbers, key=lambda item: spaces.flatdim(item[1]))
        raise GymEnvError(
            f"Its observation has {size} numbers, of which {largest[1]} is most; expected at most "
            f"{border.LARGEST_STATE}. leave_out=NAME leaves a part out."
        )
    count = Counter(str(path[-1]) for path, _ in pictures if path)
    return ObservationLayout(
        tuple(NumbersLayout(path, leaf) for path, leaf in numbers),
        tuple(_picture(path, leaf, count, image_px) for path, leaf in pictures),
    )


@dataclass(frozen=True)
class ActionLayout:
    """Scaling of an action in [-1, 1] to one of the environment."""

    low: np.ndarray
    """(n,) float64: what -1 means, in the environment's own units."""
    high: np.ndarray
    """(n,) float64: what 1 means, likewise."""
    shape: tuple[int, ...]
    """Of the environment's action."""
    dtype: np.dtype[Any]
    """Of the environment's action."""

    def scaled(self, action: np.ndarray) -> np.ndarray:
        """The environment's action.

        Args:
            action: (n,) in [-1, 1]; what lies outside is clipped.
        """
        share = (np.clip(action.astype(np.float64), -1.0, 1.0) + 1.0) / 2.0
        value = self.low + share * (self.high - self.low)
        if np.issubdtype(self.dtype, np.integer):
            value = np.rint(value)
        return value.astype(self.dtype).reshape(self.shape)


def action_layout(
    space: spaces.Space[Any], low: Sequence[float] | None = None, high: Sequence[float] | None = None
) -> ActionLayout:
    """Scaling of actions to a space.

    Args:
        space: A ``Box``.
        low: What -1 means, one number for each of the action or one for all; None for the space's own bounds.
        high: What 1 means, likewise.

    Raises:
        GymEnvError: If the space is no ``Box`` or has no bounds, or those given do not fit.
    """
    if not isinstance(space, spaces.Box) or not np.prod(space.shape):
        raise GymEnvError(
            f"Its action space is {_short(space)}, expected a Box. A wrapper (wrappers=module:NAME) that offers a Box "
            "turns it into one: of one number for each choice, of which the largest counts, or of all parts in a row."
        )
    size = int(np.prod(space.shape))
    assert space.dtype is not None
    lows, highs = (
        _bound(name, own, given, size, space)
        for name, own, given in (("action_low", space.low, low), ("action_high", space.high, high))
    )
    if not (lows < highs).all():
        place = int(np.flatnonzero(~(lows < highs))[0])
        raise GymEnvError(
            f"Number {place} of its action reaches from {lows[place]:g} to {highs[place]:g}, expected a lower bound "
            f"below the upper one; give action_low and action_high, {size} numbers each."
        )
    # Compared as the environment keeps them: 0.7 is beyond a bound of 0.7 in single precision.
    outside = (lows.astype(space.dtype) < space.low.ravel()) | (highs.astype(space.dtype) > space.high.ravel())
    if outside.any():
        raise GymEnvError(
            f"action_low {lows.tolist()} and action_high {highs.tolist()} reach beyond the environment's "
            f"{_short(space)}."
        )
    return ActionLayout(lows, highs, space.shape, np.dtype(space.dtype))


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture in another size, every pixel the mean of the area that it covers; the aspect ratio is not kept.

    Args:
        image: (C, H, W) uint8.
        height: Pixels.
        width: Pixels.

    Returns:
        (C, height, width) uint8, contiguous.
    """
    if image.shape[1:] == (height, width):
        return np.ascontiguousarray(image)
    mean = _shares(image.shape[1], height) @ image.astype(np.float32) @ _shares(image.shape[2], width).T
    return np.rint(mean).astype(np.uint8)


@lru_cache
def _shares(before: int, after: int) -> np.ndarray:
    """(after, before): how much of each new pixel is covered by each old one, along one axis."""
    size = before / after
    edges = np.arange(after + 1)[:, None] * size
    pixels = np.arange(before)[None]
    covered = np.minimum(edges[1:], pixels + 1) - np.maximum(edges[:-1], pixels)
    return (np.clip(covered, 0.0, None) / size).astype(np.float32)


def _leaves(space: spaces.Space[Any], path: Path = ()) -> Iterator[tuple[Path, spaces.Space[Any]]]:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, place))
    else:
        yield path, space


def _at(obs: Any, path: Path) -> Any:
    return border.part(obs, path, _name(path))


def _short(space: spaces.Space[Any]) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= 200 else f"{text[:200]}..."


def _name(path: Path) -> str:
    return "/".join(str(part) for part in path)


def _is_below(path: Path, name: str) -> bool:
    return f"{_name(path)}/".startswith(f"{name}/")


def _is_picture(leaf: spaces.Space[Any]) -> bool:
    return isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 and len(leaf.shape) in (2, 3)


def _require_numbers(path: Path, leaf: spaces.Space[Any]) -> None:
    discrete = isinstance(leaf, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
    if discrete or (isinstance(leaf, spaces.Box) and len(leaf.shape) <= 2):
        return
    where = f"'{_name(path)}'" if path else "observation"
    raise GymEnvError(
        f"Its {where} is {type(leaf).__name__}{leaf.shape or ''} of {leaf.dtype}, expected uint8 pictures, Discrete, "
        "MultiDiscrete, MultiBinary, or a Box of at most two dimensions; leave_out=NAME leaves a part out."
    )


def _picture(path: Path, leaf: spaces.Space[Any], names: Counter[str], image_px: int | None) -> PictureLayout:
    shape = leaf.shape
    assert shape is not None
    if len(shape) == 2:
        order, size = "HW", (1, *shape)
    elif shape[2] in CHANNELS:
        order, size = "HWC", (shape[2], *shape[:2])
    elif shape[0] in CHANNELS:
        order, size = "CHW", shape
    else:
        raise GymEnvError(
            f"Its picture '{_name(path)}' has shape {shape}, expected (H, W, C) or (C, H, W) with C one of {CHANNELS}."
        )
    name = "camera" if not path else str(path[-1]) if names[str(path[-1])] == 1 else "_".join(map(str, path))
    key = IMAGE_PREFIX + name.replace("/", "_").replace(".", "_")
    return PictureLayout(key, path, order, shape, (size[0], image_px or size[1], image_px or size[2]))


def _bound(name: str, own: np.ndarray, given: Sequence[float] | None, size: int, space: spaces.Box) -> np.ndarray:
    """(size,) float64: what was given, or the space's own bound where it is one."""
    if given is None:
        bounds = own.ravel().astype(np.float64)
        missing = np.flatnonzero(border.is_no_bound(bounds, np.dtype(space.dtype)))
        if missing.size:
            raise GymEnvError(
                f"Its action space is {_short(space)}, which has no bounds; give action_low and action_high, {size} "
                f"numbers each. Number {missing[0]} has {bounds[missing[0]]:g}; beyond {border.LARGEST_BOUND:g} it "
                "counts for none."
            )
        return bounds
    if len(given) not in (1, size):
        raise GymEnvError(f"{name} has {len(given)} numbers, expected 1 or {size}, as many as the action.")
    values = np.broadcast_to(np.asarray(given, np.float64), (size,)).copy()
    if not np.isfinite(values).all():
        raise GymEnvError(f"{name} is {list(given)}, expected finite numbers.")
    return values

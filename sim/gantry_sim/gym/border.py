"""Checks of values from other people's environments: judged by what they are, and refused in words.

An array of one number is a number; what is far too large to be a bound is none; what an older interface gives is told
from what gymnasium's gives. Worker processes import this, so it imports no torch.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from gantry_hardware.errors import GantryError

LARGEST_BOUND = 1e6
"""A bound of an action beyond this is none: people write the largest number of a type for "unbounded"."""
LARGEST_STATE = 1_000_000
"""Most numbers of a state."""
_OLD_API = (
    "that is the interface of gym before 0.26, expected gymnasium's; wrap the environment, for example in "
    "shimmy's GymV21CompatibilityV0 (wrappers=...)"
)
_SHOWN = 80
"""Characters of a value that messages show."""


class GymEnvError(GantryError):
    """A gymnasium environment does not exist, does not fit, or failed."""


def one_number(value: Any, what: str) -> float:
    """A finite number, also one that comes as an array of one.

    Args:
        value: What the environment gave.
        what: What it is, the subject of a sentence.

    Raises:
        GymEnvError: If it is something else, or not finite in single precision.
    """
    array = _array(value, what)
    if array.size != 1:
        raise GymEnvError(f"{what} is an array of shape {array.shape}, expected one number")
    number = float(array.reshape(()))
    if not abs(number) <= float(np.finfo(np.float32).max):
        raise GymEnvError(f"{what} is {number}, expected a finite number")
    return number


def one_flag(value: Any, what: str) -> bool:
    """True or False, also as an array of one, or as 1 and 0.

    Raises:
        GymEnvError: If it is something else: nothing, several, a text, or another number.
    """
    array = _array(value, what)
    if array.size != 1:
        raise GymEnvError(f"{what} is an array of shape {array.shape}, expected one truth value")
    if array.reshape(()) not in (0, 1):
        raise GymEnvError(f"{what} is {_shown(value)}, expected True or False")
    return bool(array.reshape(()))


def reset(env: Any, seed: int) -> Any:
    """Begin an episode; returns its first observation.

    Raises:
        GymEnvError: If the environment has another interface.
    """
    try:
        result = env.reset(seed=seed)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise GymEnvError(f"its reset() takes no seed ({error}): {_OLD_API}") from error
    except ValueError as error:
        _explain_unpacking(error)
        raise
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
        raise GymEnvError(f"reset() gave {_kind(result)}, not an observation and a dictionary: {_OLD_API}")
    return result[0]


def step(env: Any, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
    """Apply an action: observation, reward, terminated, truncated, info; all but the observation are judged.

    Raises:
        GymEnvError: If the environment has another interface, or a value is not what it must be.
    """
    try:
        result = env.step(action)
    except ValueError as error:
        _explain_unpacking(error)
        raise
    if isinstance(result, tuple) and len(result) == 4:
        raise GymEnvError(f"step() gave four values (observation, reward, done, info): {_OLD_API}")
    if not isinstance(result, tuple) or len(result) != 5:
        raise GymEnvError(f"step() gave {_kind(result)}, expected observation, reward, terminated, truncated and info")
    obs, reward, terminated, truncated, info = result
    if not isinstance(info, Mapping):
        raise GymEnvError(f"info of step() is {_kind(info)}, expected a dictionary")
    flags = one_flag(terminated, "terminated"), one_flag(truncated, "truncated")
    return obs, one_number(reward, "the reward"), *flags, info


def success(info: Mapping[str, Any], keys: Sequence[str]) -> bool | None:
    """Whether a step succeeded, by the first of some entries of info that says so; None if none does.

    Raises:
        GymEnvError: If an entry is no truth value.
    """
    for key in keys:
        if info.get(key) is not None:
            return one_flag(info[key], f"'{key}' in info")
    return None


def part(obs: Any, path: Sequence[str | int], name: str) -> Any:
    """A part of an observation.

    Raises:
        GymEnvError: If it is not there.
    """
    for key in path:
        try:
            obs = obs[key]
        except (KeyError, IndexError, TypeError) as error:
            has = (
                f"a dictionary with {', '.join(map(str, obs)) or 'nothing'}" if isinstance(obs, Mapping) else _kind(obs)
            )
            raise GymEnvError(f"the observation has no part '{name}': at {key!r} there is {has[:200]}") from error
    return obs


def row(space: spaces.Space[Any], value: Any, name: str) -> np.ndarray:
    """A part of an observation as (n,) float32; choices become ones among zeros.

    Args:
        space: What the environment says that the part is.
        value: What it gave.
        name: Of the part.

    Raises:
        GymEnvError: If the part is something else, or a number is not finite in single precision.
    """
    what = _named(name)
    if isinstance(space, spaces.Discrete):
        value = _choices(_array(value, what), np.array(space.start), np.array(space.n), what)
        return np.asarray(spaces.flatten(space, np.int64(value)), np.float32)
    array = _shaped(_array(value, what), space.shape or (), what)
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(getattr(space, "start", np.zeros_like(space.nvec)))
        array = _choices(array, start, space.nvec, what)
    elif isinstance(space, spaces.MultiBinary):
        array = _choices(array, np.zeros(space.shape, np.int64), np.full(space.shape, 2), what)
    else:
        wrong = np.flatnonzero(~(np.abs(array.astype(np.float64)) <= np.finfo(np.float32).max))
        if wrong.size:
            number = array.reshape(-1)[wrong[0]]
            raise GymEnvError(f"{what}: number {wrong[0]} is {number}, expected a number that is finite")
        return array.astype(np.float32).reshape(-1)
    return np.asarray(spaces.flatten(space, array.astype(space.dtype)), np.float32)


def picture(value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """A picture of an observation as uint8, in the environment's own order of axes.

    Raises:
        GymEnvError: If it has another shape, or its numbers are no whole ones from 0 to 255.
    """
    what = _named(name)
    array = _array(value, what)
    if array.shape != shape:
        raise GymEnvError(f"{what} has shape {array.shape}, expected {shape}")
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() > 255:
        raise GymEnvError(f"{what} holds {array.dtype} from {array.min()} to {array.max()}, expected uint8")
    return array.astype(np.uint8)


def require_one_environment(env: Any) -> None:
    """Refuse vectors of environments, and those of the older gym.

    Raises:
        GymEnvError: With what to do.
    """
    if hasattr(env, "single_action_space"):
        raise GymEnvError("It is a vector of environments; give the single one, num_envs makes several of it.")
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if isinstance(space, spaces.Space):
            continue
        if type(space).__module__.partition(".")[0] == "gym":
            raise GymEnvError(f"Its {name} is one of gym: {_OLD_API}.")
        raise GymEnvError(f"Its {name} is {_kind(space)}, expected a space of gymnasium.")


def is_no_bound(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Mask of the bounds of a space that are none: not finite, beyond :data:`LARGEST_BOUND`, or the largest of a short
    float.
    """
    beyond = ~(np.abs(values) <= LARGEST_BOUND)
    if np.issubdtype(dtype, np.floating):
        beyond |= np.abs(values) >= float(np.finfo(dtype).max)
    return beyond


def finite_time(value: Any) -> float | None:
    """A time or rate that is a finite number above zero; None for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(()).item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    return float(value) if 0.0 < float(value) < math.inf else None


def _array(value: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:  # ragged lists, tensors on a GPU or with gradients
        reason = " ".join(str(error).split())[:_SHOWN]
        raise GymEnvError(f"{what} is {_kind(value)}, which is no array of numbers ({reason})") from error
    if array.dtype.kind not in "biuf":
        raise GymEnvError(f"{what} is {_shown(value)} ({array.dtype}), expected numbers")
    return array


def _shaped(array: np.ndarray, shape: tuple[int, ...], what: str) -> np.ndarray:
    if array.shape == shape or array.size == 1 == math.prod(shape):
        return array.reshape(shape)
    raise GymEnvError(f"{what} has shape {array.shape}, expected {shape}")


def _choices(array: np.ndarray, start: np.ndarray, count: np.ndarray, what: str) -> np.ndarray:
    """Whole numbers from ``start``, fewer than ``count`` beyond it."""
    array = _shaped(array, start.shape, what)
    fits = (array == np.floor(array)) & (array >= start) & (array < start + count)
    if not fits.all():
        place = int(np.flatnonzero(~fits)[0])
        first, last = start.reshape(-1)[place], (start + count).reshape(-1)[place] - 1
        raise GymEnvError(f"{what} is {array.reshape(-1)[place]}, expected a whole number from {first} to {last}")
    return array.astype(np.int64)


def _explain_unpacking(error: ValueError) -> None:
    """Say what a wrapper means that does not get as many values as it expects.

    Raises:
        GymEnvError: If that is what the error says.
    """
    if "values to unpack" in str(error):
        raise GymEnvError(
            f"ValueError: {error}; if the environment gives another number of values, {_OLD_API}"
        ) from error


def _named(name: str) -> str:
    return f"the observation's '{name}'" if name else "the observation"


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

"""Steps as bytes and back; whatever is no step is refused in words, before numpy sees it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from gantry_deploy.errors import LinkError
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.session.steps import Actor, SessionStep
from gantry_hardware.files.text import names_text, plain_text

M = TypeVar("M", bound=Message)

DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("bool", "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64")
}
"""Kinds of numbers that an array may hold, little-endian on the wire."""
MAX_DIMENSIONS = 8
"""Dimensions of an array."""
MAX_KEYS = 64
"""Entries of an observation."""
MAX_ACTION = 1024
"""Numbers of an action."""
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,127}")
"""Keys of an observation."""


def encode_step(step: SessionStep, max_bytes: int) -> bytes:
    """The bytes of a step: a ``Step`` of ``corrections.proto``.

    Args:
        step: The step; its arrays are copied, so that they may change afterwards.
        max_bytes: Largest result.

    Raises:
        LinkError: If :func:`decode_step` would not take it.
    """
    message = pb.Step(
        episode=_count("episode", step.episode),
        index=_count("index", step.index),
        stamp_s=float(step.stamp_s),
        actor=str(step.actor),
        reward=float(step.reward),
        penalty=float(step.penalty),
        terminated=step.terminated,
        truncated=step.truncated,
        success=step.success,
        parameters_version=_count("parameters_version", step.parameters_version),
        obs=_entries("obs", step.obs),
        last_obs=_entries("last_obs", step.last_obs or {}),
        action=_array("action", step.action),
        policy_action=_array("policy_action", step.policy_action),
    )
    if step.base_action is not None:
        message.base_action.CopyFrom(_array("base_action", step.base_action))
    if step.last_base_action is not None:
        message.last_base_action.CopyFrom(_array("last_base_action", step.last_base_action))
    _check(message)
    if (size := message.ByteSize()) > max_bytes:
        raise LinkError(f"A step has {size} bytes, at most {max_bytes} are sent; smaller images make it fit.")
    return message.SerializeToString()


def decode_step(data: bytes, max_bytes: int) -> SessionStep:
    """The step that :func:`encode_step` has written.

    Raises:
        LinkError: If the bytes are too many, no step, or a step that makes no sense, with the field and its value.
    """
    if len(data) > max_bytes:
        raise LinkError(f"A step has {len(data)} bytes, at most {max_bytes} are taken.")
    message = parse(pb.Step, data, "a step")
    _check(message)
    return SessionStep(
        episode=message.episode,
        index=message.index,
        stamp_s=message.stamp_s,
        obs=_observation(message.obs),
        action=_numbers(message.action),
        policy_action=_numbers(message.policy_action),
        actor=Actor(message.actor),
        reward=message.reward,
        penalty=message.penalty,
        terminated=message.terminated,
        truncated=message.truncated,
        success=message.success,
        base_action=_numbers(message.base_action) if message.HasField("base_action") else None,
        last_obs=_observation(message.last_obs) if message.last_obs else None,
        last_base_action=_numbers(message.last_base_action) if message.HasField("last_base_action") else None,
        parameters_version=message.parameters_version,
    )


def parse(kind: type[M], data: bytes, what: str) -> M:
    """A message of the protocol from its bytes.

    Raises:
        LinkError: If they are none, for example a pickle.
    """
    try:
        return kind.FromString(data)
    except (DecodeError, ValueError) as error:
        raise LinkError(f"{len(data)} bytes are not {what} of Gantry's correction protocol.") from error


def _check(message: pb.Step) -> None:
    """Refuse a message that is no sensible step, by its fields alone."""
    for name in ("stamp_s", "reward", "penalty"):
        if not math.isfinite(value := getattr(message, name)):
            raise LinkError(f"{name} of a step is {value}, expected a finite number.")
    if message.actor not in list(Actor):
        raise LinkError(f"actor of a step is {plain_text(message.actor)}, expected one of {names_text(Actor)}.")
    for name in ("action", "policy_action"):
        if not message.HasField(name):
            raise LinkError(f"A step has no {name}.")
    if not message.obs:
        raise LinkError("A step has no observation.")
    if message.last_obs and not (message.terminated or message.truncated):
        raise LinkError("A step has last_obs, and neither terminated nor truncated.")
    sizes = {
        name: _check_action(name, getattr(message, name))
        for name in ("action", "policy_action", "base_action", "last_base_action")
        if message.HasField(name)
    }
    if len(set(sizes.values())) != 1:
        raise LinkError(f"Actions of a step differ in size: {names_text(f'{k} {v}' for k, v in sizes.items())}.")
    for field in ("obs", "last_obs"):
        _check_observation(field, getattr(message, field))


def _check_action(name: str, array: pb.Array) -> int:
    check_array(name, array)
    if array.dtype != "float32" or len(array.shape) != 1 or not 1 <= array.shape[0] <= MAX_ACTION:
        raise LinkError(
            f"{name} is {array.dtype} of shape {tuple(array.shape)}, expected float32 of shape (a,) with a from 1 to"
            f" {MAX_ACTION}."
        )
    return array.shape[0]


def _check_observation(field: str, entries: Iterable[pb.NamedArray]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if len(seen) == MAX_KEYS:
            raise LinkError(f"{field} has more than {MAX_KEYS} entries.")
        if entry.name in seen or not KEY.fullmatch(entry.name):
            wrong = "twice" if entry.name in seen else "which is no name of an entry"
            raise LinkError(f"{field} has the entry {plain_text(entry.name)}, {wrong}.")
        seen.add(entry.name)
        name = f"{field}[{entry.name!r}]"
        check_array(name, entry.array)
        shape, dtype = tuple(entry.array.shape), entry.array.dtype
        if entry.name == "state" and (dtype != "float32" or len(shape) != 1):
            raise LinkError(f"{name} is {dtype} of shape {shape}, expected float32 of shape (s,).")
        if entry.name.startswith("image/") and (dtype != "uint8" or len(shape) != 3 or shape[0] != 3):
            raise LinkError(f"{name} is {dtype} of shape {shape}, expected uint8 of shape (3, height, width).")


def check_array(name: str, array: pb.Array) -> None:
    """Refuse an array of the wire whose kind, shape or size is wrong, or that holds a number that is not finite.

    Raises:
        LinkError: With the name, the value and what was expected.
    """
    dtype = DTYPES.get(array.dtype)
    if dtype is None:
        raise LinkError(f"{name} has the dtype {plain_text(array.dtype)}, expected one of {names_text(DTYPES)}.")
    if len(array.shape) > MAX_DIMENSIONS:
        raise LinkError(f"{name} has {len(array.shape)} dimensions, at most {MAX_DIMENSIONS}.")
    wanted = math.prod(array.shape) * dtype.itemsize
    if wanted != len(array.data):
        raise LinkError(
            f"{name} has {len(array.data)} bytes, expected {wanted} of {array.dtype} with shape {tuple(array.shape)}."
        )
    if dtype.kind == "f" and not np.isfinite(np.frombuffer(array.data, dtype)).all():
        raise LinkError(f"{name} holds a number that is not finite.")
    if dtype.kind == "b" and array.data.strip(b"\x00\x01"):
        raise LinkError(f"{name} is bool and holds a byte other than 0 and 1.")


def _count(name: str, value: int) -> int:
    if not 0 <= value < 2**63:
        raise LinkError(f"{name} of a step is {plain_text(value)}, expected a whole number from 0.")
    return value


def _entries(field: str, obs: Mapping[str, NDArray[np.generic]]) -> list[pb.NamedArray]:
    return [pb.NamedArray(name=str(name), array=_array(f"{field}[{name!r}]", value)) for name, value in obs.items()]


def _array(name: str, value: Any) -> pb.Array:
    kind = getattr(getattr(value, "dtype", None), "name", type(value).__name__)
    if not isinstance(value, np.ndarray) or kind not in DTYPES:
        raise LinkError(f"{name} is {plain_text(kind)}, expected a numpy array of {names_text(DTYPES)}.")
    return pb.Array(dtype=kind, shape=value.shape, data=value.astype(DTYPES[kind], copy=False).tobytes())


def _numbers(array: pb.Array) -> NDArray[Any]:
    return np.frombuffer(array.data, DTYPES[array.dtype]).reshape(tuple(array.shape)).astype(np.dtype(array.dtype))


def _observation(entries: Iterable[pb.NamedArray]) -> dict[str, NDArray[Any]]:
    return {entry.name: _numbers(entry.array) for entry in entries}

"""Features of one frame of a dataset: named arrays with a type and a shape, and the check of values against them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.errors import DatasetError
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.text import plain_text
from gantry_hardware.model.spec import RobotSpec

STATE, ENVIRONMENT_STATE, ACTION = "observation.state", "observation.environment_state", "action"
"""Proprioception of the robot, state that only a simulator knows, and the action."""
IMAGES = "observation.images."
"""Stands before the name of a camera."""
REWARD, DONE, TRUNCATED, SUCCESS = "next.reward", "next.done", "next.truncated", "next.success"
"""Reward of the step from this frame; the episode ended with it; it was cut off (and did not end by itself); the task
is solved. An end by itself is ``next.done`` without ``next.truncated``."""
EXTRA = "complementary_info."
"""Stands before columns that learning may use beside observation, action and reward."""
IS_INTERVENTION, IS_DEMO, BASE_ACTION = f"{EXTRA}is_intervention", f"{EXTRA}is_demo", f"{EXTRA}base_action"
"""A person was in control; the frame is of a demonstration; what the frozen base policy would have done."""
POLICY_ACTION, PARAMETERS_VERSION = f"{EXTRA}policy_action", f"{EXTRA}parameters_version"
"""Action that the policy wanted, also where a person acted; version of the weights that it acted with."""
DISCRETE_PENALTY, STAMP = f"{EXTRA}discrete_penalty", f"{EXTRA}stamp_s"
"""Penalty of a gripper that opened or closed, LeRobot's name; start of the step on the robot's clock, s."""

JOINT_POSITION_TARGET = "target/joint/position"
"""Kind of an action that is a position for every joint: LEAPP's word, as in policy contracts."""

IMAGE_DTYPES = ("image", "video")
NUMBER_DTYPES = (
    *("float32", "float64", "float16", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
DTYPES = (*NUMBER_DTYPES, "string", *IMAGE_DTYPES)
MAX_DIMENSIONS, MAX_NUMBERS = 5, 10_000_000
"""LeRobot stores arrays of up to five dimensions; more numbers per frame than that are a mistake, or an attack."""


@dataclass(frozen=True)
class Feature:
    """One named array of a frame."""

    dtype: str
    """One of :data:`DTYPES`; ``video`` and ``image`` are uint8 RGB, as MP4 (lossy unless asked otherwise) or PNG."""
    shape: tuple[int, ...]
    """Shape within one frame; ``(1,)`` for a single value, ``(height, width, 3)`` for a camera."""
    names: tuple[str, ...] | None = None
    """Names along the last dimension, or None."""
    kind: str = ""
    """Meaning of the numbers, in LEAPP's words (:data:`JOINT_POSITION_TARGET`); empty if unknown. Not LeRobot's."""
    unit: str = ""
    """SI unit of every number, for example ``rad``; empty if not said, or if ``units`` says it. Not LeRobot's."""
    units: tuple[str, ...] = ()
    """SI unit of each number along the last dimension, where they differ. Not LeRobot's."""
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The entry as it was read; what is not understood here is kept when the dataset is written again."""

    @property
    def is_image(self) -> bool:
        """Whether it is a camera's picture."""
        return self.dtype in IMAGE_DTYPES

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of a camera's pictures, also where LeRobot's older datasets put the channels first."""
        return (self.shape[0], self.shape[1]) if self.shape[2] == 3 else (self.shape[1], self.shape[2])

    @property
    def is_number(self) -> bool:
        """Whether it is an array of numbers or truth values."""
        return self.dtype in NUMBER_DTYPES

    @property
    def unit_of_each(self) -> tuple[str, ...]:
        """SI unit of each number along the last dimension; empty texts where it is not said."""
        return self.units or (self.unit,) * self.shape[-1]

    def to_json(self) -> dict[str, Any]:
        """The entry of ``info.json``."""
        own: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape)}
        own["names"] = self.raw.get("names", None if self.names is None else list(self.names))
        own |= {"kind": self.kind} if self.kind else {}
        own |= {"unit": self.unit} if self.unit else {}
        own |= {"units": list(self.units)} if self.units else {}
        return {**self.raw, **own}

    @classmethod
    def from_json(cls, name: str, data: Any) -> Feature:
        """Read an entry of ``info.json``.

        Raises:
            DatasetError: If it is no feature, or one that cannot be stored sensibly.
        """
        if not isinstance(data, dict) or not isinstance(data.get("shape"), (list, tuple)):
            raise DatasetError(f"Feature '{name}' is {plain_text(data)}, expected an object with dtype and shape.")
        feature = cls(
            dtype=str(data.get("dtype"))[:40],
            shape=tuple(data["shape"]),
            names=_names(data.get("names"), data["shape"]),
            kind=str(data.get("kind") or ""),
            unit=str(data.get("unit") or ""),
            units=_units(data.get("units"), data["shape"]),
            raw=dict(data),
        )
        try:
            check_feature(name, feature)
        except UnknownNameError as error:
            raise DatasetError(str(error)) from error
        return feature


DEFAULT_FEATURES: dict[str, Feature] = {
    "timestamp": Feature("float32", (1,)),
    "frame_index": Feature("int64", (1,)),
    "episode_index": Feature("int64", (1,)),
    "index": Feature("int64", (1,)),
    "task_index": Feature("int64", (1,)),
}
"""Columns that every dataset has and no frame brings: time in the episode in seconds, number of the frame in its
episode, of the episode, of the frame in the dataset, and of the task."""


def scalar(dtype: str = "float32", *, unit: str = "") -> Feature:
    """A single value per frame."""
    return Feature(dtype, (1,), unit=unit)


def vector(
    names: int | Sequence[str], *, dtype: str = "float32", kind: str = "", unit: str | Sequence[str] = ""
) -> Feature:
    """A vector per frame, with one name per number or only their count, and one unit for all or one per number."""
    count = names if isinstance(names, int) else len(names)
    each = (unit,) * count if isinstance(unit, str) else tuple(unit)
    same = len(set(each)) <= 1
    return Feature(
        dtype,
        (count,),
        None if isinstance(names, int) else tuple(names),
        kind=kind,
        unit=each[0] if same and each else "",
        units=() if same else each,
    )


def joint_targets_of(spec: RobotSpec) -> Feature:
    """An action that is a position for every joint of a robot, in rad (m where a joint slides); it can be replayed."""
    return vector(spec.joint_names, kind=JOINT_POSITION_TARGET, unit="rad")


def camera(height: int, width: int, *, video: bool = True) -> Feature:
    """A camera, (height, width, 3) uint8 RGB per frame; ``video=False`` keeps every frame as a PNG, without loss."""
    return Feature("video" if video else "image", (height, width, 3), ("height", "width", "channels"))


def rl_features() -> dict[str, Feature]:
    """Reward, end, truncation and success, in LeRobot's words; see :data:`REWARD`."""
    return {REWARD: scalar(), DONE: scalar("bool"), TRUNCATED: scalar("bool"), SUCCESS: scalar("bool")}


def check_features(features: Mapping[str, Feature]) -> None:
    """Refuse features that cannot be stored.

    Raises:
        DatasetError: Naming the feature and what is wrong with it.
    """
    if not features:
        raise DatasetError("A dataset needs at least one feature beside those that it adds by itself; there is none.")
    for name, feature in features.items():
        if name in DEFAULT_FEATURES or name == "task":
            raise DatasetError(
                f"Feature '{name}' is added by the dataset itself; give it another name or leave it out."
            )
        check_feature(name, feature)
        if feature.is_image and feature.shape[2] != 3:
            raise DatasetError(f"Camera '{name}' has shape {feature.shape}, expected (height, width, 3).")


def check_feature(name: str, feature: Feature) -> None:
    """Refuse one feature that cannot be stored.

    Raises:
        UnknownNameError: If there is no such dtype.
        DatasetError: If its name would leave its folder, or its shape or names do not fit.
    """
    # A camera's name becomes a folder, and '/' separates the columns of an episode's statistics.
    if not name or name.startswith(".") or ".." in name or any(sign in name for sign in "/\\\0"):
        raise DatasetError(f"Feature name '{name}' is not allowed: expected no '/', '\\', '..' or leading dot.")
    if feature.dtype not in DTYPES:
        raise UnknownNameError(f"dtype of feature '{name}'", feature.dtype, DTYPES)
    shape = feature.shape
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape)
    if not whole or not 1 <= len(shape) <= MAX_DIMENSIONS or math.prod(shape) > MAX_NUMBERS:
        raise DatasetError(
            f"Feature '{name}' has shape {shape}, expected 1 to {MAX_DIMENSIONS} positive whole numbers of at most "
            f"{MAX_NUMBERS} numbers per frame; a single value has shape (1,)."
        )
    if feature.is_image and (len(shape) != 3 or (shape[2] != 3 and shape[0] != 3)):
        raise DatasetError(f"Camera '{name}' has shape {shape}, expected (height, width, 3) or (3, height, width).")
    if feature.dtype == "string" and shape != (1,):
        raise DatasetError(f"Text feature '{name}' has shape {shape}, expected (1,).")
    if feature.units and len(feature.units) != shape[-1]:
        raise DatasetError(f"Feature '{name}' has {len(feature.units)} units for a last dimension of {shape[-1]}.")
    if feature.is_number and feature.names is not None and len(feature.names) != shape[-1]:
        raise DatasetError(
            f"Feature '{name}' has {len(feature.names)} names for a last dimension of {shape[-1]}: "
            f"{', '.join(feature.names)}."
        )


def checked_frame(features: Mapping[str, Feature], frame: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A frame's values as arrays of exactly their feature's type and shape; text stays text.

    Args:
        features: What the dataset holds, without :data:`DEFAULT_FEATURES`.
        frame: One value per feature.
        number: Of the frame in its episode, for messages.

    Raises:
        UnknownNameError: If a key is no feature.
        DatasetError: If a feature is missing, has another type or shape, or holds a number that is not finite.
    """
    for name in frame:
        if name not in features:
            raise UnknownNameError(f"feature in frame {number}", name, features)
    missing = [name for name in features if name not in frame]
    if missing:
        raise DatasetError(f"Frame {number} lacks {', '.join(missing)}; expected all of: {', '.join(features)}.")
    return {name: _checked_value(name, feature, frame[name], number) for name, feature in features.items()}


def _checked_value(name: str, feature: Feature, value: Any, number: int) -> Any:
    if feature.dtype == "string":
        if not isinstance(value, str):
            raise DatasetError(f"Frame {number}: '{name}' is {plain_text(value)}, expected text.")
        return value
    dtype = np.dtype("uint8" if feature.is_image else feature.dtype)
    array = _plain_number(value, dtype) if isinstance(value, (bool, int, float)) else np.asarray(value)
    if (
        array is None
        or array.dtype != dtype
        or (array.shape != feature.shape and (array.shape, feature.shape) != ((), (1,)))
    ):
        found = f"{plain_text(value)}" if array is None else f"{array.dtype} of shape {array.shape}"
        raise DatasetError(f"Frame {number}: '{name}' is {found}, expected {dtype} of shape {feature.shape}.")
    array = array.reshape(feature.shape)
    if dtype.kind == "f" and not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        shown = ", ".join(f"{_place(feature, where)} = {array[tuple(where)]}" for where in bad[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise DatasetError(f"Frame {number}: '{name}' is not finite: {shown}{more}; expected finite numbers.")
    return array.copy()


def _plain_number(value: bool | int | float, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """A Python number as an array of a type that holds it as it is; None if the type is of another sort."""
    fits = dtype.kind == "b" if isinstance(value, bool) else dtype.kind in ("iuf" if isinstance(value, int) else "f")
    if not fits:
        return None
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        return None
    return np.array(value, dtype=dtype)


def _place(feature: Feature, where: NDArray[np.int64]) -> str:
    place = [str(index) for index in where]
    if feature.names is not None:
        place[-1] = feature.names[where[-1]]
    return place[0] if len(place) == 1 else f"[{', '.join(place)}]"


def _units(units: Any, shape: Sequence[int]) -> tuple[str, ...]:
    """Units along the last dimension; what is no list of that many texts was not meant for this program."""
    if not isinstance(units, list) or not shape or not all(isinstance(unit, str) for unit in units):
        return ()
    return tuple(units) if len(units) == shape[-1] else ()


def _names(names: Any, shape: Sequence[int]) -> tuple[str, ...] | None:
    """Names along the last dimension; older datasets wrap the list into an object such as ``{"motors": [...]}``."""
    if isinstance(names, dict) and len(names) == 1:
        names = next(iter(names.values()))
    if not isinstance(names, (list, tuple)) or not shape or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names) if len(names) == shape[-1] else None

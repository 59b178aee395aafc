"""Wrong ways to read a robot's signals that are often met, as functions that change signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gantry_deploy.observations.signals import Signals
from gantry_mapping.sensing.frames import rotation_matrix

Array = Any

FRAME_HYPOTHESES: dict[str, Callable[[Signals], Signals]] = {}
"""Words for a wrong frame or convention to the change that it makes."""


def _hypothesis(words: str) -> Callable[[Callable[[Signals], Signals]], Callable[[Signals], Signals]]:
    def add(change: Callable[[Signals], Signals]) -> Callable[[Signals], Signals]:
        FRAME_HYPOTHESES[words] = change
        return change

    return add


@_hypothesis("the quaternion was read as (x, y, z, w), and it is (w, x, y, z)")
def _read_as_xyzw(signals: Signals) -> Signals:
    return _with_quat(signals, (3, 0, 1, 2))


@_hypothesis("the quaternion came as (x, y, z, w), and was read as (w, x, y, z)")
def _came_as_xyzw(signals: Signals) -> Signals:
    return _with_quat(signals, (1, 2, 3, 0))


@_hypothesis("the quaternion is that of the inverse rotation, from the world to the base")
def _inverse_quat(signals: Signals) -> Signals:
    quat = signals.quat_base_to_world_wxyz * np.array([[1.0, -1.0, -1.0, -1.0]], np.float32)
    return replace(signals, quat_base_to_world_wxyz=quat)


@_hypothesis("the angular velocity is in the world's frame, expected the base's")
def _ang_vel_in_world(signals: Signals) -> Signals:
    return replace(signals, ang_vel_base_in_base_rad_s=_to_world(signals, signals.ang_vel_base_in_base_rad_s))


@_hypothesis("the angular velocity was turned into the base's frame, in which it already was")
def _ang_vel_turned_twice(signals: Signals) -> Signals:
    return replace(signals, ang_vel_base_in_base_rad_s=_to_base(signals, signals.ang_vel_base_in_base_rad_s))


@_hypothesis("the linear velocity is in the world's frame, expected the base's")
def _lin_vel_in_world(signals: Signals) -> Signals:
    vel = signals.lin_vel_base_in_base_m_s
    return signals if vel is None else replace(signals, lin_vel_base_in_base_m_s=_to_world(signals, vel))


@_hypothesis("the linear velocity was turned into the base's frame, in which it already was")
def _lin_vel_turned_twice(signals: Signals) -> Signals:
    vel = signals.lin_vel_base_in_base_m_s
    return signals if vel is None else replace(signals, lin_vel_base_in_base_m_s=_to_base(signals, vel))


def _with_quat(signals: Signals, order: tuple[int, ...]) -> Signals:
    return replace(signals, quat_base_to_world_wxyz=signals.quat_base_to_world_wxyz[:, list(order)])


def _to_world(signals: Signals, vectors: Array) -> Array:
    return np.einsum("nij,nj->ni", rotation_matrix(signals.quat_base_to_world_wxyz), vectors).astype(np.float32)


def _to_base(signals: Signals, vectors: Array) -> Array:
    return np.einsum("nji,nj->ni", rotation_matrix(signals.quat_base_to_world_wxyz), vectors).astype(np.float32)

"""``--set`` for manipulation tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gantry_hardware.structured import set_fields
from gantry_sim.cli.common import assignments
from gantry_sim.training.arm.algorithms import ArmPreset


@dataclass(frozen=True)
class _Env:
    env: Any


def changed_env(env: Any, changes: Sequence[str]) -> Any:
    """A task's configuration with fields replaced as ``--set env.NAME=VALUE`` asks.

    Raises:
        GantryError: If there is no such field, or the value does not fit.
    """
    return _changed(_Env(env), changes, "env.action=joint").env


def changed_preset(preset: ArmPreset, changes: Sequence[str]) -> ArmPreset:
    """A preset with fields replaced as ``--set`` asks.

    Raises:
        GantryError: If there is no such field, or the value does not fit.
    """
    example = "bc.steps=2000" if hasattr(preset, "bc") else "train.learner.actor.learning_rate=1e-4"
    return _changed(preset, changes, example)


def _changed(config: Any, changes: Sequence[str], example: str) -> Any:
    return set_fields(config, assignments(changes, example))

"""Limits and timeouts of the safety machine as parameters of a node."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gantry_deploy.control.safety_config import SETTINGS, SafetyConfig
from gantry_ros.runtime.host import Parameter

SAFETY_PREFIX = f"{SETTINGS}."
"""Every field of :class:`gantry_deploy.control.safety_config.SafetyConfig` is a parameter under this name."""

PARAMETERS = tuple(
    Parameter(f"{SAFETY_PREFIX}{item.name}", item.default, f"gantry_deploy.control.safety.SafetyConfig.{item.name}")  # type: ignore[arg-type]
    for item in fields(SafetyConfig)
)
"""Of every node with a control loop."""


def safety_config(values: dict[str, Any]) -> SafetyConfig:
    """The settings that a node's parameters give."""
    return SafetyConfig(**{item.name: values[SAFETY_PREFIX + item.name] for item in fields(SafetyConfig)})

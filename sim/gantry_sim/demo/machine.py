"""Facts about the machine that a report was made on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("gantry-rl", "torch", "mujoco", "mjlab", "rsl-rl-lib", "onnxruntime", "ros-jazzy-rclpy")
"""Versions that a report tells."""


def machine_rows() -> list[tuple[str, str]]:
    """Machine, Python and packages, as rows of a table."""
    return [
        ("machine", f"{processor()}, {_cores()} cores; {platform.platform()}"),
        ("Python", platform.python_version()),
        ("packages", ", ".join(f"{name} {number}" for name, number in _versions().items())),
    ]


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

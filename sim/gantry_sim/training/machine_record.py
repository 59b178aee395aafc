"""Facts about a machine that explain a different result of the same seed on another one; part of a run's record."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from gantry_policies.common.products import rounds_products


def machine_record() -> dict[str, Any]:
    """Python, system, processor, threads, and how learners multiply matrices, as plain data."""
    rounded = "bfloat16 factors, float32 sums" if rounds_products() else "float32"
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": torch.get_num_threads(),
        "processor": _processor(),
        "offpolicy_matrix_products": rounded,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()

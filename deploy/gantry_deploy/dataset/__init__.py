"""Demonstrations and corrections as LeRobot v3 datasets: writing, reading, checking, replaying.

Needs the packages of the extra ``data``; what they hold is plain Parquet, JSON and MP4.
"""

from __future__ import annotations

try:
    import av  # noqa: F401
    import pyarrow  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"Module '{error.name}' is not installed, and datasets need it; it comes with pip install 'gantry-rl[data]'.",
        name=error.name,
    ) from error

from gantry_deploy.dataset.features import Feature, camera, joint_targets_of, rl_features, scalar, vector
from gantry_deploy.dataset.reader import Dataset
from gantry_deploy.dataset.recorder import StepRecorder
from gantry_deploy.dataset.video import LOSSLESS, VideoCodec
from gantry_deploy.dataset.writer import DatasetWriter

__all__ = [
    "LOSSLESS",
    "Dataset",
    "DatasetWriter",
    "Feature",
    "StepRecorder",
    "VideoCodec",
    "camera",
    "joint_targets_of",
    "rl_features",
    "scalar",
    "vector",
]

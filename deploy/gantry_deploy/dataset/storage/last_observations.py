"""Observations after the last step of episodes, for which LeRobot has no place: one small file per episode.

A truncated episode can be bootstrapped with it. The file is a table of one row in ``meta``, which programs that know
nothing of it pass over; it is written and checked together with its episode.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gantry_deploy.dataset.storage.layout import read_parquet
from gantry_deploy.dataset.video import decode_image, encode_png
from gantry_deploy.errors import DatasetError

MOST_NUMBERS = 1_000_000
"""Largest count of numbers of one entry that is read."""


def last_observation_path(episode: int) -> str:
    """Path of an episode's file within its dataset."""
    return f"meta/last_observations/episode-{episode:06d}.parquet"


def last_observation_bytes(values: Mapping[str, NDArray[Any]]) -> bytes:
    """The file's content.

    Args:
        values: By name, numbers (n,) float32 in any unit, or a picture (height, width, 3) uint8 RGB.
    """
    columns: dict[str, pa.Array] = {}
    for name, value in values.items():
        if value.ndim == 3:
            columns[name] = pa.array([encode_png(value)], pa.binary())
        else:
            columns[name] = pa.array([np.asarray(value, dtype=np.float32).tolist()], pa.list_(pa.float32()))
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="snappy", write_page_checksum=True)
    return sink.getvalue()


def read_last_observation(
    folder: Path, episode: int, sizes: Mapping[str, tuple[int, int]]
) -> dict[str, NDArray[Any]] | None:
    """The observation after the last step of an episode; None if it was not stored.

    Args:
        folder: Of the dataset.
        episode: Number of it.
        sizes: Height and width by name of every picture, in pixels.

    Returns:
        Numbers (n,) float32 and pictures (height, width, 3) uint8, by name, in the units that they were given in.

    Raises:
        DatasetError: If the file is damaged or holds something else.
    """
    path = folder / last_observation_path(episode)
    if not path.is_file():
        return None
    table = read_parquet(path)
    values: dict[str, NDArray[Any]] = {}
    for name in table.column_names:
        cells = table[name].to_pylist()
        if len(cells) != 1 or cells[0] is None:
            raise DatasetError(f"{path}: '{name}' has {len(cells)} rows, expected one with a value.")
        if isinstance(cells[0], bytes):
            if name not in sizes:
                raise DatasetError(f"{path}: '{name}' is a picture of no camera of the dataset.")
            values[name] = decode_image(cells[0], sizes[name])
            continue
        numbers = np.array(cells[0], dtype=np.float32) if isinstance(cells[0], list) else np.zeros((0, 0))
        if numbers.ndim != 1 or numbers.size > MOST_NUMBERS or not np.isfinite(numbers).all():
            raise DatasetError(f"{path}: '{name}' holds something else than finite numbers.")
        values[name] = numbers
    return values

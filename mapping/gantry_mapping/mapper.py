"""From a grid of the highest points to a mean and a log variance per cell: a network, or none."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort
from array_api_compat import device, is_numpy_array

from gantry_hardware.json_file import parse_json_object
from gantry_hardware.structured import from_plain
from gantry_mapping.config import SensorModelCfg
from gantry_mapping.errors import MappingError
from gantry_mapping.grid import GridSpec
from gantry_mapping.ops import namespace
from gantry_mapping.rasterize import EMPTY_Z_M

Array = Any

METADATA_KEY = "gantry_mapper"
"""Key of :class:`MapperInfo` as JSON in the metadata of an ONNX file."""
MAPPER_VERSION = 1
"""Version of the format."""
VOID_LOG_VARIANCE = 2.0 * float(np.log(2.7))
"""Log variance of a cell of which nothing is known, that is a standard deviation of 2.7 m."""


class Mapper(Protocol):
    """Completes a local grid."""

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """Complete.

        Args:
            z: Shape (N, 1, rows, cols), float32: heights relative to the base in ``base_yaw``, m, from
                :func:`gantry_mapping.rasterize.rasterize`.

        Returns:
            Mean, m, and log variance, natural logarithm of m^2: each (N, rows, cols) or (N, 1, rows, cols). A mean
            near ``EMPTY_Z_M`` is a cell of which the mapper knows nothing.
        """
        ...


@dataclass(frozen=True)
class MapperInfo:
    """What a mapping network was made for; travels inside its ONNX file."""

    local_grid: GridSpec
    """The grid that it sees."""
    empty_z_m: float = EMPTY_Z_M
    """Height that means empty."""
    version: int = MAPPER_VERSION
    """Of this format."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Commit, seed, data, training steps."""

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> MapperInfo:
        """From JSON.

        Raises:
            MappingError: If it is no such thing, or of another version or empty value than this runtime's.
        """
        data = parse_json_object(text, f"The mapper's metadata '{METADATA_KEY}'", error=MappingError)
        info = from_plain(cls, data, METADATA_KEY, MappingError)
        if info.version != MAPPER_VERSION:
            raise MappingError(f"The mapper has format version {info.version}, this runtime reads {MAPPER_VERSION}.")
        if info.empty_z_m != EMPTY_Z_M:
            raise MappingError(f"The mapper takes {info.empty_z_m} m for empty, this runtime writes {EMPTY_Z_M}.")
        return info


class OnnxMapper:
    """A mapping network in onnxruntime, on one thread.

    Args:
        model: The ONNX file, or its bytes.

    Raises:
        MappingError: If the file cannot be loaded, lacks its metadata, or has other inputs or outputs than expected.
    """

    def __init__(self, model: str | Path | bytes) -> None:
        path = "mapper.onnx" if isinstance(model, bytes) else str(model)
        try:
            self._session = _session(model if isinstance(model, bytes) else Path(model).read_bytes())
        except Exception as problem:  # onnxruntime's exceptions have no common class
            raise MappingError(f"Cannot load the mapper '{path}': {problem}") from problem
        metadata = self._session.get_modelmeta().custom_metadata_map
        if METADATA_KEY not in metadata:
            names = ", ".join(sorted(metadata)) or "(none)"
            raise MappingError(f"The mapper '{path}' has no metadata '{METADATA_KEY}'; present: {names}.")
        self.info = MapperInfo.from_json(metadata[METADATA_KEY])
        """What the network was made for."""
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1 or len(outputs) < 2:
            raise MappingError(
                f"The mapper '{path}' has {len(inputs)} inputs and {len(outputs)} outputs, expected 1 and 2 "
                "(mean and log variance)."
            )
        self._input = inputs[0].name
        self._outputs = [item.name for item in outputs[:2]]

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """See :class:`Mapper`; torch tensors go through the host's memory."""
        if tuple(z.shape[1:]) != (1, *self.info.local_grid.shape):
            rows, cols = self.info.local_grid.shape
            raise MappingError(f"The mapper got shape {tuple(z.shape)}, expected (N, 1, {rows}, {cols}).")
        feed = z if is_numpy_array(z) else np.asarray(z.cpu())
        mean, log_variance = self._session.run(self._outputs, {self._input: feed.astype(np.float32, copy=False)})
        if is_numpy_array(z):
            return mean, log_variance
        xp = namespace(z)
        where = device(z)
        return xp.asarray(mean, device=where), xp.asarray(log_variance, device=where)


def _session(model_bytes: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    # One thread, which sleeps between frames: the control loop shares this computer.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    # Weights outside the file are covered by no hash; a folder that cannot exist keeps them from being found.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    return ort.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"])


class PassThrough:
    """No network: a cell that holds a point has the sensor's variance there, any other is unknown.

    Args:
        sensor: Standard deviation over range.
        grid: The local grid.
        pos_sensor_in_base_m: From where range is measured.
    """

    def __init__(
        self, sensor: SensorModelCfg, grid: GridSpec, pos_sensor_in_base_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    ) -> None:
        self.sensor = sensor
        self.grid = grid
        self._pos_sensor = pos_sensor_in_base_m
        self._planar_range2: Array | None = None

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """See :class:`Mapper`."""
        xp = namespace(z)
        z = z[:, 0]
        if self._planar_range2 is None:
            x = self.grid.row_centers(z) - self._pos_sensor[0]
            y = self.grid.col_centers(z) - self._pos_sensor[1]
            self._planar_range2 = x[:, None] ** 2 + y[None, :] ** 2
        below = z - self._pos_sensor[2]
        std = self.sensor.std_m + self.sensor.std_per_m * (self._planar_range2 + below * below)
        return z, xp.where(z > EMPTY_Z_M, 2.0 * xp.log(std), VOID_LOG_VARIANCE)

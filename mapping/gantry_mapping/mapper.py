"""From a grid of the highest points to a mean and a log variance per cell: a network, or none."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort
from array_api_compat import device, is_numpy_array

from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.structured import from_plain
from gantry_mapping.config import SensorModelCfg
from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.elevation.ops import namespace
from gantry_mapping.elevation.rasterize import EMPTY_Z_M
from gantry_mapping.errors import MapperError, MappingError, NotFiniteError
from gantry_mapping.onnx.network import Network

Array = Any

METADATA_KEY = "gantry_mapper"
"""Key of :class:`MapperInfo` as JSON in the metadata of an ONNX file."""
MAPPER_VERSION = 1
"""Version of the format."""
LARGEST_LOG_VARIANCE = 80.0
"""A log variance further from 0 than this is no finite variance in single precision."""
MAX_BATCH = 64
"""Grids that a network completes at once; more are completed one batch after the other."""
VOID_LOG_VARIANCE = 2.0 * float(np.log(2.7))
"""Log variance of a cell of which nothing is known, that is a standard deviation of 2.7 m."""


class Mapper(Protocol):
    """Completes a local grid."""

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """Complete.

        Args:
            z: Shape (N, 1, rows, cols), float32: heights relative to the base in ``base_yaw``, m, from
                :func:`gantry_mapping.elevation.rasterize.rasterize`.

        Returns:
            Mean, m, and log variance, natural logarithm of m^2: each (N, rows, cols) or (N, 1, rows, cols). A mean
            near ``EMPTY_Z_M`` is a cell of which the mapper knows nothing.
        """
        ...


@dataclass(frozen=True)
class MapperInfo:
    """Input and output of a mapping network; travels inside its ONNX file."""

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
    """A mapping network in onnxruntime, on one thread, refused unless it answers as one.

    The graph, its time and its memory have the limits of a policy's: see :class:`gantry_mapping.onnx.network.Network`.

    Args:
        model: The ONNX file, or its bytes.

    Raises:
        MappingError: If the file cannot be loaded, lacks its metadata, has other inputs or outputs than expected, or
            answers two trial grids with another shape, with numbers that are not finite, or turned.
    """

    def __init__(self, model: str | Path | bytes) -> None:
        path = "mapper.onnx" if isinstance(model, bytes) else str(model)
        try:
            content = model if isinstance(model, bytes) else Path(model).read_bytes()
            self._network = Network(content, "the network", MapperError)
        except (OSError, MappingError) as problem:
            raise MappingError(f"Cannot load the mapper '{path}': {problem}") from problem
        metadata = self._network.metadata
        if METADATA_KEY not in metadata:
            names = ", ".join(sorted(metadata)) or "(none)"
            raise MappingError(f"The mapper '{path}' has no metadata '{METADATA_KEY}'; present: {names}.")
        self.info = MapperInfo.from_json(metadata[METADATA_KEY])
        """What the network was made for."""
        inputs, outputs = self._network.inputs, self._network.outputs
        if len(inputs) != 1 or len(outputs) < 2:
            raise MappingError(
                f"The mapper '{path}' has {len(inputs)} inputs and {len(outputs)} outputs, expected 1 and 2 "
                "(mean and log variance)."
            )
        rows, cols = self.info.local_grid.shape
        _check_tensor(path, "input", inputs[0], ((1, rows, cols),))
        for item in outputs[:2]:
            _check_tensor(path, "output", item, ((1, rows, cols), (rows, cols)))
        self._path = path
        self._input = inputs[0].name
        self._outputs = [item.name for item in outputs[:2]]
        for trial in (np.full((rows, cols), EMPTY_Z_M), trial_grid(rows, cols)):
            self._try(trial.astype(np.float32))

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """See :class:`Mapper`; torch tensors go through the host's memory.

        Raises:
            NotFiniteError: If a number of the answer is not finite.
        """
        if tuple(z.shape[1:]) != (1, *self.info.local_grid.shape):
            rows, cols = self.info.local_grid.shape
            raise MappingError(f"The mapper got shape {tuple(z.shape)}, expected (N, 1, {rows}, {cols}).")
        feed = z if is_numpy_array(z) else np.asarray(z.cpu())
        mean, log_variance = self._run(feed.astype(np.float32, copy=False))
        require_finite(mean, log_variance)
        if is_numpy_array(z):
            return mean, log_variance
        xp = namespace(z)
        where = device(z)
        return xp.asarray(mean, device=where), xp.asarray(log_variance, device=where)

    def _run(self, grids: np.ndarray) -> list[np.ndarray]:
        """The answers to grids (N, 1, rows, cols), so many at once that they fit into a network's memory."""
        parts = [
            self._network.run(self._outputs, {self._input: part}, steps=len(part))
            for part in (grids[begin : begin + MAX_BATCH] for begin in range(0, max(1, len(grids)), MAX_BATCH))
        ]
        return parts[0] if len(parts) == 1 else [np.concatenate(answers) for answers in zip(*parts, strict=True)]

    def _try(self, grid: np.ndarray) -> None:
        """Run the network on a grid (rows, cols) as it will be run, and look at the answer."""
        try:
            answers = self(grid[None, None])
        except MappingError as problem:
            raise MappingError(f"The mapper '{self._path}' fails on a trial grid: {problem}") from problem
        for name, answer in zip(self._outputs, answers, strict=True):
            if answer.shape not in ((1, *grid.shape), (1, 1, *grid.shape)):
                raise MappingError(
                    f"The mapper '{self._path}' answers a grid of {grid.shape[0]} x {grid.shape[1]} cells with "
                    f"'{name}' of shape {answer.shape}, expected {(1, *grid.shape)}."
                )
        if turn := turned_by(grid, answers[0].reshape(grid.shape)):
            raise MappingError(
                f"The mapper '{self._path}' gives a trial grid back {turn}, expected every cell where it was: rows run "
                "ahead, columns to the left."
            )


def require_finite(mean: Array, log_variance: Array) -> None:
    """Refuse an answer of a mapper that holds a number that is not finite; heights, m, and log variances of any shape.

    Raises:
        NotFiniteError: With how many there are.
    """
    for name, values in (("mean", mean), ("log variance", log_variance)):
        # A log variance beyond this is none in single precision.
        good = np.isfinite(values) & (np.abs(values) <= LARGEST_LOG_VARIANCE if values is log_variance else True)
        if not good.all():
            raise NotFiniteError(f"{int(np.sum(~good))} of {np.size(good)} numbers of the {name} are not finite.")


def trial_grid(rows: int, cols: int) -> np.ndarray:
    """Ground (rows, cols) that looks like itself from no other side: a ramp ahead, a gentler one to the left, and a
    block in one corner."""
    ahead, left = np.linspace(0.0, 1.0, rows)[:, None], np.linspace(0.0, 1.0, cols)[None, :]
    return -0.45 + 0.3 * ahead + 0.1 * left + 0.2 * ((ahead > 0.6) & (left > 0.7))


def turned_by(grid: np.ndarray, answer: np.ndarray) -> str:
    """The way in which a mapper has turned a grid (rows, cols) that it gave back; empty if it has not, or if it gave
    back neither.

    A network completes a grid, so where all is known its answer is the grid; one that is not trained answers anything.
    """
    turns = {"with its rows reversed": grid[::-1], "with its columns reversed": grid[:, ::-1]}
    turns["turned by half a turn"] = grid[::-1, ::-1]
    if grid.shape[0] == grid.shape[1]:
        turns["with rows and columns exchanged"] = grid.T
        turns["turned by a quarter"] = np.rot90(grid)
        turns["turned by a quarter, clockwise"] = np.rot90(grid, -1)
        turns["mirrored at its diagonal"] = grid[::-1, ::-1].T
    straight = float(np.abs(answer - grid).mean())
    errors = {name: float(np.abs(answer - turned).mean()) for name, turned in turns.items()}
    name = min(errors, key=errors.__getitem__)
    return name if errors[name] < 0.25 * straight else ""


def _check_tensor(path: str, what: str, tensor: ort.NodeArg, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Refuse another type, or a shape that is told and is another one; the first dimension may be free or 1.

    Raises:
        MappingError: With both sides.
    """
    told: tuple[int | str | None, ...] = tuple(tensor.shape or ())
    free = [
        (not isinstance(next(iter(told)), int) or next(iter(told)) == 1)
        and all(not isinstance(size, int) or size == wanted for size, wanted in zip(told[1:], shape, strict=True))
        for shape in shapes
        if len(told) == 1 + len(shape)
    ]
    if tensor.type != "tensor(float)" or (told and not any(free)):
        wanted = " or ".join(f"(N, {', '.join(map(str, shape))})" for shape in shapes)
        raise MappingError(
            f"The mapper '{path}' has the {what} '{tensor.name}', {tensor.type} of shape {told or '(not told)'}, "
            f"expected tensor(float) of shape {wanted}."
        )


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

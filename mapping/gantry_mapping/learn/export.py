"""A trained mapping network as an ONNX file that says what it was made for, checked number by number."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from gantry_hardware.files.whole_files import write_whole
from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.elevation.rasterize import EMPTY_Z_M
from gantry_mapping.errors import MappingError
from gantry_mapping.mapper import METADATA_KEY, MapperInfo, OnnxMapper

MAX_DIFFERENCE = 1e-4
"""Largest difference between onnxruntime and torch that an export tolerates, in m and in ln m^2."""


def export_mapper(
    net: torch.nn.Module,
    grid: GridSpec,
    path: Path,
    *,
    provenance: Mapping[str, Any],
    frames_z_m: torch.Tensor | None = None,
) -> float:
    """Write a mapper for :class:`gantry_mapping.mapper.OnnxMapper`.

    Args:
        net: Module (N, 1, rows, cols) -> mean and log variance of that shape.
        grid: The grid that it was trained on.
        path: Where to write; replaced only if the numbers agree.
        provenance: Commit, seed, data, steps: goes into the file.
        frames_z_m: (N, 1, rows, cols) frames to compare on; random ones where None.

    Returns:
        The largest difference between onnxruntime and torch.

    Raises:
        MappingError: If torch cannot express the network, the two disagree, or the disk does not take it; nothing is
            written then.
    """
    net = net.to("cpu").eval()
    frames = torch.export.Dim("frames", min=1, max=1 << 16)
    example = torch.zeros(2, 1, *grid.shape)
    model = to_onnx(net, example, "z", ["mean", "log_variance"], ({0: frames},))
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, MapperInfo(grid, provenance=dict(provenance)).to_json()
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    difference = compare(net, data, _random_frames(grid) if frames_z_m is None else frames_z_m)
    if not difference <= MAX_DIFFERENCE:
        raise MappingError(f"onnxruntime and torch differ by {difference:.2e}, allowed is {MAX_DIFFERENCE:.0e}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise MappingError(f"Cannot write the mapper '{path}': {error.strerror or error}.") from error
    return difference


def compare(net: torch.nn.Module, model: str | Path | bytes, frames_z_m: torch.Tensor) -> float:
    """Largest absolute difference of means and log variances between a file and its network, in batches and singly.

    ``frames_z_m`` has the shape (N, 1, rows, cols), heights in m.
    """
    mapper = OnnxMapper(model)
    with torch.inference_mode():
        expected = [part.numpy() for part in net(frames_z_m)]
    inputs = frames_z_m.numpy()
    together = mapper(inputs)
    singly = [mapper(inputs[i : i + 1]) for i in range(min(len(inputs), 8))]
    worst = 0.0
    for k in range(2):
        worst = max(worst, float(np.abs(together[k] - expected[k]).max()))
        worst = max(worst, *(float(np.abs(one[k] - expected[k][i : i + 1]).max()) for i, one in enumerate(singly)))
    return worst


def _random_frames(grid: GridSpec) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    z = torch.rand((64, 1, *grid.shape), generator=generator) * 1.5 - 1.0
    return torch.where(torch.rand(z.shape, generator=generator) < 0.6, EMPTY_Z_M, z)


def to_onnx(
    net: torch.nn.Module,
    example: torch.Tensor | tuple[torch.Tensor, ...],
    name: str | Sequence[str],
    outputs: list[str],
    dynamic_shapes: object = None,
    *,
    keep_weights: bool = False,
) -> onnx.ModelProto:
    """A network as ONNX, without what the exporter notes about this machine.

    Args:
        net: On the CPU, in evaluation mode.
        example: An input, or one example of each.
        name: Of the input, or of each in order.
        outputs: Names of the outputs.
        dynamic_shapes: As for ``torch.onnx.export``.
        keep_weights: Leave every weight as it is, an initializer of its own name; some are transposed otherwise.

    Raises:
        MappingError: If torch cannot express it.
    """
    buffer = io.BytesIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        try:
            program = torch.onnx.export(
                net,
                (example,) if isinstance(example, torch.Tensor) else example,
                input_names=[name] if isinstance(name, str) else list(name),
                output_names=outputs,
                dynamic_shapes=dynamic_shapes,  # type: ignore[arg-type]
                dynamo=True,
                opset_version=20,
                optimize=not keep_weights,
            )
        except Exception as error:  # torch raises several types without a common base
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise MappingError(f"torch cannot express this network in ONNX: {reason}") from error
        assert program is not None
        program.save(buffer)  # type: ignore[arg-type]
    model = onnx.load_from_string(buffer.getvalue())
    graph = model.graph
    # The exporter notes with every part the source file on this machine; that does not belong in a released model.
    for part in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        del part.metadata_props[:]
    return model

"""An exported mapper as a torch module, for simulations whose maps live on a GPU."""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from onnx import numpy_helper

from gantry_mapping.errors import MappingError
from gantry_mapping.learn.unet import NETWORKS
from gantry_mapping.mapper import METADATA_KEY, MapperInfo


class TorchMapper:
    """Runs the network of a ``mapper.onnx`` in torch; a drop-in for :class:`gantry_mapping.mapper.OnnxMapper`.

    Args:
        path: The file.
        device: Where to run.

    Raises:
        MappingError: If the file cannot be read, lacks its metadata, or holds none of the networks in
            :data:`gantry_mapping.learn.unet.NETWORKS`.
    """

    def __init__(self, path: str | Path, device: str | torch.device = "cpu") -> None:
        try:
            model = onnx.load(str(path))
        except Exception as problem:  # onnx raises several types without a common base
            raise MappingError(f"Cannot load the mapper '{path}': {problem}") from problem
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        if METADATA_KEY not in metadata:
            raise MappingError(f"The mapper '{path}' has no metadata '{METADATA_KEY}'; present: {sorted(metadata)}.")
        self.info = MapperInfo.from_json(metadata[METADATA_KEY])
        """What the network was made for."""
        found = {item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in model.graph.initializer}
        net = _net_of({name: tuple(values.shape) for name, values in found.items()}, path)
        net.load_state_dict({name: found[name] for name in net.state_dict()})
        self._net = net.to(device).eval().requires_grad_(False)

    def __call__(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Complete local grids (N, 1, rows, cols); see :class:`gantry_mapping.mapper.Mapper`.

        Raises:
            MappingError: If the grid is of another size than the network was trained on.
        """
        if tuple(z.shape[1:]) != (1, *self.info.local_grid.shape):
            raise MappingError(f"The mapper got {tuple(z.shape)}, expected (N, 1, *{self.info.local_grid.shape}).")
        with torch.no_grad():
            return self._net(z)


def _net_of(shapes: dict[str, tuple[int, ...]], path: str | Path) -> torch.nn.Module:
    """The network whose parameters a file holds, by their names and shapes."""
    for kind in NETWORKS.values():
        net = kind()
        if all(shapes.get(name) == tuple(values.shape) for name, values in net.state_dict().items()):
            return net
    known = ", ".join(kind.__name__ for kind in NETWORKS.values())
    raise MappingError(f"The mapper '{path}' holds another network than {known}.")

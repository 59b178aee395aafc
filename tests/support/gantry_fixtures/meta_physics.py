"""MuJoCo Warp without its kernels: its arrays are of the right shapes on ``meta``, and a step of it does nothing.

mjlab and everything above it is real, and takes the way of a GPU: the same classes, the same memory shared between Warp
and torch. What is replaced is the border between Warp and the rest: the kernels, and the look at an array as a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import warp as wp
from mjlab.sensor.raycast_sensor import RayCastSensor
from mjlab.sim import sim as mjlab_sim
from mjlab.sim.sim_data import TorchArray
from torch import Tensor

from gantry_fixtures.one_device import META, Numbers, device_in_place
from gantry_sim.process.suppress_output import start_warp

KERNELS = ("step", "forward", "reset_data", "set_const", "set_const_0", "set_const_fixed", "refit_bvh", "render")
"""Functions of MuJoCo Warp that mjlab calls in a step or a reset."""


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Leave all arrays as they are."""


@contextmanager
def physics_on_meta(numbers: Numbers) -> Iterator[None]:
    """Let environments be built and stepped on the device ``meta``; arrays of the physics keep their numbers."""
    start_warp()
    real, real_init = wp.to_torch, TorchArray.__init__
    devices = wp._src.context.runtime.device_map

    def to_torch(array: Any, **kwargs: Any) -> Tensor:
        shown = real(array, **kwargs)
        hidden = torch.empty_strided(shown.size(), shown.stride(), dtype=shown.dtype, device=META)
        return numbers.keep(hidden, shown)

    def shown_on_meta(self: TorchArray, *args: Any, **kwargs: Any) -> None:
        real_init(self, *args, **kwargs)
        if self._tensor.device.type == "cpu":  # mjlab makes a tensor of its own of an empty array of the CPU
            self._tensor = self._tensor.to(META)

    with ExitStack() as stack:
        stack.enter_context(device_in_place())
        stack.enter_context(patch.dict(devices, {META: devices["cpu"]}))
        stack.enter_context(patch.object(wp, "to_torch", to_torch))
        stack.enter_context(patch.object(TorchArray, "__init__", shown_on_meta))
        for name in KERNELS:
            stack.enter_context(patch.object(mjlab_sim.mjwarp, name, _nothing))
        stack.enter_context(patch.object(RayCastSensor, "raycast_kernel", _nothing))
        yield

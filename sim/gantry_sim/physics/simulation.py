"""Simulations under mjlab's managers by name: MuJoCo C in batches, MuJoCo Warp, and those of other packages.

mjlab 1.6 knows its own simulation alone. :class:`Simulation` is the part of its surface that its entities, sensors,
events and our environments use, so that a simulation with it serves any task.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import mujoco
import torch
from mjlab.scene import Scene
from mjlab.sim import Simulation as WarpSimulation
from mjlab.sim import SimulationCfg

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.plugins import find_plugin, load_plugin, plugin_names
from gantry_sim.physics.engine import ENGINES, available_engines
from gantry_sim.physics.mjc import MjcSimulation
from gantry_sim.physics.scene import GantryScene

GROUP = "gantry.simulations"
"""Entry-point group: name -> :class:`SimulationKind`."""
VARIABLE = "GANTRY_PHYSICS_ENGINE"
"""Environment variable with the name of the simulation that environments take unless they name one."""
WARP = "warp"
"""Name of mjlab's own simulation, the one for a GPU."""


class Simulation(Protocol):
    """N simulations of one scene. Arrays of ``data`` and ``model`` are (N, ...) torch tensors that keep their memory
    for the simulation's life; writes to them count at the next call.
    """

    num_envs: int
    """N."""

    @property
    def mj_model(self) -> mujoco.MjModel:
        """The compiled scene, before anything is drawn at random."""
        ...

    @property
    def mj_data(self) -> mujoco.MjData:
        """Data of the compiled scene in its reference state."""
        ...

    @property
    def data(self) -> Any:
        """``MjData`` of all simulations by field."""
        ...

    @property
    def model(self) -> Any:
        """``MjModel`` of all simulations by field."""
        ...

    @property
    def expanded_fields(self) -> set[str]:
        """Names of the model's fields of which every simulation has its own."""
        ...

    @property
    def per_world_default_fields(self) -> set[str]:
        """Names of the model's fields that differ by mesh variant before anything is drawn."""
        ...

    @property
    def world_to_variant(self) -> Mapping[str, torch.Tensor]:
        """Entity -> mesh variant of each simulation, (N,)."""
        ...

    def expand_model_fields(self, fields: tuple[str, ...]) -> None:
        """Give every simulation its own copy of these fields of the model."""
        ...

    def get_default_field(self, field: str) -> torch.Tensor:
        """The compiled model's value of a field."""
        ...

    def recompute_constants(self, level: Any) -> None:
        """Derive constants anew after masses, inertias or armatures changed."""
        ...

    def step(self) -> None:
        """One physics step; derived fields are one step behind the state afterwards."""
        ...

    def forward(self) -> None:
        """Bring derived fields up to date."""
        ...

    def reset(self, env_ids: torch.Tensor | None = None) -> None:
        """Put simulations, indices (k,), or all back to the reference state."""
        ...

    def set_sensor_context(self, ctx: Any) -> None:
        """Connect rays and cameras to :meth:`sense`."""
        ...

    def sense(self) -> None:
        """Refresh rays and cameras."""
        ...


@runtime_checkable
class SelectiveSimulation(Protocol):
    """Surface of a simulation that leaves out work: beside a :class:`Simulation`'s own, several steps in one call and
    derived fields of some environments alone.
    """

    @property
    def ground_model(self) -> mujoco.MjModel:
        """The whole scene, of which the physics may hold a part."""
        ...

    @property
    def diverged(self) -> torch.Tensor:
        """(N,) bool: the numbers broke down since the last reset."""
        ...

    def step(self, nstep: int = 1) -> None:
        """``nstep`` physics steps with the same controls."""
        ...

    def forward(self, env_ids: torch.Tensor | None = None) -> None:
        """Bring derived fields up to date, everywhere or in some environments, indices (k,)."""
        ...


class MakeSimulation(Protocol):
    """Builds a :class:`Simulation`."""

    def __call__(
        self,
        num_envs: int,
        cfg: SimulationCfg,
        *,
        spec: mujoco.MjSpec,
        variant_info: list[Any],
        device: str,
        near_ground: bool,
    ) -> Any:
        """The simulation.

        Args:
            num_envs: Number of environments N.
            cfg: mjlab's simulation configuration.
            spec: Scene to compile.
            variant_info: mjlab's mesh variants per environment.
            device: ``cpu`` or a CUDA device.
            near_ground: A simulation may hold the ground near its robot alone, to save time.
        """
        ...


@dataclass(frozen=True)
class SimulationKind:
    """A simulation that environments may run on."""

    make: MakeSimulation
    """Builds it."""
    scene: type[Scene] = GantryScene
    """Scene class with the rays and cameras that the simulation serves."""
    only_cpu: bool = True
    """Whether it runs on a CPU alone; one that does not needs a scene other than :class:`GantryScene`."""

    def __post_init__(self) -> None:
        """Refuse a scene for a CPU where the simulation runs elsewhere too.

        Raises:
            GantryError: If so.
        """
        if not self.only_cpu and issubclass(self.scene, GantryScene):
            raise GantryError(
                f"The scene {self.scene.__name__} works on a CPU alone, expected another with only_cpu=False, such as "
                "mjlab's own Scene."
            )


def _warp(num_envs: int, cfg: SimulationCfg, *, near_ground: bool, **scene: Any) -> WarpSimulation:
    del near_ground
    return WarpSimulation(num_envs, cfg, **scene)


OWN: dict[str, SimulationKind] = {
    **{engine: SimulationKind(partial(MjcSimulation, engine=engine)) for engine in ENGINES},
    WARP: SimulationKind(_warp, Scene, only_cpu=False),
}
"""Simulations of this package and of mjlab; others come by the entry-point group :data:`GROUP`."""


def simulation_names() -> list[str]:
    """Names of the simulations that can be used here."""
    return [*available_engines(), WARP, *plugin_names(GROUP)]


def default_simulation(device: str) -> str:
    """Name of the best simulation on a device, ``cpu`` or another."""
    return available_engines()[0] if device == "cpu" else WARP


def find_simulation(device: str, name: str | None = None) -> SimulationKind:
    """Look a simulation up.

    Args:
        device: ``cpu`` or a CUDA device.
        name: One of :func:`simulation_names`; None takes that of the variable :data:`VARIABLE`, or else the device's
            best.

    Raises:
        UnknownNameError: If there is no such simulation here.
        GantryError: If it cannot be loaded, or does not run on the device.
    """
    chosen = "" if name else os.environ.get(VARIABLE, "")
    name = name or chosen or default_simulation(device)
    if name not in (known := simulation_names()):
        raise UnknownNameError(f"physics engine{f' of the variable {VARIABLE}' if chosen else ''}", name, known)
    if (kind := OWN.get(name)) is None:
        entry = find_plugin(GROUP, name, "physics engine")
        kind = load_plugin(entry, "Physics engine", GantryError)
        if not isinstance(kind, SimulationKind):
            raise GantryError(f"Entry point '{entry.value}' is a {type(kind).__name__}, expected a SimulationKind.")
    if kind.only_cpu and device != "cpu":
        source = f" (variable {VARIABLE})" if chosen else ""
        raise GantryError(f"The physics engine '{name}'{source} runs on device 'cpu', not on '{device}'.")
    return kind

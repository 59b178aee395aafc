"""MuJoCo C under mjlab's managers: the same surface as mjlab's ``Simulation``, on plain torch tensors.

mjlab reads batched float32 arrays from ``sim.data`` and ``sim.model`` and keeps views of them, so both wrap the
engine's live arrays without a copy. What agrees with MuJoCo Warp, and how closely, is measured by
``tests/sim/test_backend_contract.py``.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp
from mjlab.sim import SimulationCfg
from mjlab.utils.nan_guard import NanGuard

from gantry_hardware.errors import GantryError
from gantry_sim.physics.engine import BatchEngine, make_engine
from gantry_sim.physics.near_ground import NearGround, near_model
from gantry_sim.physics.sensing import CpuSensorContext

_MATRICES = frozenset({"xmat", "ximat", "geom_xmat", "site_xmat", "cam_xmat"})
_INPUTS = (
    "qpos",
    "qvel",
    "act",
    "ctrl",
    "qfrc_applied",
    "xfrc_applied",
    "mocap_pos",
    "mocap_quat",
    "qacc_warmstart",
    "time",
)
# mj_setConst derives these from masses, inertias, armatures and the reference pose.
_DERIVED_CONSTANTS = (
    "body_subtreemass",
    "body_invweight0",
    "dof_invweight0",
    "dof_M0",
    "tendon_length0",
    "tendon_invweight0",
    "tendon_lengthspring",
    "actuator_acc0",
    "actuator_length0",
    "cam_pos0",
    "cam_poscom0",
    "cam_mat0",
    "light_pos0",
    "light_poscom0",
    "light_dir0",
)

_BAD_NUMBERS = [
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
    int(mujoco.mjtWarning.mjWARN_BADCTRL),
]


class MjcData:
    """``MjData`` of all environments; each attribute is a live (N, ...) tensor, bound on first use."""

    def __init__(self, engine: BatchEngine, num_envs: int) -> None:
        self._engine = engine
        self._live = False
        self.nworld = num_envs
        """Number of environments, under MuJoCo Warp's name."""
        for name in (*_INPUTS, "sensordata"):
            getattr(self, name)
        self._live = True

    def __getattr__(self, name: str) -> torch.Tensor:
        if name.startswith("_"):
            raise AttributeError(name)
        is_float = name not in ("time",) and np.asarray(getattr(_DATA_TEMPLATE, name)).dtype.kind == "f"
        tensor = torch.from_numpy(self._engine.bind(name, np.float32 if is_float or name == "time" else None))
        if name in _MATRICES:
            tensor = tensor.view(self.nworld, -1, 3, 3)
        if self._live:  # a field bound between two calls is empty until the next one
            self._engine.forward()
        self.__dict__[name] = tensor
        return tensor


class MjcModel:
    """``MjModel`` of all environments: float fields as (N, ...), integer fields as they are."""

    def __init__(self, engine: BatchEngine, model: mujoco.MjModel, num_envs: int) -> None:
        self._engine = engine
        self._model = model
        self._num_envs = num_envs
        self._expanded: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._expanded:
            value: Any = torch.from_numpy(self._engine.expand(name, np.float32))
        else:
            value = getattr(self._model, name)
            if isinstance(value, np.ndarray):
                is_float = value.dtype.kind == "f"
                value = torch.from_numpy(np.array(value, dtype=np.float32 if is_float else value.dtype))
                if is_float:
                    value = value.unsqueeze(0).expand(self._num_envs, *value.shape)
        self.__dict__[name] = value
        return value

    def expand(self, names: tuple[str, ...]) -> None:
        """Give every environment its own copy of these fields; empty fields stay as they are."""
        for name in names:
            if name not in self._expanded and getattr(self._model, name).size:
                self._expanded.add(name)
                self.__dict__.pop(name, None)

    def expand_constants(self) -> None:
        """Give every environment its own copy of what ``mj_setConst`` derives, which the engine then keeps current."""
        self.expand(_DERIVED_CONSTANTS)
        for name in self._expanded.intersection(_DERIVED_CONSTANTS):
            getattr(self, name)  # the engine itself would expand them as float64 when they change


class MjcSimulation:
    """mjlab's ``Simulation`` on a batch of MuJoCo C simulations.

    Args:
        num_envs: Number of environments N.
        cfg: mjlab's simulation configuration; the settings that only MuJoCo Warp knows are ignored.
        spec: Scene to compile.
        variant_info: Mesh variants per environment, which this backend does not have.
        device: Must be ``cpu``.
        near_ground: Let every simulation hold the ground near its robot alone, see
            :mod:`gantry_sim.physics.near_ground`.
        engine: Name of what steps, see :func:`gantry_sim.physics.engine.make_engine`.

    Raises:
        GantryError: If mesh variants or another device are asked for, or the ground cannot be placed like that.
    """

    def __init__(
        self,
        num_envs: int,
        cfg: SimulationCfg,
        *,
        spec: mujoco.MjSpec,
        variant_info: list[Any] | None = None,
        device: str = "cpu",
        near_ground: bool = False,
        engine: str | None = None,
    ) -> None:
        if variant_info:
            names = ", ".join(name for name, _ in variant_info)
            raise GantryError(f"Mesh variants ({names}) need the GPU backend; this one is MuJoCo C on a CPU.")
        if device != "cpu":
            raise GantryError(f"The MuJoCo C backend runs on device 'cpu', not on '{device}'.")
        self.cfg = cfg
        self.device = device
        self.wp_device = wp.get_device("cpu")
        self.num_envs = num_envs
        self.use_cuda_graph = False
        self.ground_model = (spec.copy() if near_ground else spec).compile()
        """The whole scene, for what looks at the ground."""
        near = near_model(spec, self.ground_model) if near_ground else None
        self.mj_model = self.ground_model if near is None else near.model
        cfg.mujoco.apply(self.mj_model)
        if cfg.nan_guard.enabled:  # leave NaN where it is, for the guard to find
            self.mj_model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self.mj_data = mujoco.MjData(self.mj_model)
        mujoco.mj_forward(self.mj_model, self.mj_data)
        self.engine = make_engine(self.mj_model, num_envs, name=engine)
        self._warnings = torch.from_numpy(self.engine.bind("warning"))
        self.data: Any = MjcData(self.engine, num_envs)
        self.model: Any = MjcModel(self.engine, self.mj_model, num_envs)
        self._near = None if near is None else NearGround(near, self.engine, num_envs)
        self._place_ground()
        self.engine.reset()
        self.nan_guard = NanGuard(cfg.nan_guard, num_envs, self.mj_model)
        self.default_model_fields: dict[str, torch.Tensor] = {}
        self.expanded_fields: set[str] = set()
        self.per_world_default_fields: set[str] = set()
        self.world_to_variant: dict[str, torch.Tensor] = {}
        self._sensor_context: CpuSensorContext | None = None

    def create_graph(self) -> None:
        """Nothing to capture on a CPU."""

    def set_sensor_context(self, ctx: CpuSensorContext) -> None:
        """Connect ray sensors to :meth:`sense`."""
        self._sensor_context = ctx

    def expand_model_fields(self, fields: tuple[str, ...]) -> None:
        """Give every environment its own copy of these model fields.

        Raises:
            ValueError: If the model has no such field, as mjlab's own backend does.
        """
        invalid = [name for name in fields if not hasattr(self.mj_model, name)]
        if invalid:
            raise ValueError(f"Fields not found in model: {invalid}")
        self.model.expand(fields)
        self.expanded_fields.update(fields)

    def get_default_field(self, field: str) -> torch.Tensor:
        """The compiled model's value of a field, before any randomisation."""
        if field not in self.default_model_fields:
            if not hasattr(self.mj_model, field):
                raise ValueError(f"Field '{field}' not found in model")
            value = torch.as_tensor(np.array(getattr(self.mj_model, field)))
            self.default_model_fields[field] = value.to(getattr(self.model, field).dtype).clone()
        return self.default_model_fields[field]

    def recompute_constants(self, level: Any) -> None:
        """Derive constants anew after masses, inertias or armatures changed; every level is one ``mj_setConst``."""
        del level
        self.model.expand_constants()
        self.engine.set_const()

    def step(self, nstep: int = 1) -> None:
        """``nstep`` physics steps with the same controls."""
        self._place_ground()
        with self.nan_guard.watch(self.data):
            self.engine.step(None, nstep)

    def forward(self, env_ids: torch.Tensor | None = None) -> None:
        """Bring derived fields up to date, everywhere or in some environments, indices (k,)."""
        self._place_ground()
        self.engine.forward(_sorted_ids(env_ids))

    def reset(self, env_ids: torch.Tensor | None = None) -> None:
        """Put environments back to the model's reference state; what was written to them since is forgotten."""
        ids = _sorted_ids(env_ids)
        # An engine's reset keeps writes that it has not seen yet, such as a push in the step that ends an episode.
        self._place_ground()
        self.engine.forward(ids)
        self.engine.reset(ids)

    def _place_ground(self) -> None:
        if self._near is not None:
            self._near.place(self.data.qpos.numpy())

    @property
    def diverged(self) -> torch.Tensor:
        """(N,) bool: since its last reset, MuJoCo met NaN, Inf or a huge value here in position, velocity,
        acceleration or control. MuJoCo puts such a simulation back to the reference state by itself (or, for a
        control, uses zero), so that numbers stay finite; the episode is worthless all the same."""
        return self._warnings[:, _BAD_NUMBERS, 1].any(dim=1)

    def sense(self) -> None:
        """Refresh ray sensors."""
        ctx = self._sensor_context
        if ctx is None:
            return
        ctx.prepare()
        ctx.cast()
        ctx.finalize()


def _sorted_ids(env_ids: torch.Tensor | None) -> np.ndarray | None:
    return None if env_ids is None else np.sort(env_ids.numpy().astype(np.int64))


_DATA_TEMPLATE = mujoco.MjData(mujoco.MjModel.from_xml_string("<mujoco/>"))

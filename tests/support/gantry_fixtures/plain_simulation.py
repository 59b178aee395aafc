"""Plain MuJoCo under mjlab's managers, one ``MjData`` after the other: as another package's simulation would be."""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np
import torch
from mjlab.utils.nan_guard import NanGuard

from gantry_sim.physics.simulation import SimulationKind

INPUTS = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat", "qacc_warmstart")
MATRICES = ("xmat", "ximat", "geom_xmat", "site_xmat", "cam_xmat")
STEPS: list[int] = []
"""Environments of every step that was made."""


class Fields:
    """Fields of several MuJoCo objects as (N, ...) tensors, each made when it is first asked for."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts, self.nworld = parts, len(parts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        first = getattr(self._parts[0], name)
        if not isinstance(first, np.ndarray) and name != "time":
            return first
        value = torch.from_numpy(np.stack([np.asarray(getattr(part, name)) for part in self._parts]))
        value = value.float() if value.is_floating_point() else value[0]
        self.__dict__[name] = value.view(self.nworld, -1, 3, 3) if name in MATRICES else value
        return self.__dict__[name]

    def known(self) -> dict[str, torch.Tensor]:
        """Fields that were asked for."""
        return {name: value for name, value in vars(self).items() if torch.is_tensor(value)}


class PlainSimulation:
    """What mjlab's managers use of a simulation, and nothing more."""

    def __init__(self, num_envs: int, cfg: Any, *, spec: mujoco.MjSpec, variant_info: Any, device: str, **_: Any):
        self.num_envs, self.device, self.cfg = num_envs, device, cfg
        self.mj_model = spec.compile()
        cfg.mujoco.apply(self.mj_model)
        self.mj_data = mujoco.MjData(self.mj_model)
        mujoco.mj_forward(self.mj_model, self.mj_data)
        self._models = [copy.deepcopy(self.mj_model) for _ in range(num_envs)]
        self._datas = [mujoco.MjData(model) for model in self._models]
        self.model, self.data = Fields(self._models), Fields(self._datas)
        for name in (*INPUTS, "time"):
            getattr(self.data, name)
        self.expanded_fields: set[str] = set()
        self.per_world_default_fields: set[str] = set()
        self.world_to_variant: dict[str, torch.Tensor] = {}
        self.nan_guard = NanGuard(cfg.nan_guard, num_envs, self.mj_model)
        self._ctx: Any = None
        self.forward()

    def expand_model_fields(self, fields: tuple[str, ...]) -> None:
        self.expanded_fields.update(fields)

    def get_default_field(self, field: str) -> torch.Tensor:
        return torch.as_tensor(np.array(getattr(self.mj_model, field)), dtype=getattr(self.model, field).dtype)

    def recompute_constants(self, level: Any) -> None:
        self._write_model()
        for model, data in zip(self._models, self._datas, strict=True):
            mujoco.mj_setConst(model, data)
        for name, value in self.model.known().items():
            if value.is_floating_point():
                value.copy_(torch.from_numpy(np.stack([np.array(getattr(model, name)) for model in self._models])))

    def step(self) -> None:
        STEPS.append(self.num_envs)
        self._call(mujoco.mj_step, range(self.num_envs))

    def forward(self) -> None:
        self._call(mujoco.mj_forward, range(self.num_envs))

    def reset(self, env_ids: torch.Tensor | None = None) -> None:
        ids = range(self.num_envs) if env_ids is None else env_ids.tolist()
        for i in ids:
            mujoco.mj_resetData(self._models[i], self._datas[i])
            for name in INPUTS:
                getattr(self.data, name)[i] = torch.from_numpy(np.array(getattr(self._datas[i], name)))
        self._call(mujoco.mj_forward, ids)

    def set_sensor_context(self, ctx: Any) -> None:
        self._ctx = ctx

    def sense(self) -> None:
        if self._ctx is not None:
            self._ctx.prepare()
            self._ctx.cast()
            self._ctx.finalize()

    def _write_model(self) -> None:
        for name, value in self.model.known().items():
            if name in self.expanded_fields and value.is_floating_point():
                for i, model in enumerate(self._models):
                    getattr(model, name)[:] = value[i].numpy()

    def _call(self, function: Any, ids: Any) -> None:
        self._write_model()
        for i in ids:
            data = self._datas[i]
            for name in INPUTS:
                getattr(data, name)[:] = getattr(self.data, name)[i].numpy()
            function(self._models[i], data)
            for name, value in self.data.known().items():
                value[i] = torch.from_numpy(np.array(getattr(data, name))).reshape(value[i].shape)


PLAIN = SimulationKind(PlainSimulation)
"""As an entry point of another package holds it."""

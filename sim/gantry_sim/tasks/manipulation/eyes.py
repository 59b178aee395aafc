"""Pictures of all environments from the cameras of the workbench, drawn off screen one after the other.

Each environment's positions are put into one state of MuJoCo, whose kinematics place what is drawn. Shadows,
reflections and multisampling are off, which is fifteen times faster where there is no graphics card.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gantry_hardware.errors import UnknownNameError
from gantry_sim.camera import COLLISION_GROUP, MAX_SHAPES, drawing_context
from gantry_sim.env import GantryEnv
from gantry_sim.looks import VISUAL_GROUP


class BenchCameras:
    """Takes pictures of N environments.

    Args:
        env: The environments.
        names: Cameras of the scene.
        size_px: Rows and columns of a picture.

    Raises:
        UnknownNameError: If the scene has no such camera.
        GantryError: If this machine cannot draw off screen.
    """

    def __init__(self, env: GantryEnv, names: tuple[str, ...], size_px: int) -> None:
        model: mujoco.MjModel = env.sim.mj_model
        known = [model.camera(i).name for i in range(model.ncam)]
        self._names: dict[str, mujoco.MjvCamera] = {}
        for name in names:
            found = [item for item in known if item.split("/")[-1] == name]
            if not found:
                raise UnknownNameError("camera", name, known)
            camera = mujoco.MjvCamera()
            camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
            camera.fixedcamid = known.index(found[0])
            self._names[name] = camera
        self._env, self._model, self._size = env, model, size_px
        self._data = mujoco.MjData(model)
        model.vis.global_.offwidth = model.vis.global_.offheight = size_px
        model.vis.quality.offsamples = 0
        self._context: Any
        self._context, self._target = drawing_context(model, size_px, size_px)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._target)
        self._scene = mujoco.MjvScene(model, maxgeom=MAX_SHAPES)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._option = mujoco.MjvOption()
        self._option.geomgroup[COLLISION_GROUP] = not (model.geom_group == VISUAL_GROUP).any()
        self._window = mujoco.MjrRect(0, 0, size_px, size_px)
        self._pixels = np.empty((size_px, size_px, 3), dtype=np.uint8)

    def see(self, env_ids: Tensor | None = None) -> dict[str, Tensor]:
        """Pictures (k, 3, size, size), uint8, by camera, of some environments (k,) or of all."""
        rows = range(self._env.num_envs) if env_ids is None else env_ids.tolist()
        state = self._env.sim.data
        qpos = state.qpos.cpu().numpy()
        fixtures = (state.mocap_pos.cpu().numpy(), state.mocap_quat.cpu().numpy()) if self._model.nmocap else None
        shots = {name: np.empty((len(rows), 3, self._size, self._size), np.uint8) for name in self._names}
        self._context.make_current()
        for place, row in enumerate(rows):
            self._data.qpos[:] = qpos[row]
            if fixtures is not None:
                self._data.mocap_pos[:], self._data.mocap_quat[:] = fixtures[0][row], fixtures[1][row]
            mujoco.mj_kinematics(self._model, self._data)
            mujoco.mj_camlight(self._model, self._data)
            for name, camera in self._names.items():
                shots[name][place] = self._shoot(camera).transpose(2, 0, 1)
        return {name: torch.from_numpy(pictures).to(self._env.device) for name, pictures in shots.items()}

    def close(self) -> None:
        """Release the drawing context; may be called twice."""
        if self._context is not None:
            self._context.make_current()
            self._target.free()
            self._context.free()
            self._context = None

    def _shoot(self, camera: mujoco.MjvCamera) -> NDArray[np.uint8]:
        """(size, size, 3), rows from above."""
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, self._data, self._option, None, camera, everything, self._scene)
        mujoco.mjr_render(self._window, self._scene, self._target)
        mujoco.mjr_readPixels(self._pixels, None, self._window, self._target)
        return self._pixels[::-1]

"""Pictures of all environments from the cameras of the workbench, drawn off screen one after the other.

Each environment's positions are put into one state of MuJoCo, whose kinematics place what is drawn.
"""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from torch import Tensor

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.viewing.offscreen_cameras import SceneCameras


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
        self._env, self._model, self._size = env, env.sim.mj_model, size_px
        self._names = names
        self._data = mujoco.MjData(self._model)
        self._cameras = SceneCameras(self._model, names, size_px)

    def see(self, env_ids: Tensor | None = None) -> dict[str, Tensor]:
        """Pictures (k, 3, size, size), uint8, by camera, of some environments (k,) or of all."""
        rows = range(self._env.num_envs) if env_ids is None else env_ids.tolist()
        state = self._env.sim.data
        qpos = state.qpos.cpu().numpy()
        fixtures = (state.mocap_pos.cpu().numpy(), state.mocap_quat.cpu().numpy()) if self._model.nmocap else None
        shots = {name: np.empty((len(rows), 3, self._size, self._size), np.uint8) for name in self._names}
        for place, row in enumerate(rows):
            self._data.qpos[:] = qpos[row]
            if fixtures is not None:
                self._data.mocap_pos[:], self._data.mocap_quat[:] = fixtures[0][row], fixtures[1][row]
            mujoco.mj_kinematics(self._model, self._data)
            mujoco.mj_camlight(self._model, self._data)
            for name, picture in self._cameras.see(self._data).items():
                shots[name][place] = picture
        return {name: torch.from_numpy(pictures).to(self._env.device) for name, pictures in shots.items()}

    def close(self) -> None:
        """Release the drawing context; may be called twice."""
        self._cameras.close()

"""Pictures from the cameras of a scene, drawn off screen one after the other."""

from __future__ import annotations

import copy

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import UnknownNameError
from gantry_sim.robots.scene_visuals import VISUAL_GROUP
from gantry_sim.viewing.camera import COLLISION_GROUP, Renderer


class SceneCameras(Renderer):
    """Takes pictures of one state at a time, of a copy of the scene: later changes of its looks are not drawn.

    Args:
        model: The compiled scene.
        names: Cameras of the scene, without the prefix of the robot that carries them.
        size_px: Rows and columns of a picture.
        meshes: Show a robot as it looks; otherwise the shapes that touch things. Where there is only one of the two, it
            is shown.

    Raises:
        UnknownNameError: If the scene has no such camera.
        GantryError: If this machine cannot draw off screen.
    """

    def __init__(self, model: mujoco.MjModel, names: tuple[str, ...], size_px: int, *, meshes: bool = True) -> None:
        known = [model.camera(i).name for i in range(model.ncam)]
        self._cameras: dict[str, mujoco.MjvCamera] = {}
        for name in names:
            found = [item for item in known if item.split("/")[-1] == name]
            if not found:
                raise UnknownNameError("camera", name, known)
            camera = mujoco.MjvCamera()
            camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
            camera.fixedcamid = known.index(found[0])
            self._cameras[name] = camera
        own, planes = _for_small_pictures(model, size_px), model.geom_size.copy()
        super().__init__(own, size_px, size_px)
        own.geom_size[:] = planes  # endless again: what is drawn moves along with the camera
        shown = meshes and bool((model.geom_group == VISUAL_GROUP).any())
        self._option.geomgroup[VISUAL_GROUP], self._option.geomgroup[COLLISION_GROUP] = shown, not shown

    def see(self, data: mujoco.MjData) -> dict[str, NDArray[np.uint8]]:
        """Pictures (3, size, size) by camera of a state whose kinematics are computed; kept for the caller."""
        return {name: self._draw(data, camera).transpose(2, 0, 1).copy() for name, camera in self._cameras.items()}


COARSE_PX = 128
"""Pictures up to this size show round shapes by few faces, which takes two thirds of the time."""
_COARSE = 12, 6
"""Faces around and along a sphere in them."""
_MUJOCO_FACES, _FACES = 400, 100
"""Faces along an edge of an endless plane, MuJoCo's and those in small pictures, of the same size and about the camera.
At their corners light is computed. 160,000 of them take two thirds of a picture's time, and nearly all are too far
away to be seen."""


def _for_small_pictures(model: mujoco.MjModel, size_px: int) -> mujoco.MjModel:
    """A copy that is drawn into a buffer no larger than a picture, without multisampling; others that draw the same
    scene keep theirs."""
    model = copy.copy(model)
    size, quality = model.vis.global_, model.vis.quality
    size.offwidth, size.offheight, quality.offsamples = size_px, size_px, 0
    if size_px <= COARSE_PX:
        quality.numslices, quality.numstacks = _COARSE
        endless = (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & (model.geom_size[:, :2] == 0.0).all(1)
        face_m = 2.1 * model.vis.map.zfar * model.stat.extent / _MUJOCO_FACES
        edge_m = 0.5 * _FACES * face_m
        model.geom_size[endless] = (edge_m, edge_m, 1.0001 * face_m)  # rounding must not make another face
    return model

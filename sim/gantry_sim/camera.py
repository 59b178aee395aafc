"""Pictures of a simulated robot, drawn off screen."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_sim.looks import VISUAL_GROUP

COLLISION_GROUP = 3
"""Geom group of shapes that touch things; drawn only where a robot has nothing better to show."""


class TrackingCamera:
    """A camera that stays beside the robot as it moves, looking from behind its right shoulder.

    Args:
        model: The compiled scene.
        width_px: Width of the pictures.
        height_px: Height of the pictures.
        robot_height_m: Height of the robot's base, which sets the distance and what the camera looks at.

    Raises:
        GantryError: If this machine cannot draw.
    """

    def __init__(self, model: mujoco.MjModel, width_px: int, height_px: int, robot_height_m: float) -> None:
        try:
            self._renderer = mujoco.Renderer(model, height=height_px, width=width_px)
        except Exception as error:  # Drivers fail in ways of their own: missing libraries, no device, no memory.
            raise GantryError(
                f"Cannot draw off screen here ({error}). On Linux without a screen, MUJOCO_GL=egl needs Mesa's EGL "
                "(Debian package libegl1); everything but pictures works without it."
            ) from error
        self.size_px = (width_px, height_px)
        self._camera = mujoco.MjvCamera()
        self._camera.azimuth = 50.0
        self._camera.elevation = -16.0
        self._camera.distance = 0.85 + 2.2 * robot_height_m
        self._look_height_m = 0.75 * robot_height_m
        self._option = mujoco.MjvOption()
        has_visuals = bool((model.geom_group == VISUAL_GROUP).any())
        self._option.geomgroup[COLLISION_GROUP] = not has_visuals
        # Shadows and reflections cost fifteen times the rest where there is no graphics card.
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False

    def picture(self, data: mujoco.MjData, pos_base_in_world_m: NDArray[np.float64]) -> NDArray[np.uint8]:
        """A picture (height, width, 3) of the state in ``data``, the base at ``pos_base_in_world_m`` (3,)."""
        self._camera.lookat[:] = (pos_base_in_world_m[0], pos_base_in_world_m[1], self._look_height_m)
        self._renderer.update_scene(data, self._camera, self._option)
        return self._renderer.render()

    def close(self) -> None:
        """Release the drawing context."""
        self._renderer.close()

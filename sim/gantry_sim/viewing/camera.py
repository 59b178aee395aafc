"""Pictures of a simulated robot, drawn off screen."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_sim.robots.scene_visuals import MAX_PICTURE_PX, VISUAL_GROUP
from gantry_sim.viewing import drawing

COLLISION_GROUP = 3
"""Geom group of shapes that touch things; drawn only where a robot has nothing better to show."""
ARM_HEIGHT_M = 0.25
"""The height that an arm is looked at, whose base lies on the ground."""
MAX_SHAPES = 2000
"""Shapes that one picture may hold."""
ARROW_WIDTH_M = 0.012
"""Of the arrows that a picture may show."""
MIN_ARROW_M = 0.02
"""Shorter arrows are left out: they have no visible direction."""


@dataclass(frozen=True)
class Arrow:
    """An arrow to draw into a picture."""

    start_in_world_m: NDArray[np.float64]
    """Shape (3,)."""
    end_in_world_m: NDArray[np.float64]
    """Shape (3,)."""
    rgba: tuple[float, float, float, float]
    """Colour."""


@dataclass(frozen=True)
class View:
    """From where a camera looks."""

    azimuth_deg: float = 50.0
    """Direction that it looks in, about the vertical; 50 is from behind the right shoulder of what faces along x."""
    elevation_deg: float = -16.0
    """Negative looking down."""
    distance_m: float | None = None
    """From what it looks at; None for one that suits the robot's height."""


class Renderer:
    """Draws states of a scene off screen.

    Shadows, reflections and, in small pictures, multisampling are off, which is fifteen times faster where there is no
    graphics card.

    Args:
        model: The compiled scene.
        width_px: Width of the pictures.
        height_px: Height of the pictures.

    Raises:
        GantryError: If this machine cannot draw.
    """

    def __init__(self, model: mujoco.MjModel, width_px: int, height_px: int) -> None:
        self.size_px = (width_px, height_px)
        self._model = model
        self._context, self._target = drawing_context(model, width_px, height_px)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._target)
        self._scene = mujoco.MjvScene(model, maxgeom=MAX_SHAPES)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._option = mujoco.MjvOption()
        self._window = mujoco.MjrRect(0, 0, width_px, height_px)

    def _draw(
        self, data: mujoco.MjData, camera: mujoco.MjvCamera, arrows: Sequence[Arrow] = (), caption: str = ""
    ) -> NDArray[np.uint8]:
        """Picture (height, width, 3) of a state whose kinematics are computed."""
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, data, self._option, None, camera, everything, self._scene)
        for arrow in arrows:
            self._add(arrow)
        assert self._context is not None
        self._context.make_current()
        mujoco.mjr_render(self._window, self._scene, self._target)
        if caption:
            font, corner = mujoco.mjtFont.mjFONT_NORMAL.value, mujoco.mjtGridPos.mjGRID_TOPLEFT.value
            mujoco.mjr_overlay(font, corner, self._window, caption, "", self._target)
        pixels = np.empty((self.size_px[1], self.size_px[0], 3), dtype=np.uint8)
        mujoco.mjr_readPixels(pixels, None, self._window, self._target)
        return pixels[::-1].copy()  # The graphics card counts its rows from below.

    def _add(self, arrow: Arrow) -> None:
        length_m = float(np.linalg.norm(arrow.end_in_world_m - arrow.start_in_world_m))
        if length_m < MIN_ARROW_M or self._scene.ngeom >= self._scene.maxgeom:
            return
        shape, kind = self._scene.geoms[self._scene.ngeom], mujoco.mjtGeom.mjGEOM_ARROW.value
        mujoco.mjv_initGeom(shape, kind, np.zeros(3), np.zeros(3), np.zeros(9), np.array(arrow.rgba, np.float32))
        mujoco.mjv_connector(shape, kind, ARROW_WIDTH_M, arrow.start_in_world_m, arrow.end_in_world_m)
        self._scene.ngeom += 1

    def close(self) -> None:
        """Release the drawing context; may be called twice."""
        if self._context is not None:
            self._context.make_current()
            self._target.free()
            self._context.free()
            self._context = None


class TrackingCamera(Renderer):
    """A camera that stays beside the robot as it moves.

    Args:
        model: The compiled scene.
        width_px: Width of the pictures.
        height_px: Height of the pictures.
        robot_height_m: Height of the robot's base, which sets the distance and what the camera looks at; 0 for an arm.
        view: From where.

    Raises:
        GantryError: If the pictures would be too large, or if this machine cannot draw.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        width_px: int,
        height_px: int,
        robot_height_m: float,
        view: View = View(),
    ) -> None:
        if not (0 < width_px <= MAX_PICTURE_PX[0] and 0 < height_px <= MAX_PICTURE_PX[1]):
            raise GantryError(
                f"A picture of {width_px} x {height_px} pixels was asked for; the largest is "
                f"{MAX_PICTURE_PX[0]} x {MAX_PICTURE_PX[1]}."
            )
        super().__init__(model, width_px, height_px)
        self._camera = mujoco.MjvCamera()
        self._camera.azimuth, self._camera.elevation = view.azimuth_deg, view.elevation_deg
        height_m = robot_height_m or ARM_HEIGHT_M
        self._camera.distance = 0.85 + 2.2 * height_m if view.distance_m is None else view.distance_m
        self._look_height_m = 0.75 * height_m
        self._option.geomgroup[COLLISION_GROUP] = not (model.geom_group == VISUAL_GROUP).any()

    def picture(
        self,
        data: mujoco.MjData,
        pos_base_in_world_m: NDArray[np.float64],
        arrows: Sequence[Arrow] = (),
        caption: str = "",
        *,
        ground_m: float = 0.0,
    ) -> NDArray[np.uint8]:
        """A picture (height, width, 3) of the state in ``data``, the base at ``pos_base_in_world_m`` (3,).

        Args:
            data: With the kinematics computed.
            pos_base_in_world_m: What the camera looks at.
            arrows: Drawn into the scene.
            caption: Lines written into the upper left corner, where no player puts its controls.
            ground_m: Height of the ground that the robot stands on, in the world.
        """
        self._camera.lookat[:] = (*pos_base_in_world_m[:2], ground_m + self._look_height_m)
        return self._draw(data, self._camera, arrows, caption)


def drawing_context(model: mujoco.MjModel, width_px: int, height_px: int) -> tuple[Any, mujoco.MjrContext]:
    """An off-screen drawing context with the model's shapes in it: EGL on Linux, MuJoCo's own choice elsewhere.

    EGL is asked for directly, since the first import of MuJoCo may have settled it for another way of drawing.

    Raises:
        GantryError: If there is none.
    """
    if drawing.trouble:
        raise GantryError(f"Cannot draw off screen here: {drawing.trouble} Everything but pictures works without it.")
    try:
        if sys.platform.startswith("linux") and os.environ.get("MUJOCO_GL", "egl") == "egl":
            from mujoco.egl import GLContext
        else:
            from mujoco import GLContext
        context: Any = object.__new__(_without_last_words(GLContext))
        context._context = None  # One that fails while it is made is freed as well, and would miss this attribute.
        context.__init__(width_px, height_px)
        context.make_current()
        return context, mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
    except Exception as error:  # Drivers fail in ways of their own: missing libraries, no device, no memory.
        raise GantryError(
            f"Cannot draw off screen here ({type(error).__name__}: {error}). On Linux this needs EGL (Debian packages "
            "libegl1 and libgl1-mesa-dri); everything but pictures works without it."
        ) from error


def _without_last_words(base: type) -> type:
    """A kind of context that says nothing when the interpreter ends before it, and the driver with it."""

    class Context(base):
        def __del__(self) -> None:
            with contextlib.suppress(Exception):
                self.free()

    return Context

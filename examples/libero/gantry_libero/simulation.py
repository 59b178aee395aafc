"""One scene of LIBERO, simulated by robosuite: begun from a given state, stepped, and drawn when it is looked at.

LIBERO itself draws both cameras once more while an episode begins and settles, and builds its model anew for every
episode. Here a scene is built once, and drawn once per look.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_libero.suites import LiberoTask, require_libero

CAMERAS = {"front": "agentview", "wrist": "robot0_eye_in_hand"}
"""Cameras of the benchmark, by the names that they have here."""
DT_S = 0.05
"""Time of a step."""
NUM_ACTIONS = 7
"""Numbers of an action: steps of the hand along and about the world's axes, and the gripper, -1 open, 1 closed."""
SETTLE = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
"""Action while things settle: the hand stays, the gripper opens."""
_PLACEMENTS = 20
"""Attempts to lay things out at random without contact."""


class Simulation:
    """A task's scene.

    Args:
        task: The task.
        cameras: Names of :data:`CAMERAS` that will be looked through; nothing is drawn without.
        image_px: Height and width of pictures.
        plain_light: Leave shadows and reflections out, which halves the time of a picture in software.

    Raises:
        GantryError: If LIBERO is not installed, or its scene cannot be built or drawn here.
    """

    def __init__(self, task: LiberoTask, cameras: Sequence[str], image_px: int, plain_light: bool = False) -> None:
        require_libero()
        self.task = task
        self._cameras, self._image_px, self._plain_light = tuple(cameras), image_px, plain_light
        logging.getLogger("robosuite_logs").setLevel(logging.ERROR)  # It warns of a missing file of macros.
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                envs = importlib.import_module("libero.libero.envs")
                self._libero = envs.env_wrapper.ControlEnv(
                    bddl_file_name=str(task.bddl_file),
                    use_camera_obs=False,
                    has_offscreen_renderer=bool(cameras),
                    camera_heights=image_px,
                    camera_widths=image_px,
                    hard_reset=False,
                    ignore_done=True,
                )
        except Exception as error:  # robosuite and its renderers raise of any kind
            raise GantryError(
                f"The scene of '{task.instruction}' cannot be built: {type(error).__name__}: {error}. Without a "
                "display, set MUJOCO_GL=egl."
            ) from error
        self._env = self._libero.env

    def begin(self, state: NDArray[np.float64], seed: int, settle_steps: int) -> Mapping[str, Any]:
        """Begin an episode.

        Args:
            state: (n,) of the simulator, SI units: an initial state of the task.
            seed: Of what such a state leaves open, for example the places of furniture.
            settle_steps: Steps in which things come to rest.

        Returns:
            The benchmark's observation, without pictures.
        """
        self._libero.seed(seed)
        self._reset()
        for robot in self._env.robots:  # A scene that is not built anew keeps how far its gripper was closed.
            robot.gripper.current_action = np.zeros(robot.gripper.dof)
        found = self._libero.set_init_state(state)
        for _ in range(settle_steps):
            found = self.step(SETTLE)[0]
        return found

    def step(self, action: NDArray[np.float64]) -> tuple[Mapping[str, Any], bool]:
        """Apply an action (7,) in [-1, 1]; the observation without pictures, and whether the goal is reached."""
        found, _, _, _ = self._libero.step(action)
        return found, bool(self._libero.check_success())

    def pictures(self) -> dict[str, NDArray[np.uint8]]:
        """(image_px, image_px, 3) by camera, red, green and blue, rows from above."""
        sim = self._env.sim
        if self._plain_light and self._cameras:
            flags = sim._render_context_offscreen.scn.flags
            rendering = importlib.import_module("mujoco").mjtRndFlag
            flags[rendering.mjRND_SHADOW] = flags[rendering.mjRND_REFLECTION] = 0
        size = self._image_px
        drawn = {name: sim.render(camera_name=CAMERAS[name], width=size, height=size) for name in self._cameras}
        return {name: np.ascontiguousarray(picture[::-1]) for name, picture in drawn.items()}

    def aim(self) -> NDArray[np.float64]:
        """(6,), m, world frame: places of the thing to take and of where it belongs.

        Raises:
            GantryError: If the goal is not to put one thing on or into another.
        """
        goal = self._env.parsed_problem["goal_state"]
        if len(goal) != 1 or len(goal[0]) != 3 or goal[0][0].lower() not in ("on", "in"):
            raise GantryError(f"The goal of '{self.task.instruction}' is {goal}, expected one thing on or in another.")
        return np.concatenate([self._place(name) for name in goal[0][1:]])

    def close(self) -> None:
        """Release the simulation; more than once does no harm."""
        if self._libero is None:
            return
        self._libero.close()
        self._libero = self._env = None

    def _place(self, name: str) -> NDArray[np.float64]:
        data, body = self._env.sim.data, self._env.obj_body_id.get(name)
        return np.array(data.get_site_xpos(name) if body is None else data.body_xpos[body], np.float64)

    def _reset(self) -> None:
        failed = importlib.import_module("robosuite.utils.errors").RandomizationError
        for _ in range(_PLACEMENTS):
            with contextlib.suppress(failed):
                self._env.reset()
                return
        raise GantryError(f"The scene of '{self.task.instruction}' could not be laid out in {_PLACEMENTS} attempts.")

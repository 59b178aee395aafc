"""Tasks of a suite of LIBERO as an environment of gymnasium: pictures, state, and the instruction as word tokens."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.language.instructions import FIRST_WORD
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_libero.simulation import CAMERAS, DT_S, NUM_ACTIONS, Simulation
from gantry_libero.suites import libero_task, num_tasks
from gantry_libero.words import VOCABULARY, libero_tokens

STATE_SIZE = 8
"""Numbers of the robot's state, see :func:`robot_state`."""
AIM_SIZE = 6
"""Numbers of the places of a task's thing and goal, see :meth:`Simulation.aim`."""


class LiberoEnv(gymnasium.Env[dict[str, Any], NDArray[np.float32]]):
    """Episodes of some tasks of a suite, from given initial states.

    An observation has the parts ``images`` (by camera), ``robot`` (8 numbers, see :func:`robot_state`), and ``words``
    (16 tokens); parts in the order of their names, so that the tokens are the last numbers, as language policies have
    them. The scene is built at the first reset, which takes many seconds; another task's scene replaces it.

    Args:
        suite: Name of the suite, without ``libero_``.
        tasks: Tasks, by their places in the suite; all if None.
        states: Initial states of each task, by number; all if None.
        cameras: ``front`` and ``wrist``, or some of them, or none.
        image_px: Height and width of pictures.
        turned: Turn pictures by half a circle against LIBERO's raw ones, which mirrors them, as openpi and the data
            sets of others do; upright otherwise.
        aim: Give the part ``aim`` as well, see :meth:`Simulation.aim`, which only a simulator knows.
        in_turn: Take states in order, task by task, over and over; drawn from the seed of a reset otherwise.
        plain_light: Leave shadows and reflections out.
        settle_steps: Steps after the beginning, in which things come to rest.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium's own declaration
    dt = DT_S
    """Time of a step, s."""

    def __init__(
        self,
        suite: str,
        tasks: Sequence[int] | None = None,
        states: Sequence[int] | None = None,
        cameras: Sequence[str] = tuple(CAMERAS),
        image_px: int = 128,
        turned: bool = False,
        aim: bool = False,
        in_turn: bool = False,
        plain_light: bool = False,
        settle_steps: int = 10,
    ) -> None:
        for name in cameras:
            if name not in CAMERAS:
                raise UnknownNameError("camera of LIBERO", name, CAMERAS)
        places = range(num_tasks(suite)) if tasks is None else tasks
        self._tasks = [libero_task(suite, index) for index in places]
        self._order = [
            (row, number) for row, task in enumerate(self._tasks) for number in _numbers(states, len(task.states))
        ]
        if not self._order:
            raise GantryError(f"No initial state of suite '{suite}' was chosen.")
        self._cameras, self._image_px, self._turned, self._plain_light = tuple(cameras), image_px, turned, plain_light
        self._aim, self._settle_steps = aim, settle_steps
        self._turns = itertools.cycle(self._order) if in_turn else None
        self._simulation: Simulation | None = None
        self.action_space = spaces.Box(-1.0, 1.0, (NUM_ACTIONS,), np.float32)
        self.observation_space = observation_space(cameras, image_px, aim)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; info tells ``task``, ``state`` and ``instruction``."""
        del options
        super().reset(seed=seed)
        if self._turns is not None:
            row, number = next(self._turns)
        else:
            row, number = self._order[int(self.np_random.integers(len(self._order)))]
        task = self._tasks[row]
        if self._simulation is None or self._simulation.task is not task:
            self.close()
            self._simulation = Simulation(task, self._cameras, self._image_px, self._plain_light)
        found = self._simulation.begin(task.states[number], int(self.np_random.integers(2**31)), self._settle_steps)
        return self._seen(found), {"task": task.index, "state": number, "instruction": task.instruction}

    def step(self, action: NDArray[np.float32]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Apply an action (7,) in [-1, 1]; reward 1 and the end come with success.

        Raises:
            GantryError: If no episode has begun.
        """
        if self._simulation is None:
            raise GantryError("The environment was never reset; call reset() before the first step().")
        found, success = self._simulation.step(np.asarray(action, np.float64))
        return self._seen(found), float(success), success, False, {"success": success}

    def close(self) -> None:
        """Release the scene."""
        if self._simulation is not None:
            self._simulation.close()
            self._simulation = None

    def _seen(self, found: Mapping[str, Any]) -> dict[str, Any]:
        assert self._simulation is not None
        seen: dict[str, Any] = {
            "robot": robot_state(found),
            "words": libero_tokens(self._simulation.task.instruction),
        }
        if self._cameras:
            drawn = self._simulation.pictures()
            # Upright ones mirrored are the raw ones, which begin below, turned by half a circle.
            seen["images"] = {name: picture[:, ::-1] if self._turned else picture for name, picture in drawn.items()}
        if self._aim:
            seen["aim"] = self._simulation.aim().astype(np.float32)
        return seen


def observation_space(cameras: Sequence[str], image_px: int, aim: bool) -> spaces.Dict:
    """Space of the observations of a :class:`LiberoEnv`; arguments likewise."""
    parts: dict[str, spaces.Space[Any]] = {
        "robot": _numbers_space(STATE_SIZE),
        "words": spaces.Box(0.0, FIRST_WORD + len(VOCABULARY) - 1, (MAX_WORDS,), np.float32),
    }
    if cameras:
        picture = spaces.Box(0, 255, (image_px, image_px, 3), np.uint8)
        parts["images"] = spaces.Dict(dict.fromkeys(cameras, picture))
    if aim:
        parts["aim"] = _numbers_space(AIM_SIZE)
    return spaces.Dict(dict(sorted(parts.items())))


def robot_state(found: Mapping[str, Any]) -> NDArray[np.float32]:
    """The robot's state as policies of LIBERO usually see it, shape (8,): position of the hand, m, and its rotation as
    a rotation vector, rad, both in the world frame, and places of both fingers, m.

    Args:
        found: Observation of robosuite, with the hand's quaternion as x, y, z, w.
    """
    rotation = rotation_vector(np.asarray(found["robot0_eef_quat"], np.float64))
    return np.concatenate([found["robot0_eef_pos"], rotation, found["robot0_gripper_qpos"]]).astype(np.float32)


def rotation_vector(quat_xyzw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Axis times angle, (3,), rad, from 0 to 2 pi about the axis that a unit quaternion (4,) x, y, z, w has.

    The angle of a negative w is above pi, as in the data sets of LIBERO, which do not take the shorter way.
    """
    w = float(np.clip(quat_xyzw[3], -1.0, 1.0))
    sine = float(np.sqrt(1.0 - w * w))
    return np.zeros(3) if sine < 1e-8 else quat_xyzw[:3] * (2.0 * np.arccos(w) / sine)


def _numbers(states: Sequence[int] | None, count: int) -> Sequence[int]:
    if states is None:
        return range(count)
    for number in states:
        if not 0 <= number < count:
            raise GantryError(f"Initial state {number} was asked for; the task has states 0 to {count - 1}.")
    return states


def _numbers_space(size: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)

"""Simulation of a recorded motion of a robot that hangs by a fixed base, with given dynamics and the recorded commands.

The model is the one of :class:`gantry_sim.backends.mujoco_robot.MujocoRobot`, and the dynamics are written into it by
the same :class:`gantry_sim.backends.motors.Motors`, so that a fit means by its numbers what the simulated robot does.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import rollout
from numpy.typing import NDArray

from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import GantryError
from gantry_hardware.model.dynamics import Estimate, RobotDynamics
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.backends.motors import Motors
from gantry_sim.identification.motion_log import DAMPING, EFFORT, POS, STIFFNESS, VEL, MotionLog
from gantry_sim.identification.parameters import within
from gantry_sim.robots.actuated_scene import SceneIndex, robot_with_motors

FloatArray = NDArray[np.float64]

TIMESTEP_S = 0.002
"""Physics step, that of the simulated robot."""
MIN_STRETCH_S = 4.0
"""Shortest time of constant gains that is simulated."""
WARM_UP_S, WARM_UP_SHARE = 5.0, 0.2
"""Time, and largest share of a stretch, after which a robot that moves has forgotten an initial state that is known
with noise only; a joint that rests in its dry friction keeps it."""
BEGIN_S = 0.02
"""Time around the beginning from which the initial state is taken."""


@dataclass(frozen=True)
class Motion:
    """Readings that a simulation predicts, T readings of n joints."""

    pos_rad: FloatArray
    """Shape (T, n), readings of the encoders."""
    vel_rad_s: FloatArray
    """Shape (T, n)."""
    effort_nm: FloatArray
    """Shape (T, n)."""


def hanging_model(spec: RobotSpec, gravity_in_base_m_s2: FloatArray | None = None) -> mujoco.MjModel:
    """The robot by its fixed base, without contacts.

    Args:
        spec: The robot.
        gravity_in_base_m_s2: Shape (3,), gravity in the base frame, m/s^2; straight down if not given.
    """
    model = robot_with_motors(spec, timestep_s=TIMESTEP_S, fixed_base=True, visuals=False)
    off = mujoco.mjtDisableBit
    # Islands and sensors change no motion, and cost a third of the time.
    model.opt.disableflags |= off.mjDSBL_CONTACT | off.mjDSBL_SENSOR | off.mjDSBL_ISLAND
    if gravity_in_base_m_s2 is not None:
        model.opt.gravity[:] = gravity_in_base_m_s2
    return model


def branches(model: mujoco.MjModel, spec: RobotSpec) -> list[NDArray[np.intp]]:
    """Indices (k,) of the joints of each branch of the base, which do not feel those of the others."""
    base = SceneIndex(model, spec).base
    found: dict[int, list[int]] = {}
    for index, name in enumerate(spec.joint_names):
        body = int(model.joint(name).bodyid[0])
        while int(model.body_parentid[body]) not in (base, 0):
            body = int(model.body_parentid[body])
        found.setdefault(body, []).append(index)
    return [np.array(joints) for joints in found.values()]


def constant_stretches(log: MotionLog, longest_s: float) -> list[MotionLog]:
    """Parts of a recording in which every joint is held by gains that do not change.

    Args:
        log: The recording.
        longest_s: Longest time that is simulated in one piece.

    Raises:
        GantryError: If there is none that is long enough.
    """
    gains = log.commands[:, [STIFFNESS, DAMPING]]
    held = np.asarray((gains[:, 0] > 0.0).all(axis=1), dtype=np.bool_)
    same = np.isclose(gains[1:], gains[:-1], rtol=1e-6, atol=1e-9).all(axis=(1, 2))
    edges = np.concatenate(([0], np.flatnonzero(~same) + 1, [len(held)]))
    times = np.append(log.command_time_s, max(log.command_time_s[-1], log.time_s[-1]))
    found, longest = [], 0.0
    for first, last in itertools.pairwise(edges):
        begin_s, end_s = max(times[first], log.time_s[0]), min(times[last], log.time_s[-1])
        if not held[first]:
            continue
        longest = max(longest, float(end_s - begin_s))
        pieces = max(1, int(np.ceil((end_s - begin_s) / longest_s)))
        bounds = np.linspace(begin_s, end_s, pieces + 1)
        for a, b in itertools.pairwise(bounds):
            if b - a >= MIN_STRETCH_S and len((part := log.between(a, b)).time_s) > 10:
                found.append(part)
    if not found:
        raise GantryError(
            f"{log.source or 'The recording'}: gains of all joints are above 0 and constant for "
            f"{max(0.0, longest):.1f} s at most, expected {MIN_STRETCH_S:g} s; a hanging robot is identified while its "
            "joints are held."
        )
    return found


class Swing:
    """One stretch of constant gains, simulated again and again.

    Args:
        model: From :func:`hanging_model`; its numbers are changed.
        log: The stretch.
        limit_nm: Shape (n,), torque limits.
    """

    def __init__(self, model: mujoco.MjModel, log: MotionLog, limit_nm: FloatArray) -> None:
        self.log, self._model, self._limit = log, model, limit_nm
        self._data, self._index = mujoco.MjData(model), SceneIndex(model, log.spec)
        self._begin_s = float(log.time_s[0])
        self._steps = int(np.ceil(log.duration_s / TIMESTEP_S)) + 1
        self._grid_s: FloatArray = self._begin_s + TIMESTEP_S * np.arange(self._steps + 1, dtype=np.float64)
        self._gains = log.commands[max(0, int(log.command_rows(log.time_s[-1:])[0]))]
        # A command counts from its time on; what is summed up gives its mean over any physics step.
        lengths = np.diff(log.command_time_s)[:, None]
        flat = log.commands[:, [POS, VEL, EFFORT]].reshape(len(log.command_time_s), -1)
        self._sums = np.concatenate((np.zeros((1, flat.shape[1])), np.cumsum(flat[:-1] * lengths, axis=0)))
        self._flat = flat
        self._first = _first_state(log)
        self._last: tuple[bytes, FloatArray, FloatArray, FloatArray] | None = None

    def run(self, joints: dict[str, FloatArray], delay_s: float, effort_age_s: float) -> Motion:
        """Predict the readings.

        Args:
            joints: Parameters of the joints by name, each (n,), in their units.
            delay_s: From a command to its effect.
            effort_age_s: Age of the torque readings.
        """
        key = np.concatenate([*joints.values(), [delay_s]]).tobytes()
        if self._last is None or self._last[0] != key:
            self._last = (key, *self._simulate(joints, delay_s))
        _, pos, vel, effort = self._last
        times, offset = self.log.time_s, joints["encoder_offset_rad"]
        return Motion(
            _at(times, self._grid_s, pos) + offset,
            _at(times, self._grid_s, vel),
            _at(times - effort_age_s, self._grid_s[:-1], effort),
        )

    def _simulate(self, joints: dict[str, FloatArray], delay_s: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """True positions, speeds, (steps + 1, n), and torques, (steps, n), of every physics step."""
        spec, index, n = self.log.spec, self._index, self.log.spec.num_joints
        motors = Motors(self._model, index, spec, _dynamics(spec, joints, self._limit))
        mean = self._means(delay_s)
        # Gains are constant, so that one call sets them; the constant part is that of each step in turn.
        motors.obey(self._data, JointCommand(np.zeros(n), np.zeros(n), np.zeros(n), *self._held))
        ks, kd = -self._model.actuator_biasprm[:, 1], -self._model.actuator_biasprm[:, 2]
        offset = joints["encoder_offset_rad"]
        control = mean[:, EFFORT] + ks * (mean[:, POS] - offset) + kd * mean[:, VEL]
        state = self._roll(control, offset)
        pos = state[:, 1:][:, index.joint_qpos]
        vel = state[:, 1 + self._model.nq :][:, index.joint_qvel]
        effort = np.clip(control - ks * pos[:-1] - kd * vel[:-1], -self._limit, self._limit)
        return pos, vel, effort

    @property
    def _held(self) -> tuple[FloatArray, FloatArray]:
        return self._gains[STIFFNESS], self._gains[DAMPING]

    def _means(self, delay_s: float) -> FloatArray:
        """Shape (steps, 3, n), mean over each physics step of what the motors aim at."""
        sums = self._integral(self._grid_s - delay_s)
        return (np.diff(sums, axis=0) / TIMESTEP_S).reshape(self._steps, 3, -1)

    def _integral(self, times_s: FloatArray) -> FloatArray:
        rows = np.clip(np.searchsorted(self.log.command_time_s, times_s, side="right") - 1, 0, None)
        return self._sums[rows] + self._flat[rows] * (times_s - self.log.command_time_s[rows])[:, None]

    def _roll(self, control: FloatArray, offset: FloatArray) -> FloatArray:
        """Shape (steps + 1, s), MuJoCo's full state at every physics step: time, qpos, qvel."""
        model, data = self._model, self._data
        mujoco.mj_resetData(model, data)
        data.qpos[self._index.joint_qpos] = self._first[0] - offset
        data.qvel[self._index.joint_qvel] = self._first[1]
        kind = mujoco.mjtState.mjSTATE_FULLPHYSICS
        first = np.zeros(mujoco.mj_stateSize(model, kind))
        mujoco.mj_getState(model, data, first, kind)
        states, _ = rollout.rollout(model, data, first[None], control[None], initial_warmstart=np.zeros((1, model.nv)))
        return np.concatenate((first[None], states[0]))


def warm_up_s(part: MotionLog) -> float:
    """Time at the beginning of a stretch that is simulated, but not compared."""
    return min(WARM_UP_S, WARM_UP_SHARE * part.duration_s)


def _first_state(log: MotionLog) -> tuple[FloatArray, FloatArray]:
    """Positions and speeds, (n,) each, at the beginning, by straight lines through the first readings."""
    rows = log.time_s <= log.time_s[0] + BEGIN_S
    if rows.sum() < 4:
        return log.joint_pos_rad[0], log.joint_vel_rad_s[0]
    shape = np.stack((np.ones(rows.sum()), log.time_s[rows] - log.time_s[0]), axis=1)
    line = np.linalg.lstsq(shape, log.joint_pos_rad[rows], rcond=None)[0]
    return line[0], log.joint_vel_rad_s[rows].mean(axis=0)


def _at(times_s: FloatArray, grid_s: FloatArray, values: FloatArray) -> FloatArray:
    """Values (steps, n) of an even grid at other times (T,), between its points by straight lines."""
    place = np.clip((times_s - grid_s[0]) / TIMESTEP_S, 0.0, len(grid_s) - 1.000001)
    row = place.astype(np.intp)
    share = (place - row)[:, None]
    return values[row] * (1.0 - share) + values[np.minimum(row + 1, len(grid_s) - 1)] * share


def _dynamics(spec: RobotSpec, joints: dict[str, FloatArray], limit_nm: FloatArray) -> RobotDynamics:
    table = {**joints, "effort_limit_nm": limit_nm}
    each = {
        joint: {name: Estimate(within(name, float(values[i]))) for name, values in table.items()}
        for i, joint in enumerate(spec.joint_names)
    }
    return RobotDynamics(spec.name, each)

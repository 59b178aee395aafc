"""Fit of a hanging robot's dynamics: simulation of the whole recording, nearer to its readings step by step.

The fit is one of output errors: Gauss and Newton's steps, each the solution of a bounded linear least-squares problem
by scipy, on positions, speeds and, where they were recorded, torques, each in units of its own noise. Which step is
taken is chosen here and not by scipy's non-linear solvers: where clocks beat together the cost has kinks at whole
physics steps of delay, at which a trust region shrinks to nothing, and a derivative costs twenty times as much as a
value. The legs of a robot whose base is fixed do not feel each other, so that one simulation gives the derivatives by
the same parameter of one joint in each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from gantry_sim.identification.motion_log import MotionLog
from gantry_sim.identification.parameters import DELAY, EFFORT_AGE, JOINT_PARAMETERS, Vector
from gantry_sim.identification.swing import (
    TIMESTEP_S,
    Motion,
    Swing,
    branches,
    constant_stretches,
    hanging_model,
    warm_up_s,
)
from gantry_sim.identification.uncertainty import NormalEquations, noise_level

FloatArray = NDArray[np.float64]
Told = Callable[[str], None]

DELAYS_S = (0.0, 0.005, 0.01, 0.02, 0.03, 0.045)
"""Delays that are tried to begin with."""
MAX_STEPS = 25
"""Most steps of the fit."""
SAMPLE_S, SAMPLE_EVERY = 6.0, 3
"""Length of the samples that the first steps work on, and how many of them one is taken of."""
ROUGH, DONE = 0.7, 0.05
"""The fit of samples, and that of all, end when no parameter moves by more than this share of its standard deviation,
or half the sum of squares, in units of the noise, falls by less than the square of it."""
BLOCK_S = 1.0
"""Time within which residuals may hang together."""
LONGEST_S = 150.0
"""Longest time that is simulated in one piece."""
Slopes = dict[int, list[NDArray[np.float32]]]
"""Derivatives of the residuals, (3, m, n) of every stretch, by the place of the parameter."""


@dataclass(frozen=True)
class HangingFit:
    """Outcome of a fit with p parameters in the layout of :class:`Vector`."""

    vector: Vector
    """Layout of the parameters."""
    values: FloatArray
    """Shape (p,), each in its unit."""
    deviations: FloatArray
    """Shape (p,), standard deviations."""
    stretches: list[MotionLog]
    """Parts of the recordings that were simulated."""
    motions: list[Motion]
    """Prediction of each of them."""
    noise: FloatArray
    """Shape (3, n), deviations of positions, rad, speeds, rad/s, and torques, N m, from the prediction."""
    steps: int
    """Number of steps that the fit took."""
    converged: bool
    """Whether it ended by itself."""


class HangingProblem:
    """Residuals and derivatives of all stretches of a robot's recordings.

    Args:
        logs: Recordings of one robot.
        limit_nm: Shape (n,), torque limits that are simulated.
        gravity_in_base_m_s2: Shape (3,), in the base frame, m/s^2; straight down if not given.
        told: Told of progress.
    """

    def __init__(
        self, logs: list[MotionLog], limit_nm: FloatArray, gravity_in_base_m_s2: FloatArray | None, told: Told
    ) -> None:
        spec = logs[0].spec
        self.vector = Vector(spec)
        model = hanging_model(spec, gravity_in_base_m_s2)
        self.groups = branches(model, spec)
        self.stretches = [part for log in logs for part in constant_stretches(log, LONGEST_S)]
        self._swings = [Swing(model, part, limit_nm) for part in self.stretches]
        self._rows = [part.time_s >= part.time_s[0] + warm_up_s(part) for part in self.stretches]
        self.has_effort = all(part.has_effort for part in self.stretches)
        self.noise = np.max([self._white(part) for part in self.stretches], axis=0)
        self._floor = 0.1 * self.noise + np.array([[1e-6], [1e-5], [1e-5]])
        self._told = told

    def motions(self, values: FloatArray) -> list[Motion]:
        """Predictions for a vector (p,), each parameter in its unit."""
        joints, vector = self.vector.joint_arrays(values), self.vector
        delay_s, age_s = values[vector.of_whole(DELAY)], values[vector.of_whole(EFFORT_AGE)]
        return [swing.run(joints, delay_s, age_s) for swing in self._swings]

    def residuals(self, motions: list[Motion]) -> list[FloatArray]:
        """Prediction minus reading of every stretch, (3, m, n) in rad, rad/s and N m, without the warm-up."""
        found = []
        for motion, part, rows in zip(motions, self.stretches, self._rows, strict=True):
            effort = part.joint_effort_nm if self.has_effort else motion.effort_nm
            pairs = (
                (motion.pos_rad, part.joint_pos_rad),
                (motion.vel_rad_s, part.joint_vel_rad_s),
                (motion.effort_nm, effort),
            )
            found.append(np.stack([(guess - read)[rows] for guess, read in pairs]))
        return found

    def cost(self, values: FloatArray, residuals: list[FloatArray]) -> float:
        """Half the sum of squares in units of the noise, with what is assumed before any data."""
        prior = (values - self.vector.start) / self.vector.prior
        return 0.5 * (sum(float(np.sum((r / self.noise[:, None]) ** 2)) for r in residuals) + float(prior @ prior))

    def weigh(self, residuals: list[FloatArray]) -> None:
        """Take the noise from the residuals."""
        squares = sum(np.sum(r**2, axis=1) for r in residuals) / sum(r.shape[1] for r in residuals)
        self.noise = np.maximum(np.sqrt(squares), self._floor)

    def equations(self, slopes: Slopes, residuals: list[FloatArray]) -> NormalEquations:
        """Normal equations of residuals, (3, m, n) each in rad, rad/s and N m, and their derivatives."""
        vector, numbers, total = self.vector, [], 0
        for part, rows in zip(self.stretches, self._rows, strict=True):
            block = (part.time_s[rows] // BLOCK_S).astype(np.intp)
            numbers.append(block - block[0] + total)
            total = int(numbers[-1][-1]) + 1
        sums = NormalEquations(vector.size, total)
        for joints in self.groups:
            columns = np.array([place for place in range(vector.size) if self._touches(place, joints)])
            for part, residual in enumerate(residuals):
                weight = self.noise[:, None, joints]
                right = (residual[:, :, joints] / weight).transpose(1, 0, 2)
                left = np.stack([slopes[place][part][:, :, joints] / weight for place in columns], axis=-1)
                left = left.transpose(1, 0, 2, 3).reshape(-1, len(columns))
                block = np.repeat(numbers[part], 3 * len(joints))
                sums.add(right.reshape(-1), left, columns, block)
        return sums

    def slopes(self, values: FloatArray, residuals: list[FloatArray], label: str) -> Slopes:
        """Derivatives of the residuals by the place of a parameter; joints of other branches share an entry.

        Args:
            values: Shape (p,), each in its unit.
            residuals: Shape (3, m, n) of each stretch, at those values, in rad, rad/s and N m.
            label: For messages.
        """
        vector, found = self.vector, {}
        sets = self._sets()
        for number, places in enumerate(sets):
            self._told(f"{label}: simulation {number + 1} of {len(sets)}")
            shared = places[0] >= len(JOINT_PARAMETERS) * vector.n
            # Where commands and readings come at the beats of one clock, times have kinks: the flatter side counts.
            sides = [self._slope(values, residuals, places, sign) for sign in ((1.0, -1.0) if shared else (1.0,))]
            slope = min((side for side in sides if side), key=self._size)
            for place in places:
                found[place] = slope
        return found

    def _slope(
        self, values: FloatArray, residuals: list[FloatArray], places: list[int], sign: float
    ) -> list[NDArray[np.float32]]:
        """Derivative to one side, of each stretch; nothing at a bound."""
        moved, step = values.copy(), self.vector.step[places[0]]
        moved[places] = np.clip(moved[places] + sign * step, self.vector.low[places], None)
        gap = moved[places[0]] - values[places[0]]
        if abs(gap) < 0.1 * step:
            return []
        after = self.residuals(self.motions(moved))
        return [((b - a) / gap).astype(np.float32) for b, a in zip(after, residuals, strict=True)]

    def _size(self, slope: list[NDArray[np.float32]]) -> float:
        return sum(float(np.sum((part / self.noise[:, None]) ** 2)) for part in slope)

    def _sets(self) -> list[list[int]]:
        """Places that are moved together: the same parameter of one joint in each branch."""
        vector, sets = self.vector, []
        for first in range(0, len(JOINT_PARAMETERS) * vector.n, vector.n):
            for slot in range(max(len(joints) for joints in self.groups)):
                sets.append([first + int(joints[slot]) for joints in self.groups if slot < len(joints)])
        return [*sets, [vector.of_whole(EFFORT_AGE)], [vector.of_whole(DELAY)]]

    def _touches(self, place: int, joints: NDArray[np.intp]) -> bool:
        shared = place >= len(JOINT_PARAMETERS) * self.vector.n
        return shared or bool(np.any(joints == place % self.vector.n))

    @staticmethod
    def _white(part: MotionLog) -> FloatArray:
        effort = part.joint_effort_nm if part.has_effort else np.zeros_like(part.joint_pos_rad)
        least = np.array([1e-5, 1e-4, 1e-4])[:, None]
        return np.maximum([noise_level(x) for x in (part.joint_pos_rad, part.joint_vel_rad_s, effort)], least)


def fit_hanging(
    logs: list[MotionLog],
    limit_nm: FloatArray,
    gravity_in_base_m_s2: FloatArray | None = None,
    told: Told = lambda _: None,
) -> HangingFit:
    """Fit the dynamics of a robot that hangs by a fixed base: on samples of the recordings first, then on all of them.

    Args:
        logs: Recordings of it.
        limit_nm: Shape (n,), torque limits.
        gravity_in_base_m_s2: Shape (3,), in the base frame, m/s^2; straight down if not given.
        told: Told of progress, line by line.

    Raises:
        GantryError: If joints are not held for long enough.
    """
    problem = HangingProblem(logs, limit_nm, gravity_in_base_m_s2, told)
    pieces = [piece for part in problem.stretches for piece in constant_stretches(part, SAMPLE_S)]
    few = HangingProblem(pieces[1::SAMPLE_EVERY], limit_nm, gravity_in_base_m_s2, told) if len(pieces) > 4 else problem
    search = _Search(few, *_begin(few, told), told)
    converged = search.run("sample", near=ROUGH if few is not problem else DONE, renew=True)
    if few is not problem:
        search = _Search(problem, search.values, problem.motions(search.values), told)
        converged = search.run("all", near=DONE, renew=False)
    deviations = search.equations().deviations(problem.vector.prior)
    parts = problem.stretches, search.motions, problem.noise
    return HangingFit(problem.vector, search.values, deviations, *parts, search.steps, converged)


class _Search:
    """Steps from one vector of parameters (p,) to better ones."""

    def __init__(self, problem: HangingProblem, values: FloatArray, motions: list[Motion], told: Told) -> None:
        self.values, self.motions, self.steps = values, motions, 0
        self._problem, self._told = problem, told
        self._slopes: Slopes = {}

    def run(self, label: str, near: float, *, renew: bool) -> bool:
        """Step until nothing changes any more; whether that was reached.

        Args:
            label: For messages.
            near: Largest change in standard deviations after which it ends.
            renew: Take the derivatives anew in every step, as far from the end they have to be.
        """
        problem, prior = self._problem, self._problem.vector.prior
        for self.steps in range(1, MAX_STEPS + 1):
            residuals = problem.residuals(self.motions)
            problem.weigh(residuals)
            if renew or not self._slopes:
                self._slopes = problem.slopes(self.values, residuals, f"{label}, step {self.steps}")
            equations = problem.equations(self._slopes, residuals)
            cost, deviations = problem.cost(self.values, residuals), equations.deviations(prior)
            values, motions, gain = self._best(equations, cost, near)
            if gain <= 0.0:
                return True  # No point on the way is better than here.
            largest = float(np.max(np.abs(values - self.values) / deviations))
            self.values, self.motions = values, motions
            self._told(f"{label}, step {self.steps}: largest change {largest:.2g} standard deviations, gain {gain:.3g}")
            if largest < near or gain < near**2:
                return True
        return False

    def _best(self, equations: NormalEquations, cost: float, near: float) -> tuple[FloatArray, list[Motion], float]:
        """Better values, their motions, and by how much the cost falls.

        Where all clocks beat together, delays are whole physics steps, at which the cost has kinks: the step is also
        tried to the nearest of them, in part, and without the delays.
        """
        problem, vector, best = self._problem, self._problem.vector, (self.values, self.motions, 0.0)
        times = np.array([vector.of_whole(DELAY), vector.of_whole(EFFORT_AGE)])
        full = _newton(vector, equations, self.values)
        others = _newton(vector, equations, self.values, times, self.values[times])
        beats = _newton(vector, equations, self.values, times, np.round(full[times] / TIMESTEP_S) * TIMESTEP_S)
        parts = [self.values + share * (full - self.values) for share in (0.5, 0.2, 0.05)]
        full_gain = _expected(vector, equations, self.values, full - self.values)
        for candidate in (beats, full, others, *parts):
            motions = problem.motions(candidate)
            gain = cost - problem.cost(candidate, problem.residuals(motions))
            if gain > best[2]:
                best = (candidate, motions, gain)
            if candidate is not beats and best[2] > 0.5 * full_gain - near**2:
                break
        return best

    def equations(self) -> NormalEquations:
        """Normal equations at the end."""
        residuals = self._problem.residuals(self.motions)
        self._problem.weigh(residuals)
        return self._problem.equations(self._slopes, residuals)


def _begin(problem: HangingProblem, told: Told) -> tuple[FloatArray, list[Motion]]:
    """Nominal values with the delay that fits best."""
    vector, best = problem.vector, None
    for delay_s in DELAYS_S:
        told(f"start: delay {1e3 * delay_s:.0f} ms")
        values = vector.start.copy()
        values[vector.of_whole(DELAY)] = delay_s
        motions = problem.motions(values)
        cost = problem.cost(values, problem.residuals(motions))
        if np.isfinite(cost) and (best is None or cost < best[0]):
            best = (cost, values, motions)
    assert best is not None
    return best[1], best[2]


def _expected(vector: Vector, equations: NormalEquations, values: FloatArray, step: FloatArray) -> float:
    """Fall of the cost by a step, if residuals were linear."""
    precision = vector.prior**-2.0
    gradient = equations.gradient + precision * (values - vector.start)
    return -float(gradient @ step + 0.5 * step @ (equations.matrix @ step + precision * step))


def _newton(
    vector: Vector,
    equations: NormalEquations,
    values: FloatArray,
    held: NDArray[np.intp] | None = None,
    at: FloatArray | None = None,
) -> FloatArray:
    """Values (p,) after a step of Gauss and Newton within the bounds, by scipy's bounded linear least squares.

    Args:
        vector: Layout and bounds.
        equations: At the values.
        values: Shape (p,), each in its unit.
        held: Shape (k,), places of parameters that get a value.
        at: Shape (k,), that value.
    """
    precision = vector.prior**-2.0
    matrix = equations.matrix + np.diag(precision)
    gradient = equations.gradient + precision * (values - vector.start)
    result, free = values.copy(), np.ones(vector.size, dtype=bool)
    if held is not None and at is not None:
        result[held], free[held] = np.clip(at, vector.low[held], vector.high[held]), False
        gradient = gradient + matrix @ (result - values)
    # Half of |R x - b|^2 is the model of the cost, up to a constant, with R'R the matrix; in units of the priors.
    unit = vector.prior[free]
    root = np.linalg.cholesky(matrix[np.ix_(free, free)] * np.outer(unit, unit)).T
    target = -np.linalg.solve(root.T, gradient[free] * unit)
    low, high = (vector.low - result)[free] / unit, (vector.high - result)[free] / unit
    moved = lsq_linear(root, target, (np.minimum(low, 0.0) - 1e-12, np.maximum(high, 0.0) + 1e-12), method="bvls")
    result[free] = np.clip(result[free] + unit * moved.x, vector.low[free], vector.high[free])
    return result

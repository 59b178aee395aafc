"""Episodes of robots with legs: velocities to follow, or goals to walk to, with friction and payload drawn for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.commands import goal_command
from gantry_deploy.contract.parts import BODY_POSE, BODY_VELOCITY, CommandSpec
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.loop import Controller
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.metrics import (
    EpisodeScores,
    GoalScores,
    TrackingScores,
    goal_errors,
    goal_reached,
    goal_scores,
    has_fallen,
    tracking_scores,
)
from gantry_deploy.evaluation.scenario import End, Episode, FloatArray, RolloutConfig, Scenario
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.backend import Robot
from gantry_hardware.model.capabilities import HasGroundTruth

DISTANCE_M = (1.5, 4.0)
"""Range of the distance of goals on a plane."""
CONE_RAD = math.radians(60.0)
"""Goals lie within this of straight ahead, and ask for a heading within it (AME-2, episode setup)."""
_FAST_OPTIONS: dict[str, dict[str, Any]] = {"mujoco": {"visuals": False}}
"""These episodes are not rendered."""


@runtime_checkable
class _HasPlace(HasGroundTruth, Protocol):
    """A simulated robot that also knows where it is."""

    @property
    def pos_base_in_world_m(self) -> FloatArray:
        """Shape (3,)."""
        ...


class _WalkingScenario(Scenario):
    """Common part of both sorts."""

    drawn = ("noise", "friction", "added_mass_kg", "seed")
    conditions = "with sensor noise, friction and payload drawn for each"
    command_kind: str
    """Kind of command that the policy follows."""
    needs: Any = HasGroundTruth
    """Capability of the robot."""

    def __init__(self, runner: PolicyRunner, config: RolloutConfig) -> None:
        kind = runner.contract.command.kind
        if kind != self.command_kind:
            raise ContractError(f"The policy follows '{kind}', expected '{self.command_kind}'.")
        super().__init__(runner, config)

    def make_robot(self, index: int) -> Robot:
        """See :meth:`Scenario.make_robot`."""
        config, rng = self.config, np.random.default_rng((self.config.seed, index))
        drawn = {
            "noise": config.noise,
            "friction": float(rng.uniform(*config.friction)),
            "added_mass_kg": float(rng.uniform(*config.added_mass_share)) * self.runner.spec.mass_kg,
            "seed": int(rng.integers(2**31)),
        }
        fast = _FAST_OPTIONS.get(config.backend, {})
        self._truth = self.build(self.needs, "knows no ground truth", **fast, **drawn)
        self._drawn = {name: float({**drawn, **config.fixed_options}[name]) for name in ("friction", "added_mass_kg")}
        self._draw(rng)
        return self._truth

    def drawn_conditions(self) -> dict[str, Any]:
        """Friction and payload."""
        return dict(self._drawn)

    def _draw(self, rng: np.random.Generator) -> None:
        """Draw what is asked in the episode that begins."""
        raise NotImplementedError

    def _end(self, fallen: bool) -> End | None:
        if not fallen:
            return None
        _, x, y, _ = self._truth.quat_base_to_world_wxyz
        tilt_deg = math.degrees(math.acos(float(np.clip(1.0 - 2.0 * (x * x + y * y), -1.0, 1.0))))
        return End(f"fell: base at {self._truth.base_height_m:.2f} m, tilted by {tilt_deg:.0f} degrees")

    @staticmethod
    def _line(episode: Episode, scores: str) -> str:
        drawn = episode.conditions
        return f"{scores}  friction {drawn['friction']:.2f}  payload {drawn['added_mass_kg']:+.2f} kg"


class VelocityScenario(_WalkingScenario):
    """Random velocities to follow."""

    command_kind = BODY_VELOCITY
    perturbed_seconds = 6.0

    def _draw(self, rng: np.random.Generator) -> None:
        config = self.config
        self._commands = draw_commands(self.runner.contract.command, rng, config.seconds, config.resample_s)
        self._scores = EpisodeScores(np.zeros((1, 1)), self.runner.spec.fall_height_m)

    def command(self, time_s: float) -> FloatArray:
        """See :meth:`Scenario.command`."""
        return [values for start_s, values in self._commands if start_s <= time_s + 1e-9][-1]

    def judge(self, command: FloatArray) -> End | None:
        """A fall ends the episode; the command (c,) is in the contract's units."""
        fallen = self._scores.update(
            self._truth.true_lin_vel_base_in_base_m_s[None],
            self._truth.true_ang_vel_base_in_base_rad_s[None],
            self._truth.quat_base_to_world_wxyz[None],
            np.array([self._truth.base_height_m]),
            command[None],
        )
        return self._end(bool(fallen[0]))

    def measured(self, failed: bool) -> dict[str, Any]:
        """Mean errors of planar velocity and yaw rate; NaN if the policy never ran."""
        found = self._scores
        return {name: float(getattr(found, name)[0]) for name in ("lin_vel_error_m_s", "yaw_rate_error_rad_s")}

    def summarise(self, episodes: Sequence[Episode]) -> TrackingScores:
        """Means with confidence intervals; an episode that a fault ended counts as a fall."""
        return tracking_scores(
            [episode.scores["lin_vel_error_m_s"] for episode in episodes],
            [episode.scores["yaw_rate_error_rad_s"] for episode in episodes],
            [episode.failed for episode in episodes],
            seed=self.config.seed,
        )

    @staticmethod
    def line(episode: Episode) -> str:
        """See :meth:`Scenario.line`."""
        errors = episode.scores
        text = f"{errors['lin_vel_error_m_s']:.3f} m/s  {errors['yaw_rate_error_rad_s']:.3f} rad/s"
        return _WalkingScenario._line(episode, text)


class GoalScenario(_WalkingScenario):
    """One goal in each episode: one of the terrain's own, or on a plane a place drawn ahead of the robot."""

    command_kind = BODY_POSE
    needs = _HasPlace
    counts_success = True
    perturbed_episodes = 3

    def _draw(self, rng: np.random.Generator) -> None:
        self._goal = draw_goal(np.asarray(getattr(self._truth, "goals_in_world_m", np.zeros((0, 3)))), rng)
        self._last = np.full(4, np.nan)

    def begin(self, controller: Controller) -> None:
        """See :meth:`Scenario.begin`."""
        controller.set_goal(self._goal)

    def judge(self, command: FloatArray) -> End | None:
        """A fall ends the episode; the command (c,) is in the contract's units."""
        quat = self._truth.quat_base_to_world_wxyz[None]
        place = np.array([[self._goal.x_in_world_m, self._goal.y_in_world_m, 0.0]])
        yaw = np.array([self._goal.yaw_in_world_rad])
        self._last = goal_command(place, yaw, self._truth.pos_base_in_world_m[None], quat)[0]
        height = np.array([self._truth.base_height_m])
        return self._end(bool(has_fallen(quat, height, self.runner.spec.fall_height_m)[0]))

    def measured(self, failed: bool) -> dict[str, Any]:
        """Distance and heading error at the end, NaN if the policy never ran, and whether the robot stood there."""
        distance, error = (float(values[0]) for values in goal_errors(self._last[None]))
        reached = not failed and bool(goal_reached(self._last[None])[0])
        return {"reached": reached, "distance_m": distance, "heading_error_rad": error}

    def drawn_conditions(self) -> dict[str, Any]:
        """Friction, payload and goal."""
        return {**super().drawn_conditions(), "goal": self._goal}

    def summarise(self, episodes: Sequence[Episode]) -> GoalScores:
        """Rates with confidence intervals."""
        return goal_scores([item.scores["reached"] for item in episodes], [item.failed for item in episodes])

    @staticmethod
    def line(episode: Episode) -> str:
        """See :meth:`Scenario.line`."""
        found = episode.scores
        word = "reached" if found["reached"] else "missed "
        text = f"{word}  {found['distance_m']:.2f} m  {found['heading_error_rad']:.2f} rad"
        return _WalkingScenario._line(episode, text)


def draw_commands(
    spec: CommandSpec, rng: np.random.Generator, seconds: float, resample_s: tuple[float, float]
) -> list[tuple[float, FloatArray]]:
    """Commands drawn evenly from the trained range: start time in seconds, the first at 0, and values (c,)."""
    schedule, time_s = [], 0.0
    while time_s < seconds:
        schedule.append((time_s, rng.uniform(spec.lower, spec.upper)))
        time_s += rng.uniform(*resample_s)
    return schedule


def draw_goal(places_m: NDArray[np.float64], rng: np.random.Generator) -> Goal:
    """A goal for a robot at the origin that looks along x.

    Args:
        places_m: Shape (goals, 3), the terrain's goals; none for a plane, where any place ahead will do.
        rng: Draws.
    """
    turn = rng.uniform(-CONE_RAD, CONE_RAD)
    if len(places_m):
        x, y, _ = places_m[int(rng.integers(len(places_m)))].tolist()
        return Goal(x, y, turn)
    distance, bearing = rng.uniform(*DISTANCE_M), rng.uniform(-CONE_RAD, CONE_RAD)
    return Goal(distance * math.cos(bearing), distance * math.sin(bearing), turn)

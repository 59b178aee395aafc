"""Episodes of a policy in a simulated robot, through the runtime's own loop and safety, under changing conditions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import BODY_VELOCITY, CommandSpec, PolicyContract
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Event, Mode, SafetyMachine
from gantry_deploy.errors import ContractError, SafetyError
from gantry_deploy.evaluation.metrics import EpisodeScores, TrackingScores, tracking_scores
from gantry_deploy.perception.maps import make_map_source, needs_map
from gantry_deploy.perception.road import SurroundingsSource
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backend import Robot
from gantry_hardware.backends import make_backend
from gantry_hardware.bounds import MAX_SEED, Range, check_fields
from gantry_hardware.errors import RobotError

FloatArray = NDArray[np.float64]

START_PATIENCE_S = 1.0
"""Time after standing up for which a refused start is tried again, while the legs settle."""
DRAWN_OPTIONS = ("noise", "friction", "added_mass_kg", "seed")
"""Options that are drawn for each episode; a backend for episodes takes all of them."""
_FAST_OPTIONS: dict[str, dict[str, Any]] = {"mujoco": {"visuals": False}}
# These episodes are not rendered.
_CAMERA_OPTIONS: dict[str, dict[str, Any]] = {"mujoco": {"camera": True}}


@runtime_checkable
class GroundTruth(Protocol):
    """Ground truth of a simulated robot beside its sensors, at the present of its clock."""

    @property
    def true_lin_vel_base_in_base_m_s(self) -> FloatArray:
        """Shape (3,), velocity of the base frame's origin over the world, along the base's axes [m/s]."""
        ...

    @property
    def true_ang_vel_base_in_base_rad_s(self) -> FloatArray:
        """Shape (3,), angular velocity of the base over the world, along the base's axes [rad/s]."""
        ...

    @property
    def quat_base_to_world_wxyz(self) -> FloatArray:
        """Shape (4,), unit quaternion from the base to the world frame."""
        ...

    @property
    def base_height_m(self) -> float:
        """Of the base's origin above the ground."""
        ...


ROLLOUT_RANGES = {
    "episodes": Range(1, 100_000),
    "seconds": Range(0.001, 86_400.0),
    "seed": Range(0, MAX_SEED),
    "noise": Range(0.0, 100.0),
}
"""Ranges of the values that may be set, by field."""


@dataclass(frozen=True)
class RolloutConfig:
    """Number of episodes, and their differences; friction and payload are drawn anew for each."""

    backend: str = "mujoco"
    """Simulated robot that knows its ground truth and takes ``noise``, ``friction``, ``added_mass_kg``, ``seed``."""
    episodes: int = 20
    """Number of episodes."""
    seconds: float = 20.0
    """Time under the policy in each."""
    seed: int = 0
    """Of everything that is drawn; equal seeds give equal episodes."""
    noise: float = 1.0
    """Sensor noise, in units of what policies are commonly trained with."""
    friction: tuple[float, float] = (0.4, 1.25)
    """Range of the sliding friction between feet and floor."""
    added_mass_share: tuple[float, float] = (-0.06, 0.13)
    """Range of the payload in units of the robot's mass: about -1 to +2 kg on a quadruped of 15 kg."""
    resample_s: tuple[float, float] = (4.0, 6.0)
    """A new command comes after a time drawn from this range."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the backend, the same in all episodes; they win over what is drawn."""

    def __post_init__(self) -> None:
        check_fields(self, ROLLOUT_RANGES, "Rollout setting ")


@dataclass(frozen=True)
class Episode:
    """Outcome of one episode."""

    friction: float
    """Between feet and floor."""
    added_mass_kg: float
    """Payload."""
    seconds: float
    """Time under the policy."""
    lin_vel_error_m_s: float
    """Mean planar velocity error; NaN if the policy never ran."""
    yaw_rate_error_rad_s: float
    """Mean yaw-rate error; NaN if the policy never ran."""
    failed: bool
    """Whether it ended early: by a fall, by a fault that damped the robot, or before the policy could start."""
    fault: str = ""
    """Code of the fault that damped the robot; empty if none did."""
    reason: str = ""
    """Reason for an early end, for people; empty if there was none."""


@dataclass(frozen=True)
class RolloutResult:
    """All episodes and their scores."""

    episodes: tuple[Episode, ...]
    """In order."""
    scores: TrackingScores
    """Means with confidence intervals; an episode that a fault ended counts as a fall."""

    @property
    def faults(self) -> dict[str, int]:
        """Number of times that each kind of fault damped the robot."""
        return count_faults(episode.fault for episode in self.episodes)


def count_faults(codes: Iterable[str]) -> dict[str, int]:
    """Count each code, sorted; empty codes are none."""
    return dict(sorted(Counter(code for code in codes if code).items()))


def run_episodes(
    runner: PolicyRunner, config: RolloutConfig, on_episode: Callable[[int, Episode], None] | None = None
) -> RolloutResult:
    """Run every episode: stand up, then the policy under random commands until it falls or the time is over.

    Args:
        runner: The policy; its robot is simulated.
        config: Conditions.
        on_episode: Told of each episode that is over, with its index.

    Raises:
        ContractError: If the policy does not follow velocity commands.
        RobotError: If the backend is missing or knows no ground truth.
    """
    if runner.contract.command.kind != BODY_VELOCITY:
        raise ContractError(f"The policy follows '{runner.contract.command.kind}', expected '{BODY_VELOCITY}'.")
    episodes = []
    for index in range(config.episodes):
        episode = _run_episode(runner, config, index)
        episodes.append(episode)
        if on_episode is not None:
            on_episode(index, episode)
    scores = tracking_scores(
        [episode.lin_vel_error_m_s for episode in episodes],
        [episode.yaw_rate_error_rad_s for episode in episodes],
        [episode.failed for episode in episodes],
        seed=config.seed,
    )
    return RolloutResult(tuple(episodes), scores)


def perception_options(contract: PolicyContract, backend: str) -> dict[str, Any]:
    """Options that give a simulated robot the eyes that a policy needs; none for one that looks at no map."""
    return dict(_CAMERA_OPTIONS.get(backend, {})) if needs_map(contract) else {}


def draw_commands(
    spec: CommandSpec, rng: np.random.Generator, seconds: float, resample_s: tuple[float, float]
) -> list[tuple[float, FloatArray]]:
    """Commands drawn evenly from the trained range: start time in seconds, the first at 0, and values (c,)."""
    schedule, time_s = [], 0.0
    while time_s < seconds:
        schedule.append((time_s, rng.uniform(spec.lower, spec.upper)))
        time_s += rng.uniform(*resample_s)
    return schedule


def draw_robot(runner: PolicyRunner, config: RolloutConfig, rng: np.random.Generator) -> tuple[Robot, dict[str, Any]]:
    """A robot for one episode, not yet connected, and the options that it was made with.

    Raises:
        RobotError: If the backend is missing or knows no ground truth.
    """
    drawn = {
        "noise": config.noise,
        "friction": float(rng.uniform(*config.friction)),
        "added_mass_kg": float(rng.uniform(*config.added_mass_share)) * runner.spec.mass_kg,
        "seed": int(rng.integers(2**31)),
    }
    seeing = perception_options(runner.contract, config.backend)
    options = {**_FAST_OPTIONS.get(config.backend, {}), **seeing, **drawn, **config.options}
    robot = make_backend(config.backend, runner.spec, **options)
    if not isinstance(robot, GroundTruth):
        needed = [name for name in dir(GroundTruth) if name in GroundTruth.__dict__ and not name.startswith("_")]
        raise RobotError(f"Backend '{config.backend}' knows no ground truth; it needs: {', '.join(needed)}.")
    return robot, options


def _run_episode(runner: PolicyRunner, config: RolloutConfig, index: int) -> Episode:
    rng = np.random.default_rng((config.seed, index))
    robot, options = draw_robot(runner, config, rng)
    commands = draw_commands(runner.contract.command, rng, config.seconds, config.resample_s)
    watch = _TrackingWatch(robot, runner, commands, config.seconds)
    watch.run()
    return Episode(
        friction=float(options["friction"]),
        added_mass_kg=float(options["added_mass_kg"]),
        seconds=watch.steps / runner.contract.rate_hz,
        lin_vel_error_m_s=float(watch.scores.lin_vel_error_m_s[0]),
        yaw_rate_error_rad_s=float(watch.scores.yaw_rate_error_rad_s[0]),
        failed=bool(watch.reason),
        fault=watch.fault,
        reason=watch.reason,
    )


class EpisodeWatch:
    """Drives a controller through one episode: stand up, then the policy, until it falls or its time is over.

    Args:
        robot: Simulated, not yet connected; it is closed after :meth:`run`.
        runner: The policy.
        seconds: Time under the policy.
        surroundings: What a car's policy sees beside the car; a car tells its truth in its own way.
    """

    def __init__(
        self, robot: Robot, runner: PolicyRunner, seconds: float, surroundings: SurroundingsSource | None = None
    ) -> None:
        assert surroundings is not None or isinstance(robot, GroundTruth)
        self._truth: Any = robot
        self._contract: PolicyContract = runner.contract
        eyes = make_map_source(runner.contract, robot, runner.mapper_model)
        self.controller = Controller(
            robot, runner, SafetyMachine(runner.spec), map_source=eyes, surroundings=surroundings
        )
        """The loop."""
        self._total = max(1, round(seconds * runner.contract.rate_hz))
        self._asked: FloatArray | None = None
        self._standing_since_s: float | None = None
        self.steps = 0
        """Control steps that were scored."""
        self.fault, self.reason = "", ""

    def run(self) -> None:
        """Run the episode; the outcome is in the attributes."""
        robot = self.controller.robot
        try:
            robot.connect()
            self._run()
        finally:
            robot.close()

    def command(self, time_s: float) -> FloatArray | None:
        """Command for the policy ``time_s`` after it has started, shape (c,); None for nothing new."""
        raise NotImplementedError

    def score(self, command: FloatArray) -> bool:
        """Score a step that asked for ``command`` (c,), in the contract's units; True, a bool, if the robot has
        fallen.
        """
        raise NotImplementedError

    def _run(self) -> None:
        report = self.controller.tick()  # Look at the robot once, so that a fault refuses the stand by its reason.
        try:
            self.controller.request(Event.STAND)
        except SafetyError as error:
            self._end(str(error), report)
            return
        self.controller.run(command_input=self._command, on_tick=self._on_tick)

    def _command(self, time_s: float) -> FloatArray | None:
        if self.controller.safety.mode is not Mode.POLICY:
            return None
        # The tick that is about to begin is number `steps` of the policy, plus one that is still unscored.
        return self.command((self.steps + (self._asked is not None)) / self._contract.rate_hz)

    def _on_tick(self, report: TickReport) -> None:
        fallen = False
        if self._asked is not None:
            fallen = self.score(self._asked)
            self.steps += 1
        self._asked = report.requested if report.mode is Mode.POLICY else None
        if report.mode is Mode.DAMP:
            self._end(report.fault.text if report.fault is not None else "damped", report)
        elif report.mode is Mode.STAND:
            self._while_standing(report)
        elif fallen:
            self._end(self._fall_text(), report)
        elif self.steps >= self._total:
            self.controller.stop()

    def _while_standing(self, report: TickReport) -> None:
        over_s = self._stood_s(report)
        if over_s < 0.0:
            return
        try:
            self.controller.request(Event.START)
        except SafetyError as error:
            if over_s >= START_PATIENCE_S:
                self._end(str(error), report)

    def _stood_s(self, report: TickReport) -> float:
        """Time since standing up was over; negative before."""
        if self._standing_since_s is None:
            self._standing_since_s = report.time_s
        return report.time_s - self._standing_since_s - self.controller.stand_duration_s

    def _end(self, reason: str, report: TickReport) -> None:
        self.reason = reason
        self.fault = report.fault.code.value if report.mode is Mode.DAMP and report.fault is not None else ""
        self.controller.stop()

    def _fall_text(self) -> str:
        _, x, y, _ = self._truth.quat_base_to_world_wxyz
        tilt_deg = math.degrees(math.acos(float(np.clip(1.0 - 2.0 * (x * x + y * y), -1.0, 1.0))))
        return f"fell: base at {self._truth.base_height_m:.2f} m, tilted by {tilt_deg:.0f} degrees"


class _TrackingWatch(EpisodeWatch):
    """Follows a schedule of velocities."""

    def __init__(
        self, robot: Robot, runner: PolicyRunner, commands: list[tuple[float, FloatArray]], seconds: float
    ) -> None:
        super().__init__(robot, runner, seconds)
        self._commands = commands
        self.scores = EpisodeScores(np.zeros((1, 1)), runner.spec.fall_height_m)

    def command(self, time_s: float) -> FloatArray | None:
        return [values for start_s, values in self._commands if start_s <= time_s + 1e-9][-1]

    def score(self, command: FloatArray) -> bool:
        fallen = self.scores.update(
            self._truth.true_lin_vel_base_in_base_m_s[None],
            self._truth.true_ang_vel_base_in_base_rad_s[None],
            self._truth.quat_base_to_world_wxyz[None],
            np.array([self._truth.base_height_m]),
            command[None],
        )
        return bool(fallen[0])

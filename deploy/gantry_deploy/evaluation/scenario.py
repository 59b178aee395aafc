"""Episodes of a policy in a simulated robot: their conditions, their outcome, and what a scenario decides of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.parts import Acceptance
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.loop import Controller
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.evaluation.metrics import Verdict
from gantry_deploy.evaluation.perturbations.perturbation import Perturbation
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.errors import RobotError
from gantry_hardware.files.bounds import MAX_SEED, Range, check_fields
from gantry_hardware.model.capabilities import C, capability, missing_methods
from gantry_hardware.plugins import load_named

FloatArray = NDArray[np.float64]

PERTURBATION_STREAM, PUSH_STREAM = 1, 2
"""Last numbers of the seeds of a perturbation's draws and of its pushes, apart from those of an episode."""
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
    """Simulated robot that takes the options that its scenario draws."""
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
    perturbation: Perturbation | None = None
    """Perturbation of the robot in all episodes, which wins over ``options``; None for none."""

    def __post_init__(self) -> None:
        check_fields(self, ROLLOUT_RANGES, "Rollout setting ")

    @property
    def fixed_options(self) -> dict[str, Any]:
        """Options of the backend that are not drawn, those of the perturbation included."""
        return {**self.options, **(self.perturbation.options if self.perturbation is not None else {})}


@dataclass(frozen=True)
class Episode:
    """Outcome of one episode."""

    seconds: float
    """Time under the policy."""
    failed: bool
    """Whether it ended early: by a fall, a collision, a lost object, a fault, or before the policy could start."""
    fault: str = ""
    """Code of the fault that stopped the robot; empty if none did."""
    reason: str = ""
    """Reason for an early end, for people; empty if there was none."""
    scores: Mapping[str, Any] = field(default_factory=dict)
    """Measurements of the scenario, by name with unit."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Draws for it, by name with unit."""


class Scores(Protocol):
    """Scores of a set of episodes; a dataclass."""

    def verdicts(self, acceptance: Acceptance) -> list[Verdict]:
        """Scores against the thresholds of a contract; none without thresholds."""
        ...


class PerturbedScores(Scores, Protocol):
    """Scores of a scenario with perturbations."""

    def perturbed_verdicts(self, acceptance: Acceptance) -> list[Verdict]:
        """Scores under a perturbation against their thresholds; none without thresholds."""
        ...

    @property
    def severity(self) -> tuple[float, ...]:
        """Numbers that order results from good to bad."""
        ...

    @property
    def line(self) -> str:
        """The scores in one line, for people."""
        ...


@dataclass(frozen=True)
class RolloutResult:
    """All episodes and their scores."""

    episodes: tuple[Episode, ...]
    """In order."""
    scores: Any
    """Means and rates with confidence intervals, :class:`Scores`."""
    short_of_s: float | None = None
    """Duration of the task's episodes, where these were asked to end earlier; None where they were not."""

    @property
    def faults(self) -> dict[str, int]:
        """Number of episodes that each kind of fault ended, by code, sorted."""
        return dict(sorted(Counter(episode.fault for episode in self.episodes if episode.fault).items()))


@dataclass(frozen=True)
class End:
    """An episode that is over before its time."""

    text: str = ""
    """Reason for a failure; empty where the policy has done what it was to do."""


class Scenario:
    """Episodes of one sort: which robot, what is asked of the policy, when it is over, and what counts.

    Args:
        runner: The policy.
        config: Conditions.

    Raises:
        ContractError: If the policy is of another sort.
    """

    drawn: tuple[str, ...] = ("noise", "seed")
    """Options that a backend must take."""
    seconds: float = 20.0
    """Time under the policy, unless asked otherwise."""
    conditions: str = "with noise drawn for each"
    """Differences between episodes, for people."""
    unused: tuple[str, ...] = ()
    """Fields of :class:`RolloutConfig` that do not count."""
    perturbed_episodes: int = 5
    """Episodes under each perturbation, unless asked otherwise; fewer than the nominal ones."""
    perturbed_seconds: float | None = None
    """Time under the policy in each of them; None for that of the nominal ones, as where a task needs it."""
    counts_success: bool = False
    """Whether episodes succeed or not, so that ``min_success_rate`` is the threshold."""

    def __init__(self, runner: PolicyRunner, config: RolloutConfig) -> None:
        self.runner, self.config = runner, config
        self._built = 0

    def make_robot(self, index: int) -> Robot:
        """The robot of an episode, not yet connected.

        Raises:
            RobotError: If the backend is missing or lacks a capability.
        """
        raise NotImplementedError

    def length_s(self) -> float:
        """Time under the policy in the episode that begins."""
        return self.config.seconds

    def begin(self, controller: Controller) -> None:
        """An episode begins with a robot that is not connected yet: set its goal, or what stays asked for."""

    def stood_up(self) -> None:
        """The robot has taken its stand; the policy is about to start."""

    def command(self, time_s: float) -> FloatArray | None:
        """Command for the policy ``time_s`` after it has started, shape (c,); None for nothing new."""
        return None

    def judge(self, command: FloatArray) -> End | None:
        """Score a control step that asked for ``command`` (c,), in the contract's units; the end, if it is one."""
        raise NotImplementedError

    def measured(self, failed: bool) -> dict[str, Any]:
        """Scores of the episode that has ended."""
        raise NotImplementedError

    def drawn_conditions(self) -> dict[str, Any]:
        """Draws for the episode that has ended."""
        return {}

    def summarise(self, episodes: Sequence[Episode]) -> Scores:
        """Scores of all episodes."""
        raise NotImplementedError

    def short_of_s(self) -> float | None:
        """See :attr:`RolloutResult.short_of_s`."""
        return None

    @staticmethod
    def line(episode: Episode) -> str:
        """An episode in words, without its reason."""
        raise NotImplementedError

    def build(self, needs: type[C], purpose: str, **options: Any) -> C:
        """A simulated robot with a capability.

        Args:
            needs: The capability.
            purpose: What is missing without it, for the message.
            options: Of the backend, before those of the policy and of the configuration.

        Raises:
            RobotError: If the backend is missing or lacks the capability.
        """
        contract, backend = self.runner.contract, self.config.backend
        suitable = self.runner.embodiment.backend_options(contract, backend)
        merged, perturbation = {**options, **suitable, **self.config.options}, self.config.perturbation
        if perturbation is not None:
            rng = np.random.default_rng((self.config.seed, self._built, PERTURBATION_STREAM))
            merged = perturbation.applied(merged, self.runner.spec, rng)
        self._built += 1
        robot = make_backend(backend, self.runner.spec, **merged)
        found = capability(robot, needs)
        if found is None:
            lacks = ", ".join(missing_methods(robot, needs))
            raise RobotError(f"Backend '{backend}' {purpose}; it lacks: {lacks}.")
        return found


def scenario_class(contract: PolicyContract) -> type[Scenario]:
    """The scenario in which a contract's policy is checked."""
    return load_named(embodiment_of(contract).scenario(contract))

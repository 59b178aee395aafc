"""Parts of a correction session: everything that differs between robots, tasks and places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.operator_maps import OperatorMap
from gantry_deploy.embodiments.simulated_task import TaskJudge
from gantry_deploy.session.resets import Resetter
from gantry_deploy.session.snapshot import LearnerFacts
from gantry_deploy.session.steps import Observation, SessionStep
from gantry_deploy.teleop.operator import TeleopDevice


class StepSink(Protocol):
    """Receiver of steps; it must neither block nor raise."""

    def take(self, step: SessionStep) -> None:
        """Take a step, in order."""
        ...

    def discard(self, episode: int) -> None:
        """Forget an attempt that will be recorded again, where that is possible."""
        ...


@runtime_checkable
class SeeingJudge(Protocol):
    """Judge that looks at every step: a reward classifier."""

    probability: float | None
    """Probability of success in the last step, 0 to 1; None before the first one of an attempt."""

    def begin(self) -> None:
        """An attempt begins."""
        ...

    def see(self, obs: Observation) -> float:
        """Look at a step; the probability of success, 0 to 1."""
        ...

    def veto(self) -> None:
        """Take back a success."""
        ...


@dataclass
class SessionParts:
    """Everything that differs between robots, tasks and places."""

    contract: PolicyContract
    """The policy's."""
    device: TeleopDevice
    """The operator's device."""
    operator_map: OperatorMap
    """From the device to actions."""
    resetter: Resetter
    """Way back to a start."""
    judge: TaskJudge | None = None
    """Verdicts of a simulator or a reward classifier; None where a person alone judges."""
    sinks: Sequence[StepSink] = ()
    """Receivers of steps."""
    learner: Callable[[], LearnerFacts] = LearnerFacts
    """Facts about the learner."""
    parameters: Callable[[], tuple[int, str]] = lambda: (0, "")
    """Version and SHA-256 of the weights that act."""
    disagreement: Callable[[], float | None] = lambda: None
    """Spread of the critic's heads at the last action."""
    adopt: Callable[[], None] = lambda: None
    """Called between two attempts, and before every step outside of them: newer weights may begin to act."""
    task: str = ""
    """Task, in words."""

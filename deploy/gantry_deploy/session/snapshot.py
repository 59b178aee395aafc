"""Facts about a running session, for the terminal, the web page, ROS 2 diagnostics, and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LearnerFacts:
    """Facts about the learner, from its last answer."""

    connected: bool = False
    """Whether it answered within the deadline."""
    age_s: float = 0.0
    """Time since its last answer."""
    updates: int = 0
    """Critic updates so far."""
    updates_per_s: float = 0.0
    """Updates per second lately."""
    transitions: int = 0
    """Transitions in its buffers."""
    corrections: int = 0
    """Those of them in which a person acted."""
    parameters_version: int = 0
    """Version of the newest weights."""
    parameters_sha256: str = ""
    """SHA-256 of those weights."""
    waiting: int = 0
    """Steps on this side that the learner has not acknowledged yet."""
    text: str = ""
    """Present activity, in words."""


@dataclass(frozen=True)
class SessionSnapshot:
    """State of a session at one moment; immutable, so that any thread may read it."""

    time_s: float = 0.0
    """Time since the session began, on the robot's clock."""
    state: str = ""
    """A name of :class:`gantry_deploy.session.states.SessionState`."""
    actor: str = ""
    """``policy``, ``person``, or empty while neither acts."""
    mode: str = ""
    """Mode of the safety machine."""
    fault: str = ""
    """Fault that stopped the robot, in words; empty without one."""
    possible: tuple[str, ...] = ()
    """Events (:class:`gantry_deploy.teleop.operator.TeleopEvent`) that the present state accepts."""
    robot: str = ""
    """Name of the robot."""
    task: str = ""
    """Name of the task."""
    device: str = ""
    """Name of the operator's device."""
    device_help: tuple[str, ...] = ()
    """Lines that explain the device."""
    episode: int = 0
    """Number of the attempt."""
    step: int = 0
    """Number of the step in it."""
    attempts: int = 0
    """Finished attempts."""
    successes: int = 0
    """Those that succeeded, with or without help."""
    successes_alone: int = 0
    """Those that succeeded without any correction."""
    success_rate: float | None = None
    """Share of the last 20 finished attempts that succeeded; None before the first."""
    intervention_rate: float | None = None
    """Share of the steps of the last 20 finished attempts in which a person acted; None before the first."""
    person_s: float = 0.0
    """Time in which a person has acted, on the robot's clock."""
    reward: float = 0.0
    """Reward of the last step."""
    classifier: float | None = None
    """Probability of success that a reward classifier gives; None without one."""
    advice: str = ""
    """Advice to the person, for example to step in; empty for none."""
    disagreement: float | None = None
    """Disagreement of the critic's heads relative to its usual one; None where it is not known."""
    parameters_version: int = 0
    """Version of the weights that act."""
    parameters_sha256: str = ""
    """SHA-256 of those weights."""
    cameras: tuple[str, ...] = ()
    """Cameras whose pictures can be shown."""
    joints: Mapping[str, float] = field(default_factory=dict)
    """Joint positions by name, rad and, where a joint slides, m."""
    axes: Mapping[str, float] = field(default_factory=dict)
    """Motion that the device asks for, by axis, in [-1, 1]."""
    learner: LearnerFacts = field(default_factory=LearnerFacts)
    """Facts about the learner."""
    log: tuple[str, ...] = ()
    """Latest events with their reasons, oldest first; at most 20."""

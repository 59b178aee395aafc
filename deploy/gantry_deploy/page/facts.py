"""Words for a session's snapshot, written once for the web page and the terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gantry_deploy.control.modes import Mode
from gantry_deploy.session.snapshot import LearnerFacts, SessionSnapshot
from gantry_deploy.session.states import SessionState
from gantry_hardware.files.text import printable

TEXT_LIMIT = 400
"""Characters of a text that are shown."""
MOST_LINES = 40
"""Lines of a list that are shown."""
STALE_S = 1.0
"""Age from which a snapshot is loudly called old."""
HASH_DIGITS = 8
"""Digits of a hash that are shown."""

_STATES: dict[str, tuple[str, str]] = {
    SessionState.RESETTING: ("Resetting", "quiet"),
    SessionState.READY: ("Ready", "quiet"),
    SessionState.AUTONOMOUS: ("Policy acts", "policy"),
    SessionState.CORRECTING: ("You act", "person"),
    SessionState.PAUSED: ("Paused", "pause"),
    SessionState.STOPPED: ("Stopped", "bad"),
    SessionState.CLOSED: ("Session is over", "quiet"),
}


@dataclass(frozen=True)
class Fact:
    """One number or text with its name."""

    label: str
    """Name of the quantity."""
    value: str
    """Value with unit."""
    tone: str = ""
    """``good``, ``warn``, ``bad``, or empty."""
    note: str = ""
    """Small print."""


@dataclass(frozen=True)
class SessionView:
    """Everything that is shown of a snapshot, in words."""

    headline: str
    """State and source of the action, in two or three words."""
    tone: str
    """Colour of the headline: ``policy``, ``person``, ``pause``, ``quiet`` or ``bad``."""
    detail: str
    """Attempt, step and time."""
    about: str
    """Robot, task and device."""
    alarms: tuple[str, ...]
    """Everything loud: faults, a lost learner."""
    scores: tuple[Fact, ...]
    """Success, interventions, the person's time, reward."""
    learner: tuple[Fact, ...]
    """Present work of the learner."""
    advice: str
    """Advice to the person; empty for none."""
    disagreement: float | None
    """Disagreement of the critic's heads relative to its usual one."""
    joints: tuple[Fact, ...] = ()
    """Joint positions."""
    axes: dict[str, float] = field(default_factory=dict)
    """Motion that the device asks for, in [-1, 1]."""
    log: tuple[str, ...] = ()
    """Latest events, oldest first."""
    help: tuple[str, ...] = ()
    """Key map of the device."""
    possible: tuple[str, ...] = ()
    """Events that the present state accepts."""
    cameras: tuple[str, ...] = ()
    """Names of cameras."""
    acts: bool = False
    """Whether a person acts."""
    stopped: bool = False
    """Whether the safety machine has stopped the robot."""


def view_of(snapshot: SessionSnapshot) -> SessionView:
    """The snapshot in words."""
    headline, tone = _STATES.get(snapshot.state, (_short(snapshot.state) or "Starting", "quiet"))
    about = (snapshot.robot, snapshot.task, snapshot.device)
    where = f"attempt {snapshot.episode + 1} · step {snapshot.step}" if snapshot.state else ""
    detail = " · ".join(part for part in (where, clock(snapshot.time_s), snapshot.mode) if part)
    return SessionView(
        headline,
        "bad" if snapshot.fault else tone,
        _short(detail),
        " · ".join(_short(part) for part in about if part),
        alarms_of(snapshot),
        _scores(snapshot),
        _learner(snapshot),
        _short(snapshot.advice),
        finite(snapshot.disagreement),
        tuple(Fact(_short(name), number(value, 3)) for name, value in list(snapshot.joints.items())[:MOST_LINES]),
        {_short(name): finite(value) or 0.0 for name, value in list(snapshot.axes.items())[:MOST_LINES]},
        tuple(_short(line) for line in snapshot.log[-MOST_LINES:]),
        tuple(_short(line) for line in snapshot.device_help[:MOST_LINES]),
        snapshot.possible,
        tuple(snapshot.cameras[:MOST_LINES]),
        snapshot.state == SessionState.CORRECTING,
        is_stopped(snapshot),
    )


def is_stopped(snapshot: SessionSnapshot) -> bool:
    """Whether the snapshot shows a robot that neither policy nor person moves: stopped, damped, or never started."""
    over = (SessionState.STOPPED, SessionState.CLOSED)
    return snapshot.state in over or snapshot.mode in (Mode.DAMP, Mode.PASSIVE)


def has_learner(snapshot: SessionSnapshot) -> bool:
    """Whether the session has a learner; one without it gives empty facts."""
    return snapshot.learner != LearnerFacts()


def alarms_of(snapshot: SessionSnapshot) -> tuple[str, ...]:
    """Loud lines of a snapshot."""
    found = [f"Fault: {_short(snapshot.fault)}"] if snapshot.fault else []
    learner = snapshot.learner
    if has_learner(snapshot) and not learner.connected:
        waiting = f"; {learner.waiting} steps wait here" if learner.waiting else ""
        reason = f" ({_short(learner.text)})" if learner.text else ""
        found.append(f"The learner is disconnected, last heard of {clock(learner.age_s)} ago{waiting}{reason}.")
    return tuple(found)


def _scores(snapshot: SessionSnapshot) -> tuple[Fact, ...]:
    recent = f"of the last {min(snapshot.attempts, 20)} attempts"
    success = Fact("Success", share(snapshot.success_rate), note=recent if snapshot.attempts else "no attempt yet")
    corrected = Fact("Corrected", share(snapshot.intervention_rate), note="of their steps" if snapshot.attempts else "")
    alone = f"{snapshot.successes_alone} without help"
    attempts = Fact("Attempts", str(snapshot.attempts), note=f"{snapshot.successes} succeeded, {alone}")
    person = Fact("Your time", clock(snapshot.person_s), note="person-seconds" if snapshot.person_s < 60.0 else "")
    reward = Fact("Reward", number(snapshot.reward, 2), "good" if snapshot.reward > 0.0 else "", "of the last step")
    likely = (finite(snapshot.classifier) or 0.0) > 0.5
    note = "no classifier" if snapshot.classifier is None else "probability of success"
    return (
        success,
        corrected,
        attempts,
        person,
        reward,
        Fact("Classifier", share(snapshot.classifier), "good" if likely else "", note),
    )


def _learner(snapshot: SessionSnapshot) -> tuple[Fact, ...]:
    learner = snapshot.learner
    acting = weights(snapshot.parameters_version, snapshot.parameters_sha256)
    if not has_learner(snapshot):
        return Fact("Learner", "none"), Fact("Acting weights", acting)
    old = learner.parameters_version > snapshot.parameters_version
    state = Fact("Learner", "connected", "good") if learner.connected else Fact("Learner", "disconnected", "bad")
    return (
        state,
        Fact("Activity", _short(learner.text) or "-"),
        Fact(
            "Updates", f"{learner.updates:,}".replace(",", "\u202f"), note=f"{number(learner.updates_per_s, 1)} per s"
        ),
        Fact("Transitions", str(learner.transitions), note=f"{learner.corrections} of them corrections"),
        Fact("Acting weights", acting, note="newer ones act from the next attempt" if old else ""),
        Fact("Newest weights", weights(learner.parameters_version, learner.parameters_sha256)),
        Fact("Not acknowledged", f"{learner.waiting} steps", "warn" if learner.waiting > 200 else ""),
        Fact("Last answer", f"{clock(learner.age_s)} ago", "warn" if learner.age_s > 5.0 else ""),
    )


def weights(version: int, sha256: str) -> str:
    """Version and short hash of weights."""
    return f"v{version} {_short(sha256[:HASH_DIGITS])}".rstrip() if version or sha256 else "the bundle's own"


def clock(time_s: float) -> str:
    """A duration for people: ``3.2 s``, ``4:05`` min, ``1:02:03`` h."""
    if not math.isfinite(time_s):
        return "-"
    if time_s < 60.0:
        return f"{time_s:.1f} s" if time_s < 10.0 else f"{time_s:.0f} s"
    minutes, seconds = divmod(int(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} h" if hours else f"{minutes}:{seconds:02d} min"


def share(value: float | None) -> str:
    """A share in percent; a dash where it is not known."""
    known = finite(value)
    return "-" if known is None else f"{100.0 * known:.0f} %"


def number(value: float, digits: int) -> str:
    """A number with so many decimals; a dash where it is none."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def finite(value: float | None) -> float | None:
    """The value; None where it is no finite number, which JSON does not know."""
    return None if value is None or not math.isfinite(value) else float(value)


def _short(text: str) -> str:
    return printable(text, TEXT_LIMIT)

"""Checks of joint readings: order and sign by their own motion and by the motors' law, limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.diagnosis.findings import Diagnosis, FindingKind
from gantry_deploy.diagnosis.relations import Relation, tell_relations
from gantry_deploy.diagnosis.state_log import StateLog

FloatArray = NDArray[np.float64]

LEAST_SPEED_RAD_S = 0.05
"""Root mean square of a joint's speed from which its order and sign can be told."""
LEAST_EFFORT_NM = 0.05
"""Root mean square of a joint's torque from which the motors' law can be judged."""
FITS = 0.35
"""Largest share of a quantity's variation that may be left where a relation holds: sensors are noisy."""
CLEARER = 0.5
"""Another relation is believed if it leaves at most this share of what the expected one leaves."""
LEAST_ROWS = 20
"""Readings from which a relation is told."""
MAX_LAG = 4
"""Most ticks by which a command may act late."""
LEAST_OFFSET_RAD = 0.02
"""Smallest offset of a joint that is told."""
_LIMIT_MARGIN_RAD = 0.15


def check_joints(log: StateLog, diagnosis: Diagnosis) -> None:
    """All checks of joint readings."""
    _check_limits(log, diagnosis)
    check_velocities(log, diagnosis)
    check_motors(log, diagnosis)


def check_velocities(log: StateLog, diagnosis: Diagnosis) -> None:
    """Compare velocities with the change of positions, joint by joint and with every other joint."""
    dt_s = np.diff(log.stamp_s)
    rows = dt_s > 1e-6
    if rows.sum() < LEAST_ROWS:
        diagnosis.unknown("joint velocities", "too few readings")
        return
    change = np.diff(log.joint_pos_rad, axis=0)[rows] / dt_s[rows, None]
    told = 0.5 * (log.joint_vel_rad_s[1:] + log.joint_vel_rad_s[:-1])[rows]
    moving = np.sqrt((change**2).mean(axis=0)) > LEAST_SPEED_RAD_S
    still = np.sqrt((told**2).mean(axis=0)) < 1e-9
    relations: list[Relation] = []
    unclear: list[str] = []
    for joint in np.flatnonzero(moving):
        if still[joint]:
            # A robot that measures torques has servos that know their speed; a car's steering may well not.
            if log.joint_effort_nm.any():
                relations.append(Relation(int(joint), -1, 0, 0.0, 0.0, 0.0))
            else:
                diagnosis.unknown("joint velocities", f"{log.spec.joint_names[joint]} reports none")
            continue
        fits = [_fit(told[:, joint], change[:, other]) for other in range(change.shape[1])]
        best = min(np.flatnonzero(moving), key=lambda other: fits[other].left)
        best = joint if fits[best].left > CLEARER * fits[joint].left else best
        if fits[best].left > FITS:
            unclear.append(log.spec.joint_names[joint])
        else:
            relations.append(Relation(int(joint), int(best), 0, _rounded(fits[best]), 0.0, fits[best].left))
    _tell(diagnosis, log, "joint velocities", relations, unclear, int(moving.sum()), "the change of positions")


def check_motors(log: StateLog, diagnosis: Diagnosis) -> None:
    """Compare torques with the motors' law, torque = stiffness (target - position) - damping velocity, for every joint
    as the one that a command is for, with either sign and some ticks late."""
    pos, vel, effort, stiffness, damping = (log.sent[:, i] for i in range(5))
    commanded = np.asarray(np.isfinite(log.sent).all(axis=(1, 2)) & (stiffness > 0).any(axis=1))
    if commanded.sum() < LEAST_ROWS:
        diagnosis.unknown("joint order and sign", "the robot was not commanded to move in this log")
        return
    torque = np.sqrt((log.joint_effort_nm[commanded] ** 2).mean(axis=0))
    judged = (torque > LEAST_EFFORT_NM) & (np.median(stiffness[commanded], axis=0) > 0)
    if not judged.any():
        diagnosis.unknown("joint order and sign", "the robot reports no torques, by which a joint is known")
        return
    commands = _Commands(pos, vel, effort, stiffness, damping, commanded, log.spec.array("effort_limit_nm"))
    lag = _common_lag(log, commands, judged)
    found = {int(joint): _motor_of(log, commands, int(joint), lag, judged) for joint in np.flatnonzero(judged)}
    # A joint that obeys another one's commands takes them away from it.
    taken = {
        relation.source for relation in found.values() if relation is not None and relation.source != relation.column
    }
    free = judged & ~np.isin(np.arange(len(judged)), list(taken))
    for joint, relation in found.items():
        if joint in taken and relation is not None and relation.source == joint:
            found[joint] = _motor_of(log, commands, joint, lag, free)
    relations = [relation for relation in found.values() if relation is not None]
    unclear = [log.spec.joint_names[joint] for joint, relation in found.items() if relation is None]
    what = "the motors' law"
    _tell(diagnosis, log, "joint order and sign", relations, unclear, int(judged.sum()), what)
    late_s = (lag - 1) * log.dt_s
    # Old readings show what commands do as late as they are old.
    if late_s - max(0.0, float(np.median(log.time_s - log.stamp_s))) > 0.5 * log.dt_s:
        diagnosis.wrong(
            FindingKind.DELAY,
            "commands",
            f"they act {lag - 1} tick{'s' if lag > 2 else ''} ({1e3 * late_s:.0f} ms) later than they were sent, or "
            "readings are that old.",
        )


@dataclass(frozen=True)
class _Commands:
    """Commands (T, n) and which rows have one."""

    pos_rad: FloatArray
    vel_rad_s: FloatArray
    effort_nm: FloatArray
    stiffness_nm_rad: FloatArray
    damping_nm_s_rad: FloatArray
    given: NDArray[np.bool_]
    limit_nm: FloatArray

    def rows(self, lag: int) -> NDArray[np.intp]:
        """Readings whose command ``lag`` ticks before is known."""
        rows = np.arange(lag, len(self.given))
        return rows[self.given[rows - lag]]


@dataclass(frozen=True)
class _Fit:
    """``y = scale x + offset``."""

    left: float
    """Root mean square that is left, in units of that of y."""
    scale: float
    offset: float


def _fit(values: FloatArray, known: FloatArray) -> _Fit:
    if len(values) < LEAST_ROWS:
        return _Fit(1.0, 0.0, 0.0)
    power = float(((known - known.mean()) ** 2).sum())
    spread = float(np.sqrt(((values - values.mean()) ** 2).mean()))
    if power < 1e-12 or spread < 1e-12:
        return _Fit(1.0, 0.0, float(values.mean()))
    scale = float(((known - known.mean()) * (values - values.mean())).sum()) / power
    offset = float(values.mean() - scale * known.mean())
    left = float(np.sqrt(((values - scale * known - offset) ** 2).mean())) / spread
    return _Fit(left, scale, offset)


def _judged_rows(log: StateLog, commands: _Commands, joint: int, lag: int) -> NDArray[np.intp]:
    """Readings with a known command in which a joint's motor is not at its limit."""
    rows = commands.rows(lag)
    return rows[np.abs(log.joint_effort_nm[rows, joint]) < 0.95 * commands.limit_nm[joint]]


def _law(log: StateLog, commands: _Commands, joint: int, other: int, sign: float, lag: int) -> FloatArray:
    """Torques (rows,) that joint would report if it were commanded as another one, with a sign."""
    rows = _judged_rows(log, commands, joint, lag)
    sent = rows - lag
    error = sign * commands.pos_rad[sent, other] - log.joint_pos_rad[rows, joint]
    speed = sign * commands.vel_rad_s[sent, other] - log.joint_vel_rad_s[rows, joint]
    torque = commands.stiffness_nm_rad[sent, other] * error + commands.damping_nm_s_rad[sent, other] * speed
    return torque + sign * commands.effort_nm[sent, other]


def _left(values: FloatArray, known: FloatArray) -> float:
    """Root mean square of a difference in units of that of the values' variation."""
    if len(values) < LEAST_ROWS:
        return 1.0
    spread = float(np.sqrt(((values - values.mean()) ** 2).mean()))
    return float(np.sqrt(((values - known) ** 2).mean())) / max(spread, 1e-9)


def _common_lag(log: StateLog, commands: _Commands, judged: NDArray[np.bool_]) -> int:
    """Ticks between a command and the torques that it makes, by the joints that know it best; 1 where it acts at
    once."""
    votes: list[int] = []
    for joint in np.flatnonzero(judged):
        left = []
        for lag in range(1, MAX_LAG + 1):
            values = log.joint_effort_nm[_judged_rows(log, commands, int(joint), lag), joint]
            fits = [
                _fit(values, _law(log, commands, int(joint), int(other), sign, lag)).left
                for other in np.flatnonzero(judged)
                for sign in (1.0, -1.0)
            ]
            left.append(min(fits))
        best = int(np.argmin(left))
        if left[best] < FITS and left[best] < CLEARER * left[0]:
            votes.append(best + 1)
        elif left[0] < FITS:
            votes.append(1)
    return int(np.median(votes)) if votes else 1


def _motor_of(
    log: StateLog, commands: _Commands, joint: int, lag: int, candidates: NDArray[np.bool_]
) -> Relation | None:
    """Relation of a joint to the one of some candidates whose commands it obeys; None if there is no clear one."""
    values = log.joint_effort_nm[_judged_rows(log, commands, int(joint), lag), joint]
    usual = _law(log, commands, joint, joint, 1.0, lag)
    left = _left(values, usual)
    if candidates[joint] and left < 0.5 * FITS:
        return Relation(joint, joint, 0, 1.0, 0.0, left)
    fits = {
        (int(other), sign): _fit(values, _law(log, commands, joint, int(other), sign, lag))
        for other in np.flatnonzero(candidates)
        for sign in (1.0, -1.0)
    }
    if not fits:
        return None
    place = min(fits, key=lambda key: fits[key].left)
    expected = fits.get((joint, 1.0))
    if expected is not None and expected.left < FITS and fits[place].left > CLEARER * expected.left:
        place = (joint, 1.0)
    best = fits[place]
    if best.left > FITS:
        return None
    # Torque and position of the wrong sign are one mistake, of the torque alone another: both are a sign.
    stiffness = float(np.median(commands.stiffness_nm_rad[commands.given, place[0]]))
    offset_rad = best.offset / (best.scale * stiffness) if stiffness and best.scale else 0.0
    offset_rad = offset_rad if abs(offset_rad) >= LEAST_OFFSET_RAD else 0.0
    sign = place[1] * np.sign(best.scale)
    return Relation(joint, place[0], 0, float(sign) * abs(_rounded(best)), offset_rad, best.left)


def _rounded(fit: _Fit) -> float:
    """A factor within what noise and slow sampling explain of one becomes one."""
    margin = 1.25 if fit.left < 0.1 else 2.5
    return float(np.sign(fit.scale)) if 1 / margin < abs(fit.scale) < margin else fit.scale


def _tell(
    diagnosis: Diagnosis,
    log: StateLog,
    subject: str,
    relations: list[Relation],
    unclear: list[str],
    count: int,
    what: str,
) -> None:
    wrong = [relation for relation in relations if not relation.is_identity]
    tell_relations(diagnosis, subject, wrong, log.spec.joint_names, log.dt_s, "rad", alike=0.25)
    if unclear:
        diagnosis.unknown(subject, f"{', '.join(unclear)}: neither {what} nor another relation holds clearly")
    if not wrong and relations:
        diagnosis.fine(subject, f"{len(relations)} of {log.spec.num_joints} joints follow {what}")
    if not count:
        diagnosis.unknown(subject, "no joint has moved enough")


def _check_limits(log: StateLog, diagnosis: Diagnosis) -> None:
    names, everything = log.spec.joint_names, np.arange(log.spec.num_joints)
    wrong = _beyond(log, everything, everything) > _LIMIT_MARGIN_RAD
    flipped = wrong & (_beyond(log, everything, everything, sign=-1.0) <= _LIMIT_MARGIN_RAD)
    if flipped.any():
        joints = tuple(names[i] for i in np.flatnonzero(flipped))
        text = f"{', '.join(joints)}: beyond the limits, and within them with the other sign."
        diagnosis.wrong(FindingKind.SIGN, "joint order and sign", text, joints)
    others = np.flatnonzero(wrong & ~flipped)
    if len(others) == 2 and (_beyond(log, others, others[::-1]) <= _LIMIT_MARGIN_RAD).all():
        pair = (names[others[0]], names[others[1]])
        text = f"{' and '.join(pair)}: beyond their limits, and within them if they are exchanged."
        diagnosis.wrong(FindingKind.PERMUTATION, "joint order and sign", text, pair)
    elif others.size:
        by_rad = _beyond(log, others, others)
        shown = ", ".join(f"{names[i]} by {by:.2f}" for i, by in list(zip(others, by_rad, strict=True))[:6])
        text = f"beyond the robot's limits: {shown} rad; offset, order or unit may be wrong."
        diagnosis.wrong(FindingKind.LIMIT, "joint positions", text, tuple(names[i] for i in others))
    if not wrong.any():
        diagnosis.fine("joint positions", "within the robot's limits")


def _beyond(log: StateLog, joints: NDArray[np.intp], read_as: NDArray[np.intp], sign: float = 1.0) -> FloatArray:
    """By how much joints (k,) are beyond their limits at worst, rad, if their readings are those of others."""
    pos = sign * log.joint_pos_rad[:, read_as]
    lower, upper = log.spec.array("lower_rad")[joints], log.spec.array("upper_rad")[joints]
    return np.maximum(lower - pos, pos - upper).max(axis=0)

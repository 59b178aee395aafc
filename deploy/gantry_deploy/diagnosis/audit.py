"""Audit of a recording against a bundle: what the policy saw and sent, next to what it should have seen and sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.differences import contract_differences, listed
from gantry_deploy.contract.policy_contract import ObservationTerm, PolicyContract
from gantry_deploy.diagnosis.findings import Diagnosis, FindingKind
from gantry_deploy.diagnosis.hypotheses import FRAME_HYPOTHESES
from gantry_deploy.diagnosis.rebuild import Rebuilt, rebuild, rebuild_term, signal_rows, term_columns
from gantry_deploy.diagnosis.relations import Relation, relation_of, tell_relations
from gantry_deploy.diagnosis.ticks import PolicyTicks, policy_ticks
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import RecordingError
from gantry_deploy.observations.labels import labels_of, term_label
from gantry_deploy.observations.signals import Signals
from gantry_deploy.perception.maps import TERM as MAP_TERM
from gantry_deploy.policy.policy import open_policy
from gantry_deploy.recording.explained import explained_windows
from gantry_deploy.recording.reader import Recording

FloatArray = NDArray[np.float64]

TOLERANCE = 2e-4
"""Largest difference of an observation, relative to its largest number, that is rounding."""
ACTION_TOLERANCE = 1e-3
"""Largest difference of an action, which a network makes larger than that of its observation."""
SAME_SHARE = 0.9
"""Least share of ticks in which targets must be those of the action: a slew limit or a hand-over changes some."""
MOST_TICKS = 3000
"""Ticks that are looked at; a minute of them at 50 Hz says what an hour does."""
MAX_LAG = 5
"""Most ticks by which numbers are looked for in the past."""


def audit(recording: Recording, bundle: Bundle) -> Diagnosis:
    """Compare a recording with what the bundle's contract and network say.

    Raises:
        RecordingError: If no policy ran in it, or one of another observation's size.
    """
    contract, diagnosis = bundle.contract, Diagnosis()
    _compare_contracts(diagnosis, recording, contract)
    ticks = _first(policy_ticks(recording, contract), MOST_TICKS)
    if ticks.observation.shape[1] != contract.observation_size:
        raise RecordingError(
            f"{recording.path}: the observations have {ticks.observation.shape[1]} numbers, the bundle's contract says "
            f"{contract.observation_size}: another policy ran."
        )
    rebuilt = rebuild(ticks, contract, skip=(MAP_TERM,))
    _compare_terms(diagnosis, ticks, contract, rebuilt)
    if any(term.name == MAP_TERM for term in contract.observations):
        _compare_map(diagnosis, recording)
    _compare_actions(diagnosis, ticks, bundle)
    _compare_targets(diagnosis, ticks, contract, rebuilt.targets)
    _compare_gains(diagnosis, ticks, contract)
    return diagnosis


def _first(ticks: PolicyTicks, count: int) -> PolicyTicks:
    values = {name: value[:count] for name, value in vars(ticks).items()}
    return PolicyTicks(**values)


def _compare_contracts(diagnosis: Diagnosis, recording: Recording, contract: PolicyContract) -> None:
    if recording.contract is None:
        diagnosis.unknown("contract", "the recording holds none")
        return
    if found := contract_differences(recording.contract, contract):
        text = listed(found, "in the recording", "in the bundle")
        diagnosis.wrong(FindingKind.CONTRACT, "contract", f"the recording's differs from the bundle's:{text}")
    else:
        diagnosis.fine("contract", "the recording's is the bundle's")


def _compare_terms(diagnosis: Diagnosis, ticks: PolicyTicks, contract: PolicyContract, rebuilt: Rebuilt) -> None:
    columns = term_columns(contract)
    for place, reason in rebuilt.missing.items():
        subject = term_label(contract.observations[place])
        diagnosis.unknown(subject, f"cannot be computed from the recording: {reason}")
    moved = _moved_terms(diagnosis, ticks, contract, rebuilt)
    for place, known in rebuilt.terms.items():
        if place in moved:
            continue
        term, seen = contract.observations[place], ticks.observation[:, columns[place]]
        difference = _difference(seen, known)
        if difference <= TOLERANCE:
            diagnosis.fine(term_label(term), f"repeated in {len(seen)} ticks to within {difference:.1e}")
        else:
            _explain_term(diagnosis, ticks, contract, term, seen, known)


def _difference(seen: FloatArray, known: FloatArray) -> float:
    """Largest difference, in units of the largest number where that is above 1."""
    return float(np.abs(seen - known).max(initial=0.0)) / max(1.0, float(np.abs(known).max(initial=0.0)))


def _moved_terms(diagnosis: Diagnosis, ticks: PolicyTicks, contract: PolicyContract, rebuilt: Rebuilt) -> set[int]:
    """Places of terms that stand whole elsewhere in the observation; each is a finding."""
    columns, moved = term_columns(contract), {}
    for place, known in rebuilt.terms.items():
        own, size = columns[place], known.shape[1]
        if _difference(ticks.observation[:, own], known) <= TOLERANCE or np.ptp(known, axis=0).max() < 1e-3:
            continue
        others = [s for s in range(ticks.observation.shape[1] - size + 1) if s != own.start]
        found = [s for s in others if _difference(ticks.observation[:, s : s + size], known) <= TOLERANCE]
        if found:
            moved[place] = found[0]
    for place, start in moved.items():
        diagnosis.wrong(
            FindingKind.ORDER,
            term_label(contract.observations[place]),
            f"stands at number {start} of the observation, expected {columns[place].start}: "
            "terms are in another order.",
        )
    return set(moved)


def _explain_term(
    diagnosis: Diagnosis,
    ticks: PolicyTicks,
    contract: PolicyContract,
    term: ObservationTerm,
    seen: FloatArray,
    known: FloatArray,
) -> None:
    """Find what makes a term differ."""
    subject = term_label(term)
    rows = signal_rows(ticks, contract)
    for words, change in FRAME_HYPOTHESES.items():
        if _difference(seen, rebuild_term(ticks, contract, term, [change(row) for row in rows])) <= TOLERANCE:
            diagnosis.wrong(FindingKind.FRAME, subject, f"{words}.")
            return
    if term.history > 1 and (words := _history_fault(ticks, contract, term, rows, seen, known)):
        diagnosis.wrong(FindingKind.ORDER, subject, words)
        return
    newest = slice((term.history - 1) * term.size, term.history * term.size)
    explain(
        diagnosis,
        subject,
        seen[:, newest],
        known[:, newest],
        labels_of(contract, term),
        ticks.segment,
        contract.dt_s,
        term.unit,
    )


def explain(
    diagnosis: Diagnosis,
    subject: str,
    seen: FloatArray,
    known: FloatArray,
    labels: Sequence[str],
    segments: NDArray[np.intp],
    dt_s: float,
    unit: str,
    tolerance: float = TOLERANCE,
) -> None:
    """Note why seen columns (T, m) differ from known ones (T, m)."""
    relations: list[Relation] = []
    unexplained: list[str] = []
    for column in range(seen.shape[1]):
        relation = relation_of(seen, known, column, segments=segments, max_lag=MAX_LAG, tolerance=tolerance)
        if relation is None:
            unexplained.append(labels[column])
        elif not relation.is_identity:
            relations.append(relation)
    tell_relations(diagnosis, subject, relations, labels, dt_s, unit)
    if unexplained:
        gaps = np.abs(seen - known)
        row = int(np.argmax(gaps.max(axis=1) > tolerance))
        names = ", ".join(unexplained[:6]) + (f" and {len(unexplained) - 6} more" if len(unexplained) > 6 else "")
        diagnosis.wrong(
            FindingKind.UNEXPLAINED,
            subject,
            f"{names} differ by up to {gaps.max():.3g} from tick {row} on, and no hypothesis explains it.",
            tuple(unexplained),
        )


def _history_fault(
    ticks: PolicyTicks,
    contract: PolicyContract,
    term: ObservationTerm,
    rows: list[Signals],
    seen: FloatArray,
    known: FloatArray,
) -> str | None:
    """Words for a history in another order, or that begins otherwise; None if it is something else."""
    shape = (len(seen), term.history, term.size)
    frames = known.reshape(shape)
    if _difference(seen, frames[:, ::-1].reshape(seen.shape)) <= TOLERANCE:
        return "the newest frame of the history comes first, expected last."
    if _difference(seen, frames.transpose(0, 2, 1).reshape(seen.shape)) <= TOLERANCE:
        return "the history is stacked number by number, expected frame by frame."
    later = _ticks_since_begin(ticks.segment) >= term.history
    if later.any() and _difference(seen[later], known[later]) <= TOLERANCE:
        return "the history begins with other frames, expected the first one repeated."
    return None


def _ticks_since_begin(segment: NDArray[np.intp]) -> NDArray[np.intp]:
    first = np.searchsorted(segment, segment, side="left")
    return np.arange(len(segment)) - first


def _compare_map(diagnosis: Diagnosis, recording: Recording) -> None:
    try:
        worst = explained_windows(recording).worst
    except RecordingError as error:
        diagnosis.unknown(MAP_TERM, str(error))
        return
    if worst <= TOLERANCE:
        diagnosis.fine(MAP_TERM, f"every window is that of the recorded map and pose, to within {worst:.1e} m")
    else:
        diagnosis.wrong(
            FindingKind.UNEXPLAINED, MAP_TERM, f"windows differ by up to {worst:.3g} m from those of the recorded maps."
        )


def _compare_actions(diagnosis: Diagnosis, ticks: PolicyTicks, bundle: Bundle) -> None:
    """Ask the bundle's network what it answers to what was seen."""
    contract = bundle.contract
    corrected = bool(np.any(ticks.action != ticks.own_action))
    if contract.cameras or (contract.planned_steps() is not None and corrected):
        why = "pictures, which a recording does not hold" if contract.cameras else "plans that a person interrupted"
        diagnosis.unknown("action", f"the network acts by {why}")
        return
    policy, begins, given = open_policy(bundle), np.diff(ticks.segment, prepend=-1) != 0, []
    for row, begin in zip(ticks.observation, begins, strict=True):
        if begin:
            policy.reset()
        given.append(policy(row[None].astype(np.float32)).action[0])
    answers = np.array(given)
    gaps = np.abs(answers - ticks.own_action).max(axis=1)
    allowed = ACTION_TOLERANCE * max(1.0, float(np.abs(answers).max()))
    if (share := float((gaps <= allowed).mean())) == 1.0:
        diagnosis.fine("action", f"the bundle's network gives it in {len(gaps)} ticks to within {gaps.max():.1e}")
        return
    diagnosis.wrong(
        FindingKind.NETWORK,
        "action",
        f"the bundle's network answers otherwise in {100 * (1 - share):.0f} % of the ticks, by up to {gaps.max():.3g}: "
        "other weights ran, or another normalisation.",
    )


def _compare_targets(diagnosis: Diagnosis, ticks: PolicyTicks, contract: PolicyContract, targets: FloatArray) -> None:
    pushes = embodiment_of(contract).action_kind(contract.action.kind).gives_effort
    commanded, unit = (ticks.sent_effort, "N m") if pushes else (ticks.sent_pos, "rad")
    rows = np.isfinite(targets).all(axis=1) & np.isfinite(commanded).all(axis=1)
    if not rows.any():
        diagnosis.unknown("joint targets", "they cannot be computed from the recording, or none was sent")
        return
    upper = np.array(contract.effort_limit_nm if pushes else contract.joint_upper_rad)
    lower = -upper if pushes else np.array(contract.joint_lower_rad)
    sent, known = commanded[rows], np.clip(targets[rows], lower, upper)
    before = np.concatenate((sent[:1], sent[:-1]))
    same = (np.abs(sent - known) <= TOLERANCE * np.maximum(1.0, np.abs(known))).all(axis=1)
    # A limit of steps or a hand-over moves every joint from its last target towards the new one, and not beyond.
    inside = (sent >= np.minimum(before, known) - TOLERANCE) & (sent <= np.maximum(before, known) + TOLERANCE)
    if float((same | inside.all(axis=1)).mean()) >= SAME_SHARE:
        share = 100 * float(same.mean())
        changed = "" if same.all() else f"; limits of steps or a hand-over kept them back in {100 - share:.0f} %"
        diagnosis.fine("joint targets", f"those of the action were sent in {share:.0f} % of the ticks{changed}")
        return
    explain(
        diagnosis,
        "joint targets",
        sent,
        known,
        contract.joint_names,
        ticks.segment[rows],
        contract.dt_s,
        unit,
    )


def _compare_gains(diagnosis: Diagnosis, ticks: PolicyTicks, contract: PolicyContract) -> None:
    pairs = (
        ("stiffness", ticks.sent_stiffness, contract.stiffness_nm_rad),
        ("damping", ticks.sent_damping, contract.damping_nm_s_rad),
    )
    for name, sent, expected in pairs:
        rows = sent[np.isfinite(sent).all(axis=1)]
        if not len(rows):
            diagnosis.unknown(name, "no command was recorded")
            continue
        usual, wanted = np.median(rows, axis=0), np.array(expected)
        wrong = np.abs(usual - wanted) > 1e-3 * np.maximum(1.0, wanted)
        if not wrong.any():
            diagnosis.fine(name, "that of the contract was sent")
            continue
        shown = _numbers(contract.joint_names, usual, wanted, np.flatnonzero(wrong))
        names = tuple(contract.joint_names[i] for i in np.flatnonzero(wrong))
        diagnosis.wrong(FindingKind.SCALE, name, f"was sent as {shown}.", names)


def _numbers(names: Sequence[str], sent: FloatArray, wanted: FloatArray, which: Iterable[int]) -> str:
    """Numbers of some joints next to the expected ones."""
    rows = list(which)
    shown = ", ".join(f"{names[i]} {sent[i]:.4g} (expected {wanted[i]:.4g})" for i in rows[:4])
    return shown + (f" and {len(rows) - 4} more" if len(rows) > 4 else "")

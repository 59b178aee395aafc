"""Observations and joint targets of a recording, computed again from its raw states by the code of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import ObservationTerm, PolicyContract
from gantry_deploy.diagnosis.ticks import PolicyTicks
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import ContractError, SurroundingsError
from gantry_deploy.observations.builder import ObservationBuilder
from gantry_deploy.observations.signals import Signals
from gantry_deploy.policy.runner import SENT_TOLERANCE, WRAP_PERIODS, signals_of

FloatArray = NDArray[np.float64]

Change = Callable[[Signals], Signals]
"""A wrong way to read the robot's signals, for a hypothesis."""


@dataclass(frozen=True)
class Rebuilt:
    """Numbers that the runtime computes from a recording; T ticks."""

    terms: dict[int, FloatArray]
    """Place of a term among the contract's -> its numbers (T, size * history), clipped and scaled."""
    missing: dict[int, str]
    """Places of terms that cannot be computed from the recording, with the reason."""
    targets: FloatArray
    """Shape (T, n), joint targets of the recorded actions, rad; of actions that give efforts those, N m."""


def term_columns(contract: PolicyContract) -> tuple[slice, ...]:
    """Columns of each term in an observation, in the contract's order; several terms may have one name."""
    ends = list(accumulate((term.size * term.history for term in contract.observations), initial=0))
    return tuple(slice(start, end) for start, end in pairwise(ends))


def rebuild(ticks: PolicyTicks, contract: PolicyContract, skip: tuple[str, ...] = ()) -> Rebuilt:
    """Compute all terms and targets again.

    Args:
        ticks: Of the recording.
        contract: Of the bundle, which says how it should be.
        skip: Names of terms that need what a recording has in another form.
    """
    terms: dict[int, FloatArray] = {}
    missing: dict[int, str] = {}
    rows = list(_signals(ticks, contract))
    for place, term in enumerate(contract.observations):
        if term.name in skip:
            continue
        try:
            terms[place] = rebuild_term(ticks, contract, term, [signals for signals, _ in rows])
        except (ContractError, SurroundingsError, AttributeError, TypeError) as error:
            missing[place] = str(error)
    return Rebuilt(terms, missing, np.array([target for _, target in rows]))


def rebuild_term(
    ticks: PolicyTicks, contract: PolicyContract, term: ObservationTerm, rows: list[Signals]
) -> FloatArray:
    """One term (T, size * history) from signals, with its history.

    Raises:
        ContractError, SurroundingsError: If a signal is missing.
    """
    builder = ObservationBuilder(replace(contract, observations=(term,)), np.zeros((1, 1), np.float32))
    result, segment = [], -1
    for number, signals in zip(ticks.segment.tolist(), rows, strict=True):
        if number != segment:
            builder.reset()
            segment = number
        result.append(builder(signals)[0].astype(np.float64))
    return np.array(result)


def signal_rows(ticks: PolicyTicks, contract: PolicyContract) -> list[Signals]:
    """Signals of every tick, one row each, as the runtime had them."""
    return [signals for signals, _ in _signals(ticks, contract)]


def _signals(ticks: PolicyTicks, contract: PolicyContract) -> Iterator[tuple[Signals, FloatArray]]:
    """Signals of every tick and the joint targets of its action."""
    like = np.zeros((1, 1), np.float32)
    decoder = embodiment_of(contract).make_decoder(contract, like)
    wrap_s = float("inf") if contract.gait is None else WRAP_PERIODS / contract.gait.frequency_hz
    segment, count = -1, 0
    last_action = np.zeros((1, contract.action_size), np.float32)
    start = last_action
    for i, state in enumerate(ticks.states):
        if ticks.segment[i] != segment:
            segment, count = int(ticks.segment[i]), 0
            last_action = np.zeros_like(last_action)
            start = state.joint_pos_rad.astype(np.float32)[None]
            decoder.reset(start)
        time_s = count / contract.rate_hz % wrap_s
        signals = signals_of(state, ticks.command[i].astype(np.float32)[None], last_action, time_s)
        signals.joint_target_rad, signals.start_joint_pos_rad = decoder.targets, start
        action = ticks.action[i].astype(np.float32)[None]
        try:
            found = decoder(action, signals)
            target = np.asarray((found.pos_rad if found.effort_nm is None else found.effort_nm)[0], dtype=np.float64)
        except (ContractError, SurroundingsError, TypeError, AttributeError):
            target = np.full(len(contract.joint_names), np.nan)
        yield signals, target
        last_action = decoder.clip(action)
        sent = ticks.sent_pos[i]
        if decoder.targets is not None and np.isfinite(sent).all() and np.abs(sent - target).max() > SENT_TOLERANCE:
            decoder.reset(sent.astype(np.float32)[None])
        count += 1

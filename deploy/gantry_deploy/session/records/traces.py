"""Attempts of a session that is over, from its dataset or its recording: actors, actions, rewards, outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.errors import DatasetError, RecordingError

if TYPE_CHECKING:  # A dataset needs packages that a recording does not.
    from gantry_deploy.dataset import Dataset
    from gantry_deploy.recording.reader import Recording

FloatArray = NDArray[np.float64]

SOURCES = ("session", "policy")
"""Command sources of a recording whose ticks belong to attempts."""
_ACTING = ("AUTONOMOUS", "CORRECTING")
_PERSON = "CORRECTING"


@dataclass(frozen=True)
class AttemptTrace:
    """One attempt of n steps."""

    episode: int
    """Number of it."""
    task: str
    """Task in words; empty if not recorded."""
    dt_s: float
    """Length of a step, s."""
    time_s: FloatArray
    """Shape (n,), since its first step, s."""
    person: NDArray[np.bool_]
    """Shape (n,), whether a person acted."""
    action: FloatArray
    """Shape (n, a), executed action in the units of the dataset; of a recording in the policy's own."""
    policy_action: FloatArray | None
    """Shape (n, a), action that the policy wanted; None if not recorded."""
    action_names: tuple[str, ...]
    """Names of the a numbers."""
    reward: FloatArray | None
    """Shape (n,), None if not recorded."""
    success: bool | None
    """Whether it succeeded; None if not recorded."""
    parameters: tuple[int, int] | None = None
    """Version of the weights at its beginning and its end; None if not recorded."""

    @property
    def length(self) -> int:
        """Steps."""
        return len(self.time_s)

    @property
    def person_s(self) -> float:
        """Time in which a person acted, s."""
        return float(self.person.sum()) * self.dt_s

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First step of each correction, and the step after its last."""
        edges = np.diff(np.concatenate(([0], self.person.astype(np.int8), [0])))
        return list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True))

    @property
    def difference(self) -> FloatArray | None:
        """Shape (n,), largest absolute difference of a number of the action from the one that the policy wanted, in
        its units; None if that was not recorded."""
        if self.policy_action is None:
            return None
        return np.abs(self.action - self.policy_action).max(axis=1, initial=0.0)

    def summary(self) -> dict[str, Any]:
        """Plain data for JSON and tables."""
        return {
            "episode": self.episode,
            "task": self.task,
            "steps": self.length,
            "duration_s": round(self.length * self.dt_s, 6),
            "success": self.success,
            "corrections": len(self.spans),
            "steps_by_person": int(self.person.sum()),
            "person_share": float(self.person.mean()) if self.length else 0.0,
            "person_s": round(self.person_s, 6),
            "reward": None if self.reward is None else float(self.reward.sum()),
            "parameters": None if self.parameters is None else list(self.parameters),
        }


def session_summary(traces: Sequence[AttemptTrace]) -> dict[str, Any]:
    """Counts of all attempts together, as plain data."""
    steps = sum(trace.length for trace in traces)
    by_person = sum(int(trace.person.sum()) for trace in traces)
    judged = [trace for trace in traces if trace.success is not None]
    return {
        "attempts": len(traces),
        "successes": sum(bool(trace.success) for trace in judged) if judged else None,
        "successes_alone": sum(bool(trace.success) and not trace.person.any() for trace in judged) if judged else None,
        "steps": steps,
        "steps_by_person": by_person,
        "person_share": by_person / steps if steps else 0.0,
        "person_s": round(sum(trace.person_s for trace in traces), 6),
        "corrections": sum(len(trace.spans) for trace in traces),
    }


def read_traces(path: str | Path) -> list[AttemptTrace]:
    """Attempts of the dataset in a folder, or of a recording (``.mcap``).

    Raises:
        GantryError: If it is neither, or damaged at its beginning.
    """
    path = Path(path)
    if path.is_dir():
        from gantry_deploy.dataset import Dataset

        dataset = Dataset(path)
        return [trace_of_episode(dataset, row.index) for row in dataset.episodes]
    from gantry_deploy.recording.reader import read_recording

    return traces_of_recording(read_recording(path))


def trace_of_episode(dataset: Dataset, episode: int) -> AttemptTrace:
    """An episode of any LeRobot dataset with an action; pictures are not read.

    Raises:
        DatasetError: If there is no such episode, or no action of numbers.
    """
    from gantry_deploy.dataset import features as names
    from gantry_deploy.session.records.dataset import ROLLOUT_INTERVENTION

    feature = dataset.features.get(names.ACTION)
    if feature is None or not feature.is_number:
        raise DatasetError(f"'{dataset.folder}' has no action of numbers, so that there are no attempts to show.")
    wanted = (names.ACTION, names.POLICY_ACTION, names.IS_INTERVENTION, ROLLOUT_INTERVENTION)
    wanted += (names.REWARD, names.SUCCESS, names.PARAMETERS_VERSION)
    keys = [name for name in wanted if name in dataset.features and dataset.features[name].is_number]
    values, row = dataset.frames(episode, keys), dataset.episodes[episode]
    flat = {name: np.asarray(value, np.float64).reshape(row.length, -1) for name, value in values.items()}
    action, person = flat[names.ACTION], flat.get(names.IS_INTERVENTION, flat.get(ROLLOUT_INTERVENTION))
    policy = flat.get(names.POLICY_ACTION)
    versions = flat.get(names.PARAMETERS_VERSION)
    return AttemptTrace(
        episode=episode,
        task="; ".join(row.tasks),
        dt_s=1.0 / dataset.fps,
        time_s=np.arange(row.length) / dataset.fps,
        person=np.zeros(row.length, bool) if person is None else person[:, 0] > 0.5,
        action=action,
        policy_action=policy if policy is not None and policy.shape == action.shape else None,
        action_names=feature.names or tuple(f"a{i}" for i in range(action.shape[1])),
        reward=_first(flat, names.REWARD),
        success=bool(flat[names.SUCCESS].any()) if names.SUCCESS in flat else None,
        parameters=None if versions is None else (int(versions[0, 0]), int(versions[-1, 0])),
    )


def traces_of_recording(recording: Recording) -> list[AttemptTrace]:
    """Attempts of a recording: those of its session, or, without one, every stretch in which the policy acted.

    A person acted in the ticks that the session's state says; a recording without that state tells it by the actions
    that the policy wanted and that were not executed. Rewards are not recorded.

    Raises:
        RecordingError: If no policy acted in it.
    """
    status, acted = recording["/gantry/status"], recording.topics.get("/policy/action")
    if acted is None:
        raise RecordingError(f"{recording.path}: no policy acted in this recording, so that there are no attempts.")
    own = recording.topics.get("/policy/own_action")
    times = acted["time_s"]
    ticks = np.searchsorted(status["time_s"], times).clip(0, len(status["time_s"]) - 1)
    told = {name: status[name][ticks].astype(str) for name in ("source", "session_state", "attempt", "successes")}
    acting = np.isin(told["source"], SOURCES)
    if (told["session_state"] != "").any():
        acting &= np.isin(told["session_state"], _ACTING)
    person, policy_action = told["session_state"] == _PERSON, np.asarray(acted["data"], np.float64).copy()
    if own is not None:
        rows = np.searchsorted(times, own["time_s"]).clip(0, len(times) - 1)
        same = times[rows] == own["time_s"]
        policy_action[rows[same]] = own["data"][same]
        if not (told["session_state"] != "").any():
            person[rows[same]] = True
    contract = recording.contract
    dt_s = contract.dt_s if contract is not None else float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    task = (contract.provenance.task or "") if contract is not None else ""
    traces = []
    for number, rows in enumerate(_stretches(acting, told["attempt"], times, dt_s)):
        action = np.asarray(acted["data"][rows], np.float64)
        traces.append(
            AttemptTrace(
                episode=number,
                task=task,
                dt_s=dt_s,
                time_s=times[rows] - times[rows[0]],
                person=person[rows],
                action=action,
                policy_action=policy_action[rows],
                action_names=tuple(f"a{i}" for i in range(action.shape[1])),
                reward=None,
                success=_succeeded(status, str(told["attempt"][rows[0]])),
            )
        )
    return traces


def _stretches(
    acting: NDArray[np.bool_], attempt: NDArray[np.str_], times: FloatArray, dt_s: float
) -> list[NDArray[np.intp]]:
    """Rows of each attempt: those of a session by its numbers, others as far as they follow each other."""
    rows = np.flatnonzero(acting)
    if not len(rows):
        return []
    if (attempt[rows] != "").all():
        breaks = attempt[rows][1:] != attempt[rows][:-1]
    else:
        breaks = np.diff(times[rows]) > 2.5 * dt_s
    return np.split(rows, np.flatnonzero(breaks) + 1)


def _succeeded(status: Mapping[str, np.ndarray], attempt: str) -> bool | None:
    """Whether the count of successes has grown with an attempt's end; None without a session, or without its end."""
    if not attempt:
        return None
    told = status["attempt"].astype(str)
    mine = np.flatnonzero(told == attempt)
    counts = status["successes"].astype(str)
    try:
        if str(status["session_state"][mine[-1]]) not in _ACTING:  # It has ended, and the next one has not begun.
            return int(counts[mine[-1]]) > int(counts[mine[0]])
    except ValueError:
        pass
    return None


def _first(flat: Mapping[str, FloatArray], name: str) -> FloatArray | None:
    return flat[name][:, 0] if name in flat else None

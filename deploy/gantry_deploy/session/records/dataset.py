"""Correction sessions as LeRobot v3 datasets: whole attempts as episodes, and their steps read back.

An attempt is stored when its last step arrives; whatever ends the process before costs that attempt alone. Numbers are
the policy's own (``state`` scaled as its contract says, actions dimensionless), since they are what a learner takes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.dataset import Dataset, DatasetWriter, Feature, VideoCodec, camera, rl_features, scalar, vector
from gantry_deploy.dataset.checks.agreement import first_difference, policy_numbers
from gantry_deploy.dataset.features import (
    ACTION,
    BASE_ACTION,
    DISCRETE_PENALTY,
    DONE,
    IMAGES,
    IS_INTERVENTION,
    PARAMETERS_VERSION,
    POLICY_ACTION,
    REWARD,
    STAMP,
    STATE,
    SUCCESS,
    TRUNCATED,
)
from gantry_deploy.dataset.notes import NOTES, read_notes, recorded_contract, values_of
from gantry_deploy.dataset.storage.last_observations import (
    last_observation_bytes,
    last_observation_path,
    read_last_observation,
)
from gantry_deploy.dataset.storage.layout import INFO, Info
from gantry_deploy.errors import DatasetError
from gantry_deploy.session.steps import Actor, FloatArray, Observation, SessionStep
from gantry_hardware.errors import UnknownNameError

_LOG = logging.getLogger("gantry.session")
IMAGE_KEYS = "image/"
"""Beginning of the name of a picture in an observation."""
ROLLOUT_INTERVENTION = "intervention"
"""Name of the flag of corrections in datasets of ``lerobot-rollout``."""


@dataclass(frozen=True)
class SessionSizes:
    """Sizes of a session's steps."""

    state: int
    """Numbers of ``state``."""
    action: int
    """Numbers of an action."""
    cameras: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Height and width in pixels by camera."""
    has_base: bool = False
    """Whether steps hold the action of a frozen base."""

    @classmethod
    def of_contract(cls, contract: PolicyContract) -> SessionSizes:
        """Sizes of the steps of a policy whose actions are corrected (not its commands)."""
        cameras = {item.name: (item.height, item.width) for item in contract.cameras}
        return cls(
            contract.observation_size, contract.action_size, cameras, contract.planned_steps(base=True) is not None
        )

    @classmethod
    def of_step(cls, step: SessionStep) -> SessionSizes:
        """Sizes of a step.

        Raises:
            DatasetError: If its observation has no ``state``.
        """
        if "state" not in step.obs:
            raise DatasetError(f"The observation of a step has {', '.join(step.obs) or 'nothing'}, expected 'state'.")
        images = {name.removeprefix(IMAGE_KEYS): value for name, value in step.obs.items() if _is_picture(name)}
        cameras = {name: (int(value.shape[1]), int(value.shape[2])) for name, value in images.items()}
        return cls(step.obs["state"].size, step.action.size, cameras, step.base_action is not None)

    def features(self) -> dict[str, Feature]:
        """Features of the dataset; cameras of an odd height or width are stored as single pictures."""
        images = {
            f"{IMAGES}{name}": camera(height, width, video=height % 2 == 0 and width % 2 == 0)
            for name, (height, width) in self.cameras.items()
        }
        base = {BASE_ACTION: vector(self.action)} if self.has_base else {}
        return {
            STATE: vector(self.state),
            **images,
            ACTION: vector(self.action),
            POLICY_ACTION: vector(self.action),
            **base,
            IS_INTERVENTION: vector(["is_intervention"], dtype="bool"),
            DISCRETE_PENALTY: vector(["discrete_penalty"]),
            PARAMETERS_VERSION: scalar("int64"),
            STAMP: scalar("float64", unit="s"),
            **rl_features(),
        }


class SessionDataset:
    """Writes steps of a session; one attempt is open at a time.

    Args:
        folder: Of the dataset, which is made or, with ``resume``, continued.
        sizes: Sizes of the steps, or the contract of a policy whose actions are corrected; None takes those of the
            first step, with which the dataset then begins.
        fps: Control steps per second, a whole number.
        robot: Name of the robot.
        task: Task in words.
        notes: Notes beside a new dataset, see :func:`gantry_deploy.dataset.notes.make_session_notes`; those of one that
            is continued must mean the same. None for none.
        resume: Append to a dataset of a former session, if there is one.
        codec: Encoding of cameras; None for small and lossy videos.

    Raises:
        DatasetError: If the folder cannot take the dataset.
    """

    def __init__(
        self,
        folder: str | Path,
        sizes: SessionSizes | PolicyContract | None,
        fps: int,
        robot: str,
        task: str,
        *,
        notes: Mapping[str, Any] | None = None,
        resume: bool = False,
        codec: VideoCodec | None = None,
    ) -> None:
        self.folder = Path(folder)
        """Folder of the dataset."""
        self.task = task.strip() or "unnamed task"
        self.left_out = 0
        """Attempts that were begun and not stored: discarded, or cut short by a stop."""
        self._settings = (fps, robot, resume, codec)
        self._beside = {} if notes is None else {NOTES: json.dumps(notes, indent=2).encode()}
        if notes is not None and resume:
            _require_same_numbers(self.folder, notes)
        self._open: int | None = None
        self._writer: DatasetWriter | None = None
        if sizes is not None:
            self._begin(SessionSizes.of_contract(sizes) if isinstance(sizes, PolicyContract) else sizes)
        elif (self.folder / INFO).is_file():
            if not resume:
                raise DatasetError(f"'{self.folder}' holds a dataset already; continue it, or give another folder.")
            Info.read(self.folder)
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise DatasetError(f"'{self.folder}' is there already and holds no dataset; expected a new folder.")

    def __enter__(self) -> SessionDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def num_episodes(self) -> int:
        """Attempts that are stored; 0 before the first step of a dataset that takes its sizes from it."""
        return 0 if self._writer is None else self._writer.num_episodes

    def add(self, step: SessionStep) -> int | None:
        """Take a step; the last one of an attempt stores it.

        Returns:
            Number of the episode that was stored, or None.

        Raises:
            DatasetError: If the step does not fit, or could not be written: the attempt is then still open, and
                :meth:`store` may be tried again.
        """
        if self._open is not None and step.episode != self._open:
            self.discard_episode()
        if self._open is None and step.index != 0:
            return None  # The rest of an attempt that was discarded.
        if self._writer is None:
            self._begin(SessionSizes.of_step(step))
        self._buffer.add_frame(self._frame(step))
        self._open = step.episode
        self._last = step
        return self.store() if step.is_last else None

    def store(self) -> int:
        """Store the attempt whose last step has come; returns the number of the episode.

        Raises:
            DatasetError: If no attempt is complete, or it could not be written.
        """
        if self._writer is None or self._open is None or not self._last.is_last:
            raise DatasetError("No attempt is complete; its last step says 'terminated' or 'truncated'.")
        last, number = _last_values(self._last), self._writer.num_episodes
        beside = {last_observation_path(number): last_observation_bytes(last)} if last else {}
        self._writer.save([(self._buffer, self.task)], beside)
        self._open = None
        return number

    def discard_episode(self) -> int:
        """Forget the open attempt, which is recorded again or was cut short; returns the number of its steps."""
        steps = 0 if self._open is None else len(self._buffer)
        if steps:
            self.left_out += 1
            _LOG.info("An attempt of %d steps was left out of '%s'.", steps, self.folder)
            self._buffer.clear()
        self._open = None
        return steps

    def close(self) -> None:
        """Leave out an open attempt and release the folder; may be called twice."""
        self.discard_episode()
        if self._writer is not None:
            self._writer.finalize()

    def _begin(self, sizes: SessionSizes) -> None:
        fps, robot, resume, codec = self._settings
        self._writer = DatasetWriter(
            self.folder, fps, sizes.features(), robot, resume=resume, codec=codec, beside=self._beside
        )
        self._buffer, self.sizes = self._writer.new_episode(), sizes

    def _frame(self, step: SessionStep) -> dict[str, Any]:
        """A step as a frame."""
        expected = {"state", *(f"{IMAGE_KEYS}{name}" for name in self.sizes.cameras)}
        for name in step.obs:
            if name not in expected:
                raise UnknownNameError("entry of a step's observation", name, expected)
        if missing := expected - set(step.obs):
            raise DatasetError(f"A step's observation lacks {', '.join(sorted(missing))}.")
        images = {f"{IMAGES}{name}": _upright(step.obs[f"{IMAGE_KEYS}{name}"]) for name in self.sizes.cameras}
        if self.sizes.has_base and step.base_action is None:
            raise DatasetError("A step has no base action, and the dataset is one of a residual policy.")
        base = {BASE_ACTION: np.asarray(step.base_action, np.float32)} if self.sizes.has_base else {}
        return {
            STATE: np.asarray(step.obs["state"], np.float32).reshape(-1),
            **images,
            ACTION: np.asarray(step.action, np.float32),
            POLICY_ACTION: np.asarray(step.policy_action, np.float32),
            **base,
            IS_INTERVENTION: step.is_intervention,
            DISCRETE_PENALTY: float(step.penalty),
            PARAMETERS_VERSION: int(step.parameters_version),
            STAMP: float(step.stamp_s),
            REWARD: float(step.reward),
            DONE: step.is_last,
            TRUNCATED: step.truncated and not step.terminated,
            SUCCESS: step.success,
        }


def _require_same_numbers(folder: Path, notes: Mapping[str, Any]) -> None:
    """Refuse to continue a dataset of another robot, or of a policy with other observations or actions."""
    there = read_notes(folder)
    if there is None:
        return
    before, now = (
        {**policy_numbers(recorded_contract(item, folder)), "values": values_of(item)} for item in (there, notes)
    )
    if found := first_difference(before, now):
        raise DatasetError(f"'{folder}' was recorded with another policy: {found}. Name another folder.")


class SessionReader:
    """Reads the steps of a session's dataset, or of another LeRobot dataset with a state and an action.

    Where a dataset does not say it, the policy wanted what was done, no person acted, and rewards are 0.

    Args:
        folder: Of the dataset.

    Raises:
        DatasetError: If it is no dataset.
        UnknownNameError: If it has no state or no action.
    """

    def __init__(self, folder: str | Path) -> None:
        self.dataset = Dataset(folder)
        for name in (STATE, ACTION):
            if name not in self.dataset.features:
                raise UnknownNameError("feature of a session's dataset", name, self.dataset.features)
        cameras = [name for name in self.dataset.camera_keys if name.startswith(IMAGES)]
        self._cameras = {name: f"{IMAGE_KEYS}{name.removeprefix(IMAGES)}" for name in cameras}

    @property
    def num_episodes(self) -> int:
        """Attempts."""
        return self.dataset.num_episodes

    def __iter__(self) -> Iterator[SessionStep]:
        """Every step of every attempt in order; one attempt is in memory at a time."""
        for episode in range(self.num_episodes):
            yield from self.steps(episode)

    def steps(self, episode: int) -> list[SessionStep]:
        """The steps of an attempt.

        Raises:
            DatasetError: If there is no such episode, or the files do not hold what they should.
        """
        keys = [name for name, item in self.dataset.features.items() if item.is_number or name in self._cameras]
        values = self.dataset.frames(episode, keys)
        length = self.dataset.episodes[episode].length
        stamps = _column(values, STAMP, np.arange(length) / self.dataset.fps)
        person = _column(values, IS_INTERVENTION, _column(values, ROLLOUT_INTERVENTION, np.zeros(length))) > 0.5
        done, truncated, success, reward, penalty, version = (
            _column(values, name, np.zeros(length))
            for name in (DONE, TRUNCATED, SUCCESS, REWARD, DISCRETE_PENALTY, PARAMETERS_VERSION)
        )
        if DONE not in values:
            done[-1], truncated[-1] = True, TRUNCATED not in values and not success[-1] > 0.5
        last = self._last(episode)
        steps: list[SessionStep] = []
        for index in range(length):
            is_end, ended = index == length - 1, done[index] > 0.5
            steps.append(
                SessionStep(
                    episode=episode,
                    index=index,
                    stamp_s=float(stamps[index]),
                    obs=self._observation(values, index),
                    action=_row(values[ACTION], index),
                    policy_action=_row(values.get(POLICY_ACTION, values[ACTION]), index),
                    actor=Actor.PERSON if person[index] else Actor.POLICY,
                    reward=float(reward[index]),
                    penalty=float(penalty[index]),
                    terminated=bool(ended and not truncated[index] > 0.5),
                    # An episode that just stops was cut off.
                    truncated=bool(truncated[index] > 0.5 or (is_end and not ended)),
                    success=bool(success[index] > 0.5),
                    base_action=_row(values[BASE_ACTION], index) if BASE_ACTION in values else None,
                    last_obs=last[0] if is_end else None,
                    last_base_action=last[1] if is_end else None,
                    parameters_version=int(version[index]),
                )
            )
        return steps

    def _observation(self, values: Mapping[str, Any], index: int) -> Observation:
        images = {
            key: np.ascontiguousarray(values[name][index].transpose(2, 0, 1)) for name, key in self._cameras.items()
        }
        return {"state": _row(values[STATE], index), **images}

    def _last(self, episode: int) -> tuple[Observation | None, FloatArray | None]:
        """Observation after the last step of an attempt and the base's action at it, where they were stored."""
        sizes = {key: self.dataset.features[name].image_size for name, key in self._cameras.items()}
        found = read_last_observation(self.dataset.folder, episode, sizes)
        if found is None:
            return None, None
        base = found.pop(BASE_ACTION, None)
        for name, value in found.items():
            if value.ndim == 3:
                found[name] = np.ascontiguousarray(value.transpose(2, 0, 1))
        expected, action = {"state", *self._cameras.values()}, self.dataset.features[ACTION].shape
        fits = set(found) == expected and found["state"].shape == self.dataset.features[STATE].shape
        if not fits or (base is not None and base.shape != action):
            raise DatasetError(
                f"The last observation of episode {episode} in '{self.dataset.folder}' has {', '.join(sorted(found))}, "
                f"expected {', '.join(sorted(expected))} in the shapes of the dataset."
            )
        return found, base


def _last_values(step: SessionStep) -> dict[str, NDArray[Any]]:
    if step.last_obs is None:
        return {}
    values = {name: _upright(value) if _is_picture(name) else value for name, value in step.last_obs.items()}
    return values if step.last_base_action is None else {**values, BASE_ACTION: step.last_base_action}


def _is_picture(name: str) -> bool:
    return name.startswith(IMAGE_KEYS)


def _upright(image: NDArray[Any]) -> NDArray[Any]:
    """A picture (3, height, width) as a dataset has it, (height, width, 3)."""
    return np.ascontiguousarray(image.transpose(1, 2, 0))


def _row(values: NDArray[Any], index: int) -> FloatArray:
    return np.array(values[index], dtype=np.float32).reshape(-1)


def _column(values: Mapping[str, Any], name: str, otherwise: NDArray[Any]) -> NDArray[np.float64]:
    """One number per frame of a feature, or what stands in for it."""
    found = values.get(name, otherwise)
    return np.asarray(found, dtype=np.float64).reshape(len(otherwise), -1)[:, 0].copy()

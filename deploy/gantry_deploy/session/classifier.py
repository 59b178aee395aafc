"""Success as a trained classifier sees it: several times in a row, where the robot's own readings allow it.

A wrong success ends an attempt with a reward that no critic can tell from a right one. So a single frame never decides:
the probability must stay over the threshold for several steps, a gate over the robot's own readings must agree, and a
person can take a success back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.embodiments.simulated_task import TaskJudge, TaskVerdict
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.onnx_policy import IMAGE_PREFIX, OBSERVATION
from gantry_deploy.session.steps import Observation
from gantry_hardware.files.json_file import parse_json_object
from gantry_mapping.onnx.network import Network

Gate = Callable[[Observation], bool]
"""Whether an observation allows a success at all, whatever a picture looks like."""
PROBABILITY = "probability"
"""Output of the network, (1,)."""
SETTINGS = "gantry_classifier"
"""Key of the settings in the file's metadata, as JSON: ``threshold`` and ``confirmations``."""
MAX_BYTES = 64 * 2**20
"""Largest file."""


class SuccessClassifier:
    """Judge of a session, see :class:`gantry_deploy.embodiments.simulated_task.TaskJudge`; it sees every step.

    Args:
        model: The ONNX file: ``observation`` (1, s) and ``image/<camera>`` (1, 3, height, width) uint8, or some of
            them, to ``probability`` (1,).
        threshold: Probability from which a step counts; the file's own if None.
        confirmations: Steps in a row that make a success; likewise.
        gate: Asked in every step; a step that it refuses does not count.
        episode_s: Length of an attempt, s.
        name: Of the file, for messages.

    Raises:
        PolicyError: If the file is no such network, or a number is out of range.
    """

    FILE = "classifier.onnx"
    """Name of the file, for messages."""

    def __init__(
        self,
        model: bytes,
        threshold: float | None = None,
        confirmations: int | None = None,
        gate: Gate | None = None,
        episode_s: float = 20.0,
        name: str = "",
    ) -> None:
        self.FILE = name or self.FILE
        if len(model) > MAX_BYTES:
            raise PolicyError(f"{self.FILE} has {len(model)} bytes, expected at most {MAX_BYTES}.")
        self._network = Network(model, self.FILE, PolicyError)
        self._inputs = tuple(item.name for item in self._network.inputs)
        odd = [name for name in self._inputs if name != OBSERVATION and not name.startswith(IMAGE_PREFIX)]
        if odd or PROBABILITY not in [item.name for item in self._network.outputs]:
            expected = f"'{OBSERVATION}' and images to '{PROBABILITY}'"
            raise PolicyError(f"{self.FILE} takes {sorted(self._inputs)}, expected {expected}.")
        said = self._settings()
        self.threshold = float(said.get("threshold", 0.9)) if threshold is None else threshold
        """Probability from which a step counts."""
        self.confirmations = int(said.get("confirmations", 3)) if confirmations is None else confirmations
        """Steps in a row that make a success."""
        if not 0.0 < self.threshold < 1.0 or self.confirmations < 1:
            raise PolicyError(
                f"The threshold is {self.threshold} and the confirmations are {self.confirmations}, expected a number "
                "between 0 and 1, and 1 or more."
            )
        self.episode_s = episode_s
        """Length of an attempt, s."""
        self.probability: float | None = None
        """Of the last step; None before the first of an attempt."""
        self._gate, self._row, self._is_vetoed = gate, 0, False
        self._other: TaskJudge | None = None

    @classmethod
    def from_file(cls, path: Path, **options: Any) -> SuccessClassifier:
        """A classifier from a file; options as of the class.

        Raises:
            PolicyError: If it cannot be read, or is no classifier.
        """
        options.setdefault("name", path.name)
        try:
            with path.open("rb") as file:
                return cls(file.read(MAX_BYTES + 1), **options)
        except OSError as error:
            raise PolicyError(f"Cannot read the classifier '{path}': {error.strerror or error}.") from error

    def beside(self, other: TaskJudge | None) -> SuccessClassifier:
        """This one, beside a simulator that knows what is asked, what is lost and how long an attempt takes; its
        successes do not count."""
        self._other = other
        if other is not None:
            self.episode_s = other.episode_s
        return self

    def begin(self) -> None:
        """An attempt begins."""
        self.probability, self._row, self._is_vetoed = None, 0, False

    def see(self, obs: Observation) -> float:
        """Look at a step; the probability of success, 0 to 1.

        Args:
            obs: By key: ``state`` (s,) or (1, s), and ``image/<camera>`` (3, height, width) uint8.

        Raises:
            PolicyError: If an input is missing, or the probability is not finite.
        """
        feeds = {name: _input(name, obs) for name in self._inputs}
        (answer,) = self._network.run([PROBABILITY], feeds)
        self.probability = float(np.asarray(answer).reshape(-1)[0])
        if not np.isfinite(self.probability):
            raise PolicyError(f"The probability of {self.FILE} is {self.probability}.")
        seems_done = self.probability >= self.threshold
        if not seems_done:
            self._is_vetoed = False  # What was taken back is over; the next success is another one.
        counts = seems_done and not self._is_vetoed and (self._gate is None or self._gate(obs))
        self._row = self._row + 1 if counts else 0
        return self.probability

    def veto(self) -> None:
        """Take back a success; nothing counts until the probability has fallen below the threshold once."""
        self._row, self._is_vetoed = 0, True

    def verdict(self) -> TaskVerdict:
        """Done, once enough steps in a row have counted; lost as the simulator sees it."""
        if self._row >= self.confirmations:
            return TaskVerdict(done=True, text=f"the classifier sees success in {self._row} steps in a row")
        other = TaskVerdict() if self._other is None else self._other.verdict()
        return other if other.lost else TaskVerdict()

    def command(self) -> NDArray[np.float64] | None:
        """Command (c,) of the simulator beside it, in the contract's units; None without one."""
        return None if self._other is None else self._other.command()

    def instruction(self) -> str:
        """Instruction of the simulator beside it in plain words; empty without one."""
        return "" if self._other is None else self._other.instruction()

    def _settings(self) -> dict[str, Any]:
        text = self._network.metadata.get(SETTINGS)
        return {} if text is None else parse_json_object(text, f"the settings of {self.FILE}")


def _input(name: str, obs: Observation) -> NDArray[Any]:
    """A batch of one."""
    key = "state" if name == OBSERVATION else name
    if key not in obs:
        raise PolicyError(f"{SuccessClassifier.FILE} needs '{key}', and the step has {sorted(obs)}.")
    value = np.asarray(obs[key])
    if name == OBSERVATION:
        return value.reshape(1, -1).astype(np.float32)
    return value[None]

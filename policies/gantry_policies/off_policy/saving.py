"""A training's checkpoints with their buffers: pairs that are written, checked, and continued from together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gantry_hardware.files.checked_files import DamagedFileError, verify
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_policies.common import processes
from gantry_policies.common.checkpoint import (
    UnusableCheckpointError,
    list_checkpoints,
    load_newest,
    save_checkpoint,
    set_aside_newer,
    tell_stderr,
)
from gantry_policies.off_policy.replay.buffer import ReplayBuffer

KEPT = 2
"""Pairs that are kept."""
DEMOS_FILE = "demos.npz"
"""The demonstrations as the learner takes them; the same in all pairs."""


class Saver:
    """Writes pairs of checkpoint and replay buffer, and finds the newest intact one.

    A checkpoint holds name and SHA-256 of its buffers, so that halves of different steps are told apart. Every file is
    written before the checkpoint that names it, and none that a checkpoint on the disk names is overwritten: whenever
    the process is killed, the pair before is whole.

    Args:
        run_dir: Folder of the run.
    """

    def __init__(self, run_dir: Path) -> None:
        self.folder = run_dir / CHECKPOINTS
        self._replay_name = ""
        self._demos_sha256 = ""

    def save(self, number: int, state: dict[str, Any], replay: ReplayBuffer, demos: ReplayBuffer | None) -> Path:
        """Write a pair and remove old ones.

        Args:
            number: Environment steps so far.
            state: Everything but the buffers.
            replay: What the training has met.
            demos: What was demonstrated, if anything was; it never changes.

        Raises:
            ReplayError: If a buffer cannot be written; older pairs are untouched.
            CheckpointError: If the checkpoint cannot be written, likewise.
        """
        if demos is not None and not self._demos_sha256:
            self._demos_sha256 = demos.save(self.folder / DEMOS_FILE)
        first, second = _replay_names(number)
        name = second if self._replay_name == first else first
        halves = {
            "replay": {"file": name, "sha256": replay.save(self.folder / name)},
            "demos": None if demos is None else {"file": DEMOS_FILE, "sha256": self._demos_sha256},
        }
        path = save_checkpoint(self.folder, number, state | halves, keep=KEPT)
        self._replay_name = name
        others = (int(found.stem.split("_")[1]) for found in list_checkpoints(self.folder))
        kept = {name, *(item for other in others if other != number for item in _replay_names(other))}
        for old in self.folder.glob("replay_*"):
            if old.name not in kept:
                old.unlink(missing_ok=True)
        return path

    def newest(self) -> tuple[Path, dict[str, Any]]:
        """The newest checkpoint that is intact with its replay buffer; says which newer ones were left out.

        Raises:
            UnusableCheckpointError: If there is none.
        """
        return load_newest(self.folder, companion=self._require_replay)

    def load_replay(self, path: Path, state: dict[str, Any], replay: ReplayBuffer) -> None:
        """Fill the replay buffer of a pair; newer pairs, which were left out, are set aside.

        Raises:
            ReplayError: If it is of another size.
        """
        name = _replay_name(path, state)
        replay.load(self.folder / name)
        self._replay_name = name
        if processes.is_first():
            set_aside_newer(path)

    def load_demos(
        self, state: dict[str, Any], device: str, rebuild: Callable[[], ReplayBuffer] | None
    ) -> ReplayBuffer | None:
        """The demonstrations of a pair; None if it has none.

        Args:
            state: The checkpoint's.
            device: Where the buffer is to be.
            rebuild: Makes them anew from the demonstrations themselves, where these are at hand.

        Raises:
            UnusableCheckpointError: If they are damaged and cannot be made anew.
        """
        path = self.folder / DEMOS_FILE
        if "demos" not in state:  # an older version's
            return ReplayBuffer.loaded(path, device) if path.is_file() else None
        if state["demos"] is None:
            return None
        try:
            _require(path, state["demos"])
        except DamagedFileError as error:
            if rebuild is None:
                raise UnusableCheckpointError(f"Cannot use the demonstrations {path}: {error}.") from error
            tell_stderr(f"Left out {path}: {error}. It is made anew from the demonstrations of the run.")
            return rebuild()
        self._demos_sha256 = str(state["demos"]["sha256"])
        return ReplayBuffer.loaded(path, device)

    def _require_replay(self, path: Path, state: dict[str, Any]) -> None:
        half = state.get("replay")
        _require(self.folder / _replay_name(path, state), half if isinstance(half, dict) else {})


def _require(path: Path, half: dict[str, Any]) -> None:
    """Refuse a file that is not the one that a checkpoint names."""
    try:
        found = verify(path)
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path.name} is missing") from error
    except DamagedFileError as error:
        raise DamagedFileError(f"{path.name}: {error}") from error
    if half and found != half.get("sha256"):
        raise DamagedFileError(f"{path.name} belongs to another checkpoint")


def _replay_names(number: int) -> tuple[str, str]:
    """Names of a replay buffer, the second for a step that is saved once more."""
    return f"replay_{number}.npz", f"replay_{number}_again.npz"


def _replay_name(path: Path, state: dict[str, Any]) -> str:
    half = state.get("replay")
    named = str(half.get("file")) if isinstance(half, dict) else ""
    names = _replay_names(int(path.stem.split("_")[1]))
    return named if named in names else names[0]

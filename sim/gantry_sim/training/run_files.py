"""The files of a training run, written whole and by one process at a time; without the learning libraries."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import RUN_BUNDLE, RUN_CONFIG, is_run
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_hardware.files.bounds import MAX_SEED
from gantry_hardware.files.whole_files import write_whole_json
from gantry_sim.training.run_validation import LOCK_FILE, SOURCE_FILES, RunError, read_run_file

BUNDLE_FOLDER, EVALUATION_FILE = RUN_BUNDLE, "evaluation.json"
BASE_FOLDER, DEMOS_FILE, CONTRACT_FILE = SOURCE_FILES
"""In a run folder: its own copies of the policy that it builds upon and of its demonstrations, so that it goes on
whatever becomes of theirs, and the contract of its policy."""
LINK_FOLDER = "link"
"""Journal and weights of a learner of actors, in its run folder."""
TRAINING_KEY = "training"
"""Key of a bundle's card for the configuration that its policy was trained with."""
EVALUATION_SEED = 10_007
"""Seed of held-out episodes; training refuses it."""
TRAINING_EVALUATION_SEED = EVALUATION_SEED + 1
"""Seed of the episodes that a training evaluates on; those that `gantry eval` runs stay unseen."""


def require_seed(seed: int) -> None:
    """Refuse a seed that nothing may be trained with.

    Raises:
        RunError: If it is the one that evaluation holds out, or out of range.
    """
    if seed == EVALUATION_SEED:
        raise RunError(f"Seed {EVALUATION_SEED} is held out for evaluation; take another.")
    if not 0 <= seed <= MAX_SEED:
        raise RunError(f"Seed {seed} is out of range; expected 0 to {MAX_SEED}.")


def require_seeds(seeds: Sequence[int]) -> None:
    """Refuse the seeds of a comparison before the first of its trainings begins.

    Raises:
        RunError: If there is none, one comes twice, or nothing may be trained with one.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise RunError(f"The seeds are {list(seeds)}, expected one or more, each once.")
    for seed in seeds:
        require_seed(seed)


@contextlib.contextmanager
def hold_run(folder: Path) -> Iterator[None]:
    """Keep other processes from training the same run; the system lets go with this process, however that ends.

    Raises:
        RunError: If another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((folder / LOCK_FILE).open("a+b", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().decode(errors="replace").strip()
            raise RunError(f"'{folder}' is being trained by another process ({holder}).") from error
        except OSError as error:
            raise RunError(f"Cannot write in '{folder}': {error.strerror}.") from error
        with contextlib.suppress(OSError):  # a full disk has room for the lock, if not for the holder's name
            file.truncate(0)
            file.write(f"{os.getpid()} on {platform.node()}".encode())
        yield


def contract_of(path: Path) -> PolicyContract | None:
    """Contract of a run folder or of a bundle; None for a run whose task has none.

    Raises:
        BundleError: If it is no run folder and no intact bundle.
        ContractError: If it is damaged.
    """
    if not is_run(path):
        return load_bundle(path).contract
    try:
        return PolicyContract.from_json((path / CONTRACT_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"Cannot read '{path / CONTRACT_FILE}': {error.strerror}.") from error


def trained_commit(folder: Path) -> str:
    """Commit of the code that began a run; that of this source tree where the folder does not say."""
    try:
        recorded = read_run_file(folder / RUN_CONFIG).get("git_commit")
    except (OSError, ValueError, AttributeError):
        recorded = None
    return recorded if isinstance(recorded, str) else git_commit()


def write_json(path: Path, data: Any) -> None:
    """Write JSON whole or not at all.

    Raises:
        RunError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole_json(path, data)
    except OSError as error:
        raise RunError(f"Cannot write '{path}': {error.strerror or error}.") from error


def git_commit() -> str:
    """Commit of this source tree, ``-dirty`` appended if it was changed; empty outside a repository of its own, such as
    in a virtual environment that lies in another project's."""
    here = Path(__file__).resolve()

    def git(*args: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(here.parent), *args], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    if not git("ls-files", "--", here.name):
        return ""
    commit = git("rev-parse", "HEAD")
    dirty = git("status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if commit and dirty else commit

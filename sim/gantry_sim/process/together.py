"""Several processes of torchrun that train one policy: beginning of the run, device of each, silence of the others."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from gantry_hardware.errors import GantryError
from gantry_hardware.training.launcher import Launched, launched
from gantry_hardware.training.trainer import CHECKPOINTS, Trainer
from gantry_policies.common import processes
from gantry_policies.common.checkpoint import list_checkpoints
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_folder import hold_run, read_run
from gantry_sim.training.run_validation import RunError

Begin = Callable[[], tuple[RunCfg, Path, bool]]
"""Makes or finds the run: its configuration, its folder, and whether it is continued."""
SAVING_S = 10.0
"""Longest time that another process may take to save before it ends."""


@contextlib.contextmanager
def together(place: Launched, device: str) -> Iterator[None]:
    """Work as one of several processes; all but the first are silent.

    Args:
        place: Place among them.
        device: Device that was asked for, ``cpu`` or ``cuda``.

    Raises:
        GantryError: If this machine has no GPU for this process, or the others do not come.
    """
    own_device(device, place)
    quiet = contextlib.nullcontext() if place.rank == 0 else contextlib.redirect_stdout(io.StringIO())
    with quiet, processes.joined(place, device):
        yield


def own_device(device: str, place: Launched | None = None) -> str:
    """Device of this process: with several on GPUs, each has that of its place on its machine.

    Raises:
        GantryError: If a single GPU is named for several processes, or this machine has too few.
    """
    place = place or launched()
    if place.count == 1 or device == "cpu":
        return device
    if device != "cuda":
        raise GantryError(
            f"--device is {device} for {place.count} processes; expected cpu, or cuda, where each takes the GPU of its "
            "place."
        )
    found = torch.cuda.device_count()
    if place.local_rank >= found:
        raise GantryError(
            f"Process {place.local_rank} of this machine has no GPU: torch sees {found}. Start torchrun with "
            f"--nproc-per-node {max(1, found)}."
        )
    return f"cuda:{place.local_rank}"


def begun_by_first(begin: Begin) -> tuple[RunCfg, Path, bool]:
    """The run of all processes, which the first one begins and the others read from its folder.

    Raises:
        GantryError: If the first one is refused; the others say only that.
    """
    if processes.is_first():
        try:
            run, folder, resume = begin()
        except BaseException:
            processes.text_of_first("")
            raise
        processes.text_of_first(f"{int(resume)}{folder.resolve()}")
        return run, folder, resume
    told = processes.text_of_first("")
    if not told:
        raise GantryError("The first process could not begin the training; it says why.")
    return read_run(Path(told[1:])), Path(told[1:]), told[0] == "1"


@contextlib.contextmanager
def saving_for_first(trainer: Trainer, folder: Path) -> Iterator[None]:
    """Save what was learned where another process is lost, and that was the first one, which alone writes.

    Args:
        trainer: The training of this process, with the same weights.
        folder: The run folder; held by the first process while that lives, so by none once it is lost.
    """
    try:
        yield
    except RuntimeError as error:
        if not processes.is_first() and processes.is_loss(error):
            with contextlib.suppress(RunError), _held_soon(folder):
                newest = [int(path.stem.split("_")[1]) for path in list_checkpoints(folder / CHECKPOINTS)[-1:]]
                if newest < [trainer.done] and (path := trainer.take_over()) is not None:
                    print(f"What was learned until then is saved: {path}", file=sys.stderr, flush=True)
        raise


@contextlib.contextmanager
def _held_soon(folder: Path) -> Iterator[None]:
    """Hold a run folder as soon as no other process does.

    Raises:
        RunError: If another one still holds it after :data:`SAVING_S`.
    """
    with contextlib.ExitStack() as stack:
        until = time.monotonic() + SAVING_S
        while True:
            try:
                stack.enter_context(hold_run(folder))
                break
            except RunError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        yield

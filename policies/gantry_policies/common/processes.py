"""Several processes that learn one policy together: gradients averaged, parameters and normalisers alike.

Without a launcher there is one process, and everything here does nothing. ``torchrun`` starts several; on a CPU they
talk by gloo, between GPUs by nccl. Only tensors are sent. Every process must come to each call in the same order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta

import torch
from torch import Tensor, nn
from torch import distributed as dist

from gantry_hardware.errors import GantryError
from gantry_hardware.training.launcher import Launched

TIMEOUT = timedelta(minutes=30)
"""Longest time that the others are waited for: while the first process evaluates, they stand still."""
TEXT_BYTES = 4096
"""Longest text that is shared."""


class ProcessLostError(GantryError):
    """Another process of the training has gone, or does not answer."""


@contextlib.contextmanager
def joined(place: Launched, device: str) -> Iterator[None]:
    """Work with the other processes of a launcher; alone without one.

    Args:
        place: Place among the processes.
        device: Device of the learner; others than ``cpu`` talk by nccl.

    Raises:
        ProcessLostError: If the others do not come.
    """
    if place.count == 1:
        yield
        return
    try:
        dist.init_process_group(
            "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl",
            rank=place.rank,
            world_size=place.count,
            timeout=TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        raise ProcessLostError(f"The {place.count} processes do not find each other: {error}.") from error
    try:
        yield
    except RuntimeError as error:
        if not is_loss(error):
            raise
        raise ProcessLostError(
            f"Process {place.rank} of {place.count} has lost another one, which has ended or hangs. Start all of them "
            "again with --resume; they go on from the newest checkpoint."
        ) from error
    finally:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def is_loss(error: RuntimeError) -> bool:
    """Whether an error says that another process has gone, or does not answer."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


def count() -> int:
    """Number of processes that learn together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Place among them, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_first() -> bool:
    """Whether this process is the one that writes, shows and evaluates."""
    return rank() == 0


def require_as_begun(begun: int) -> None:
    """Refuse to continue with another number of processes: environments, buffers and batches are those of each.

    Raises:
        GantryError: If the run was begun by another number.
    """
    if begun != count():
        raise GantryError(
            f"The run was begun by {begun} processes, and there are {count()}, each with environments of its own; "
            f"expected {begun}: torchrun --nproc-per-node N on one or several machines, or no launcher for one."
        )


def average_(tensors: Sequence[Tensor]) -> None:
    """Replace tensors of any shapes and units by their means over all processes, in place, in one message."""
    if count() == 1 or not tensors:
        return
    flat = torch.cat([values.reshape(-1) for values in tensors])
    dist.all_reduce(flat)
    flat /= count()
    for values, part in zip(tensors, flat.split([values.numel() for values in tensors]), strict=True):
        values.copy_(part.view_as(values))


def averaged(value: Tensor) -> Tensor:
    """Mean of a tensor of any shape and unit over all processes, without its gradient."""
    mean = value.detach().clone()
    average_([mean])
    return mean


def gathered(rows: Tensor) -> Tensor:
    """Rows (N, k) of all processes, (count * N, k), in the order of their ranks; N is the same in all."""
    if count() == 1:
        return rows
    parts = [torch.empty_like(rows) for _ in range(count())]
    dist.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def share_first_(tensors: Sequence[Tensor], *modules: nn.Module) -> None:
    """Replace tensors of any shapes, and the parameters and buffers of modules, by those of the first process."""
    if count() == 1:
        return
    held = [value for module in modules for value in module.state_dict().values()]
    with torch.no_grad():
        for values in (*tensors, *held):
            dist.broadcast(values, 0)


def draw_apart(seed: int, *generators: torch.Generator) -> None:
    """Let all but the first process draw otherwise from here on, after a state that was the first one's.

    Args:
        seed: Grows with the training, so that no two continuations draw the same.
        generators: Generators beside torch's own.
    """
    if is_first():
        return
    torch.manual_seed(seed + rank())
    for generator in generators:
        generator.manual_seed(seed + rank())


def fewest(number: int) -> int:
    """The smallest of all processes' numbers."""
    return int(gathered(torch.tensor([[number]])).min())


def any_of(flag: bool) -> bool:
    """Whether a flag is set in any process."""
    if count() == 1:
        return flag
    votes = torch.tensor([float(flag)])
    dist.all_reduce(votes, dist.ReduceOp.MAX)
    return bool(votes)


def text_of_first(text: str) -> str:
    """The first process's text, of at most :data:`TEXT_BYTES` bytes."""
    if count() == 1:
        return text
    coded = text.encode()[:TEXT_BYTES]
    row = torch.zeros(TEXT_BYTES, dtype=torch.uint8)
    row[: len(coded)] = torch.frombuffer(bytearray(coded), dtype=torch.uint8) if coded else row[:0]
    dist.broadcast(row, 0)
    return bytes(row.tolist()).rstrip(b"\0").decode()

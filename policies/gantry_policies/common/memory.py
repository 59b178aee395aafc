"""Memory that training asks for: refused in words before it is taken, and explained where it runs out."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from gantry_hardware.errors import GantryError

_TEXTS = ("not enough memory", "out of memory", "defaultcpuallocator", "cannot allocate memory", "std::bad_alloc")
"""Texts with which the libraries below say that there is no memory."""
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
"""Limit and usage of a container, of either version of control groups, in bytes."""


class OutOfMemoryError(GantryError):
    """There is less memory than was asked for; the text names the setting that asks for less."""


def size_text(count: float) -> str:
    """Bytes for people: ``288.0 GB``, ``1.5 MB``."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def available_bytes(device: str = "cpu") -> int | None:
    """Memory that can be taken on a device, within the limits of container and process; None where nothing tells."""
    if device != "cpu":
        return int(torch.cuda.mem_get_info(device)[0]) if torch.cuda.is_available() else None
    found = [value for value in (_system_bytes(), _container_bytes(), _process_bytes()) if value is not None]
    return min(found) if found else None


def require_memory(needed: int, what: str, setting: str, device: str = "cpu") -> None:
    """Refuse what does not fit into memory before it is taken.

    Args:
        needed: In bytes.
        what: What needs it, the subject of a sentence.
        setting: What helps, the second half of a sentence.
        device: Where it is to be taken.

    Raises:
        OutOfMemoryError: With what is needed and what is available.
    """
    available = available_bytes(device)
    if available is not None and needed > available:
        raise OutOfMemoryError(
            f"{what} needs {size_text(needed)} of memory on {device}, where {size_text(available)} are available; "
            f"{setting}."
        )


@contextlib.contextmanager
def explaining_memory(setting: str) -> Iterator[None]:
    """Turn every way in which memory runs out into one message.

    Args:
        setting: What helps, the second half of a sentence.

    Raises:
        OutOfMemoryError: In place of what the libraries below raise.
    """
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        first = " ".join((str(error).splitlines() or [""])[0].split())
        said = f" ({first[:200].rstrip('.')})" if first else ""
        raise OutOfMemoryError(f"The memory is not enough{said}; {setting}.") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no more memory, on the CPU or on a GPU."""
    if isinstance(error, OutOfMemoryError):
        return False  # said already
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _TEXTS)


def _system_bytes() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _container_bytes() -> int | None:
    for limit, usage in _CGROUPS:
        try:
            total, used = int(limit.read_text()), int(usage.read_text())
            return max(0, total - used + _reclaimable(limit.with_name("memory.stat")))
        except (OSError, ValueError):  # none, or 'max'
            continue
    return None


def _reclaimable(stat: Path) -> int:
    """Bytes of files that a container holds in memory and gives up when asked."""
    for line in stat.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _process_bytes() -> int | None:
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return max(0, limit - pages * resource.getpagesize())
    except (ImportError, OSError, ValueError):
        return None

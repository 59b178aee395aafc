"""Failures of what lies below, libraries, drivers, memory, disks, as one message with the setting that helps."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from gantry_deploy.cli.discovery import DISTRIBUTION

MEMORY = (
    "There is not enough memory{told}. Fewer environments (--set env.num_envs=N), a smaller replay buffer "
    "(--set train.capacity=N) or a smaller minibatch need less."
)
"""Advice where memory is short."""
CACHES = ("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR", "WARP_CACHE_PATH", "TORCH_HOME", "TMPDIR")
"""Environment variables that say where libraries write."""
_ALLOCATED = re.compile(r"(?:allocate memory|bad alloc|out of memory|DefaultCPUAllocator)", re.IGNORECASE)
_BYTES = re.compile(r"allocate (\d+(?:\.\d+)?) ?(bytes|[KMGT]iB)")
_DRAWING = ("mujoco/rendering/", "mujoco/gl_context", "mujoco/egl", "mujoco/osmesa", "mujoco/glfw", "OpenGL/", "/glfw/")
"""Parts of the paths of files that draw."""


def explained(error: BaseException) -> str:
    """A message for people about a failure that is none of this program; empty for one that is, or may be."""
    for cause in _chain(error):
        for explain in (_memory, _disk, _drawing, _old_library):
            if text := explain(cause):
                return text
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came of."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__


def _memory(error: BaseException) -> str:
    short = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    short = short or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    short = short or (isinstance(error, RuntimeError) and _ALLOCATED.search(str(error)) is not None)
    short = short or (isinstance(error, ValueError) and "array is too big" in str(error))  # numpy, beyond addresses
    if not short:
        return ""
    amount = _BYTES.search(str(error))
    return MEMORY.format(told=f" ({amount[1]} {amount[2]} were asked for)" if amount else "")


def _disk(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return ""
    place = "" if error.filename is None else f" '{os.fsdecode(error.filename)}'"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"Cannot write{place}: {error.strerror}. Free some space, or write elsewhere."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) and place:
        given = [f"{name}={os.environ[name]}" for name in CACHES if os.environ.get(name)]
        told = f" Libraries write where these say: {', '.join(given)}." if given else " HOME is not set."
        return f"Cannot use{place}: {error.strerror}. Name another place.{told}"
    return ""


def _drawing(error: BaseException) -> str:
    paths = _paths(error)
    if not any(part in path for path in paths for part in _DRAWING):
        return ""
    given = os.environ.get("MUJOCO_GL", "")
    return (
        f"Cannot draw here ({type(error).__name__}: {error}). MUJOCO_GL is {given!r}: egl needs libegl1 and a driver, "
        "osmesa libosmesa6, glfw a display, off draws nothing."
    )


def _paths(error: BaseException) -> Iterator[str]:
    """Files that an error came through."""
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame.f_code.co_filename.replace(os.sep, "/")
        step = step.tb_next


def _old_library(error: BaseException) -> str:
    if not isinstance(error, (ImportError, AttributeError, TypeError)) or isinstance(error, ModuleNotFoundError):
        return ""
    unmet = list(unmet_requirements(requires(DISTRIBUTION) or ())) if _installed(DISTRIBUTION) else []
    if not unmet:
        return ""
    listed = ", ".join(f"{name} {found} (Gantry needs {name}{wanted})" for name, found, wanted in unmet)
    words = " ".join(f"'{name}{wanted}'" for name, _, wanted in unmet)
    return f"{error}. Installed in another version than Gantry needs: {listed}. Try: pip install {words}"


def unmet_requirements(declared: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Of installed packages those whose version is not what was declared.

    Args:
        declared: Requirements as a distribution's metadata has them, for example ``av>=14; extra == 'data'``.

    Yields:
        Name, the version that is installed, and the one that is wanted, for example ``>=14``.
    """
    for text in declared:
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*([^;]*)", text)
        if match is None or not (wanted := match[2].strip(" ()")) or not _for_this_python(text):
            continue
        found = _installed(match[1])
        if found and not all(_fits(found, part.strip()) for part in wanted.split(",")):
            yield match[1], found, wanted


def _for_this_python(requirement: str) -> bool:
    """Whether what a requirement says of ``python_version``, if anything, holds here."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    said = re.findall(r"python_version\s*(==|>=|<=|!=|<|>)\s*['\"]([0-9.]+)['\"]", requirement)
    return all(_fits(here, sign + bound) for sign, bound in said)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _fits(found: str, wanted: str) -> bool:
    """Whether a version meets a bound; one that is not understood is met."""
    match = re.match(r"(==|>=|<=|!=|<|>|~=)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?", wanted)
    if match is None:
        return True
    sign, bound = match[1], _numbers(match[2])
    have = _numbers(found)
    width = max(len(have), len(bound))
    left, right = ((*numbers, *(0 for _ in range(width - len(numbers)))) for numbers in (have, bound))
    if match[3] is not None:
        same = have[: len(bound)] == bound
        return same if sign == "==" else not same
    if sign == "~=":
        return left >= right and have[: len(bound) - 1] == bound[:-1]
    return {
        "==": left == right,
        "!=": left != right,
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
    }[sign]


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: 14, 0, 1 of ``14.0.1rc2``."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return () if match is None else tuple(int(part) for part in match[0].split("."))

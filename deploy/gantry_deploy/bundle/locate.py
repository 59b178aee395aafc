"""Location of a policy: a bundle by its path or by the name under which it was installed, a run folder, or a near miss.

Nothing here reads a bundle or loads a learning library, so that a mistyped path is answered at once.
"""

from __future__ import annotations

import os
from pathlib import Path

from gantry_deploy.bundle.files import holds_bundle
from gantry_deploy.errors import BundleError
from gantry_hardware.errors import GantryError, UnknownNameError, near_name
from gantry_hardware.files.text import path_text
from gantry_hardware.plugins import entry_points

GROUP = "gantry.pretrained"
"""Entry-point group of bundles that are installed along with a package: name -> path of its folder or zip."""
PREFIX = "pretrained:"
"""Stands before such a name where a path is expected."""
RUN_CONFIG, RUN_BUNDLE = "config.json", "bundle"
"""File that makes a folder a training run, and folder of the bundle in it."""
WHERE = "folder or .zip of a policy, or pretrained:NAME"
"""Description of the argument in commands."""
WHERE_SOURCE = "run folder, bundle (folder or .zip), or pretrained:NAME"
"""The same for commands that take a training run as well."""


def pretrained_names() -> list[str]:
    """Names in the entry-point group ``gantry.pretrained``, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def is_pretrained(text: str | Path) -> bool:
    """Whether this is the name of an installed bundle and no path."""
    return str(text).startswith(PREFIX)


def named_path(text: str | Path) -> Path:
    """The path itself, or the one behind ``pretrained:NAME``; whether anything is there is not looked at.

    Raises:
        UnknownNameError: If no installed package brings a bundle of that name.
        BundleError: If the package that does cannot be loaded.
    """
    if not is_pretrained(text):
        return Path(text)
    name = str(text).removeprefix(PREFIX)
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                return Path(entry.load())
            except ImportError as error:
                raise BundleError(f"Bundle '{text}' ({entry.value}) cannot be loaded here: {error}.") from error
    raise UnknownNameError("pretrained bundle", name, pretrained_names())


def find_bundle(text: str | Path) -> Path:
    """The path of a bundle; what is in it is for :func:`gantry_deploy.bundle.bundle.load_bundle` to judge.

    Raises:
        UnknownNameError: If it is ``pretrained:NAME`` and there is no such name.
        BundleError: If nothing is there, with the near miss; if it is a run folder or a bundle's file, with the bundle.
    """
    path = named_path(text)
    if not _is_there(path):
        raise BundleError(
            f"There is no bundle at {path_text(path)}; expected a folder or a .zip file.{near_miss(text)}"
        )
    if path.suffix != ".zip" and not os.path.isdir(path) and holds_bundle(path.parent):
        raise BundleError(f"'{path_text(path)}' is a file of a bundle; give its folder, {path_text(path.parent)}")
    if os.path.isdir(path) and not holds_bundle(path):
        if (inside := bundle_in(path)) != path:
            raise BundleError(f"'{path_text(path)}' is a run folder; its bundle is {path_text(inside)}")
        if is_run(path):
            name = path_text(path)
            raise BundleError(f"'{name}' is a run folder without a bundle yet; make one with: gantry export {name}")
    return path


def find_source(text: str | Path) -> Path:
    """The path of a run folder or of a bundle; of the one inside where a folder holds a bundle and is none.

    Raises:
        UnknownNameError: If it is ``pretrained:NAME`` and there is no such name.
        BundleError: If nothing is there, with the near miss.
    """
    path = named_path(text)
    if not _is_there(path):
        is_task = any(entry.name == str(text) for entry in entry_points(group="gantry.tasks"))
        hint = f" '{text}' is a task; name a run of it." if is_task else near_miss(text)
        raise BundleError(f"There is no run folder and no bundle at {path_text(path)}.{hint}")
    return path if is_run(path) else bundle_in(path)


def find_run(path: Path, error: type[GantryError]) -> Path:
    """The path of a run folder.

    Raises:
        GantryError: Of class ``error``, if it is a bundle, something else, or nothing, with the near miss.
    """
    if is_run(path):
        return path
    if is_pretrained(path) or path.suffix == ".zip" or holds_bundle(path):
        near = f" Did you mean '{path_text(path.parent)}'?" if is_run(path.parent) else ""
        kind = "a bundle already" if is_pretrained(path) or holds_bundle(path) else "a zip"
        raise error(f"'{path_text(path)}' is {kind}, expected the folder of a training run.{near}")
    near = "" if _is_there(path) else near_miss(path)
    raise error(f"'{path_text(path)}' is no run folder: there is no {RUN_CONFIG} in it.{near}")


def bundle_in(path: Path) -> Path:
    """The bundle itself, or the one in a folder that holds one; whether it is any good is for others to say."""
    inside = path / RUN_BUNDLE
    return inside if not holds_bundle(path) and holds_bundle(inside) else path


def is_run(path: Path) -> bool:
    """Whether a folder holds a training run."""
    return os.path.isfile(path / RUN_CONFIG) and not holds_bundle(path)


def _is_there(path: Path) -> bool:
    """Whether anything is at a path.

    Raises:
        BundleError: If that cannot be found out, or a link leads nowhere.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            to = path_text(os.readlink(path))
            raise BundleError(f"'{path_text(path)}' is a link to '{to}', and nothing is there.") from None
        return False
    except (OSError, ValueError) as error:  # ValueError: a zero byte
        reason = getattr(error, "strerror", None) or error
        raise BundleError(f"'{path_text(path)}' cannot be looked at: {reason}.") from error
    return True


def near_miss(text: str | Path) -> str:
    """`` Did you mean 'runs/walk'?`` with what lies in the deepest folder on the way that exists; or nothing."""
    parts = Path(text).parts
    depth = next((n for n in range(len(parts) - 1, -1, -1) if os.path.isdir(Path(*parts[:n]))), 0)
    folder, wrong, rest = Path(*parts[:depth]), parts[depth], parts[depth + 1 :]
    try:
        siblings = os.listdir(folder)
    except (OSError, ValueError):
        siblings = []
    if wrong not in siblings and (close := near_name(wrong, siblings)):
        meant = folder / close
        whole = meant.joinpath(*rest)
        return f" Did you mean '{path_text(whole if os.path.exists(whole) else meant)}'?"
    if len(parts) == 1 and (close := near_name(wrong, pretrained_names())):
        return f" Did you mean '{PREFIX}{close}'?"
    return ""

"""Registry of depth sources by name, and how a command line chooses one."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from gantry_deploy.depth.site import load_site, mount_of, mount_of_pose
from gantry_deploy.depth.source import CameraMount, DepthError, DepthSource
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.json_file import JsonError, JsonSyntaxError, parse_json
from gantry_hardware.plugins import find_plugin, load_plugin, plugin_names

GROUP = "gantry.depth_sources"
"""Entry-point group: name -> callable ``(mount, **options) -> DepthSource``; ``mount`` is a
:class:`gantry_deploy.depth.source.CameraMount`, or None where none was given."""
MOUNT_OPTIONS = ("site", "pose", "min_range_m", "max_range_m", "delay_s")
"""Options of every source: the camera's file, or its pose."""


def source_names() -> list[str]:
    """Names of all installed sources, sorted."""
    return plugin_names(GROUP)


def parse_choice(text: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a text ``NAME,KEY=VALUE,...``; values are JSON where they are, else text.

    Raises:
        DepthError: If it is not of that form.
    """
    name, *parts = (part.strip() for part in text.split(","))
    options: dict[str, Any] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not key.strip().isidentifier():
            raise DepthError(
                f"'{part}' in '{text}' is not of the form key=value; expected for example "
                "realsense,site=front.yaml,decimate=3."
            )
        if key.strip() in options:
            raise DepthError(f"The option '{key.strip()}' is given twice in '{text}'.")
        options[key.strip()] = _value(key.strip(), value.strip())
    return name, options


def make_source(name: str, options: dict[str, Any]) -> DepthSource:
    """A source by name; it is not open yet.

    Args:
        name: A name of :func:`source_names`.
        options: :data:`MOUNT_OPTIONS`, and the source's own.

    Raises:
        UnknownNameError: If there is no such source, or it has no such option.
        DepthError: If its package is not installed, or an option makes no sense.
    """
    make = load_plugin(find_plugin(GROUP, name, "depth source"), "Depth source", DepthError)
    parameters = list(inspect.signature(make).parameters.values())[1:]
    known = [item.name for item in parameters]
    own = {key: value for key, value in options.items() if key not in MOUNT_OPTIONS}
    if not any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters):
        for key in own:
            if key not in known:
                raise UnknownNameError(f"option of depth source '{name}'", key, [*MOUNT_OPTIONS, *known])
    for item in parameters:
        if item.name in own:
            own[item.name] = _checked(name, item, own[item.name])
    mount = _mount({key: value for key, value in options.items() if key in MOUNT_OPTIONS})
    try:
        return make(mount, **own)
    except GantryError:
        raise
    except (TypeError, ValueError) as error:
        raise DepthError(f"Depth source '{name}': an option is of the wrong type ({error}).") from error


def make_sources(choices: Sequence[str]) -> list[DepthSource]:
    """The sources of texts ``NAME,KEY=VALUE,...``; see :func:`make_source`."""
    return [make_source(*parse_choice(text)) for text in choices]


def require_mount(mount: CameraMount | None, name: str) -> CameraMount:
    """The mount of a camera that tells none itself.

    Raises:
        DepthError: If there is none, with how to give it.
    """
    if mount is None:
        raise DepthError(
            f"Depth source '{name}' needs to know where the camera is on the robot: site=FILE, which 'gantry calibrate "
            "camera' writes, or pose='x y z roll pitch yaw' in m and rad, for example pose='0.32 0 0.06 0 0.52 0'."
        )
    return mount


_KINDS = {"int": int, "float": (int, float), "bool": bool, "str": str}
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


def _checked(source: str, parameter: inspect.Parameter, value: Any) -> Any:
    """The value if it is of the parameter's plain type, a number for a text as text."""
    kind = parameter.annotation if isinstance(parameter.annotation, str) else ""
    if kind == "str" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # Serial numbers are digits.
    if kind in _KINDS and (not isinstance(value, _KINDS[kind]) or (kind != "bool" and isinstance(value, bool))):
        raise DepthError(f"Option '{parameter.name}' of depth source '{source}' is {value!r}, expected {_WORDS[kind]}.")
    return value


def _value(key: str, text: str) -> Any:
    if key == "serial":  # Leading zeros count.
        return text
    try:
        return parse_json(text, f"the value of {key}")
    except JsonSyntaxError:
        return text
    except JsonError as error:
        raise DepthError(str(error)) from error


def _mount(options: dict[str, Any]) -> CameraMount | None:
    if "site" in options and "pose" in options:
        raise DepthError("site and pose both say where the camera is; give one of them.")
    if "site" in options:
        mount = mount_of(load_site(str(options["site"])), str(options["site"]))
    elif "pose" in options:
        try:
            mount = mount_of_pose(tuple(float(part) for part in str(options["pose"]).split()))
        except ValueError as error:
            raise DepthError(
                f"pose is '{options['pose']}', expected six numbers: x y z in m, roll pitch yaw in rad."
            ) from error
    else:
        if options:
            raise DepthError(f"{', '.join(options)}: where the camera is must be given too, by site or pose.")
        return None
    changes = {key: value for key, value in options.items() if key not in ("site", "pose")}
    for key, value in changes.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DepthError(f"Option '{key}' of a depth source is {value!r}, expected a number.")
    return CameraMount(**{**vars(mount), **changes})

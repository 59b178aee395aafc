"""Off-screen drawing of MuJoCo, settled before MuJoCo is imported; what does not draw needs none of it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable

SETTING, PLATFORM = "MUJOCO_GL", "PYOPENGL_PLATFORM"
"""Environment variables that MuJoCo and OpenGL's bindings read when they are first imported."""
OFF = ("disable", "disabled", "off", "false", "0")
"""Values of :data:`SETTING` by which MuJoCo draws nothing."""
WINDOWS = ("glfw", "glx", "enable", "enabled", "on", "true", "1")
"""Values by which it draws by GLFW, which needs a display."""

trouble = ""
"""Reason for which nothing can be drawn off screen with the present settings; empty if that is not known to fail."""


def choose_drawing() -> None:
    """Settle how MuJoCo draws off screen, which it reads once, when it is first imported.

    Asked for a way that is not there, MuJoCo cannot even be imported; and mjlab asks for EGL where nothing is chosen.
    So a way that is not there is switched off, and :data:`trouble` says why to what wants to draw.
    """
    global trouble
    if not sys.platform.startswith("linux"):
        return
    given = os.environ.get(SETTING, "").lower().strip()
    if given in OFF:
        return
    wanted = given or "egl"
    trouble = _trouble_of(wanted, given)
    os.environ[SETTING] = "disabled" if trouble else wanted


def _trouble_of(wanted: str, given: str) -> str:
    """Reason for which a way to draw cannot be had; empty if it can, as far as its libraries tell."""
    ways: dict[str, Callable[[], bool]] = {
        "egl": lambda: _loads("libEGL.so.1"),
        "osmesa": lambda: any(_loads(name) for name in ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so")),
        **dict.fromkeys(WINDOWS, lambda: importlib.util.find_spec("glfw") is not None),
    }
    if wanted not in ways:
        return f"{SETTING} is '{given}', expected egl, osmesa, glfw or off. Unset it, or set it to egl."
    platform = os.environ.get(PLATFORM, "").lower().strip()
    if wanted in ("egl", "osmesa") and platform not in ("", wanted):
        return f"{PLATFORM} is '{platform}', which does not go with drawing by '{wanted}'. Unset {PLATFORM}."
    if ways[wanted]():
        return ""
    if not given:
        return "EGL is not installed (Debian packages libegl1 and libgl1-mesa-dri)."
    lacks = {"egl": "EGL (Debian package libegl1)", "osmesa": "OSMesa (Debian package libosmesa6)"}
    return (
        f"{SETTING} is '{given}', and {lacks.get(wanted, 'the Python package glfw')} is not installed. "
        f"Unset {SETTING}{'' if wanted == 'egl' else ', or set it to egl'}."
    )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True

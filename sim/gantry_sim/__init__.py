"""Physics backends, tasks and training."""

import ctypes
import os
import sys


def _choose_drawing() -> None:
    """Settle how MuJoCo draws off screen, which it reads once, when it is first imported.

    Asked for EGL where there is none, MuJoCo cannot even be imported; and mjlab asks for it wherever nobody has chosen.
    """
    if not sys.platform.startswith("linux") or "MUJOCO_GL" in os.environ:
        return
    try:
        ctypes.CDLL("libEGL.so.1")
    except OSError:
        os.environ["MUJOCO_GL"] = "disabled"
    else:
        os.environ["MUJOCO_GL"] = "egl"


_choose_drawing()

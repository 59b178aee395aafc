"""Physics backends, tasks and training."""

import os
import sys

# MuJoCo reads this once, when it is first imported: without a screen only EGL can draw.
if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("MUJOCO_GL", "egl")

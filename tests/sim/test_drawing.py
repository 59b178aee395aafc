"""A way to draw that is not there stops what draws, with the setting that helps, and nothing else."""

import os
import subprocess
import sys

import pytest

SETTINGS = ("MUJOCO_GL", "PYOPENGL_PLATFORM")
CODE = """
import gantry_sim.backends.mujoco_robot as m
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
robot = m.MujocoRobot(robot_spec("go2"), visuals=False)
robot.sleep_until(0.02)
print("steps")
try:
    robot.render(64, 36)
except GantryError as error:
    print(error)
robot.close()
"""


def said(**settings):
    environment = {key: value for key, value in os.environ.items() if key not in SETTINGS} | settings
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"MUJOCO_GL": "left-over"}, ("MUJOCO_GL is 'left-over'", "egl, osmesa, glfw or off")),
        ({"MUJOCO_GL": "egl", "PYOPENGL_PLATFORM": "osmesa"}, ("PYOPENGL_PLATFORM is 'osmesa'",)),
        ({"PYOPENGL_PLATFORM": "osmesa"}, ("Unset PYOPENGL_PLATFORM",)),
        ({"MUJOCO_GL": "off"}, ("Cannot draw off screen here",)),
    ],
)
def test_what_does_not_draw_runs_and_what_draws_names_the_setting(settings, words):
    text = said(**settings)
    assert text.startswith("steps\nCannot draw off screen here")
    assert all(word in text for word in words)


def test_osmesa_that_is_not_installed_is_named(tmp_path):
    text = said(MUJOCO_GL="osmesa")
    if text == "steps\n":
        pytest.skip("OSMesa is installed here")
    assert "MUJOCO_GL is 'osmesa', and OSMesa (Debian package libosmesa6) is not installed." in text
    assert "Unset MUJOCO_GL, or set it to egl." in text


def test_an_empty_setting_is_none():
    assert said(MUJOCO_GL="").startswith("steps\n")

"""A policy to look at: in MuJoCo's viewer with the keyboard as the operator, or as a film where there is no screen."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle, load_bundle
from gantry_deploy.contract.policy_contract import CommandSpec
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Event, Mode, SafetyConfig, SafetyMachine
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.errors import SafetyError
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.report import encode_mp4
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.demo.profile import Profile, command_at, total_s
from gantry_sim.training.run_folder import CONFIG_FILE
from gantry_sim.viewing.replay import PoseLog, film, frame_times

FPS = 25.0
"""Of a film."""
STEP = 0.1
"""Change per key press, in m/s and rad/s."""
LYING_S = 2.0
"""Time for which a robot that was damped is shown lying before it is put back on its feet."""

CLOSING_S = 5.0
"""Time that the window may take to close."""

KEYS: dict[int, tuple[int, float]] = {265: (0, STEP), 264: (0, -STEP), 263: (2, STEP), 262: (2, -STEP)} | {
    ord("7"): (1, STEP),
    ord("9"): (1, -STEP),
}
"""Key code of GLFW -> which entry of the command it changes, and by how much. The viewer itself uses most letters."""
STOP_KEYS, BACK_KEYS = (257, 335), (ord("8"),)
"""Key codes that set the command to zero, and that put the robot back to its start."""
KEY_HELP = """keys, with the viewer's window in front:
  up, down      faster ahead, faster back
  left, right   turn left, turn right
  7, 9          walk to the left, to the right
  enter         stand still
  8             back to the start
Close the window or press Ctrl-C to end."""
"""Help on the keys."""


def _require_window() -> None:
    """Raise a GantryError if no window can be opened; the viewer would end the process."""
    import glfw

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ready = glfw.init()
        glfw.terminate()
    if not ready:
        reason = "; ".join(str(warning.message) for warning in told) or "GLFW gives no reason"
        raise GantryError(f"No window can be opened here ({reason}). A film needs none: --video FILE.mp4.")


@contextlib.contextmanager
def bundle_of(source: Path) -> Iterator[Bundle]:
    """A bundle, or the newest checkpoint of a run folder exported for as long as this lasts."""
    if not (source / CONFIG_FILE).is_file():
        yield load_bundle(source)
        return
    from gantry_sim.training.train import export_run, open_trained

    cfg, trained = open_trained(source)
    with tempfile.TemporaryDirectory(prefix="gantry-play-") as folder:
        yield load_bundle(export_run(cfg, source, trained, Path(folder) / "bundle"))


def make_film(
    bundle: Bundle, profile: Profile, options: dict[str, Any], share: Callable[[float], None]
) -> tuple[bytes, str]:
    """Walk a profile as fast as this machine can, then draw it.

    Args:
        bundle: The policy.
        profile: What it is asked for.
        options: Of :class:`gantry_sim.backends.mujoco_robot.MujocoRobot`.
        share: Takes the share of the pictures that are drawn.

    Returns:
        The MP4, and why the walk ended early; empty if it did not.

    Raises:
        GantryError: If the robot cannot stand up, or if this machine cannot draw off screen.
    """
    spec = robot_spec(bundle.contract.robot)
    robot = mujoco_robot(spec, {"visuals": False, **options})
    log = PoseLog()
    try:
        robot.connect()
        controller = Controller(robot, PolicyRunner(bundle, spec), SafetyMachine(spec), log)
        walk = WalkSession(controller, lambda time_s: command_at(profile, time_s), total_s(profile), lambda text: None)
        walk.run()
    finally:
        robot.close()
    poses = log.poses()
    total = len(frame_times(poses, FPS))

    def frames() -> Iterator[NDArray[np.uint8]]:
        for index, frame in enumerate(film(spec, poses, FPS), start=1):
            yield frame
            share(index / total)

    fault = controller.safety.fault
    trouble = "" if walk.completed else fault.text if fault is not None else "the policy stopped"
    return encode_mp4(frames(), FPS), trouble


def mujoco_robot(spec: RobotSpec, options: dict[str, Any]) -> MujocoRobot:
    """Simulated robot, by way of the registry, which answers an unknown option with the ones that there are."""
    robot = make_backend("mujoco", spec, **options)
    assert isinstance(robot, MujocoRobot)
    return robot


class Keyboard:
    """The operator: turns keys into a command within the trained range.

    Args:
        spec: The command.
        say: Takes a line whenever the command changes.
    """

    def __init__(self, spec: CommandSpec, say: Callable[[str], None]) -> None:
        self.command = np.zeros(len(spec.names))
        """What is asked for now, shape (3,)."""
        self.wants_back = False
        """Whether the robot is to be put back to its start."""
        self._lower, self._upper = np.array(spec.lower), np.array(spec.upper)
        self._say = say

    def press(self, key: int) -> None:
        """Take a key code; called from the viewer's thread."""
        command = self.command.copy()
        if key in KEYS:
            index, change = KEYS[key]
            command[index] += change
        elif key in STOP_KEYS:
            command[:] = 0.0
        elif key in BACK_KEYS:
            self.wants_back = True
            return
        else:
            return
        # Adding tenths leaves dust that would be shown as -0.
        self.command = np.round(np.clip(command, self._lower, self._upper), 6) + 0.0
        x, y, yaw = self.command
        self._say(f"{x:+.1f} m/s ahead, {y:+.1f} m/s left, {yaw:+.1f} rad/s")


class LiveWalk:
    """A policy in the viewer: stands up, walks, and is put back on its feet when it has been damped.

    Args:
        bundle: The policy.
        options: Of :class:`gantry_sim.backends.mujoco_robot.MujocoRobot`.
        say: Takes lines for people.
    """

    def __init__(self, bundle: Bundle, options: dict[str, Any], say: Callable[[str], None]) -> None:
        spec = robot_spec(bundle.contract.robot)
        self.robot = mujoco_robot(spec, {"realtime": True, **options})
        self.keyboard = Keyboard(bundle.contract.command, say)
        # A viewer on a small machine draws at the loop's expense; a late tick does no harm here.
        config = SafetyConfig(max_missed_deadlines=1000, state_timeout_s=1.0)
        self.controller = Controller(self.robot, PolicyRunner(bundle, spec), SafetyMachine(spec, config))
        self._say = say
        self._damped_s: float | None = None

    def run(self, command: NDArray[np.float64] | None) -> None:
        """Open the window and stay until it is closed.

        Args:
            command: Shape (3,), what is asked for until a key is pressed; zero if not given.

        Raises:
            GantryError: If no window can be opened.
        """
        _require_window()
        import mujoco.viewer

        if command is not None:
            self.keyboard.command = command
        self.robot.connect()
        others = set(threading.enumerate())
        try:
            with mujoco.viewer.launch_passive(
                self.robot.model, self.robot.data, key_callback=self.keyboard.press, show_left_ui=False
            ) as viewer:
                self._follow(viewer)
                self.controller.run(
                    command_input=lambda time_s: self.keyboard.command, on_tick=lambda tick: self.show(tick, viewer)
                )
        finally:
            self.robot.close()
            # The viewer draws in a thread of its own; a process that ends under it hangs in the graphics driver.
            for thread in set(threading.enumerate()) - others:
                thread.join(CLOSING_S)

    def show(self, report: TickReport, viewer: Any) -> None:
        """After a tick: draw it, ask for the next mode, put a damped robot back."""
        if not viewer.is_running():
            self.controller.stop()
            return
        viewer.sync()
        self.advance(report)

    def advance(self, report: TickReport) -> None:
        """Ask for the next mode, or put a robot back that has been damped for a while."""
        if report.mode is Mode.DAMP and self._damped_s is None:
            self._damped_s = report.time_s
            self._say(f"damped: {report.fault.text if report.fault is not None else 'no reason given'}")
        lain = self._damped_s is not None and report.time_s - self._damped_s >= LYING_S
        with contextlib.suppress(SafetyError):  # Not yet; the next tick asks again.
            if lain or self.keyboard.wants_back:
                self._put_back(report.mode)
            elif report.mode is Mode.PASSIVE:
                self.controller.request(Event.STAND)
            elif report.mode is Mode.STAND:
                self.controller.request(Event.START)

    def _put_back(self, mode: Mode) -> None:
        if mode is not Mode.DAMP:
            self.controller.request(Event.ESTOP)
        self.robot.reset()
        self.controller.request(Event.RESET)
        self.keyboard.wants_back, self._damped_s = False, None

    def _follow(self, viewer: Any) -> None:
        """Let the camera go along with the robot."""
        import mujoco

        with viewer.lock():
            viewer.cam.type = mujoco.mjtCamera.mjCAMERA_TRACKING.value
            viewer.cam.trackbodyid = int(self.robot.model.body_rootid[self.robot.model.jnt_bodyid[0]])
            viewer.cam.azimuth, viewer.cam.elevation, viewer.cam.distance = 50.0, -16.0, 2.0

"""Recordings of simulated robots with known dynamics, for tests and for measurements of the identification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.commission.gentle import GentleRobot
from gantry_deploy.commission.moves import GentleMotion
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import GantryError
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.identification.excitation import Excitation, ExcitationCfg
from gantry_sim.identification.motion_log import COMMAND_FIELDS, MotionLog
from gantry_sim.robots.sensor_noise import tilted

FloatArray = NDArray[np.float64]


COMMAND_S, STAND_EVERY = 3.0, 3
"""Time for which a walking robot is asked for the same, and every so many of these times in which it is to stand."""


@dataclass(frozen=True)
class ReadingNoise:
    """Standard deviations of readings, normal and independent of each other."""

    joint_pos_rad: float = 1e-3
    """Of encoders."""
    joint_vel_rad_s: float = 0.05
    """Of joint speeds."""
    joint_effort_nm: float = 0.1
    """Of torques."""
    ang_vel_rad_s: float = 0.02
    """Of the gyroscope."""
    attitude_rad: float = 2e-3
    """Of roll and pitch."""


def log_of(
    spec: RobotSpec,
    states: Sequence[RobotState],
    commands: Sequence[tuple[float, JointCommand]],
    noise: ReadingNoise | None = None,
    seed: int = 0,
    source: str = "",
) -> MotionLog:
    """A log of T readings and K commands.

    Args:
        spec: The robot.
        states: T readings.
        commands: Time, s, and command, K of them.
        noise: Added to the readings; none if not given.
        seed: Of the noise.
        source: Name for messages.
    """

    def column(name: str, width: int) -> FloatArray:
        values = [getattr(state, name) for state in states]
        return np.array([np.full(width, np.nan) if value is None else value for value in values], dtype=np.float64)

    n, rng = spec.num_joints, np.random.default_rng(seed)
    size = noise or ReadingNoise(0.0, 0.0, 0.0, 0.0, 0.0)

    def noisy(values: FloatArray, deviation: float) -> FloatArray:
        return values + deviation * rng.standard_normal(values.shape)

    quats = column("quat_base_to_world_wxyz", 4)
    if size.attitude_rad:
        tilt = size.attitude_rad * rng.standard_normal((len(quats), 2))
        quats = np.array([tilted(quat, angles) for quat, angles in zip(quats, tilt, strict=True)])
    return MotionLog(
        spec=spec,
        time_s=np.array([state.stamp_s for state in states]),
        joint_pos_rad=noisy(column("joint_pos_rad", n), size.joint_pos_rad),
        joint_vel_rad_s=noisy(column("joint_vel_rad_s", n), size.joint_vel_rad_s),
        joint_effort_nm=noisy(column("joint_effort_nm", n), size.joint_effort_nm),
        quat_base_to_world_wxyz=quats,
        ang_vel_base_in_base_rad_s=noisy(column("ang_vel_base_in_base_rad_s", 3), size.ang_vel_rad_s),
        foot_contact=column("foot_contact", len(spec.feet)),
        command_time_s=np.array([time_s for time_s, _ in commands]),
        commands=np.array([[getattr(command, name) for name in COMMAND_FIELDS] for _, command in commands]),
        source=source,
    )


class NotingRobot:
    """Passes everything on, and keeps what was read and sent.

    Args:
        robot: The robot.
        sample_hz: Readings per second that are taken while the caller waits; 0 for none but the caller's.
    """

    def __init__(self, robot: Robot, sample_hz: float = 0.0) -> None:
        self.spec, self._robot, self._sample_hz = robot.spec, robot, sample_hz
        self.states: list[RobotState] = []
        """Readings in their order, each once."""
        self.commands: list[tuple[float, JointCommand]] = []
        """Times, s, and commands as they were sent."""

    def __getattr__(self, name: str) -> object:
        """Whatever else the robot can do."""
        return getattr(self._robot, name)

    def connect(self) -> None:
        """Connect the robot."""
        self._robot.connect()

    def close(self) -> None:
        """Release the robot."""
        self._robot.close()

    def now_s(self) -> float:
        """Time on the robot's clock."""
        return self._robot.now_s()

    def read(self) -> RobotState:
        """The newest state."""
        state = self._robot.read()
        if not self.states or state.stamp_s > self.states[-1].stamp_s:
            self.states.append(state)
        return state

    def write(self, command: JointCommand) -> JointCommand | None:
        """Send a command; returns what was sent."""
        sent = self._robot.write(command)
        if sent is not None:
            self.commands.append((self._robot.now_s(), sent))
        return sent

    def sleep_until(self, time_s: float) -> None:
        """Wait on the robot's clock, reading in between."""
        if self._sample_hz:
            while (now_s := self._robot.now_s()) < time_s - 1e-6:
                self._robot.sleep_until(min(time_s, now_s + 1.0 / self._sample_hz))
                self.read()
            return
        self._robot.sleep_until(time_s)


def hanging_recording(
    spec: RobotSpec,
    truth: RobotDynamics,
    cfg: ExcitationCfg | None = None,
    noise: ReadingNoise | None = None,
    seed: int = 0,
) -> MotionLog:
    """The log of a simulated robot that hangs and is excited.

    Args:
        spec: The robot.
        truth: Its dynamics.
        cfg: The motion; the usual one if not given.
        noise: Of the readings; none if not given.
        seed: Of the noise.
    """
    cfg = cfg or ExcitationCfg()
    robot = NotingRobot(MujocoRobot(spec, fixed_base=True, visuals=False, dynamics=truth))
    robot.connect()
    motion = Excitation(spec, cfg)
    safety = SafetyConfig(max_tilt_rad=np.pi)
    GentleMotion(GentleRobot(robot, cfg.gain_share), cfg.rate_hz, lambda: False, safety).run(motion, motion.duration_s)
    return log_of(spec, robot.states, robot.commands, noise, seed, "simulated hanging robot")


def walking_recording(
    spec: RobotSpec,
    truth: RobotDynamics,
    bundle: Bundle,
    seconds: float = 60.0,
    noise: ReadingNoise | None = None,
    seed: int = 0,
    sample_hz: float = 500.0,
) -> MotionLog:
    """The log of a simulated robot that walks by a policy, with commands that change and times of standing.

    Args:
        spec: The robot.
        truth: Its dynamics.
        bundle: The policy.
        seconds: Time under the policy.
        noise: Of the readings; none if not given. The policy sees none.
        seed: Of commands and noise.
        sample_hz: Readings per second.

    Raises:
        GantryError: If the robot does not walk to the end.
    """
    robot = NotingRobot(MujocoRobot(spec, visuals=False, dynamics=truth), sample_hz)
    robot.connect()
    rng = np.random.default_rng(seed)
    asked = rng.uniform((-0.4, -0.3, -0.8), (0.8, 0.3, 0.8), (int(seconds / COMMAND_S) + 2, 3))
    asked[::STAND_EVERY] = 0.0
    controller = Controller(robot, PolicyRunner(bundle, spec), SafetyMachine(spec, SafetyConfig(max_imu_error_rad=0.5)))
    session = WalkSession(controller, lambda time_s: asked[int(time_s / COMMAND_S)], seconds, lambda _: None)
    session.run()
    if not session.completed:
        raise GantryError(f"The simulated '{spec.name}' did not walk to the end: {controller.statistics()['fault']}.")
    return log_of(spec, robot.states, robot.commands, noise, seed, "simulated walking robot")

"""Motion that shows a hanging robot's motors, friction and delays, and its drive under an operator's eyes, recorded.

The motion is made of sines of many frequencies, slow ramps whose constant speed shows dry friction, and steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.commission.gentle import GentleRobot
from gantry_deploy.commission.moves import RAMP_S, GentleMotion
from gantry_deploy.commission.operator import Operator
from gantry_deploy.control.loop import TickReport
from gantry_deploy.control.modes import Mode
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_deploy.errors import RecordingError
from gantry_deploy.recording.recorder import Recorder
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.passing import PassingRobot
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import GantryError
from gantry_hardware.files.bounds import Range, check_fields
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.identification.swing import branches, hanging_model

FloatArray = NDArray[np.float64]

APPROACH_S = 3.0
"""Time from the pose in which the robot hangs to the middle of the motion, and back to rest at the end."""
FADE_S = 0.5
"""Time in which each part of the motion fades in and out."""
SINES, LOWEST_HZ, HIGHEST_HZ = 8, 0.2, 4.0
"""Number of sines, and range of their frequencies."""
RAMP_PERIOD_S = 8.0
"""Period of the slow ramps, whose constant speed shows dry friction."""
STEP_S = 0.7
"""Time for which a step is held."""
SHARES = {"sines": 0.5, "ramps": 0.25, "steps": 0.25}
"""Shares of the time."""
BETWEEN = 0.99
"""Factor on the sines, whose largest value is looked for at times a hundredth of a second apart."""
SOURCE = "excite"
"""Name of the command source in the recording."""
TELL_EVERY_S = 10.0
"""Time between two lines of progress."""
CHUNK_BYTES = 2 * 2**20
"""Data that is written at once: ticks come five times as often as a policy's."""
ROOM = 0.8
"""Share of the way from the middle to a joint's limit that is used."""


@dataclass(frozen=True)
class ExcitationCfg:
    """Size of the motion."""

    seconds: float = 60.0
    """Length of the motion without approach and return."""
    amplitude_rad: float = 0.3
    """Largest excursion of a target from the middle, rad; m of a joint that slides."""
    speed_share: float = 0.3
    """Largest speed of a target in units of the joint's limit."""
    torque_share: float = 0.4
    """Largest torque that an excursion alone asks for, in units of the joint's limit."""
    gain_share: float = 0.6
    """Share of the robot's own gains."""
    rate_hz: float = 250.0
    """Rate of commands and readings."""
    seed: int = 0
    """Of phases and steps."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES, "Excitation's ")


_RANGES = {
    "seconds": Range(10.0, 600.0),
    "amplitude_rad": Range(0.01, 1.0),
    "speed_share": Range(0.01, 0.6),
    "torque_share": Range(0.01, 0.6),
    "gain_share": Range(0.05, 1.0),
    "rate_hz": Range(200.0, 1000.0),
}


class Excitation:
    """Targets of all joints over time.

    Args:
        spec: The robot.
        cfg: Size of the motion.
        turns: Joints that move together, (k,) each, one set after the other; all at once if not given.

    Raises:
        GantryError: If no joint has room to move.
    """

    def __init__(self, spec: RobotSpec, cfg: ExcitationCfg, turns: list[NDArray[np.intp]] | None = None) -> None:
        self._cfg, self._n = cfg, spec.num_joints
        self.middle_rad = spec.array("default_rad").copy()
        """Shape (n,), pose around which the robot moves."""
        lower, upper = spec.array("lower_rad"), spec.array("upper_rad")
        room = ROOM * np.minimum(self.middle_rad - lower, upper - self.middle_rad)
        stiffness = np.maximum(cfg.gain_share * spec.hold_stiffness_nm_rad, 1e-9)
        torque = cfg.torque_share * spec.array("effort_limit_nm") / stiffness
        self.amplitude_rad = np.minimum.reduce([np.full(self._n, cfg.amplitude_rad), room, torque])
        """Shape (n,), largest excursion of every joint's target."""
        if not (self.amplitude_rad > 1e-3).any():
            raise GantryError(f"'{spec.name}' has no room to move around its default pose.")
        self._turns = [np.arange(self._n)] if turns is None else turns
        self._turn_s = cfg.seconds / len(self._turns)
        rng = np.random.default_rng(cfg.seed)
        base = np.geomspace(LOWEST_HZ, HIGHEST_HZ, SINES)
        # Frequencies of their own, so that no joint's motion is that of another one.
        self._hz = base[:, None] * (1.0 + 0.35 * rng.uniform(-0.5, 0.5, (SINES, self._n)))
        self._phase = rng.uniform(0.0, 2.0 * np.pi, (SINES, self._n))
        self._weight = self._sizes(spec, self._turn_s * SHARES["sines"])
        self._slow_phase = rng.uniform(0.0, 1.0, self._n)
        count = int(np.ceil(self._turn_s / STEP_S)) + 1
        levels = rng.uniform(0.3, 0.7, (count, self._n)) * rng.choice([-1.0, 0.0, 1.0], (count, self._n))
        self._levels = levels * self.amplitude_rad

    @property
    def duration_s(self) -> float:
        """Length of the whole motion with approach and return."""
        return self._cfg.seconds + 2.0 * APPROACH_S

    def __call__(self, time_s: float, start: FloatArray) -> FloatArray:
        """Targets (n,), rad, at a time since the beginning, s, from the pose (n,), rad, of the beginning."""
        if time_s < APPROACH_S:
            return start + _smooth(time_s / APPROACH_S) * (self.middle_rad - start)
        own_s = time_s - APPROACH_S
        pose = self.middle_rad.copy()
        turn = int(own_s / self._turn_s)
        if turn < len(self._turns):
            joints = self._turns[turn]
            pose[joints] += self._away(own_s - turn * self._turn_s)[joints]
        return pose

    def _away(self, time_s: float) -> FloatArray:
        begin_s = 0.0
        for name, share in SHARES.items():
            length_s = share * self._turn_s
            if time_s < begin_s + length_s:
                own_s = time_s - begin_s
                fade = _smooth(min(own_s, length_s - own_s) / FADE_S)
                return fade * getattr(self, f"_{name}")(own_s)
            begin_s += length_s
        return np.zeros(self._n)

    def _sines(self, time_s: float) -> FloatArray:
        return (self._weight * np.sin(2.0 * np.pi * self._hz * time_s + self._phase)).sum(axis=0)

    def _ramps(self, time_s: float) -> FloatArray:
        phase = (time_s / RAMP_PERIOD_S + self._slow_phase) % 1.0
        return self.amplitude_rad * (4.0 * np.abs(phase - 0.5) - 1.0)

    def _steps(self, time_s: float) -> FloatArray:
        return self._levels[int(time_s / STEP_S)]

    def _sizes(self, spec: RobotSpec, seconds: float) -> FloatArray:
        """Shape (sines, n), amplitudes whose sum keeps within excursion and speed."""
        weight = self._hz**-0.5
        times = np.arange(0.0, seconds, 0.01)[:, None, None]
        angle = 2.0 * np.pi * self._hz * times + self._phase
        pos = np.abs((weight * np.sin(angle)).sum(axis=1)).max(axis=0)
        vel = np.abs((2.0 * np.pi * self._hz * weight * np.cos(angle)).sum(axis=1)).max(axis=0)
        speed = self._cfg.speed_share * spec.array("velocity_limit_rad_s")
        return weight * BETWEEN * np.minimum(self.amplitude_rad / pos, speed / vel)


def _smooth(share: float) -> float:
    """From 0 to 1 without a jump of speed."""
    return 0.5 - 0.5 * float(np.cos(np.pi * min(1.0, max(0.0, share))))


class RecordedRobot(PassingRobot):
    """Passes everything on, and hands each reading with the command that follows it to a recorder.

    Args:
        robot: The robot.
        recorder: Gets the reports.
    """

    def __init__(self, robot: Robot, recorder: Recorder) -> None:
        super().__init__(robot)
        self._recorder = recorder
        self._state: RobotState | None = None
        self._last_s: float | None = None

    def read(self) -> RobotState:
        """The newest state."""
        self._state = self._robot.read()
        return self._state

    def write(self, command: JointCommand) -> JointCommand | None:
        """Send a command and record it; returns what was sent."""
        sent, now_s = self._robot.write(command), self._robot.now_s()
        period_s = 0.0 if self._last_s is None else now_s - self._last_s
        mode = Mode.POLICY if sent is not None and bool((sent.stiffness_nm_rad > 0.0).any()) else Mode.DAMP
        report = TickReport(now_s, mode, None, self._state, np.zeros(0), None, sent, period_s, 0.0, source=SOURCE)
        self._recorder.record(report)
        self._last_s = now_s
        return sent


def excite(robot: Robot, operator: Operator, cfg: ExcitationCfg, path: Path, *, by_branch: bool, patient: bool) -> bool:
    """Move a connected robot that hangs, and record it; false if the operator did not want it.

    Args:
        robot: Connected.
        operator: Confirms, and may stop the motion at any time.
        cfg: Size of the motion.
        path: MCAP file to write.
        by_branch: Move legs, or what else hangs at the base, one after the other.
        patient: Wait for the disk, for robots whose clock waits too.

    Raises:
        SafetyError: If the robot may not be commanded, a fault is found, or the operator stops the motion; the robot is
            damped then.
        RecordingError: If the recording cannot be opened, or ended early.
    """
    spec = robot.spec
    turns = branches(hanging_model(spec), spec) if by_branch else None
    motion = Excitation(spec, cfg, turns)
    for joint, size in zip(spec.joints, motion.amplitude_rad, strict=True):
        operator.tell(f"  {joint.name}: {size:.2f} rad around {joint.default_rad:.2f} rad")
    question = (
        f"Move all joints so for {motion.duration_s:.0f} s at {100.0 * cfg.gain_share:.0f} % of the gains? The base "
        "must be held fixed, the legs hang free, and a hand be at the emergency stop; Enter stops."
    )
    if operator.ask(question) == "n":
        return False
    told = 0.0

    def stop() -> bool:
        nonlocal told
        past_s = robot.now_s() - begin_s
        if past_s >= told + TELL_EVERY_S:
            told += TELL_EVERY_S
            operator.tell(f"{told:.0f} of {RAMP_S + motion.duration_s:.0f} s")
        return operator.pressed()

    with Recorder(path, None, spec, lossless=patient, queue_size=10_000, chunk_bytes=CHUNK_BYTES) as recorder:
        gentle = GentleRobot(RecordedRobot(robot, recorder), cfg.gain_share)
        begin_s = robot.now_s()
        driver = GentleMotion(gentle, cfg.rate_hz, stop, SafetyConfig(max_tilt_rad=np.pi))
        driver.run(motion, motion.duration_s)
    if recorder.failure is not None or recorder.dropped:
        raise RecordingError(recorder.failure or f"{recorder.dropped} readings were lost: the disk is too slow.")
    return True

"""Drive of a hanging robot through the motion that shows its dynamics, recorded, under an operator's eyes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gantry_deploy.commission.gentle import GentleRobot
from gantry_deploy.commission.moves import RAMP_S, GentleMotion
from gantry_deploy.commission.operator import Operator
from gantry_deploy.control.loop import TickReport
from gantry_deploy.control.modes import Mode
from gantry_deploy.control.safety_config import SafetyConfig
from gantry_deploy.errors import RecordingError
from gantry_deploy.recording.recorder import Recorder
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_sim.identification.excitation import Excitation, ExcitationCfg
from gantry_sim.identification.swing import branches, hanging_model

SOURCE = "excite"
"""Name of the command source in the recording."""
TELL_EVERY_S = 10.0
"""Time between two lines of progress."""
CHUNK_BYTES = 2 * 2**20
"""Data that is written at once: ticks come five times as often as a policy's."""


class RecordedRobot:
    """Passes everything on, and hands each reading with the command that follows it to a recorder.

    Args:
        robot: The robot.
        recorder: Gets the reports.
    """

    def __init__(self, robot: Robot, recorder: Recorder) -> None:
        self.spec, self._robot, self._recorder = robot.spec, robot, recorder
        self._state: RobotState | None = None
        self._last_s: float | None = None

    def __getattr__(self, name: str) -> object:
        """Whatever else the robot can do."""
        return getattr(self._robot, name)

    def connect(self) -> None:
        """Connect the robot."""
        self._robot.connect()

    def now_s(self) -> float:
        """Time on the robot's clock."""
        return self._robot.now_s()

    def sleep_until(self, time_s: float) -> None:
        """Wait on the robot's clock."""
        self._robot.sleep_until(time_s)

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

    def close(self) -> None:
        """Release the robot."""
        self._robot.close()


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

"""A car on a VESC, as a backend of the control loop: speed set-points and servo positions out, motor values in.

A VESC has no sense of place. The pose is dead reckoning from the point of :meth:`VescCar.connect`: travel by the
tachometer, turning by the commanded steering angle. It drifts; a policy that follows a route needs odometry of another
source, over ROS 2.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace

from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.backends.steering import SteeringEstimate
from gantry_hardware.errors import RobotError
from gantry_hardware.files.bounds import finite
from gantry_hardware.model.cars import STANDSTILL_M_S
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots.cars import car_of
from gantry_hardware.vesc import messages
from gantry_hardware.vesc.calibration import load_calibration
from gantry_hardware.vesc.dead_reckoning import DRIVE, STEERING, DeadReckoning
from gantry_hardware.vesc.frames import FrameReader, frame
from gantry_hardware.vesc.messages import VescValues
from gantry_hardware.vesc.serial_port import SerialPort

MAX_REPLY = 128
"""Longest payload of a reply to ``GET_VALUES``, bytes, with room for later firmware."""
JOIN_S = 2.0
"""Longest wait for the thread's end."""
STOP_S = 3.0
"""Longest time for which :meth:`VescCar.close` brakes."""


class VescCar:
    """Implements :class:`gantry_hardware.backends.backend.Robot` for a car on a VESC.

    A thread asks for the motor's values, and guards the commands: if none has come for ``command_timeout_s`` it brakes
    with ``brake_current_a`` of the calibration until the car stands, then lets the motor go. Should the whole process
    die, the VESC's own timeout remains (App Settings, General: set its brake current, or the car rolls on).

    Args:
        spec: A car; its limits must be within those of the calibration.
        port: Serial port, for example ``/dev/ttyACM0``.
        calibration: YAML file with a :class:`gantry_hardware.vesc.calibration.VescCalibration`; empty: the stock one.
        baud: Rate of the port; USB ignores it.
        telemetry_hz: Rate at which the motor's values are asked for.
        command_timeout_s: Age of the newest command from which the car is braked.
        connect_timeout_s: How long :meth:`connect` waits for a first answer.

    Raises:
        GantryError: If the robot is no car, its limits are beyond the calibration's, or an option is out of range.
    """

    def __init__(
        self,
        spec: RobotSpec,
        *,
        port: str = "/dev/ttyACM0",
        calibration: str = "",
        baud: int = 115200,
        telemetry_hz: float = 50.0,
        command_timeout_s: float = 0.3,
        connect_timeout_s: float = 2.0,
    ) -> None:
        car = car_of(spec)
        self.spec = spec
        self.calibration = load_calibration(calibration)
        """Of servo and motor."""
        self.calibration.require_car(car)
        self._port_path, self._baud = port, baud
        self._period_s = 1.0 / finite("telemetry_hz", telemetry_hz, 5.0, 500.0, RobotError)
        self._command_timeout_s = finite("command_timeout_s", command_timeout_s, 0.05, 10.0, RobotError)
        self._connect_timeout_s = finite("connect_timeout_s", connect_timeout_s, 0.1, 60.0, RobotError)
        self._limiter = CommandLimiter(spec)
        self._odometry = DeadReckoning(self.calibration, car.wheelbase_m)
        self._steering = SteeringEstimate(car.steering_rate_limit_rad_s)
        self._reader = FrameReader(MAX_REPLY)
        self._port: SerialPort | None = None
        self._lock = threading.Lock()
        self._answered = threading.Condition()
        self._newest: tuple[VescValues, float] | None = None
        self._failure = ""
        self._received_bytes = 0
        self._commanded_s: float | None = None
        self._braking = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.brakings = 0
        """Times that the car was braked because commands had stopped."""

    def connect(self) -> None:
        """Open the port and wait for the VESC's values; nothing is commanded.

        Raises:
            RobotError: If the port cannot be opened, or no VESC answers.
        """
        if self._port is not None:
            return
        self._port = SerialPort(self._port_path, self._baud)
        self._newest, self._failure, self._commanded_s, self._received_bytes = None, "", None, 0
        self._reader = FrameReader(MAX_REPLY)
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(self._port,), name="vesc", daemon=True)
        self._thread.start()
        deadline_s = time.monotonic() + self._connect_timeout_s
        with self._answered:
            while self._newest is None and not self._failure and time.monotonic() < deadline_s:
                self._answered.wait(0.05)
        if self._newest is None:
            text = self._failure or self._silence_text()
            self.close()
            raise RobotError(text)

    def now_s(self) -> float:
        """Local monotonic time."""
        return time.monotonic()

    def sleep_until(self, time_s: float) -> None:
        """Wait for a local monotonic time."""
        time.sleep(max(0.0, time_s - time.monotonic()))

    def read(self) -> RobotState:
        """The newest state, stamped with the time at which the VESC's answer came.

        Raises:
            RobotError: If not connected, if the port is gone, or while the VESC reports a fault.
        """
        newest = self._newest
        if newest is None or self._port is None:
            raise RobotError(f"The VESC on {self._port_path} is not connected; call connect() first.")
        if self._failure:
            raise RobotError(self._failure)
        values, stamp_s = newest
        if values.fault:
            raise RobotError(f"The VESC on {self._port_path} reports fault {values.fault_text}; its motor is off.")
        speed = self.calibration.speed_m_s(values.erpm)
        return self._odometry.state(stamp_s, self._steering.at(stamp_s), speed)

    def write(self, command: JointCommand) -> JointCommand | None:
        """Send steering and speed of a command and return what the VESC was told, within all limits.

        A command that does not hold the steering has no angle that counts: the servo stays. One that neither holds the
        steering nor damps the drive lets the motor roll; other speeds are servoed.

        Raises:
            RobotError: If not connected, if shapes or numbers are wrong, or if the port is gone.
        """
        limited, _ = self._limiter.clamp(command)
        if self._port is None:
            raise RobotError(f"The VESC on {self._port_path} is not connected; call connect() first.")
        if self._failure:
            raise RobotError(self._failure)
        now_s, pos, vel = time.monotonic(), limited.pos_rad.copy(), limited.vel_rad_s.copy()
        payloads = []
        if limited.stiffness_nm_rad[STEERING] > 0.0:
            servo = round(self.calibration.servo(float(pos[STEERING])), 3)
            pos[STEERING] = self.calibration.steering_rad(servo)
            self._steering.tell(float(pos[STEERING]), now_s)
            payloads.append(messages.set_servo_pos(servo))
        if limited.damping_nm_s_rad[DRIVE] > 0.0:
            erpm = self.calibration.erpm(float(vel[DRIVE]))
            vel[DRIVE] = self.calibration.speed_m_s(erpm)
            payloads.append(messages.set_rpm(erpm))
        else:
            payloads.append(messages.set_current(0.0))
        with self._lock:
            self._send(self._port, *payloads)
            self._commanded_s = time.monotonic()
        return replace(limited, pos_rad=pos, vel_rad_s=vel)

    def close(self) -> None:
        """Brake to a standstill, let the motor go and release the port; may be called twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        # From now on the thread sees a command that is too old, brakes, and forgets it at standstill.
        deadline_s = time.monotonic() + STOP_S
        with self._lock:
            if self._commanded_s is not None:
                self._commanded_s = -math.inf
        while self._commanded_s is not None and not self._failure and time.monotonic() < deadline_s:
            time.sleep(0.01)
        self._stop.set()
        thread.join(JOIN_S)
        port, self._port = self._port, None
        if port is not None:
            port.close()

    def statistics(self) -> dict[str, float]:
        """Refused frames, skipped bytes and brakings so far, and the VESC's newest values."""
        counts = {"refused frames": self._reader.refused, "skipped bytes": self._reader.skipped}
        values = {} if self._newest is None else vars(self._newest[0])
        return {**counts, "brakings": self.brakings, **values}

    def _run(self, port: SerialPort) -> None:
        next_s = time.monotonic()
        try:
            while not self._stop.is_set():
                with self._lock:
                    self._guard(port)
                    self._send(port, messages.get_values())
                next_s = max(next_s + self._period_s, time.monotonic())
                self._listen(port, next_s)
        except RobotError as error:
            self._failure = str(error)
            with self._answered:
                self._answered.notify_all()

    def _listen(self, port: SerialPort, until_s: float) -> None:
        """Take what comes until a time."""
        while (left_s := until_s - time.monotonic()) > 0.0 and not self._stop.is_set():
            data = port.read(left_s)
            self._received_bytes += len(data)
            for payload in self._reader.feed(data):
                try:
                    values = messages.read_values(payload)
                except RobotError:  # Another answer, for example to a tool of the vendor's before.
                    continue
                now_s = time.monotonic()
                self._odometry.take(values.tachometer, self._steering.at(now_s))
                with self._answered:
                    self._newest = (values, now_s)
                    self._answered.notify_all()

    def _guard(self, port: SerialPort) -> None:
        """Brake if commands have stopped; at standstill let the motor go."""
        told_s, now_s = self._commanded_s, time.monotonic()
        if told_s is None or now_s - told_s <= self._command_timeout_s:
            self._braking = False
            return
        if not self._braking:
            self._braking, self.brakings = True, self.brakings + 1
        newest = self._newest
        known = newest is not None and now_s - newest[1] <= 5.0 * self._period_s
        if known and newest is not None and abs(self.calibration.speed_m_s(newest[0].erpm)) <= STANDSTILL_M_S:
            self._send(port, messages.set_current(0.0))
            self._commanded_s = None
            return
        self._send(port, messages.set_current_brake(self.calibration.brake_current_a))

    @staticmethod
    def _send(port: SerialPort, *payloads: bytes) -> None:
        port.write(b"".join(map(frame, payloads)))

    def _silence_text(self) -> str:
        heard = f"{self._received_bytes} bytes came, {self._reader.refused} frames with a wrong length or CRC"
        return (
            f"No VESC answers on {self._port_path} within {self._connect_timeout_s:g} s: expected replies to "
            f"GET_VALUES, {heard if self._received_bytes else 'nothing came'}. Is it powered, is this its port, and is "
            f"its rate {self._baud} baud, if it is a UART?"
        )

"""The fake robot: physics, its own controller, motors that obey once they are released, and the messages."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_hardware.unitree.idl import CLASSES
from gantry_hardware.unitree.link import Link, send, take
from gantry_hardware.unitree.models import unitree_model
from gantry_hardware.unitree.motor_loop import COMMAND_TOPIC, STATE_TOPIC
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.unitree.command_judge import CommandJudge, is_damping
from gantry_sim.unitree.faults import FaultBox, Reading
from gantry_sim.unitree.ledger import Ledger
from gantry_sim.unitree.state_codec import StateEncoder
from gantry_sim.unitree.switcher import Switcher

STEP_MS = 2
"""Physics step, and the period of the states."""
MAX_LAG_MS = 250
"""Physics that is further behind leaves the rest out."""
MACHINE = 5
"""Kind of machine that the fake G1 is: 29 joints, waist free."""
MOTOR_C = 35.0
"""Temperature of the motors."""
BATTERY_PERCENT = 80
"""Charge."""
FOOT_FORCE = 60
"""Reading of a foot that stands on the ground."""
WRITERS_WINDOW_MS = 100
"""Two writers that take turns within this time fight; one that follows another does not."""
SELECT_SERVICE = "mcf"
"""Name of the robot's own controller."""


class FakeRobot:
    """A Go2 or G1 in MuJoCo behind the real one's topics.

    Its own controller holds the default pose until the motion switcher releases it; then the motors obey
    ``rt/lowcmd``. Commands that stay away for ``command_timeout_ms`` damp it. Time is the machine's, counted in
    milliseconds; everything that it notes is on that clock.

    Args:
        robot: ``go2`` or ``g1``.
        interface: Network interface.
        domain: DDS domain.
        mode: Own controller that is active at the start; empty for none.
        command_timeout_ms: Time without a command after which the motors damp.
        noise: Multiple of the usual sensor noise.
        hang: Hang the robot by its base, as from a gantry.
        terrain: Name of the ground, as of the backend ``mujoco``; empty for a flat one.
        terrain_difficulty: From 0 to 1.
        seed: Of noise and faults.
    """

    def __init__(
        self,
        robot: str,
        interface: str,
        domain: int,
        *,
        mode: str = SELECT_SERVICE,
        command_timeout_ms: int = 100,
        noise: float = 0.2,
        hang: bool = False,
        terrain: str = "",
        terrain_difficulty: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.spec: RobotSpec = robot_spec(robot)
        self.model = unitree_model(robot)
        self.ledger = Ledger()
        self.faults = FaultBox(self.spec, np.random.default_rng(seed))
        self.link = Link(interface, domain)
        self._service_link: Link | None = None
        self._place = (interface, domain)
        ground = {"terrain": terrain, "terrain_difficulty": terrain_difficulty}
        self._body = MujocoRobot(self.spec, noise=noise, seed=seed, visuals=False, fixed_base=hang, **ground)
        self._body.connect()
        self._state_kind, self._command_kind = CLASSES[self.model.family.name]
        self._states = self.link.writer(STATE_TOPIC, self._state_kind)
        self._commands = self.link.reader(COMMAND_TOPIC, self._command_kind)
        self._judge = CommandJudge(self.model, self.spec, self.ledger)
        self._encoder = StateEncoder(self.model, self.spec)
        self._timeout_ms = command_timeout_ms
        self._begin_s = time.monotonic()
        self._stepped_ms = 0
        self._last_command_ms: int | None = None
        self._is_stiff = False
        self._writers: dict[int, int] = {}
        self._last_writer: int | None = None
        self.skipped_ms = 0
        """Time that the physics left out because the machine was too busy."""
        self._switcher = Switcher(self.link, mode, self._on_mode)
        self._on_mode(mode)

    @property
    def now_ms(self) -> int:
        """The robot's clock."""
        return int(1e3 * (time.monotonic() - self._begin_s)) // STEP_MS * STEP_MS

    def turn(self) -> None:
        """Catch up with the clock: take commands, step the physics, tell the state."""
        now_ms = self.now_ms
        self._switcher.answer()
        self.faults.expire(now_ms)
        state = self._body.read()
        self._take_commands(state, now_ms)
        self._watch_for_silence(now_ms)
        behind_ms = now_ms - self._stepped_ms
        if behind_ms > MAX_LAG_MS:
            self.skipped_ms += behind_ms - MAX_LAG_MS
            behind_ms = MAX_LAG_MS
        self._stepped_ms = now_ms
        self._body.sleep_until(self._body.now_s() + 1e-3 * behind_ms)
        self._tell(self._body.read(), now_ms)

    def wait(self) -> None:
        """Sleep until the next step."""
        next_s = self._begin_s + 1e-3 * (self._stepped_ms + STEP_MS)
        time.sleep(max(0.0, next_s - time.monotonic()))

    def switch_mode(self, mode: str) -> None:
        """Let the own controller come back by itself, or go."""
        self._switcher.select(mode)

    def restart_body(self) -> None:
        """Put the robot back to its start, upright."""
        self._body.reset()

    def pose(self) -> dict[str, Any]:
        """True place and motion of the base: m, m/s and unit quaternion, for an odometry beside the robot."""
        return {
            "pos_base_in_world_m": self._body.pos_base_in_world_m.tolist(),
            "quat_base_to_world_wxyz": self._body.quat_base_to_world_wxyz.tolist(),
            "lin_vel_base_in_base_m_s": self._body.true_lin_vel_base_in_base_m_s.tolist(),
        }

    def report(self) -> dict[str, Any]:
        """Everything that was noted, as plain data."""
        pos = self._body.pos_base_in_world_m
        return {
            "robot": self.spec.name,
            "link": self.link.text,
            "mode": self._switcher.mode,
            "time_ms": self.now_ms,
            "skipped_ms": self.skipped_ms,
            "fallen": self._body.has_fallen,
            "height_m": float(pos[2]),
            "travelled_m": float(np.hypot(pos[0], pos[1])),
            **self.ledger.report(),
        }

    def close(self) -> None:
        """Leave the domain."""
        self._leave_service()
        self.link.close()
        self._body.close()

    def _on_mode(self, mode: str) -> None:
        """The own controller took over or let go."""
        self.ledger.event(f"controller '{mode}'" if mode else "no controller", self.now_ms)
        self._leave_service()
        if mode:
            # As the real one does, it announces commands of its own while it is active.
            self._service_link = Link(*self._place)
            self._service_link.writer(COMMAND_TOPIC, self._command_kind)
            self._body.write(JointCommand.position(self.spec, self.spec.array("default_rad")))
        else:
            self._damp()
        self._last_command_ms = None

    def _leave_service(self) -> None:
        if self._service_link is not None:
            self._service_link.close()
            self._service_link = None

    def _damp(self) -> None:
        self._is_stiff = False
        self._judge.relax()
        self._body.write(JointCommand.damping(self.spec))

    def _take_commands(self, state: RobotState, now_ms: int) -> None:
        for sample in take(self._commands):
            self._note_writer(sample.sample_info.publication_handle, now_ms)
            if self._switcher.mode:
                self.ledger.refuse(
                    "before_release", f"a command came while controller '{self._switcher.mode}' was active", now_ms
                )
                continue
            command = self._judge.read(sample.data, self._machine, state.joint_pos_rad, now_ms)
            if command is None:
                continue
            if self._last_command_ms is not None:
                self.ledger.gap(now_ms - self._last_command_ms)
            self._last_command_ms = now_ms
            self.ledger.accepted += 1
            if is_damping(command):
                self.ledger.damped("command", now_ms)
            self._is_stiff = bool(command.stiffness_nm_rad.any())
            self._body.write(command)

    @property
    def _machine(self) -> int:
        """Kind of machine that it says it is, which commands must match."""
        return int(self.faults.active.get("mode_machine", {"value": MACHINE})["value"])

    def _note_writer(self, writer: int, now_ms: int) -> None:
        is_another = writer != self._last_writer
        if is_another and now_ms - self._writers.get(writer, -WRITERS_WINDOW_MS) < WRITERS_WINDOW_MS:
            self.ledger.violate("two_writers", f"two programs took turns within {WRITERS_WINDOW_MS} ms", now_ms)
        self._writers[writer], self._last_writer = now_ms, writer

    def _watch_for_silence(self, now_ms: int) -> None:
        if self._last_command_ms is None or now_ms - self._last_command_ms <= self._timeout_ms:
            return
        gap_ms = now_ms - self._last_command_ms
        if self._is_stiff:
            self.ledger.violate("command_timeout", f"no command for {gap_ms} ms while joints were held", now_ms)
            self.ledger.damped("timeout", now_ms)
        self.ledger.event(f"no commands any more since {gap_ms} ms", now_ms)
        self._last_command_ms = None
        self._damp()

    def _tell(self, state: RobotState, now_ms: int) -> None:
        contact = state.foot_contact if state.foot_contact is not None else np.zeros(4, bool)
        n = self.spec.num_joints
        reading = Reading(
            tick=now_ms,
            quat_wxyz=state.quat_base_to_world_wxyz,
            gyro_rad_s=state.ang_vel_base_in_base_rad_s,
            acc_m_s2=state.lin_acc_base_in_base_m_s2,
            pos_rad=state.joint_pos_rad,
            vel_rad_s=state.joint_vel_rad_s,
            effort_nm=state.joint_effort_nm,
            foot_force=tuple(FOOT_FORCE if down else 0 for down in contact[:4]),
            temperature_c=np.full(n, MOTOR_C),
            lost=np.zeros(n, np.int64),
            battery_percent=BATTERY_PERCENT,
            remote=bytes(40),
            mode_machine=MACHINE,
        )
        data = self._encoder.encode(self.faults.contents(reading), self.faults.spoils_crc())
        for message in self.faults.delivered(data, now_ms):
            send(self._states, self._state_kind, message)
            self.ledger.states_sent += 1

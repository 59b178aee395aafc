"""A fake Unitree robot's judgement of commands, its faults and its notes, without a network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cyclonedds")

from gantry_hardware import GantryError, JointCommand, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_hardware.unitree.codec import POS_STOP, VEL_STOP, CommandCodec, StateCodec
from gantry_hardware.unitree.crc import message_crc
from gantry_hardware.unitree.models import unitree_model
from gantry_sim.unitree.command_judge import CommandJudge, is_damping
from gantry_sim.unitree.faults import DEFAULTS, FaultBox, Reading
from gantry_sim.unitree.ledger import Ledger
from gantry_sim.unitree.state_codec import StateEncoder

GO2, MODEL = robot_spec("go2"), unitree_model("go2")
LAYOUT = MODEL.family.command_layout
HOME = GO2.array("default_rad")


def judged(data, pos_rad=HOME):
    ledger = Ledger()
    command = CommandJudge(MODEL, GO2, ledger).read(data, 0, pos_rad, 1000)
    return command, ledger


def encoded(changes=(), *, keeps_crc=True, command=None):
    """A standing command with some numbers of the message replaced."""
    data = CommandCodec(MODEL, GO2).encode(command or JointCommand.position(GO2, HOME))
    values = list(LAYOUT.decode(data))
    for path, value in dict(changes).items():
        values[LAYOUT.index(path)] = value
    if keeps_crc:
        values[LAYOUT.index("crc")] = message_crc(LAYOUT, values)
    return LAYOUT.encode(values)


def test_a_good_command_is_obeyed_as_it_is():
    command, ledger = judged(encoded())
    assert (ledger.violations, ledger.remarks) == ({}, {})
    np.testing.assert_allclose(command.pos_rad, HOME, atol=1e-6)
    assert command.stiffness_nm_rad.tolist() == [40.0] * 12
    assert not is_damping(command)
    command, ledger = judged(encoded(command=JointCommand.damping(GO2)))
    assert is_damping(command)
    assert not ledger.violations


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("mode", {"motor_cmd.3.mode": 0}),
        ("stop_value", {"motor_cmd.3.q": POS_STOP}),
        ("stop_value", {"motor_cmd.3.dq": VEL_STOP}),
        ("position_limit", {"motor_cmd.0.q": 1.11}),
        ("velocity_limit", {"motor_cmd.0.dq": -31.0}),
        ("torque_limit", {"motor_cmd.0.tau": 24.0}),
        ("gain_limit", {"motor_cmd.0.kp": 201.0}),
        ("gain_limit", {"motor_cmd.0.kd": -1.0}),
    ],
)
def test_what_would_hurt_a_robot_is_noted(kind, changes):
    command, ledger = judged(encoded(changes))
    assert dict(ledger.violations) == {kind: 1}
    assert "at 1000 ms: 'F" in ledger.report()["first_violations"][kind]
    motor = int(next(iter(changes)).split(".")[1])
    if kind in ("mode", "stop_value"):
        assert command.stiffness_nm_rad[motor] * command.damping_nm_s_rad[motor] == 0.0


def test_a_first_stiff_command_that_is_far_away_is_a_jump_and_a_second_one_is_none():
    ledger = Ledger()
    judge, away = CommandJudge(MODEL, GO2, ledger), HOME - 1.5
    judge.read(encoded(), 0, away, 0)
    assert dict(ledger.violations) == {"jump": 1}
    judge.read(encoded(), 0, away, 2)
    judge.relax()
    judge.read(
        encoded(command=replace(JointCommand.position(GO2, HOME), stiffness_nm_rad=np.full(12, 5.0))), 0, away, 4
    )
    assert dict(ledger.violations) == {"jump": 1}, "a stiffness that grows is no jump"


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        ("crc", encoded({"motor_cmd.0.q": 0.1}, keeps_crc=False)),
        ("not_finite", encoded({"motor_cmd.0.kp": float("nan")})),
        ("undecodable", encoded()[:100]),
    ],
)
def test_what_no_robot_obeys_is_refused(reason, data):
    command, ledger = judged(data)
    assert command is None
    assert (dict(ledger.refused), dict(ledger.violations)) == ({reason: 1}, {reason: 1})


def test_a_head_that_is_not_filled_in_is_remarked():
    command, ledger = judged(encoded({"head": 0, "level_flag": 0}))
    assert command is not None
    assert (dict(ledger.violations), dict(ledger.remarks)) == ({}, {"head": 1, "level_flag": 1})


def reading(tick):
    rng = np.random.default_rng(tick)
    return Reading(
        tick=tick,
        quat_wxyz=np.array([1.0, 0.0, 0.0, 0.0]),
        gyro_rad_s=rng.normal(size=3),
        acc_m_s2=np.array([0.0, 0.0, 9.81]),
        pos_rad=HOME + 0.1 * rng.normal(size=12),
        vel_rad_s=rng.normal(size=12),
        effort_nm=rng.normal(size=12),
        foot_force=(60, 0, 60, 0),
        temperature_c=np.full(12, 35.0),
        lost=np.zeros(12, np.int64),
        battery_percent=80,
        remote=bytes(40),
        mode_machine=0,
    )


class Line:
    """A robot's states through its faults, as ticks or decoded."""

    def __init__(self):
        self.box = FaultBox(GO2, np.random.default_rng(1))
        self._encoder, self._codec = StateEncoder(MODEL, GO2), StateCodec(MODEL, GO2)

    def run(self, begin_ms, end_ms):
        """Per period of 2 ms what leaves: states and whether their checksum is right."""
        for ms in range(begin_ms, end_ms, 2):
            self.box.expire(ms)
            data = self._encoder.encode(self.box.contents(reading(ms)), self.box.spoils_crc())
            yield [self._codec.decode(message) for message in self.box.delivered(data, ms)]

    def ticks(self, begin_ms, end_ms):
        return [[state.tick for state, _ in row] for row in self.run(begin_ms, end_ms)]


def test_without_a_fault_a_state_is_told_as_it_is():
    ((state, is_right),) = next(iter(Line().run(100, 102)))
    truth = reading(100)
    assert is_right
    np.testing.assert_allclose(state.pos_rad, truth.pos_rad, atol=1e-6)
    np.testing.assert_allclose(state.gyro_rad_s, truth.gyro_rad_s, atol=1e-6)
    assert (state.tick, state.battery_percent, state.temperature_c[0]) == (100, 80.0, 35.0)


def test_faults_of_delivery():
    line = Line()
    line.box.switch_on("delay", {"ms": "4"}, 0)
    assert line.ticks(0, 8) == [[], [], [0], [2]]
    line.box.switch_on("silence", {"for_ms": "4"}, 8)
    line.box.active.pop("delay")
    assert line.ticks(8, 16) == [[4], [6], [12], [14]]
    line.box.switch_on("burst", {"ms": "6"}, 16)
    assert line.ticks(16, 30) == [[16], [], [], [18, 20, 22], [], [], [24, 26, 28]]
    line.box.clear()
    line.box.switch_on("repeat", {}, 30)
    assert line.ticks(30, 36) == [[30], [30], [30]]
    line.box.clear()
    line.box.switch_on("replay", {"ms": "8"}, 36)
    assert line.ticks(36, 42) == [[28], [30], [30]], "the last messages, again"
    line.box.clear()
    line.box.switch_on("duplicate", {"share": "1"}, 42)
    assert line.ticks(42, 46) == [[42, 42], [44, 44]]
    line.box.clear()
    line.box.switch_on("drop", {"share": "0.5"}, 46)
    assert 30 < sum(map(len, line.ticks(46, 246))) < 70
    line.box.clear()
    line.box.switch_on("clock_back", {"ms": "200"}, 246)
    line.box.clear()
    assert line.ticks(246, 250) == [[46], [48]], "a clock that went back stays there"


def test_faults_of_contents():
    line = Line()
    line.box.switch_on("freeze", {}, 0)
    frozen = [row[0][0] for row in line.run(0, 6)]
    assert [state.tick for state in frozen] == [0, 2, 4]
    assert frozen[0].body == frozen[2].body
    line.box.clear()
    for name in ("hot", "battery", "upside_down", "joint", "buttons", "lost", "crc"):
        line.box.switch_on(name, {}, 6)
    ((state, is_right),) = next(iter(line.run(6, 8)))
    assert not is_right
    assert state.temperature_c.tolist() == [35.0] * 11 + [95.0]
    assert (state.battery_percent, state.lost[11], state.remote[3]) == (5.0, 1, 2)
    np.testing.assert_allclose(state.quat_wxyz, [0.0, 1.0, 0.0, 0.0], atol=1e-7)
    assert state.acc_m_s2[2] == pytest.approx(-9.81)
    assert state.pos_rad[11] == pytest.approx(GO2.joints[11].upper_rad + 0.5)


def test_faults_that_do_not_exist_are_refused():
    box = Line().box
    with pytest.raises(UnknownNameError, match="Available: battery, burst"):
        box.switch_on("fire", {}, 0)
    with pytest.raises(UnknownNameError, match="Did you mean 'share'"):
        box.switch_on("drop", {"shar": "1"}, 0)
    with pytest.raises(UnknownNameError, match="Did you mean 'FL_hip_joint'"):
        box.switch_on("hot", {"joint": "FL_hip_jont"}, 0)
    with pytest.raises(GantryError, match="'for_ms' is 'x', expected a number"):
        box.switch_on("drop", {"for_ms": "x"}, 0)
    assert not box.active
    assert "delay" in DEFAULTS


def test_the_notes_time_the_damping_after_each_fault():
    ledger = Ledger()
    ledger.damped("command", 10)
    ledger.begin_fault("hot", 20)
    ledger.damped("command", 40)
    ledger.begin_fault("silence", 50)
    ledger.damped("timeout", 150)
    for gap_ms in (2, 2, 2, 6):
        ledger.gap(gap_ms)
    report = ledger.report()
    assert [(row["name"], row["after_ms"], row["how"]) for row in report["faults"]] == [
        ("hot", 20, "command"),
        ("silence", 100, "timeout"),
    ]
    assert report["command_gap_ms"] == {"p50": 2.0, "p99": pytest.approx(5.88), "max": 6.0}

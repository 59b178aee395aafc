"""Messages of Unitree's low level: layouts, checksum, encoding, remote and clock, against numbers of other sources."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gantry_hardware import JointCommand, RobotError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_hardware.unitree.clock import RobotClock
from gantry_hardware.unitree.crc import crc32_words, message_crc
from gantry_hardware.unitree.layout import BYTE, GO, HG, Struct
from gantry_hardware.unitree.models import MODELS, unitree_model
from gantry_hardware.unitree.remote import RemoteButtons, pressed, remote_bytes, sticks

pytest.importorskip("cyclonedds")

from cyclonedds.idl import IdlStruct, types

from gantry_hardware.unitree import idl
from gantry_hardware.unitree.codec import POS_STOP, VEL_STOP, CommandCodec, StateCodec

MEMORY = {
    "unitree_go.msg.dds_.LowCmd_": "<4B4IH2x" + "B3x5f3I" * 20 + "4B" + "55Bx2I",
    "unitree_go.msg.dds_.LowState_": "<4B4IH2x13fB3x" + "B3x7fB3x3I" * 20 + "4BiH2B2B15H8hI40BB3xfBB2xff4HII",
    "unitree_hg.msg.dds_.LowCmd_": "<2B2x" + "B3x5fI" * 35 + "5I",
    "unitree_hg.msg.dds_.LowState_": "<2I2B2xI13fh2x" + "B3x4f2hf7I" * 35 + "40B5I",
}
"""Formats of the manufacturer's structures in memory, written down independently."""
SIZES = (812, 1180, 1004, 2092)
LAYOUTS = (GO.command_layout, GO.state_layout, HG.command_layout, HG.state_layout)
GO2 = robot_spec("go2")


def mpeg2_crc(data):
    """CRC-32/MPEG-2 by its definition, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        for bit in range(7, -1, -1):
            top = crc >> 31
            crc = (crc << 1) & 0xFFFFFFFF
            if top ^ (byte >> bit & 1):
                crc ^= 0x04C11DB7
    return crc


def bitwise_crc(data):
    """The same over little-endian words, most significant byte first."""
    return mpeg2_crc(b"".join(data[i : i + 4][::-1] for i in range(0, len(data), 4)))


def random_values(layout, seed=3):
    rng = np.random.default_rng(seed)
    return layout.memory.unpack(rng.integers(0, 120, layout.memory.size, np.uint8).tobytes())


def test_the_checksum_is_the_one_of_the_definition():
    assert mpeg2_crc(b"123456789") == 0x0376E6E7  # The check value that catalogues of such checksums list.
    for length in (4, 8, 808):
        data = np.random.default_rng(length).bytes(length)
        assert crc32_words(data) == bitwise_crc(data)
    with pytest.raises(ValueError, match="5 bytes, expected a multiple of 4"):
        crc32_words(b"12345")


@pytest.mark.parametrize(("layout", "size"), list(zip(LAYOUTS, SIZES, strict=True)))
def test_structures_lie_in_memory_as_the_manufacturers_do(layout, size):
    other = struct.Struct(MEMORY[layout.message.name])
    assert layout.memory.size == other.size == size
    values = random_values(layout)
    assert layout.memory.pack(*values) == other.pack(*values)
    assert message_crc(layout, values) == bitwise_crc(other.pack(*values)[:-4])


def filled(struct_, values):
    """An object of Cyclone's own class with the numbers of a flat tuple."""
    members = {}
    for item in struct_.members:
        if isinstance(item.kind, Struct):
            some = [filled(item.kind, values) for _ in range(item.count or 1)]
        else:
            some = [next(values) for _ in range(item.count or 1)]
        members[item.name] = some if item.count else some[0]
    return idl._made[struct_.name](**members)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_bytes_on_the_wire_are_those_that_cyclone_writes(layout):
    values = random_values(layout)
    written = IdlStruct.serialize(filled(layout.message, iter(values)))
    assert layout.encode(values) == bytes(written)
    assert layout.decode(bytes(written)) == values


@pytest.mark.skipif(not hasattr(types, "byte"), reason="release 0.10 of Cyclone DDS knows one kind of octets alone")
def test_octets_are_declared_as_bytes():
    """Declared ``uint8`` they crash programs with the release of Cyclone that the robots have."""

    def octets(struct_):
        for item in struct_.members:
            if isinstance(item.kind, Struct):
                yield from octets(item.kind)
            elif item.kind == BYTE:
                kind = idl._made[struct_.name].__annotations__[item.name]
                yield types.array[types.byte, item.count] if item.count else types.byte, kind

    for family in (GO, HG):
        for message in (family.state, family.command):
            pairs = list(octets(message))
            assert pairs
            assert all(expected == found for expected, found in pairs)
    assert idl.Request.__annotations__["binary"] == types.sequence[types.byte]


@pytest.mark.parametrize(
    ("data", "message"), [(b"\x00\x00\x00\x00" + bytes(2000), "encapsulation 0000"), (b"\x00\x01\x00\x00", "4 bytes")]
)
def test_other_encodings_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        GO.state_layout.decode(data)


def decoded_command(codec_spec, command, model="go2", machine=0):
    model = unitree_model(model)
    layout = model.family.command_layout
    values = layout.decode(CommandCodec(model, codec_spec).encode(command, machine))
    assert values[layout.index("crc")] == message_crc(layout, values)
    return layout, values


def test_a_command_finds_its_motors_by_name():
    order = np.random.default_rng(1).permutation(12)
    mixed = replace(GO2, joints=tuple(GO2.joints[i] for i in order), damp_gains_nm_s_rad=())
    pos = np.linspace(-0.5, 0.6, 12)
    straight = decoded_command(GO2, JointCommand.position(GO2, pos))
    assert decoded_command(mixed, JointCommand.position(mixed, pos[order]))[1] == straight[1]
    layout, values = straight
    for motor, name in enumerate(MODELS["go2"].motors):
        assert values[layout.index(f"motor_cmd.{motor}.q")] == pytest.approx(pos[GO2.joint_index(name)])
        assert values[layout.index(f"motor_cmd.{motor}.mode")] == 1
    assert values[layout.place("head")] == (0xFE, 0xEF)
    assert values[layout.index("level_flag")] == 0xFF


def test_a_joint_without_a_gain_gets_the_stop_value():
    layout, values = decoded_command(GO2, JointCommand.damping(GO2))
    assert values[layout.index("motor_cmd.3.q")] == pytest.approx(POS_STOP)
    assert values[layout.index("motor_cmd.3.dq")] == 0.0
    assert values[layout.index("motor_cmd.3.kd")] == 5.0
    layout, values = decoded_command(GO2, JointCommand.passive(GO2))
    for motor in (0, 11, 12, 19):
        assert values[layout.index(f"motor_cmd.{motor}.dq")] == VEL_STOP
        assert values[layout.index(f"motor_cmd.{motor}.kp")] == 0.0


def test_a_g1_command_repeats_the_kind_of_machine():
    spec = robot_spec("g1")
    layout, values = decoded_command(spec, JointCommand.damping(spec), "g1", 5)
    assert values[layout.index("mode_machine")] == 5
    knee = MODELS["g1"].motors.index("left_knee_joint")
    assert knee == 3
    assert MODELS["g1"].motors.index("right_wrist_yaw_joint") == 28


def test_a_state_is_read_by_name_and_its_checksum_is_looked_at():
    layout = GO.state_layout
    values = [0] * layout.size
    values[layout.place("imu_state.quaternion")] = (0.5, 0.5, -0.5, 0.5)
    values[layout.index("motor_state.4.q")] = 1.25  # The second motor of the second leg.
    values[layout.index("motor_state.4.temperature")] = 71
    values[layout.index("bms_state.soc")] = 55
    values[layout.index("tick")] = 1234
    values[layout.index("crc")] = bitwise_crc(struct.pack(MEMORY[layout.message.name], *values)[:-4])
    state, is_right = StateCodec(unitree_model("go2"), GO2).decode(layout.encode(values))
    assert is_right
    assert (state.tick, state.battery_percent) == (1234, 55.0)
    assert state.pos_rad[GO2.joint_index("FL_thigh_joint")] == 1.25
    assert state.temperature_c[GO2.joint_index("FL_thigh_joint")] == 71.0
    np.testing.assert_array_equal(state.quat_wxyz, [0.5, 0.5, -0.5, 0.5])
    values[layout.index("tick")] = 1235
    assert not StateCodec(unitree_model("go2"), GO2).decode(layout.encode(values))[1]


def test_robots_that_are_not_unitrees_are_refused_by_name():
    with pytest.raises(UnknownNameError, match=r"Unknown Unitree robot 'go1'\. Did you mean 'g1'"):
        unitree_model("go1")
    short = replace(GO2, joints=GO2.joints[:-1], damp_gains_nm_s_rad=())
    with pytest.raises(RobotError, match="motors without a joint: RL_calf_joint"):
        unitree_model("go2").motor_indices(short)


def test_the_remote_has_its_buttons_and_sticks_where_they_belong():
    data = bytearray(40)
    data[2], data[3] = 0b100000, 0b10  # L2 and B
    struct.pack_into("<f", data, 20, 0.8)  # left stick up
    struct.pack_into("<f", data, 8, -0.5)  # right stick left
    assert pressed(bytes(data)) == {"L2", "B"}
    np.testing.assert_allclose(sticks(bytes(data)), [0.8, 0.0, 0.5], atol=1e-6)
    assert sticks(remote_bytes(axes=(0.05, float("nan"), 2.0))).tolist() == [0.0, 0.0, 1.0]


def test_a_button_asks_once_per_press_and_stop_as_long_as_it_is_held():
    buttons = RemoteButtons()
    pressed_now = [("L2",), ("L2", "A"), ("L2", "A"), (), ("start",), ("L2", "B"), ("L2", "B", "start"), ()]
    asked = [(buttons.update(remote_bytes(names)), buttons.stop) for names in pressed_now]
    assert asked == [
        (None, False),
        ("stand", False),
        (None, False),
        (None, False),
        ("start", False),
        (None, True),
        (None, True),
        (None, False),
    ]


def test_a_state_that_comes_late_is_as_old_as_it_is():
    clock = RobotClock()
    for i in range(100):
        assert clock.stamp_s(5000 + 2 * i, 10.0 + 0.002 * i) == pytest.approx(10.0 + 0.002 * i)
    # A burst: 50 states at once, of the last 100 ms.
    received_s = 10.0 + 0.002 * 149
    ages_ms = [1e3 * (received_s - clock.stamp_s(5000 + 2 * i, received_s)) for i in range(100, 150)]
    np.testing.assert_allclose(ages_ms, np.arange(98, -2, -2), atol=0.1)


def test_the_robots_clock_may_drift_begin_anew_after_its_last_number_and_be_compared():
    clock, age_s = RobotClock(), []
    for i in range(20_000):
        received_s = 0.002 * i * (1.0 + 1e-4)  # The robot's clock is slower by 100 ppm.
        age_s.append(received_s - clock.stamp_s(((1 << 32) - 1000 + 2 * i) % (1 << 32), received_s))
    assert max(age_s) < 1e-3
    assert clock.ahead(((1 << 32) - 1000 + 2 * 19_999 - 50) % (1 << 32)) == -50
    clock.restart()
    assert clock.stamp_s(7, 99.0) == 99.0


def test_without_cyclone_the_message_says_what_to_install():
    code = (
        "import sys; sys.modules['cyclonedds'] = sys.modules['cyclonedds.idl'] = None\n"
        "from gantry_hardware.backends.registry import make_backend\n"
        "from gantry_hardware.robots import robot_spec\n"
        "from gantry_hardware.errors import RobotError\n"
        "try:\n    make_backend('unitree', robot_spec('go2'))\n"
        "except RobotError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "Backend 'unitree'" in said
    assert "pip install 'gantry-rl[unitree]'" in said

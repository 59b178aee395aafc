"""SpaceMouse through a FIFO that carries its raw HID reports."""

from __future__ import annotations

import re
import struct

import pytest

from gantry_deploy.errors import TeleopError
from gantry_deploy.teleop.operator import Axis
from gantry_deploy.teleop.spacemouse import SpaceMouseDevice, find_mouse, load_models
from gantry_fixtures.arm import arm_contract_for
from gantry_fixtures.teleop import Plug, wait_for
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.robots import robot_spec

FULL = 350


def translation(x=0, y=0, z=0):
    return struct.pack("<B3h", 1, x, y, z)


def combined(x=0, y=0, z=0, rx=0, ry=0, rz=0):
    return struct.pack("<B6h", 1, x, y, z, rx, ry, rz)


def buttons(bits):
    return struct.pack("<BH", 3, bits)


class Held:
    """A SpaceMouse in a person's hand, and its events so far."""

    def __init__(self, folder, **options):
        self.plug = Plug(folder / "hidraw0")
        contract = arm_contract_for(robot_spec("yam"))
        self.device = SpaceMouseDevice(contract, path=str(self.plug.path), **options)
        self.events = []

    def __enter__(self):
        self.device.connect()
        return self

    def __exit__(self, *_):
        self.device.close()
        self.plug.unplug()

    def until(self, condition):
        found = []

        def met():
            found[:] = [self.device.read(50.0)]
            self.events.extend(found[0].events)
            return condition(found[0])

        wait_for(met)
        return found[0]


LONG = {"timeout_s": 60.0, "linger_s": 60.0}
"""Nothing times out, however busy the machine."""


def test_a_moved_cap_takes_over_and_moves_the_robot_as_the_person_sees_it(tmp_path):
    with Held(tmp_path, **LONG) as held:
        assert not held.device.read(1.0).engaged
        held.plug.send_alone(translation(y=-FULL))  # Pushed away from the person: ahead.
        given = held.until(lambda given: given.engaged)
        assert given.axes == {Axis.X: 1.0, Axis.Y: 0.0, Axis.Z: 0.0, Axis.GRIPPER: 0.0}
        held.plug.send_alone(translation(x=FULL, z=-FULL // 2))
        given = held.until(lambda given: not given.axes[Axis.X])
        assert given.axes[Axis.Y] == -1.0
        assert given.axes[Axis.Z] == pytest.approx((0.5 - 0.1) / 0.9)


def test_the_combined_report(tmp_path):
    with Held(tmp_path, **LONG) as held:
        held.plug.send_alone(combined(y=-FULL, rz=FULL))
        assert held.until(lambda given: given.engaged).axes[Axis.X] == 1.0
        held.plug.send_alone(combined())
        given = held.until(lambda given: not given.axes[Axis.X])
        assert given.engaged  # A hand between two motions has not let go yet.


def test_a_resting_cap_gives_back(tmp_path):
    with Held(tmp_path, timeout_s=60.0, linger_s=0.1) as held:
        held.plug.send_alone(translation(y=-FULL))
        held.until(lambda given: given.engaged)
        held.plug.send_alone(translation())
        held.until(lambda given: not given.engaged)
        held.plug.send_alone(translation(y=int(0.09 * FULL)))  # Within the dead zone.
        held.plug.send_alone(buttons(0b10))
        given = held.until(lambda given: given.engaged)
        assert given.axes == {Axis.X: 0.0, Axis.Y: 0.0, Axis.Z: 0.0, Axis.GRIPPER: 1.0}


def test_a_moved_cap_that_falls_silent_is_at_rest(tmp_path):
    with Held(tmp_path, timeout_s=0.2, linger_s=0.1) as held:
        held.plug.send_alone(translation(y=-FULL))
        held.until(lambda given: given.engaged)
        given = held.until(lambda given: not given.engaged)
        assert not any(given.axes.values())


def test_a_button_as_the_dead_man_switch(tmp_path):
    with Held(tmp_path, engage="button", hold=0, **LONG) as held:
        held.plug.send_alone(translation(y=-FULL))
        assert not held.until(lambda given: given.axes[Axis.X]).engaged
        held.plug.send_alone(buttons(0b01))
        given = held.until(lambda given: given.engaged)
        assert given.axes[Axis.GRIPPER] == 0.0
        held.plug.send_alone(buttons(0))
        held.until(lambda given: not given.engaged)


def test_an_unplugged_mouse_lets_go_and_comes_back(tmp_path):
    with Held(tmp_path, **LONG) as held:
        held.plug.send_alone(translation(y=-FULL))
        held.until(lambda given: given.engaged)
        held.plug.unplug()
        given = held.until(lambda given: not given.engaged)
        assert not any(given.axes.values())
        held.plug.plug_in()
        held.plug.send_alone(translation(x=-FULL))
        assert held.until(lambda given: given.engaged).axes[Axis.Y] == 1.0


@pytest.mark.parametrize("report", [b"\x01\x5e", translation(y=5)[:-1], translation(y=5) + b"\0", b"\x03", b"\x02" * 9])
def test_a_report_of_another_length_lets_go(tmp_path, report):
    with Held(tmp_path, **LONG) as held:
        held.plug.send_alone(translation(y=-FULL))
        held.until(lambda given: given.engaged)
        held.plug.send_alone(report)
        held.until(lambda given: not given.engaged)
        held.plug.unplug()
        held.plug.send_alone(translation(y=-FULL))
        held.until(lambda given: given.engaged)


def test_other_reports_are_of_no_account(tmp_path):
    with Held(tmp_path, **LONG) as held:
        held.plug.send_alone(b"\x17\x64\x00")  # The battery's.
        held.plug.send_alone(translation(y=-FULL))
        held.until(lambda given: given.engaged)


def test_buttons_as_events_once(tmp_path):
    own = tmp_path / "models.yaml"
    own.write_text(
        "layout: {motion: {x: -y}, buttons: {2: success, 3: estop}}\nmodels: {Mine: {vendor: 1, product: 2}}\n"
    )
    with Held(tmp_path, models=str(own), **LONG) as held:
        for bits in (0b100, 0b100, 0, 0b1100):
            held.plug.send_alone(buttons(bits))
            before = len(held.events)
            if bits:
                held.until(lambda given, bits=bits, before=before: len(held.events) >= {0b100: 1, 0b1100: 3}[bits])
        assert held.events == ["success", "success", "estop"]


def test_options_that_make_no_sense(tmp_path):
    contract = arm_contract_for(robot_spec("yam"))
    with pytest.raises(TeleopError, match="hold=0 for the left button"):
        SpaceMouseDevice(contract, engage="button")
    with pytest.raises(UnknownNameError, match="Did you mean 'button'"):
        SpaceMouseDevice(contract, engage="buttn")
    (tmp_path / "m.yaml").write_text("layout: {motion: {x: qz}}\nmodels: {}\n")
    with pytest.raises(UnknownNameError, match="Unknown channel of a SpaceMouse 'qz'"):
        load_models(str(tmp_path / "m.yaml"))


def test_a_mouse_is_found_by_vendor_and_product(tmp_path):
    def device(number, text):
        folder = tmp_path / f"hidraw{number}" / "device"
        folder.mkdir(parents=True)
        (folder / "uevent").write_text(text)

    models = load_models().models
    with pytest.raises(TeleopError, match="among 0 HID devices"):
        find_mouse(models, tmp_path)
    device(0, "HID_ID=0003:0000046D:0000C31C\nHID_NAME=A Keyboard\n")
    device(1, "garbage")
    with pytest.raises(TeleopError, match=re.escape("among 1 HID devices (046d:c31c A Keyboard)")):
        find_mouse(models, tmp_path)
    device(2, "HID_ID=0003:0000256F:0000C635\nHID_NAME=3Dconnexion SpaceMouse Compact\n")
    assert find_mouse(models, tmp_path) == ("/dev/hidraw2", "SpaceMouse Compact")

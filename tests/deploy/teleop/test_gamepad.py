"""Gamepad through a FIFO that carries the bytes of the Linux joystick API."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

import pytest

from gantry_deploy.errors import TeleopError
from gantry_deploy.teleop.gamepad import GamepadDevice
from gantry_deploy.teleop.operator import Axis, TeleopEvent
from gantry_deploy.teleop.pads import CONTROLS, Pad, choose_map, load_maps, terms
from gantry_fixtures.arm import arm_contract_for
from gantry_fixtures.drive import drive_contract_for
from gantry_fixtures.teleop import JS_AXIS as AXIS
from gantry_fixtures.teleop import JS_BUTTON as BUTTON
from gantry_fixtures.teleop import JS_INITIAL as INITIAL
from gantry_fixtures.teleop import Plug, wait_for
from gantry_fixtures.teleop import js_beginning as beginning
from gantry_fixtures.teleop import js_event as event
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.robots import robot_spec

RB, Y, A = 5, 3, 0


class Held:
    """A gamepad in a person's hand, and its events so far."""

    def __init__(self, folder, contract=None, **options):
        self.plug = Plug(folder / "js0")
        contract = contract or arm_contract_for(robot_spec("yam"))
        self.device = GamepadDevice(contract, path=str(self.plug.path), **{"map": "xbox", **options})
        self.events = []

    def __enter__(self):
        self.device.connect()
        return self

    def __exit__(self, *_):
        self.device.close()
        self.plug.unplug()

    def read(self):
        given = self.device.read(50.0)
        self.events += given.events
        return given

    def until(self, condition):
        found = []

        def met():
            found[:] = [self.read()]
            return condition(found[0])

        wait_for(met)
        return found[0]

    def settle(self):
        """Wait until everything that was sent has been read: a button that is pressed last is seen."""
        count = self.events.count(TeleopEvent.VETO)
        self.plug.send(event(BUTTON, 10, 1) + event(BUTTON, 10, 0))
        self.until(lambda _: self.events.count(TeleopEvent.VETO) > count)
        self.events = [event for event in self.events if event is not TeleopEvent.VETO]
        return self.read()


def test_the_stick_moves_only_while_rb_is_held(tmp_path):
    with Held(tmp_path) as held:
        held.plug.send(beginning() + event(AXIS, 1, -32767))
        given = held.settle()
        assert not given.engaged
        held.plug.send(event(BUTTON, RB, 1))
        given = held.until(lambda given: given.engaged)
        assert given.axes[Axis.X] == pytest.approx(1.0)
        assert given.axes[Axis.Y] == 0.0
        held.plug.send(event(BUTTON, RB, 0))
        held.until(lambda given: not given.engaged)
        assert held.events == []


def test_events_come_once_and_in_order(tmp_path):
    with Held(tmp_path) as held:
        sent = b"".join(event(BUTTON, number, value) for number in (Y, A, 2, Y) for value in (1, 1, 0))
        held.plug.send(beginning() + sent)
        held.settle()
        assert held.events == ["success", "failure", "rerecord_episode", "success"]
        assert held.read().events == ()


def test_dead_zone_triggers_and_signs(tmp_path):
    with Held(tmp_path, dead_zone=0.2) as held:
        held.plug.send(beginning() + event(AXIS, 0, int(0.19 * 32767)) + event(AXIS, 4, 32767))
        given = held.settle()
        assert given.axes[Axis.Y] == 0.0
        assert given.axes[Axis.Z] == pytest.approx(-1.0)
        assert given.axes[Axis.GRIPPER] == 0.0
        held.plug.send(event(AXIS, 0, int(-0.6 * 32767)) + event(AXIS, 2, 32767))
        given = held.settle()
        assert given.axes[Axis.Y] == pytest.approx(0.5, abs=1e-3)
        assert given.axes[Axis.GRIPPER] == pytest.approx(-1.0)


def test_a_car_gets_throttle_and_steering_alone(tmp_path):
    with Held(tmp_path, drive_contract_for(robot_spec("f1tenth"))) as held:
        held.plug.send(beginning() + event(AXIS, 5, 32767) + event(AXIS, 0, -32767))
        given = held.settle()
        assert given.axes == {Axis.STEER: pytest.approx(1.0), Axis.THROTTLE: pytest.approx(1.0)}


def test_an_unplugged_pad_lets_go_and_comes_back(tmp_path):
    with Held(tmp_path) as held:
        held.plug.send(beginning() + event(BUTTON, RB, 1) + event(AXIS, 1, -32767) + event(BUTTON, Y, 1))
        held.until(lambda given: given.engaged)
        held.plug.unplug()
        given = held.until(lambda given: not given.engaged)
        assert not any(given.axes.values())
        assert held.device.read(60.0).stamp_s <= 60.0
        # It comes back with the switch held: this does not count before it is pressed again.
        held.plug.send(beginning(rb=1) + event(AXIS | INITIAL, 1, -32767) + event(AXIS, 1, -32767))
        assert not held.settle().engaged
        held.plug.send(event(BUTTON, RB, 0) + event(BUTTON, RB, 1))
        assert held.until(lambda given: given.engaged).axes[Axis.X] == pytest.approx(1.0)
        assert held.events == ["success"]


def test_events_cut_in_two_are_put_together(tmp_path):
    with Held(tmp_path) as held:
        data = beginning() + event(BUTTON, RB, 1) + event(AXIS, 1, -32767)
        for start in range(0, len(data), 3):
            held.plug.send(data[start : start + 3])
        assert held.until(lambda given: given.engaged and given.axes[Axis.X]).axes[Axis.X] == pytest.approx(1.0)


def test_garbage_lets_go_and_the_pad_works_again(tmp_path):
    with Held(tmp_path) as held:
        held.plug.send(beginning() + event(BUTTON, RB, 1))
        held.until(lambda given: given.engaged)
        held.plug.send(event(AXIS, 200, 5) + event(BUTTON, 99, 1))  # Controls that no map has.
        assert held.settle().engaged
        held.plug.send(bytes(range(100, 150)))
        held.until(lambda given: not given.engaged)
        held.plug.unplug()
        held.plug.send(beginning() + event(BUTTON, RB, 1))
        held.until(lambda given: given.engaged)
        assert held.events == []


def test_a_silent_wireless_pad_lets_go_until_the_switch_is_pressed_again(tmp_path):
    with Held(tmp_path, silence_s=0.3) as held:
        held.plug.send(beginning() + event(BUTTON, RB, 1))
        held.until(lambda given: given.engaged)
        held.until(lambda given: not given.engaged)
        held.plug.send(event(AXIS, 1, -32767))
        held.until(lambda given: given.axes[Axis.X] > 0.9)
        assert not held.read().engaged
        held.plug.send(event(BUTTON, RB, 0) + event(BUTTON, RB, 1))
        held.until(lambda given: given.engaged)


def test_closing_twice_and_connecting_again(tmp_path):
    with Held(tmp_path) as held:
        held.device.close()
        held.device.close()
        assert not held.read().engaged
        held.device.connect()
        held.plug.send(beginning() + event(BUTTON, RB, 1))
        held.until(lambda given: given.engaged)


def test_the_map_is_shown_with_its_numbers(tmp_path):
    with Held(tmp_path) as held:
        text = "\n".join(held.device.describe())
        assert "by the map 'xbox'" in text
        assert "rb (button 5) held" in text
        assert "-left_y (axis 1)" in text
        assert "y (button 3): success" in text
        assert "throttle" not in text


def test_there_is_no_gamepad(tmp_path):
    with pytest.raises(TeleopError, match="cannot be opened: No such file"):
        GamepadDevice(arm_contract_for(robot_spec("yam")), path=str(tmp_path / "js7")).connect()


def test_an_unknown_pad_is_refused_with_its_counts(tmp_path):
    with pytest.raises(TeleopError, match="with 0 axes and 0 buttons is not known") as error, Held(tmp_path, map=""):
        pass
    assert "Known maps: logitech-d, playstation, xbox" in str(error.value)
    with pytest.raises(TeleopError, match="of that name 'xbox' has 8 and 11"):
        choose_map(load_maps(), "", "Microsoft X-Box 360 pad", (8, 15), "/dev/input/js0")
    with pytest.raises(UnknownNameError, match="Did you mean 'xbox'"):
        choose_map(load_maps(), "xbos", "", (0, 0), "")


@pytest.mark.parametrize(
    ("name", "counts", "expected"),
    [
        ("Microsoft X-Box 360 pad", (8, 11), "xbox"),
        ("Logitech Gamepad F710", (8, 11), "xbox"),
        ("Sony Interactive Entertainment Wireless Controller", (8, 13), "playstation"),
        ("Logitech Logitech Dual Action", (6, 12), "logitech-d"),
    ],
)
def test_maps_are_chosen_by_name_and_counts(name, counts, expected):
    maps = load_maps()
    assert choose_map(maps, "", name, counts, "") is maps[expected]


@pytest.mark.parametrize("key", ["xbox", "playstation", "logitech-d"])
def test_every_map_that_comes_along_moves_an_arm(key):
    chosen = load_maps()[key]
    assert set(chosen.axes) | set(chosen.buttons) <= set(CONTROLS)
    pad = Pad(chosen, (Axis.X, Axis.Y, Axis.Z, Axis.GRIPPER), deque())
    pad.set_button(chosen.buttons["rb"], True)
    pad.set_axis(chosen.axes["left_y"], -1.0)
    assert pad.engaged
    assert pad.motion() == {Axis.X: 1.0, Axis.Y: 0.0, Axis.Z: 0.0, Axis.GRIPPER: 0.0}


def test_a_map_of_a_person(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text(
        "maps:\n  mine:\n    matches: [Handmade*]\n    axes: {left_x: 0, left_y: 1}\n    buttons: {a: 0, lb: 1, b: 2}\n"
        "    layout:\n      hold: lb\n      motion: {x: -left_y, z: a - b}\n      events: {}\n"
    )
    maps = load_maps(str(own))
    pad = Pad(choose_map(maps, "", "handmade pad", (2, 3), ""), (Axis.X, Axis.Z), deque())
    pad.set_button(1, True)
    pad.set_button(2, True)
    assert pad.motion() == {Axis.X: 0.0, Axis.Z: -1.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maps: {m: {axes: {left_y: 0}, buttons: {righ_stick: 1}}}", "Did you mean 'right_stick'"),
        ("maps: {m: {axes: {left_y: 0, left_x: 0}, buttons: {}}}", "each once"),
        ("maps: {m: {axes: {left_y: -1}, buttons: {}}}", "each once"),
        ("layout: {hold: rb, events: {a: sucess}}", "Did you mean 'success'"),
        ("layout: {hold: rb, motion: {x: left_y left_x}}", "is no motion of controls"),
        ("layout: {hold: rb, motion: {ax: left_y}}", "Unknown axis of motion 'ax'"),
        ("layout: {hold: rb, dead_zone: 1.5}", "dead_zone"),
        ("mapz: {}", "Did you mean 'maps'"),
        ("a: [", "no YAML"),
    ],
)
def test_mistakes_in_a_file_of_maps(tmp_path, text, message):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(Exception, match=re.escape(message)):
        load_maps(str(tmp_path / "mine.yaml"))


def test_the_file_to_copy():
    maps = load_maps(str(Path(__file__).resolve().parents[3] / "configs" / "teleop" / "gamepad.yaml"))
    assert "gripper" in "\n".join(Pad(maps["mine"], (Axis.X, Axis.GRIPPER), deque()).describe())
    assert maps["xbox"].layout is maps["mine"].layout  # The person's layout counts for all maps without an own one.


def test_sums_of_controls():
    assert terms("-left_y") == [("left_y", -1.0)]
    assert terms(" right_trigger - left_trigger ") == [("right_trigger", 1.0), ("left_trigger", -1.0)]

"""Motion from the page: a dead-man switch in time, one hand at a time, nothing that was long on its way."""

import pytest

from gantry_deploy.page.device import SILENT_S, PageDevice
from gantry_deploy.page.hand import FRESH_S, Hands, Heartbeat, heartbeat_of
from gantry_deploy.teleop.operator import Axis, TeleopDevice

MALFORMED = [
    {},
    {"tab": "short"},
    {"tab": 5},
    {"engaged": 1},
    {"count": True},
    {"count": float("nan")},
    {"stamp_s": None},
    {"stamp_s": 10**400},
    {"axes": []},
    {"axes": {"x": 1.01}},
    {"axes": {"x": "1"}},
    {"axes": {"w": 0.5}},
]
GOOD = {"tab": "a" * 12, "count": 1, "stamp_s": 0.0, "engaged": True, "axes": {"x": 1.0}}


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def device(clock):
    return PageDevice(clock=clock)


@pytest.fixture
def hands(device, clock):
    return Hands(device.receive, clock)


def beat(tab, count, stamp_s, engaged=True, **axes):
    return Heartbeat(tab, count, stamp_s, engaged, {Axis(name): value for name, value in axes.items()})


def test_motion_counts_while_heartbeats_come(device, hands, clock):
    typed: TeleopDevice = device
    typed.connect()
    assert not device.read(5.0).engaged
    assert hands.take(beat("one", 1, 0.0, x=0.5)) is None
    clock.now_s += 0.2
    given = device.read(5.0)
    assert given.engaged
    assert given.axes == {Axis.X: 0.5}
    assert given.stamp_s == pytest.approx(4.8)
    clock.now_s += SILENT_S - 0.2 + 0.01
    given = device.read(5.0)
    assert not given.engaged
    assert given.axes == {}
    assert hands.take(beat("one", 2, hands.stamp_s())) is None
    assert device.read(6.0).engaged
    device.close()
    assert not device.read(6.0).engaged


def test_letting_go_counts_at_once_and_late_heartbeats_do_not(device, hands, clock):
    assert hands.take(beat("one", 1, 0.0, x=1.0)) is None
    assert hands.take(beat("one", 3, 0.0, engaged=False)) is None
    assert not device.read(0.0).engaged
    assert "overtaken" in hands.take(beat("one", 2, 0.0, x=1.0))
    assert not device.read(0.0).engaged


def test_heartbeats_that_were_long_on_their_way_move_nothing(device, hands, clock):
    clock.now_s += 10.0
    assert hands.take(beat("one", 1, 10.0 - FRESH_S + 0.01, x=1.0)) is None
    clock.now_s += 1.0
    for stamp_s in (10.0, 11.0 - FRESH_S - 0.01, 0.0, 12.0, -1.0):
        assert "too slow" in hands.take(beat("one", 2, stamp_s, x=1.0))
        assert not device.read(0.0).engaged


def test_one_hand_at_a_time(device, hands, clock):
    assert hands.take(beat("one", 1, 0.0, x=1.0)) is None
    assert "Another page" in hands.take(beat("two", 9, 0.0, x=-1.0))
    assert "Another page" in hands.take(beat("two", 10, 0.0, engaged=False))
    assert device.read(0.0).axes == {Axis.X: 1.0}
    assert hands.take(beat("one", 2, 0.0, engaged=False)) is None
    assert hands.take(beat("two", 11, 0.0, x=-1.0)) is None
    assert device.read(0.0).axes == {Axis.X: -1.0}
    clock.now_s += SILENT_S + 0.01
    assert hands.take(beat("one", 3, hands.stamp_s(), y=1.0)) is None
    assert device.read(0.0).axes == {Axis.Y: 1.0}


@pytest.mark.parametrize("change", MALFORMED)
def test_malformed_heartbeats(change):
    assert heartbeat_of(GOOD) == beat("a" * 12, 1, 0.0, x=1.0)
    assert heartbeat_of({**GOOD, **change} if change else change) is None


def test_axes_over_the_wire(asker, stage, until):
    stamp_s = asker.events("beat")[-1][1]["stamp_s"]
    answer = asker.post("/axes", {**GOOD, "stamp_s": stamp_s})
    assert answer["reason"] is None
    assert answer["stamp_s"] >= stamp_s
    assert stage.device.read(0.0).axes == {Axis.X: 1.0}
    until(lambda: not stage.device.read(0.0).engaged)
    assert asker.ask("POST", "/axes", {"axes": {"x": 5}})[0] == 400


def test_page_without_motion(stage):
    from urllib.parse import urlsplit

    with stage.server(axes=None) as server:
        assert urlsplit(server.url).fragment
        assert server._site.motions == ()

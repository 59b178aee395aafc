"""Devices that toggle, and devices that ask the session, on the simulated workbench."""

from gantry_deploy.session.states import SessionState
from gantry_deploy.teleop.combined import CombinedDevice
from gantry_deploy.teleop.keyboard import Keyboard
from gantry_deploy.teleop.operator import OperatorInput, TeleopEvent
from gantry_fixtures.sessions import Bench, ScriptedDevice, hand


class Keys(ScriptedDevice):
    """A keyboard whose time is the session's."""

    def __init__(self, session):
        super().__init__()
        self.keys = Keyboard(session.parts.operator_map.axes, timeout_s=1000.0)

    def read(self, now_s):
        self.now_s = now_s
        return OperatorInput(now_s, self.keys.engaged, self.keys.motion(now_s), events=self.keys.take_events())

    def release(self):
        self.keys.release()


def test_an_attempt_that_ends_by_itself_ends_a_take_over_by_toggling_and_one_key_takes_over_again():
    bench = Bench("yam-pick-place", episode_s=1.0)
    bench.start()
    session, keys = bench.session, Keys(bench.session)
    session.parts.device = CombinedDevice([keys])
    bench.step()
    keys.keys.press("space", keys.now_s)
    bench.run_ticks(3)
    assert session.state is SessionState.CORRECTING
    attempt = bench.kept.steps[-1].episode
    while not bench.kept.steps[-1].is_last:  # Its time runs out.
        bench.step()
    assert not keys.keys.engaged
    while bench.kept.steps[-1].episode == attempt:
        bench.step()
    assert session.state is SessionState.AUTONOMOUS
    keys.keys.press("space", keys.now_s)
    bench.run_ticks(2)
    assert session.state is SessionState.CORRECTING
    bench.robot.close()


def test_a_device_asks_the_session_and_is_told_of_the_end_of_an_attempt():
    bench = Bench("yam-pick-place", episode_s=4.0)
    bench.start()
    device = bench.device
    assert device.state() == "AUTONOMOUS"
    assert device.request(TeleopEvent.PAUSE) is None
    bench.run_ticks(1)
    assert device.state() == "PAUSED"
    assert "possible" in device.request(TeleopEvent.VETO)
    assert device.released == 0
    device.script = {device.ticks + 1: hand(TeleopEvent.START, engaged=False)}
    device.script[device.ticks + 3] = hand(TeleopEvent.FAILURE, engaged=False)
    bench.run_ticks(5)
    assert device.released == 1
    bench.robot.close()

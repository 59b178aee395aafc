"""The page of a real session: a person takes over, asks, and stops from a browser's requests."""

import contextlib
import http.client
import io
import json

import pytest

from gantry_deploy.control.modes import Mode
from gantry_deploy.page.device import PageDevice
from gantry_deploy.page.open import open_views, page_of
from gantry_deploy.session.run import Views
from gantry_deploy.session.states import SessionState
from gantry_deploy.session.steps import Actor
from gantry_deploy.teleop.combined import CombinedDevice
from gantry_fixtures.sessions import Bench


@pytest.fixture
def bench():
    made = Bench("yam-pick-place", episode_s=30.0)
    made.start()
    yield made
    made.robot.close()


class Browser:
    """Requests of one."""

    def __init__(self, server):
        self.line = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=20)
        self.headers = {"Authorization": f"Bearer {server.url.partition('#')[2]}"}

    def post(self, path, **body):
        self.line.request("POST", path, json.dumps(body), self.headers)
        return json.loads(self.line.getresponse().read())

    def facts(self):
        """First facts and stamp of a new stream."""
        self.line.request("GET", "/stream", headers=self.headers)
        answer, found = self.line.getresponse(), {}
        while "facts" not in found or "beat" not in found:
            name = answer.readline().decode().removeprefix("event: ").strip()
            found[name] = json.loads(answer.readline().decode().removeprefix("data: "))
            answer.readline()
        self.line.close()
        return found["facts"], found["beat"]["stamp_s"]


def test_a_person_at_the_page(bench: Bench):
    hand = PageDevice(bench.session.parts.contract)
    bench.device.read = hand.read
    with page_of(bench, hand) as server:
        browser = Browser(server)
        facts, stamp_s = browser.facts()
        assert facts["headline"] == "Policy acts"
        assert [fact["label"] for fact in facts["joints"]] == list(bench.robot.spec.joint_names)

        beat = {"tab": "a" * 10, "stamp_s": stamp_s, "engaged": True, "axes": {"x": 1.0}}
        assert browser.post("/axes", count=1, **beat)["reason"] is None
        bench.run_ticks(2)
        assert bench.session.state is SessionState.CORRECTING
        assert bench.kept.steps[-1].actor is Actor.PERSON
        assert bench.kept.steps[-1].action[0] == pytest.approx(1.0, abs=1e-3)
        assert browser.post("/axes", count=2, **{**beat, "engaged": False})["reason"] is None
        bench.run_ticks(2)
        assert bench.session.state is SessionState.AUTONOMOUS

        assert browser.post("/request", event="success") == {"reason": None}
        bench.run_ticks(3)
        assert bench.session.tally.successes == 1
        bench.run_ticks(1)
        assert "not possible" in browser.post("/request", event="start_episode")["reason"]

        assert browser.post("/estop") == {"reason": None}
        bench.run_ticks(2)
        assert bench.controller.safety.mode is Mode.DAMP
        assert bench.session.state is SessionState.STOPPED


def test_views_of_the_command(bench: Bench, capsys: pytest.CaptureFixture[str]):
    views, out = Views([]), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.ExitStack() as stack:
        assert open_views(bench, bench.device, views, None, stack) is None
        views.tell[0](bench.session.snapshot())
    assert "Policy acts" in out.getvalue()
    both = CombinedDevice((bench.device, PageDevice()))
    with contextlib.ExitStack() as stack:
        server = open_views(bench, both, views, None, stack)
        assert server is not None
        assert f"page: {server.url}" in capsys.readouterr().out
        assert [axis for axis in Browser(server).facts()[0]["axes"]] == []

"""A stage for the page: a made-up session whose callbacks are seen by the test, behind a real server."""

import http.client
import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.page.device import PageDevice
from gantry_deploy.page.server import PageServer
from gantry_deploy.session.snapshot import SessionSnapshot
from gantry_deploy.session.states import SessionState, possible
from gantry_deploy.teleop.operator import Axis

MOTIONS = (Axis.X, Axis.Y, Axis.GRIPPER)


class Stage:
    """The session's side of a page."""

    def __init__(self) -> None:
        self.shown = SessionSnapshot(robot="yam", task="yam-lift", device="page", cameras=("front", "wrist"))
        self.go(SessionState.AUTONOMOUS)
        self.device = PageDevice()
        self.requests = []
        self.refusal = None
        self.stops = 0
        self.stopped = threading.Event()
        self.blocked = threading.Event()
        self.free = threading.Event()
        self.blocks, self.requests_block = False, False
        self.pixels = np.full((12, 16, 3), 200, dtype=np.uint8)

    def go(self, state, **changes):
        """Show another state."""
        self.shown = replace(self.shown, state=state.value, mode="POLICY", possible=possible(state), **changes)

    def snapshot(self):
        if self.blocks:
            self.blocked.set()
            self.free.wait(60.0)
        return replace(self.shown)  # A new one in every tick.

    def request(self, event):
        self.requests.append(event)
        if self.requests_block:
            self.free.wait(60.0)
        return self.refusal

    def estop(self):
        self.stops += 1
        self.stopped.set()

    def picture(self, camera):
        return self.pixels if camera == "front" else None

    def server(self, **options):
        """A page of this stage."""
        given = {"axes": self.device.receive, "motions": MOTIONS, **options}
        return PageServer(self.snapshot, self.request, self.estop, self.picture, **given)


@pytest.fixture
def stage():
    made = Stage()
    yield made
    made.free.set()


@pytest.fixture
def page(stage):
    with stage.server() as server:
        yield server


class Asker:
    """A client of a page that knows the token, unless told otherwise."""

    def __init__(self, server, port=None):
        self.token = server.url.partition("#")[2]
        self.port = port or int(server.address.rpartition(":")[2])
        self.headers = {"Authorization": f"Bearer {self.token}"}

    def ask(self, method, path, body=None, **headers):
        """Status, headers and body of an answer; a header of None is left out."""
        given = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            data = json.dumps(body) if isinstance(body, dict) else body
            connection.putrequest(method, path, skip_host="Host" in given)
            if data is not None and "Content-Length" not in given:
                given["Content-Length"] = str(len(data))
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(data.encode() if isinstance(data, str) else data)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def post(self, path, body, **headers):
        """JSON of a granted answer."""
        status, _, data = self.ask("POST", path, body, **headers)
        assert status == 200, (status, data)
        return json.loads(data)

    def events(self, *names):
        """Events of the stream, until one of each name has come."""
        wanted, found = set(names), []
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/stream", headers=self.headers)
            answer = connection.getresponse()
            assert answer.status == 200
            while wanted:
                name = answer.readline().decode().removeprefix("event: ").strip()
                data = answer.readline().decode().removeprefix("data: ")
                answer.readline()
                wanted.discard(name)
                found.append((name, json.loads(data)))
        finally:
            connection.close()
        return found


@pytest.fixture
def asker(page):
    return Asker(page)


@pytest.fixture
def stop_asker(page):
    return Asker(page, page.estop_port)


@pytest.fixture
def until():
    """Wait until something holds; fail if it does not for long."""

    def wait(holds, timeout_s=30.0):
        end_s = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < end_s, "waited in vain"
            time.sleep(0.02)

    return wait

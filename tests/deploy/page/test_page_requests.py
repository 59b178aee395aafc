"""Routes and security of the page, asked over real sockets."""

import json
import re
import socket
import ssl
import subprocess
import threading
import time

import pytest

from gantry_deploy.errors import PageError
from gantry_deploy.page import connections
from gantry_deploy.page.routes import STATIC
from gantry_deploy.session.states import SessionState
from gantry_deploy.teleop.operator import TeleopEvent
from gantry_fixtures.training import needs


def is_dropped(line, parts, pause_s=0.0):
    """Whether the other side ends a connection on which parts of a request are sent."""
    try:
        for part in parts:
            line.sendall(part)
            time.sleep(pause_s)
    except OSError:  # Reset, or a broken pipe.
        return True
    return False


def test_files_are_served_and_forbid_everything_else(asker, page):
    for path in STATIC:
        status, headers, data = asker.ask("GET", path, Authorization=None)
        assert status == 200
        assert data
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert f"connect-src 'self' http://127.0.0.1:{page.estop_port};" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        text = data.decode()
        assert not re.search(r"""(?:src|href|from|url\()\s*=?\s*["']?(?:https?:)?//""", text)
        assert not re.search(r"""\sstyle=|\son\w+=["']|innerHTML|<script>""", text)


def test_events_of_buttons_reach_the_session(asker, stage):
    assert asker.post("/request", {"event": "success"}) == {"reason": None}
    stage.refusal = "not now"
    assert asker.post("/request", {"event": "quit"}) == {"reason": "not now"}
    assert stage.requests == [TeleopEvent.SUCCESS, TeleopEvent.QUIT]
    status, _, text = asker.ask("POST", "/request", {"event": "succes\x1b"})
    assert status == 400
    assert b"succes\\x1b" in text
    assert b"success" in text
    assert len(stage.requests) == 2


def test_stream_tells_facts_and_signs_of_life(asker, stage, page):
    stage.go(SessionState.CORRECTING, attempts=4, success_rate=0.75, reward=float("nan"), joints={"a": float("inf")})
    events = asker.events("facts", "beat")
    assert events[0] == ("hello", {"estop_port": page.estop_port, "motions": ["x", "y", "gripper"]})
    facts = next(data for name, data in events if name == "facts")
    assert facts["headline"] == "You act"
    assert facts["possible"] == list(stage.shown.possible)
    assert facts["curves"] == [[4, 0.75, None]]
    assert next(data for name, data in events if name == "beat")["error"] == ""


def test_session_that_raises_is_told_and_asked_again(asker, stage, until):
    stage.go(SessionState.AUTONOMOUS, axes=5)
    until(lambda: "AttributeError" in asker.events("beat")[-1][1]["error"])
    stage.go(SessionState.PAUSED, axes={})
    until(lambda: not asker.events("beat")[-1][1]["error"])


def test_pictures_by_name_of_the_snapshot_alone(asker, until):
    until(lambda: asker.ask("GET", "/picture?camera=front")[0] == 200)
    status, headers, data = asker.ask("GET", "/picture?camera=front")
    assert (status, headers["Content-Type"]) in ((200, "image/png"), (200, "image/jpeg"))
    assert data.startswith((b"\x89PNG", b"\xff\xd8\xff"))
    assert asker.ask("GET", "/picture?camera=wrist")[0] == 204
    for query in (
        "camera=other",
        "camera=../front",
        "",
        "camera=front&camera=wrist",
        "&".join("a=1" for _ in range(9)),
    ):
        status, _, _ = asker.ask("GET", f"/picture?{query}")
        assert status == 404


def test_nothing_is_told_without_the_token(asker):
    for path in ("/stream", "/picture?camera=front"):
        for header in (None, "", "Bearer", "Bearer x", "Basic {token}", "Bearer {token}x", "Bearer \xff"):
            given = None if header is None else header.format(token=asker.token)
            status, _, text = asker.ask("GET", path, Authorization=given)
            assert status == 401
            assert b"link" in text


def test_nothing_is_done_without_the_token(asker, stop_asker, stage):
    for path in ("/request", "/axes", "/estop"):
        for ask in (asker.ask, stop_asker.ask):
            for token in ({}, {"token": "x" * 43}, {"token": 5}, {"token": None}):
                assert ask("POST", path, {"event": "success", **token}, Authorization=None)[0] in (401, 404)
    assert stage.requests == []
    assert stage.stops == 0


def test_other_hosts_are_refused_as_after_dns_rebinding(asker, stop_asker, stage):
    hosts = (
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example:{port}",
        "",
        "user@127.0.0.1",
        "127.0.0.1:x",
    )
    for client in (asker, stop_asker):
        for host in hosts:
            given = host.format(port=client.port)
            assert client.ask("POST", "/estop", {"token": client.token}, Host=given)[0] == 421
            assert client.ask("GET", "/", Host=given)[0] == 421
        assert client.ask("GET", "/nothing", Host=f"LocalHost:{client.port}")[0] == 404
    assert stage.stops == 0


def test_other_origins_are_refused(asker, stop_asker, stage):
    origins = ("http://evil.example", "null", "http://127.0.0.1:{other}", "https://127.0.0.1:{port}")
    for origin in origins:
        given = origin.format(other=asker.port + 2, port=asker.port)
        for client in (asker, stop_asker):
            status, headers, _ = client.ask("POST", "/estop", {"token": client.token}, Origin=given)
            assert status == 403
            assert headers.get("Access-Control-Allow-Origin") != given
        assert asker.ask("GET", "/stream", Origin=given)[0] == 403
    assert asker.ask("POST", "/request", {"event": "quit"}, Sec_Fetch_Site="cross-site")[0] == 403
    assert stage.requests == []
    assert stage.stops == 0


def test_emergency_stop_on_both_ports(asker, stop_asker, stage):
    own = f"http://127.0.0.1:{asker.port}"
    assert asker.post("/estop", {}, Origin=own) == {"reason": None}
    status, headers, data = stop_asker.ask("POST", "/estop", {"token": asker.token}, Authorization=None, Origin=own)
    assert (status, json.loads(data)) == (200, {"reason": None})
    assert headers["Access-Control-Allow-Origin"] == own
    assert stage.stops == 2
    assert stop_asker.post("/check", {}) == {"reason": None}
    assert stage.stops == 2


def test_emergency_stop_that_fails_is_not_confirmed(asker, stage):
    def broken():
        raise OSError("no wire")

    with stage.server() as server:
        server._site.estop = broken
        asker.port = server.estop_port
        status, _, data = asker.ask("POST", "/estop", {"token": server.url.partition("#")[2]}, Authorization=None)
    assert status == 500
    assert json.loads(data) == {"reason": "OSError: no wire"}


def test_paths_outside_of_the_table(asker):
    for path in ("/../facts.py", "/%2e%2e/facts.py", "/static/page.js", "//etc/passwd", "/page.js/", "/index.html"):
        assert asker.ask("GET", path)[0] == 404
    for path in ("/request/", "/request?x=1", "/stream", "/"):
        assert asker.ask("POST", path, {})[0] == 404
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"):
        assert asker.ask(method, "/")[0] == 501


def test_sizes_and_forms_of_requests(asker, stage):
    assert asker.ask("POST", "/request", "{}", Content_Length=str(10**15))[0] == 413
    assert asker.ask("POST", "/request", "{}", Content_Length="-1")[0] == 411
    assert asker.ask("POST", "/request", "{}", Content_Length=None)[0] == 411
    assert asker.ask("POST", "/request", "0\r\n\r\n", Transfer_Encoding="chunked")[0] == 411
    for body in ("", "[]", "{", '{"event": "quit", "event": "success"}', "[" * 4000, b"\xff\xfe"):
        assert asker.ask("POST", "/request", body)[0] == 400
    assert stage.requests == []


def test_head_of_endless_length_ends(asker):
    with socket.create_connection(("127.0.0.1", asker.port), 10) as line:
        line.sendall(b"GET / HTTP/1.1\r\n")
        assert is_dropped(line, (b"X-Filler: " + b"a" * 1000 + b"\r\n" for _ in range(10_000)))


def test_many_half_open_connections_hold_up_nothing(asker, stop_asker, stage):
    lines = []
    try:
        for port in (asker.port, stop_asker.port):
            for index in range(2 * connections.MOST):
                line = socket.create_connection(("127.0.0.1", port), 10)
                line.sendall((b"", b"POST /estop HTTP/1.1\r\nHost: 127.0", b"G")[index % 3])
                lines.append(line)
        assert stop_asker.post("/estop", {}) == {"reason": None}
        assert asker.post("/request", {"event": "success"}) == {"reason": None}
        assert asker.events("facts")
    finally:
        for line in lines:
            line.close()
    assert stage.stops == 1


def test_slow_requests_are_dropped(monkeypatch, stage):
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)
    with stage.server() as server, socket.create_connection(("127.0.0.1", server.estop_port), 30) as line:
        line.sendall(b"POST /estop HTTP/1.1\r\n")
        assert is_dropped(line, (b"X" for _ in range(1000)), 0.05)


def test_connections_with_the_token_stay_while_strangers_come(asker, stop_asker):
    import http.client

    known = http.client.HTTPConnection("127.0.0.1", stop_asker.port, timeout=10)
    known.request("POST", "/check", json.dumps({"token": asker.token}))
    assert known.getresponse().read() == b'{"reason":null}'
    own = known.sock
    lines = [socket.create_connection(("127.0.0.1", stop_asker.port), 10) for _ in range(connections.MOST + 5)]
    known.request("POST", "/estop", json.dumps({"token": asker.token}))
    assert known.getresponse().read() == b'{"reason":null}'
    assert known.sock is own
    known.close()
    for line in lines:
        line.close()


def test_emergency_stop_while_the_session_hangs(asker, stop_asker, stage, until):
    """Snapshots block, requests of the page block, and the stop is taken none the less."""
    stage.blocks = stage.requests_block = True
    assert stage.blocked.wait(30)
    hanging = [threading.Thread(target=asker.post, args=("/request", {"event": "success"})) for _ in range(5)]
    for thread in hanging:
        thread.start()
    until(lambda: len(stage.requests) == 5)
    assert stop_asker.post("/estop", {}) == {"reason": None}
    assert asker.post("/estop", {}) == {"reason": None}
    assert stage.stops == 2
    assert not stage.free.is_set()
    before = asker.events("beat", "hello")[-1][1]["age_s"]
    until(lambda: asker.events("beat")[-1][1]["age_s"] > before)
    stage.free.set()
    for thread in hanging:
        thread.join(30)


def test_close_does_not_wait_for_a_session_that_hangs(stage):
    with stage.server():
        stage.blocks = True
        assert stage.blocked.wait(30)
    assert not stage.free.is_set()


def test_other_addresses_need_encryption_or_a_clear_word(stage, tmp_path):
    with pytest.raises(PageError, match="without encryption"):
        stage.server(host="0.0.0.0")
    with stage.server(host="0.0.0.0", allow_plain=True, names=("robot.local",)) as server:
        assert server.address.startswith("http://robot.local:")
    for token in ("short", "with space in it, and long", "x" * 300):
        with pytest.raises(PageError, match="20 to 200"):
            stage.server(token=token)
    with pytest.raises(PageError, match="cannot listen"):
        stage.server(host="192.0.2.1", allow_plain=True)
    with pytest.raises(PageError, match="expected 0"):
        stage.server(port=65535)
    with pytest.raises(PageError, match="cannot be used"):
        stage.server(tls=(tmp_path / "none.pem", tmp_path / "none.key"))


@needs("cryptography")
def test_tls(stage, tmp_path):
    from datetime import datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    from gantry_hardware.compat import UTC

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), True)
    (tmp_path / "a.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    pkcs8 = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "a.key").write_bytes(key.private_bytes(*pkcs8))
    context = ssl.create_default_context(cafile=str(tmp_path / "a.pem"))
    with stage.server(tls=(tmp_path / "a.pem", tmp_path / "a.key")) as server:
        assert server.address.startswith("https://")
        mute = socket.create_connection(("127.0.0.1", server.estop_port), 10)  # Never shakes hands.
        with (
            socket.create_connection(("127.0.0.1", server.estop_port), 10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as line,
        ):
            body = json.dumps({"token": server.url.partition("#")[2]}).encode()
            line.sendall(b"POST /estop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert line.recv(1000).startswith(b"HTTP/1.1 200")
        mute.close()
    assert stage.stops == 1


def test_demo_serves(asker):
    import os
    import sys

    with subprocess.Popen(
        [sys.executable, "-m", "gantry_deploy.page.demo"], stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as demo:
        try:
            assert demo.stdout is not None
            address, _, token = demo.stdout.readline().strip().removeprefix("page: http://").partition("/#")
            asker.port, asker.headers = int(address.rpartition(":")[2]), {"Authorization": f"Bearer {token}"}
            assert asker.events("facts")[-1][1]["about"].startswith("yam")
        finally:
            demo.terminate()

"""Requests of the page: a fixed table of what may be asked for, and the checks before each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar
from urllib.parse import unquote

from gantry_deploy.page.access import Access, bearer
from gantry_deploy.page.connections import LOG, SEND_S, BoundedHandler, BoundedServer
from gantry_deploy.page.feed import Feed, to_json
from gantry_deploy.page.hand import Hands, heartbeat_of
from gantry_deploy.page.pictures import Pictures, media_type
from gantry_deploy.teleop.operator import Axis, TeleopEvent
from gantry_hardware.files.json_file import JsonError, parse_json_object
from gantry_hardware.files.text import plain_text

STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/link.js": ("link.js", "text/javascript; charset=utf-8"),
    "/view.js": ("view.js", "text/javascript; charset=utf-8"),
    "/hand.js": ("hand.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The only files that are served."""
BEAT_S = 0.1
"""Time between two signs of life of a stream."""
MOST_STREAMS = 12
"""Streams at once."""
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass
class Site:
    """Everything that the handlers of a page share."""

    access: Access
    feed: Feed
    pictures: Pictures
    request: Callable[[TeleopEvent], str | None]
    estop: Callable[[], None]
    hands: Hands | None
    motions: Sequence[Axis]
    page_port: int = 0
    """Port of the page."""
    estop_port: int = 0
    """Port of the emergency stop alone."""
    streams: int = 0
    """Open streams; bounded roughly, since a thread may look while another counts."""


class SiteServer(BoundedServer):
    """A bounded server of a site."""

    site: Site


class SiteHandler(BoundedHandler):
    """Checks of every request; subclasses hold the tables."""

    server: SiteServer
    gets: ClassVar[Mapping[str, Callable[[Any], None]]] = {}
    posts: ClassVar[Mapping[str, Callable[[Any, dict[str, Any]], None]]] = {}

    def do_GET(self) -> None:  # noqa: N802
        """Answer from the table of files and streams."""
        if self._is_known_host() and self._is_own_origin():
            path = self.path.partition("?")[0]
            answer = self.gets.get(path)
            if answer is None:
                self.refuse(404, "There is nothing here.")
            elif path in STATIC or self._has_token(bearer(self.headers.get("Authorization"))):
                self._do(answer)

    def do_POST(self) -> None:  # noqa: N802
        """Answer from the table of requests; the token is in the header, or in the body of a request across ports."""
        if not (self._is_known_host() and self._is_own_origin()):
            return
        answer = self.posts.get(self.path)
        if answer is None:
            self.refuse(404, "There is nothing here.")
            return
        body = self.body()
        if body is None:
            self.close_connection = True
            return
        try:
            data = parse_json_object(body, "the request")
        except JsonError as error:
            self.refuse(400, str(error))
            return
        if self._has_token(bearer(self.headers.get("Authorization")) or _text(data.get("token"))):
            self._do(lambda handler: answer(handler, data))

    def own_origin(self) -> str:
        """Host header of the page that may ask; here the same as that of the request."""
        return self.headers.get("Host", "")

    def answer_json(self, value: Mapping[str, Any], code: int = 200) -> None:
        """Answer with JSON."""
        self.answer(code, JSON, to_json(value))

    def stop_robot(self, data: dict[str, Any]) -> None:
        """Emergency stop; the answer comes after the session has taken it."""
        del data
        try:
            self.server.site.estop()
        except Exception as error:
            LOG.exception("The emergency stop of the page has failed.")
            self.answer_json({"reason": f"{type(error).__name__}: {error}"[:300]}, 500)
            return
        LOG.warning("Emergency stop from the page.")
        self.answer_json({"reason": None})

    def _do(self, answer: Callable[[Any], None]) -> None:
        """Answer; an error of a callback is told instead of leaving the browser to guess."""
        self.place.deadline_s = None
        try:
            answer(self)
        except OSError:
            raise
        except Exception as error:
            LOG.exception("A request of the page has failed: %s", self.path)
            self.refuse(500, f"{type(error).__name__}: {error}"[:300])

    def _is_known_host(self) -> bool:
        hosts = self.headers.get_all("Host", [])
        refusal = self.server.site.access.host_refusal(hosts[0] if len(hosts) == 1 else None)
        if refusal is not None:
            self.refuse(421, refusal)
        return refusal is None

    def _is_own_origin(self) -> bool:
        refusal = self.server.site.access.origin_refusal(self.headers.get("Origin"), self.own_origin())
        if refusal is None and self.headers.get("Sec-Fetch-Site") == "cross-site" and self.command != "GET":
            refusal = "Requests of other sites are refused."
        if refusal is not None:
            self.refuse(403, refusal)
        return refusal is None

    def _has_token(self, token: str | None) -> bool:
        self.place.known = self.server.site.access.knows(token)
        if not self.place.known:
            self.refuse(401, "The link of this page is not valid: open the one that the session has printed.")
        return self.place.known


class PageHandler(SiteHandler):
    """The page: files, stream, pictures, requests."""

    def send_file(self) -> None:
        """One of the fixed files."""
        name, kind = STATIC[self.path.partition("?")[0]]
        data = files("gantry_deploy.page").joinpath("static", name).read_bytes()
        self.answer(200, kind, data, {"Content-Security-Policy": self._policy()})

    def send_stream(self) -> None:
        """Server-sent events until the browser leaves: facts when they change, a sign of life ten times a second."""
        site = self.server.site
        if site.streams >= MOST_STREAMS:
            self.refuse(503, f"{MOST_STREAMS} pages are open already.")
            return
        site.streams += 1
        try:
            self._open_stream()
            version = 0
            while not site.feed.is_closed:
                version, data = site.feed.wait(version, BEAT_S)
                beat = {"stamp_s": site.hands.stamp_s() if site.hands else 0.0, "age_s": round(site.feed.age_s(), 2)}
                self._send_event("beat", to_json({**beat, "error": site.feed.error}))
                if data is not None:
                    self._send_event("facts", data)
            self._send_event("over", b"{}")
        finally:
            site.streams -= 1

    def send_picture(self) -> None:
        """Newest picture of ``?camera=NAME``."""
        site = self.server.site
        name = unquote(self.path.partition("?")[2].removeprefix("camera="))
        if name not in site.feed.cameras:
            self.refuse(404, f"There is no such camera; there are: {', '.join(site.feed.cameras) or '(none)'}.")
            return
        data = site.pictures.newest(name)
        if data is None:
            self.answer(204, TEXT, b"")
            return
        self.answer(200, media_type(data), data)

    def take_event(self, data: dict[str, Any]) -> None:
        """An event of a button; the answer holds the reason where it is not granted."""
        event = data.get("event")
        if event not in list(TeleopEvent):
            self.refuse(400, f"Unknown event {plain_text(event)}; there are: {', '.join(TeleopEvent)}.")
            return
        if event == TeleopEvent.ESTOP:
            self.stop_robot(data)
            return
        self.answer_json({"reason": self.server.site.request(TeleopEvent(event))})

    def take_axes(self, data: dict[str, Any]) -> None:
        """A heartbeat of a held button."""
        hands, beat = self.server.site.hands, heartbeat_of(data)
        if hands is None or beat is None:
            self.refuse(400, "This session takes no motion from the page." if hands is None else "Malformed motion.")
            return
        reason = hands.take(beat)
        self.answer_json({"reason": reason, "stamp_s": hands.stamp_s()})

    def _open_stream(self) -> None:
        site = self.server.site
        self.close_connection = True
        self.request.settimeout(SEND_S)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.guard_headers()
        self.send_header("Connection", "close")
        self.end_headers()
        self._send_event(
            "hello", to_json({"estop_port": site.estop_port, "motions": [axis.value for axis in site.motions]})
        )

    def _send_event(self, name: str, data: bytes) -> None:
        self.wfile.write(b"event: %s\ndata: %s\n\n" % (name.encode(), data))

    def _policy(self) -> str:
        """Content security policy: nothing but this page, and the port of the emergency stop."""
        site = self.server.site
        host = self.headers["Host"].rpartition(":")[0] or self.headers["Host"]
        return (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
            f"connect-src 'self' {site.access.scheme}://{host}:{site.estop_port}; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
        )

    gets: ClassVar[Mapping[str, Callable[[Any], None]]] = {
        **dict.fromkeys(STATIC, send_file),
        "/stream": send_stream,
        "/picture": send_picture,
    }
    posts: ClassVar[Mapping[str, Callable[[Any, dict[str, Any]], None]]] = {
        "/request": take_event,
        "/axes": take_axes,
        "/estop": SiteHandler.stop_robot,
    }


class StopHandler(SiteHandler):
    """The emergency stop alone, on a port of its own: a browser keeps a connection to it apart from all others."""

    def own_origin(self) -> str:
        """Host of the page: that of this request, with the page's port."""
        host = self.headers.get("Host", "")
        return f"{host.rpartition(':')[0] or host}:{self.server.site.page_port}"

    def guard_headers(self) -> None:
        """The page of the other port may read answers."""
        super().guard_headers()
        host = self.headers.get("Host", "") if hasattr(self, "headers") else ""
        if host and self.server.site.access.host_refusal(host) is None:
            origin = f"{self.server.site.access.scheme}://{self.own_origin()}"
            self.send_header("Access-Control-Allow-Origin", origin)

    def check(self, data: dict[str, Any]) -> None:
        """Sign of life that keeps the connection open."""
        del data
        self.answer_json({"reason": None})

    posts: ClassVar[Mapping[str, Callable[[Any, dict[str, Any]], None]]] = {
        "/estop": SiteHandler.stop_robot,
        "/check": check,
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None

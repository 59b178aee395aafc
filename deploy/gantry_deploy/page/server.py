"""The page of a correction session: two small servers in threads of their own, beside the control loop."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gantry_deploy.errors import PageError
from gantry_deploy.page.access import Access
from gantry_deploy.page.feed import Feed
from gantry_deploy.page.hand import Hands
from gantry_deploy.page.pictures import Picture, Pictures
from gantry_deploy.page.routes import PageHandler, Site, SiteServer, StopHandler
from gantry_deploy.process.hosts import is_loopback
from gantry_deploy.process.server_tls import server_context
from gantry_deploy.session.snapshot import SessionSnapshot
from gantry_deploy.teleop.operator import Axis, TeleopEvent

MAX_PORT = 65534


class PageServer:
    """A page for the person of a session, on this machine unless another address is asked for.

    The emergency stop listens on a port of its own, the one after the page's where that is given. No callback is called
    from the control loop's thread, and the loop waits for none of them.

    Args:
        snapshot: Newest snapshot; may block without harm to the emergency stop.
        request: Asks the session for an event; None if it is granted, otherwise the reason why not.
        estop: Stops the robot; returns when the safety machine has been asked.
        picture: Newest picture of a camera: a PNG, a JPEG, or uint8 (height, width, 3); None without one.
        host: Address to listen on.
        port: Port of the page; 0 for a free one.
        token: Secret of the link, 20 to 200 letters, digits, ``_`` and ``-``; a new one if None.
        axes: Receiver of motion of held buttons, :meth:`gantry_deploy.page.device.PageDevice.receive`; None for a page
            without motion.
        motions: Axes with buttons.
        names: Further names under which browsers reach this machine.
        tls: Certificate with its chain, and key, in PEM.
        allow_plain: Serve another address than loopback without TLS: everybody on that network can read along, and take
            the token.

    Raises:
        PageError: If another address is asked for without TLS, or address, certificate or token cannot be used.
    """

    def __init__(
        self,
        snapshot: Callable[[], SessionSnapshot],
        request: Callable[[TeleopEvent], str | None],
        estop: Callable[[], None],
        picture: Callable[[str], Picture | None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        axes: Callable[[Mapping[Axis, float], bool], None] | None = None,
        motions: Sequence[Axis] = (),
        names: Sequence[str] = (),
        tls: tuple[Path, Path] | None = None,
        allow_plain: bool = False,
    ) -> None:
        if not is_loopback(host) and tls is None and not allow_plain:
            raise PageError(
                f"The page on {host} would be open to a network without encryption. Use a tunnel to 127.0.0.1, give a "
                "certificate, or allow it explicitly."
            )
        if not 0 <= port <= MAX_PORT:
            raise PageError(f"The page's port is {port}, expected 0 (a free one) to {MAX_PORT}.")
        context = None if tls is None else server_context(*tls, "The page's certificate", PageError)
        hands = None if axes is None else Hands(axes)
        access = Access(host, names, context is not None, token)
        motions = tuple(motions) if axes is not None else ()
        site = Site(access, Feed(snapshot), Pictures(picture), request, estop, hands, motions)
        self._site, self._host, self._name = site, host, "127.0.0.1" if is_loopback(host) else (*names, host)[0]
        with contextlib.ExitStack() as opened:
            self._page = _listen(host, port, PageHandler, "gantry-page", context)
            opened.callback(self._page.close)
            self._stop = _listen(host, port and port + 1, StopHandler, "gantry-page-estop", context)
            opened.pop_all()
        self._page.site = self._stop.site = site
        site.page_port, site.estop_port = self._page.server_port, self._stop.server_port

    @property
    def url(self) -> str:
        """Link with the token, which browsers keep to themselves: what follows ``#`` is not sent."""
        return f"{self.address}/#{self._site.access.token}"

    @property
    def address(self) -> str:
        """Address without the token."""
        return f"{self._site.access.scheme}://{self._name}:{self._page.server_port}"

    @property
    def estop_port(self) -> int:
        """Port of the emergency stop."""
        return self._stop.server_port

    def start(self) -> PageServer:
        """Serve, in threads of its own."""
        self._stop.start()
        self._site.feed.start()
        self._page.start()
        return self

    def close(self) -> None:
        """End all connections; does not wait for callbacks."""
        self._site.feed.close()
        self._page.close()
        self._stop.close()

    def __enter__(self) -> PageServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _listen(
    host: str, port: int, handler: type[PageHandler] | type[StopHandler], name: str, context: ssl.SSLContext | None
) -> SiteServer:
    try:
        return SiteServer((host, port), handler, name, context)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PageError(f"The page cannot listen on {host}, port {port}: {reason}.") from error

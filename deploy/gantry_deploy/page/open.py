"""Page and terminal view of a running session."""

from __future__ import annotations

import contextlib

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.page.device import PageDevice
from gantry_deploy.page.server import PageServer
from gantry_deploy.page.terminal import TerminalView
from gantry_deploy.session.run import SessionRun, Views
from gantry_deploy.teleop.combined import CombinedDevice
from gantry_deploy.teleop.operator import TeleopDevice


def open_views(
    session: SessionRun, device: TeleopDevice, views: Views, port: int | None, stack: contextlib.ExitStack
) -> PageServer | None:
    """Show a session on the terminal, and on a page if one is asked for or is one of the devices.

    Args:
        session: The session; not running yet.
        device: Its device.
        views: Gets the terminal's view.
        port: Port of the page; 0 for a free one, None for no page.
        stack: Closes what is opened here.

    Returns:
        The page, serving; None without one.

    Raises:
        PageError: If the page cannot listen.
    """
    hand = page_device(device)
    server = None if port is None and hand is None else stack.enter_context(page_of(session, hand, port or 0))
    notes = () if server is None else (f"page: {server.url}",)
    for note in notes:
        print(note, flush=True)
    views.tell = [*views.tell, stack.enter_context(TerminalView(notes=notes))]
    return server


def page_of(session: SessionRun, hand: PageDevice | None, port: int = 0) -> PageServer:
    """The page of a session on this machine; it does not serve yet.

    Args:
        session: The session.
        hand: The page as a device; None for a page without motion.
        port: Port; 0 for a free one.

    Raises:
        PageError: If it cannot listen.
    """

    def picture(camera: str) -> NDArray[np.uint8] | None:
        pixels = (session.session.images or {}).get(camera)
        return None if pixels is None else np.moveaxis(pixels, 0, -1)

    return PageServer(
        session.session.snapshot,
        session.session.request,
        session.estop,
        picture,
        port=port,
        axes=None if hand is None else hand.receive,
        motions=() if hand is None else hand.axes,
    )


def page_device(device: TeleopDevice) -> PageDevice | None:
    """The page among a session's devices; None if it is none of them."""
    devices = device.devices if isinstance(device, CombinedDevice) else (device,)
    return next((one for one in devices if isinstance(one, PageDevice)), None)

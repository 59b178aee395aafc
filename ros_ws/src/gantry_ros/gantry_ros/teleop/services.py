"""A session's events as services that answer with its state, or with the reason why not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rclpy.service import Service
from std_srvs.srv import Trigger

from gantry_deploy.errors import SessionError
from gantry_deploy.session.states import SessionState
from gantry_deploy.teleop.operator import TeleopEvent
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, answer


class EventServices:
    """Services below a node's name. Before :meth:`attend` they refuse.

    Args:
        host: Its node.
        events: Service -> event's name; None for all events, and those that take over and give back.
    """

    def __init__(self, host: NodeHost, events: dict[str, str] | None = None) -> None:
        self._request: Callable[[TeleopEvent], str | None] | None = None
        self._state: Callable[[], str] = str
        chosen = topics.EVENT_SERVICES if events is None else events
        self.services: list[Service] = [
            host.node.create_service(Trigger, f"~/{name}", answer(partial(self._ask, TeleopEvent(event))))
            for name, event in chosen.items()
        ]
        if events is None:
            self.services += [
                host.node.create_service(Trigger, f"~/{name}", answer(partial(self._hand, acts)))
                for name, acts in topics.HAND_SERVICES.items()
            ]
        """To be taken down with the node's others."""

    def attend(self, request: Callable[[TeleopEvent], str | None], state: Callable[[], str]) -> None:
        """See :meth:`gantry_deploy.teleop.operator.AttendedDevice.attend`."""
        self._request, self._state = request, state

    def _hand(self, acts: bool) -> str:
        """Take over, or give back; refused where it is so already."""
        if self._state() and (self._state() == SessionState.CORRECTING) is acts:
            raise SessionError(f"A person acts already: {self._state()}." if acts else f"No person: {self._state()}.")
        return self._ask(TeleopEvent.INTERVENTION)

    def _ask(self, event: TeleopEvent) -> str:
        if self._request is None:
            raise SessionError("No session runs yet.")
        before = self._state()
        refusal = self._request(event)
        if refusal is not None:
            raise SessionError(refusal)
        return f"{event.value}: asked for in {before}."

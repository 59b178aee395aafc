"""The scene of a session, laid out anew by a service of another node."""

from __future__ import annotations

import time
from typing import Any

from std_srvs.srv import Trigger

from gantry_ros.runtime.host import NodeHost

TIMEOUT_S = 30.0
"""Longest wait for the answer, s."""
SETTLE_S = 0.3
"""Time after a good answer in which the robot's new state arrives, s."""


class SceneService:
    """Implements :class:`gantry_deploy.session.resets.SceneLayout` by a Trigger service.

    Args:
        host: Node to use.
        name: Of the service.
    """

    def __init__(self, host: NodeHost, name: str) -> None:
        self._client = host.node.create_client(Trigger, name)
        self._name = name
        self._future: Any = None
        self._asked_s, self._answered_s = 0.0, 0.0

    def ask(self) -> None:
        """See :meth:`gantry_deploy.session.resets.SceneLayout.ask`."""
        self._asked_s, self._answered_s = time.monotonic(), 0.0
        self._future = self._client.call_async(Trigger.Request())

    def answer(self) -> str | None:
        """See :meth:`gantry_deploy.session.resets.SceneLayout.answer`."""
        now_s = time.monotonic()
        if self._future is None or not self._future.done():
            late = now_s - self._asked_s > TIMEOUT_S
            return f"service '{self._name}' does not answer." if late else None
        response = self._future.result()
        if not response.success:
            return f"service '{self._name}' says: {response.message}"
        self._answered_s = self._answered_s or now_s
        return "" if now_s - self._answered_s >= SETTLE_S else None

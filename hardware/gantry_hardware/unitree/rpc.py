"""Calls of the services of a Unitree robot's computer, and its motion switcher."""

from __future__ import annotations

import json
import time
from typing import Any

from gantry_hardware.errors import RobotError
from gantry_hardware.files.json_file import JsonError, parse_json_object
from gantry_hardware.unitree import idl
from gantry_hardware.unitree.link import Link, take

SWITCHER = "motion_switcher"
"""Service that says which of the robot's own controllers holds the motors."""
CHECK_MODE, SELECT_MODE, RELEASE_MODE = 1001, 1002, 1003
"""Its calls."""
UNKNOWN_CALL = 3203
"""Code of an answer to a call that the service does not know."""
REQUEST_TOPIC, RESPONSE_TOPIC = "rt/api/{service}/request", "rt/api/{service}/response"
"""Topics of a service."""
CALL_DEPTH = 16
"""Calls and answers that are kept for a reader that missed them."""
_POLL_S = 0.005
_AGAIN_S = 0.5
MAX_ANSWER = 64 * 1024
"""Longest answer that is read, characters."""


class RpcClient:
    """Calls one service.

    Args:
        link: Where the robot is.
        service: Name of the service.
    """

    def __init__(self, link: Link, service: str) -> None:
        self._link, self._service = link, service
        self._responses = link.reader(RESPONSE_TOPIC.format(service=service), idl.Response, reliable=True)
        self._requests = link.writer(REQUEST_TOPIC.format(service=service), idl.Request, depth=CALL_DEPTH)
        self._id = time.time_ns()

    def call(self, api: int, parameter: dict[str, Any] | None = None, *, timeout_s: float) -> tuple[int, str]:
        """Call, and wait for the answer: its code, 0 for well, and its data.

        A call that found no service, because its reader was not known yet, is made again under the same number.

        Raises:
            RobotError: If no answer comes in time.
        """
        self._id += 1
        header = idl.RequestHeader(idl.RequestIdentity(self._id, api), idl.RequestLease(0), idl.RequestPolicy(0, False))
        request = idl.Request(header, "" if parameter is None else json.dumps(parameter), idl.NO_BYTES)
        begin_s, asked_s = time.monotonic(), -1e9
        while time.monotonic() - begin_s < timeout_s:
            if time.monotonic() - asked_s >= _AGAIN_S:
                self._requests.write(request)
                asked_s = time.monotonic()
            for answer in take(self._responses):
                if answer.header.identity.id == self._id:
                    return answer.header.status.code, answer.data[:MAX_ANSWER]
            time.sleep(_POLL_S)
        raise RobotError(
            f"The robot's service '{self._service}' does not answer call {api} within {timeout_s:g} s on "
            f"{self._link.text}."
        )


class MotionSwitcher:
    """Asks which of the robot's own controllers is active, and releases it.

    Args:
        link: Where the robot is.
        timeout_s: Longest time for an answer.
    """

    def __init__(self, link: Link, timeout_s: float) -> None:
        self._client = RpcClient(link, SWITCHER)
        self._timeout_s = timeout_s

    def active(self) -> str:
        """Name of the active controller; empty for none.

        Raises:
            RobotError: If the service does not answer, or not as it should.
        """
        code, data = self._client.call(CHECK_MODE, timeout_s=self._timeout_s)
        try:
            name = parse_json_object(data, "The answer", max_bytes=MAX_ANSWER).get("name") if code == 0 else None
        except JsonError:
            name = None
        if not isinstance(name, str):
            raise RobotError(f"The motion switcher answers CheckMode with code {code} and {data[:80]!r}.")
        return name

    def release(self) -> None:
        """Let the active controller go.

        Raises:
            RobotError: If the service refuses.
        """
        code, data = self._client.call(RELEASE_MODE, timeout_s=self._timeout_s)
        if code != 0:
            raise RobotError(f"The motion switcher refuses to release the controller: code {code}, {data[:80]!r}.")

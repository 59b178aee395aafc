"""The motion switcher of a fake robot: a service that names the active controller, and releases it."""

from __future__ import annotations

import json
from collections.abc import Callable

from gantry_hardware.files.json_file import JsonError, parse_json_object
from gantry_hardware.unitree import idl
from gantry_hardware.unitree.link import Link, take
from gantry_hardware.unitree.rpc import (
    CALL_DEPTH,
    CHECK_MODE,
    RELEASE_MODE,
    REQUEST_TOPIC,
    RESPONSE_TOPIC,
    SELECT_MODE,
    SWITCHER,
    UNKNOWN_CALL,
)

WRONG_PARAMETER = 3204
"""Code of an answer to a call whose parameter is not understood."""


class Switcher:
    """Answers calls.

    Args:
        link: Where the robot is.
        mode: Name of the controller that is active at the start; empty for none.
        changed: Told of the new name after every change.
    """

    def __init__(self, link: Link, mode: str, changed: Callable[[str], None]) -> None:
        self.mode = mode
        """Name of the active controller; empty for none."""
        self._changed = changed
        self._requests = link.reader(REQUEST_TOPIC.format(service=SWITCHER), idl.Request, reliable=True)
        self._responses = link.writer(RESPONSE_TOPIC.format(service=SWITCHER), idl.Response, depth=CALL_DEPTH)

    def select(self, mode: str) -> None:
        """Let a controller be the active one; empty for none."""
        if mode != self.mode:
            self.mode = mode
            self._changed(mode)

    def answer(self) -> int:
        """Answer the calls that have come. Returns how many."""
        requests = take(self._requests)
        for request in requests:
            code, data = self._result(request.header.identity.api_id, request.parameter)
            header = idl.ResponseHeader(request.header.identity, idl.ResponseStatus(code))
            self._responses.write(idl.Response(header, data, idl.NO_BYTES))
        return len(requests)

    def _result(self, api: int, parameter: str) -> tuple[int, str]:
        if api == CHECK_MODE:
            return 0, json.dumps({"form": "0", "name": self.mode})
        if api == RELEASE_MODE:
            self.select("")
            return 0, ""
        if api == SELECT_MODE:
            try:
                name = parse_json_object(parameter, "The parameter").get("name")
            except JsonError:
                name = None
            if not isinstance(name, str):
                return WRONG_PARAMETER, ""
            self.select(name)
            return 0, ""
        return UNKNOWN_CALL, ""

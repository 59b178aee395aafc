"""Buttons of the page as an operator's device, with a dead-man switch in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.teleop.operator import Axis, OperatorInput

SILENT_S = 0.3
"""Time without a heartbeat after which the person is taken to have let go."""

_LABELS = {
    Axis.X: "ahead / back",
    Axis.Y: "left / right",
    Axis.Z: "up / down",
    Axis.ROLL: "roll",
    Axis.PITCH: "pitch",
    Axis.YAW: "turn left / right",
    Axis.GRIPPER: "open / close the gripper",
    Axis.THROTTLE: "accelerate / brake",
    Axis.STEER: "steer left / right",
}


class PageDevice:
    """A person at the page. Motion counts only while a button is held and heartbeats of the browser come.

    Verdicts and requests of the page go to the session itself, so that this device has no events.

    Args:
        contract: Of the policy that is corrected; names the axes that move something. None for all axes.
        clock: Steady clock of this machine, s.
    """

    name = "page"

    def __init__(self, contract: PolicyContract | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.axes: tuple[Axis, ...] = tuple(Axis) if contract is None else make_operator_map(contract).axes
        """Axes with a button."""
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[Axis, float] = {}
        self._engaged, self._heard_s = False, float("-inf")

    def receive(self, axes: Mapping[Axis, float], engaged: bool) -> None:
        """Take a heartbeat, from any thread: motion by axis, each in [-1, 1], and whether a button is held."""
        kept = {axis: min(1.0, max(-1.0, value)) for axis, value in axes.items() if axis in self.axes}
        with self._lock:
            self._held, self._engaged, self._heard_s = kept if engaged else {}, engaged, self._clock()

    def connect(self) -> None:
        """Nothing to open: browsers come and go."""

    def read(self, now_s: float) -> OperatorInput:
        """See :meth:`TeleopDevice.read`."""
        with self._lock:
            age_s = self._clock() - self._heard_s
            engaged = self._engaged and age_s <= SILENT_S
            return OperatorInput(now_s - age_s, engaged, dict(self._held) if engaged else {})

    def describe(self) -> list[str]:
        """See :meth:`TeleopDevice.describe`."""
        moved = ", ".join(_LABELS[axis] for axis in self.axes)
        return [f"hold a button on the page: {moved}", "letting go gives back to the policy"]

    def close(self) -> None:
        """Forget the hand."""
        with self._lock:
            self._held, self._engaged = {}, False

"""A robot's own part in the loop: faults, its own controller, a remote controller, health."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import BODY_VELOCITY, PolicyContract
from gantry_deploy.control.judge import Fault, FaultCode
from gantry_deploy.control.modes import Event, Mode
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.errors import SafetyError
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import RobotError
from gantry_hardware.model.capabilities import (
    HasFaults,
    HasHealth,
    HasLink,
    HasRemote,
    NeedsTakeOver,
    missing_methods,
    other_commanders,
)

_LOG = logging.getLogger("gantry.robot")
MEMORY_S = 0.5
"""In PASSIVE a fault keeps the robot from standing up for so long after it was seen."""


class RobotSide:
    """The optional capabilities of a robot, as the loop needs them; a robot without them changes nothing.

    Args:
        robot: The loop's robot.
        contract: Of the policy; None without one.
    """

    def __init__(self, robot: Robot, contract: PolicyContract | None) -> None:
        self._robot = robot
        kinds = (HasFaults, HasRemote, HasLink, HasHealth, NeedsTakeOver)
        able: list[Any] = [None if missing_methods(robot, kind) else robot for kind in kinds]
        self._faults, self._remote, self._link, self._health, self._held = able
        self._newest: Fault | None = None
        self._standing: threading.Thread | None = None
        self._command = None if contract is None or contract.command.kind != BODY_VELOCITY else contract.command

    def fault(self, now_s: float, mode: Mode) -> Fault | None:
        """The fault that the robot itself knows of; in PASSIVE one that it knew of a moment ago.

        A robot that is not powered is not damped, so that no operator could reset its fault: it is let forget, and what
        lasts comes back.
        """
        if self._faults is None:
            return None
        found = self._faults.fault()
        if found is not None:
            self._newest = Fault(FaultCode.ROBOT, found.text, now_s, found.kind)
        if mode is not Mode.PASSIVE:
            return None if found is None else self._newest
        if found is not None:
            self._faults.reset_faults()
        is_recent = self._newest is not None and now_s - self._newest.time_s <= MEMORY_S
        return self._newest if is_recent else None

    def placed(self, fault: Fault | None) -> Fault | None:
        """A fault of a robot that is not heard, with where it was looked for."""
        if fault is None or self._link is None or fault.code not in (FaultCode.NO_STATE, FaultCode.STALE_STATE):
            return fault
        return replace(fault, text=f"{fault.text} It is on {self._link.link_text}.")

    def reset(self) -> None:
        """Let the robot forget its fault, at an operator's request."""
        self._newest = None
        if self._faults is not None:
            self._faults.reset_faults()

    def take_over(self) -> str | None:
        """Take the robot from its own controller, and look for other programs; the reason why that may not be."""
        try:
            if self._held is not None:
                self._held.take_over()
        except RobotError as error:
            return str(error)
        return other_commanders(self._robot) or None

    def obey_remote(self, safety: SafetyMachine, now_s: float) -> None:
        """Pass on what the operator asked for; a request that is not possible now is logged and changes nothing.

        Standing up is asked for by a thread of its own, since taking a robot over takes longer than a tick.
        """
        for event in () if self._remote is None else self._remote.take_requests():
            if event != Event.STAND:
                _ask(safety, event, now_s)
            elif self._standing is None or not self._standing.is_alive():
                self._standing = threading.Thread(target=_ask, args=(safety, event, now_s), daemon=True)
                self._standing.start()

    def requested(self) -> NDArray[np.float64] | None:
        """Velocity (c,) that the operator's sticks ask for, within the trained range; None while they rest."""
        axes = None if self._remote is None or self._command is None else self._remote.stick_axes()
        if axes is None or self._command is None or not axes.any():
            return None
        return np.where(axes >= 0.0, axes * np.array(self._command.upper), -axes * np.array(self._command.lower))

    def health(self) -> dict[str, Any] | None:
        """Numbers about the robot by name; None where it tells none."""
        return None if self._health is None else self._health.health()


def _ask(safety: SafetyMachine, event: str, now_s: float) -> None:
    try:
        safety.request(event, now_s)
    except SafetyError as error:
        _LOG.warning("The remote controller's '%s': %s", event, error)

"""What a robot knows and does by itself: faults, its own controller, a remote controller, health."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import BODY_VELOCITY, PolicyContract
from gantry_deploy.control.judge import Fault, FaultCode
from gantry_deploy.control.modes import Event
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.errors import SafetyError
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import RobotError
from gantry_hardware.model.capabilities import (
    HasExclusiveCommand,
    HasFaults,
    HasHealth,
    HasLink,
    HasRemote,
    NeedsTakeOver,
    capability,
)


class RobotSide:
    """The optional capabilities of a robot, as the loop needs them; a robot without them changes nothing.

    Args:
        robot: The loop's robot.
        contract: Of the policy; None without one.
    """

    def __init__(self, robot: Robot, contract: PolicyContract | None) -> None:
        self._robot = robot
        self._faults, self._remote = capability(robot, HasFaults), capability(robot, HasRemote)
        self._link, self._health = capability(robot, HasLink), capability(robot, HasHealth)
        self._command = None if contract is None or contract.command.kind != BODY_VELOCITY else contract.command

    def fault(self, now_s: float) -> Fault | None:
        """The fault that the robot itself knows of."""
        found = None if self._faults is None else self._faults.fault()
        return None if found is None else Fault(FaultCode.ROBOT, found.text, now_s, found.kind)

    def placed(self, fault: Fault | None) -> Fault | None:
        """A fault of a robot that is not heard, with where it was looked for."""
        if fault is None or self._link is None or fault.code not in (FaultCode.NO_STATE, FaultCode.STALE_STATE):
            return fault
        return replace(fault, text=f"{fault.text} It is on {self._link.link_text}.")

    def reset(self) -> None:
        """Let the robot forget its fault."""
        if self._faults is not None:
            self._faults.reset_faults()

    def take_over(self) -> str | None:
        """Take the robot from its own controller, and look for other programs; the reason why that may not be."""
        try:
            if (held := capability(self._robot, NeedsTakeOver)) is not None:
                held.take_over()
            if (shared := capability(self._robot, HasExclusiveCommand)) is not None:
                shared.refuse_other_commanders()
        except RobotError as error:
            return str(error)
        return None

    def obey_remote(self, safety: SafetyMachine, now_s: float) -> None:
        """Pass on what the operator asked for; a request that is not possible now changes nothing.

        ``stand`` is left to who runs the robot's course, since taking a robot over takes longer than a tick.
        """
        for event in () if self._remote is None else self._remote.take_requests():
            if event in (Event.START, Event.STOP, Event.RESET):
                with contextlib.suppress(SafetyError):
                    safety.request(event, now_s)

    def requested(self) -> NDArray[np.float64] | None:
        """Velocity (c,) that the operator's sticks ask for, within the trained range; None while they rest."""
        axes = None if self._remote is None or self._command is None else self._remote.stick_axes()
        if axes is None or self._command is None or not axes.any():
            return None
        return np.where(axes >= 0.0, axes * np.array(self._command.upper), -axes * np.array(self._command.lower))

    def health(self) -> dict[str, Any] | None:
        """How the robot is; None where it does not tell."""
        return None if self._health is None else self._health.health()

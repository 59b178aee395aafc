"""A robot that starts by itself, and why one that stands there does not do what it is there for."""

from __future__ import annotations

from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Mode
from gantry_deploy.errors import SafetyError


class AutoStart:
    """Asks for STAND and then POLICY, once, as soon as the controller grants them; gives up for good in DAMP."""

    def __init__(self, controller: Controller, enabled: bool) -> None:
        self._controller = controller
        self._armed = enabled
        self.refusal = ""
        """Why the newest request was not granted; empty if it was, or if there is none to make."""

    def on_tick(self, report: TickReport) -> None:
        """Ask for the next mode, if there is one to ask for."""
        if not self._armed:
            return
        if report.mode in (Mode.POLICY, Mode.DAMP):
            self._armed, self.refusal = False, ""
            return
        try:
            self._controller.request("stand" if report.mode is Mode.PASSIVE else "start")
            self.refusal = ""
        except SafetyError as error:  # Not yet; the next tick asks again.
            self.refusal = str(error)


def waiting_text(controller: Controller, report: TickReport, refusal: str, unheard: str) -> str:
    """Reason for which the robot does not do what it is there for; empty if it does, or if an operator has the say.

    Args:
        controller: Of the robot.
        report: Its newest tick.
        refusal: Of :class:`AutoStart`.
        unheard: What the policy is commanded by and has never come; empty if it came.
    """
    if refusal:
        return refusal
    if report.mode is Mode.PASSIVE:
        return "" if report.fault is None else f"the robot cannot be stood up: {report.fault.text}"
    if report.mode is not Mode.POLICY:
        return ""
    if controller.map_source is not None and controller.map_source.lost(controller.robot.now_s()):
        return "the policy looks at a map, and none has come for a while: it stays where it is."
    return f"nothing has come on {unheard} yet: the command is zero." if unheard else ""

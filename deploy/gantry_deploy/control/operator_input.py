"""Operator input: a command that gets old, a goal that stays until it is taken back, or the place where an
object belongs, which stays for good."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantry_deploy.contract.policy_contract import BODY_POSE, OBJECT_GOAL, PolicyContract
from gantry_deploy.control.goals import Goal
from gantry_deploy.errors import SafetyError
from gantry_hardware.backends.state import RobotState
from gantry_hardware.files.bounds import finite

MAX_COMMAND = 1e6
"""Largest number of a command or goal, in any unit."""


class CommandBuffer:
    """The newest command or goal; may be set from any thread.

    Args:
        contract: The policy's; None for a loop without one.
        timeout_s: A command that is older becomes zero, unless it says where an object belongs.
    """

    def __init__(self, contract: PolicyContract | None, timeout_s: float) -> None:
        self._takes_goals = contract is not None and contract.command.kind == BODY_POSE
        self._is_place = contract is not None and contract.command.kind == OBJECT_GOAL
        self._timeout_s = np.inf if self._is_place else timeout_s
        self.nothing = np.zeros(3 if contract is None else len(contract.command.names))
        """Shape (c,), the command that asks for nothing."""
        self.nothing.setflags(write=False)
        self._lock = threading.Lock()
        # One attribute, so that a reader never sees one thread's command with another one's stamp.
        self._newest: tuple[NDArray[np.float64], float] | Goal = (self.nothing, -np.inf)

    def set_command(self, command: ArrayLike, stamp_s: float) -> None:
        """See :meth:`gantry_deploy.control.loop.Controller.set_command`."""
        values = np.array(command, dtype=np.float64)
        if values.shape != self.nothing.shape:
            raise SafetyError(f"The command has shape {values.shape}, expected {self.nothing.shape}.")
        # What is not finite is the judge's to see; what is too large for the policy's arithmetic asks for as much as
        # there is, as anything does that is beyond what the policy was trained for.
        limited = np.where(np.isfinite(values), np.clip(values, -MAX_COMMAND, MAX_COMMAND), values)
        with self._lock:
            self._newest = (limited, stamp_s)

    def set_goal(self, goal: Goal | None) -> None:
        """See :meth:`gantry_deploy.control.loop.Controller.set_goal`."""
        if goal is None:
            self.drop_goal()
            return
        if not self._takes_goals:
            raise SafetyError(f"The policy takes no goals: its command is not '{BODY_POSE}'.")
        for name, value in vars(goal).items():
            finite(f"The goal's {name}", value, -MAX_COMMAND, MAX_COMMAND, SafetyError)
        with self._lock:
            self._newest = goal

    def missing(self) -> str | None:
        """The input that the operator must give before the policy can start, or None."""
        newest = self._newest
        if not self._is_place or isinstance(newest, Goal) or np.isfinite(newest[1]):
            return None
        return "the place where the object belongs has not been set."

    @property
    def goal(self) -> Goal | None:
        """The goal, if that is what is asked for."""
        newest = self._newest
        return newest if isinstance(newest, Goal) else None

    def drop_goal(self) -> None:
        """Forget a goal; a command stays."""
        with self._lock:  # A command that comes in between must not be forgotten for the goal that it replaced.
            if isinstance(self._newest, Goal):
                self._newest = (self.nothing, -np.inf)

    def at(self, state: RobotState | None, now_s: float) -> NDArray[np.float64]:
        """The command (c,) of now, in the contract's units, from the newest state; nothing where that cannot be
        told.
        """
        newest = self._newest
        if isinstance(newest, Goal):
            towards = None if state is None else newest.command(state)
            return self.nothing if towards is None else towards
        command, stamp_s = newest
        return command if now_s - stamp_s <= self._timeout_s else self.nothing

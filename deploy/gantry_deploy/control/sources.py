"""Command sources: policy, script, operator, idle commands and brake, each of which could command the joints of a tick.

The safety machine chooses among them by role, priority and will (:meth:`SafetyMachine.choose`). Velocities and goals of
an operator are no source: they are the policy's input (:class:`gantry_deploy.control.operator_input.CommandBuffer`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from gantry_deploy.control.idle_commands import IdleCommands
from gantry_deploy.control.judge import POLICY_SOURCE
from gantry_deploy.control.modes import Mode, Role
from gantry_deploy.control.policy_inputs import PolicyInputs
from gantry_deploy.control.ticks import SourceCommand, Tick
from gantry_hardware.backends.state import JointCommand

HAND_OVER_S = 0.3
"""Time in which the joints' targets go over from one task source to the next."""


class CommandSource(Protocol):
    """Source of joint commands. Every method belongs to the control loop's thread; an exception of any is a fault.

    A hand-over is bumpless because :meth:`begin` is given what was really sent last: a source starts from there, see
    :class:`HandOver`.
    """

    name: str
    """Name in reports and recordings."""
    role: Role
    """Role, which decides in which modes the source may act."""
    priority: int
    """Among the sources of a role that are willing, the one with the highest number acts."""

    def willing(self, tick: Tick) -> bool:
        """Whether the source wants to act in this tick; true unless a source has its own mind."""
        return True

    def begin(self, tick: Tick) -> None:
        """Start: the source did not act in the tick before, or a mode has been entered since."""

    def command(self, tick: Tick) -> SourceCommand:
        """Command of a tick in which the source acts."""
        ...


class HandOver:
    """Fades out the difference between the targets that were sent last and those that are wanted.

    Positions of joints with stiffness alone: without it a joint has no target, and a car's speed follows at once.

    Args:
        duration_s: Time that it takes, along a cosine ramp; 0 for a jump.
    """

    def __init__(self, duration_s: float = HAND_OVER_S) -> None:
        self._duration_s = duration_s
        self._last: JointCommand | None = None
        self._offset: np.ndarray | None = None
        self._start_s = 0.0

    def begin(self, last: JointCommand | None, now_s: float) -> None:
        """Start from ``last``; None, or a command without stiffness, for nothing to start from."""
        self._last, self._offset, self._start_s = last, None, now_s

    def blend(self, wanted: JointCommand, now_s: float) -> JointCommand:
        """The command of now, whose first one has the positions of the last source."""
        share = (now_s - self._start_s) / self._duration_s if self._duration_s > 0.0 else 1.0
        if self._last is None or share >= 1.0:
            return wanted
        if self._offset is None:
            held = (self._last.stiffness_nm_rad > 0.0) & (wanted.stiffness_nm_rad > 0.0)
            self._offset = np.where(held, self._last.pos_rad - wanted.pos_rad, 0.0)
        return wanted.with_pos(wanted.pos_rad + (0.5 + 0.5 * math.cos(math.pi * share)) * self._offset)


class PolicySource(CommandSource):
    """The network with its inputs. It starts anew whenever it takes over.

    Args:
        inputs: The policy with what it sees.
    """

    name, role, priority = POLICY_SOURCE, Role.TASK, 10

    def __init__(self, inputs: PolicyInputs) -> None:
        self._inputs = inputs
        self._hand_over = HandOver()

    def begin(self, tick: Tick) -> None:
        """Forget the past. From standing the policy's own targets are sent at once, as it was trained."""
        self._inputs.runner.reset()
        self._hand_over.begin(tick.last if tick.last_role is Role.TASK else None, tick.now_s)

    def command(self, tick: Tick) -> SourceCommand:
        """Joint targets of the network."""
        step = self._inputs.step(tick)
        return SourceCommand(self._hand_over.blend(step.target, tick.now_s), step)


class ScriptedSource(CommandSource):
    """A scripted policy: a function from the tick to a command, with a bumpless start.

    Args:
        script: Called once per tick in which the source acts.
        name: Name in reports.
        priority: Above 10 to overrule a network.
        hand_over_s: Time in which its targets are reached.
    """

    role = Role.TASK

    def __init__(
        self,
        script: Callable[[Tick], JointCommand],
        name: str = "script",
        priority: int = 5,
        hand_over_s: float = HAND_OVER_S,
    ) -> None:
        self.name, self.priority = name, priority
        self._script, self._hand_over = script, HandOver(hand_over_s)

    def begin(self, tick: Tick) -> None:
        """Start from what was sent last."""
        self._hand_over.begin(tick.last, tick.now_s)

    def command(self, tick: Tick) -> SourceCommand:
        """Command of the script."""
        return SourceCommand(self._hand_over.blend(self._script(tick), tick.now_s))


class OperatorSource(ScriptedSource):
    """Joint commands of a person, for example from a leader arm; while they come, they overrule the policy.

    Args:
        timeout_s: A command that is older ends the source's turn.
        name: Name in reports.
        hand_over_s: Time in which the joints reach the person's targets.
    """

    def __init__(self, timeout_s: float, name: str = "operator", hand_over_s: float = HAND_OVER_S) -> None:
        super().__init__(lambda tick: self._command, name, 20, hand_over_s)
        self._timeout_s = timeout_s
        # One attribute, so that the loop never sees one command with another one's stamp.
        self._newest: tuple[JointCommand, float] | None = None
        self._command: JointCommand

    def set_target(self, command: JointCommand | None, stamp_s: float) -> None:
        """Set the command, from any thread; ``stamp_s`` on the robot's clock. None gives the robot back at once."""
        self._newest = None if command is None else (command, stamp_s)

    def willing(self, tick: Tick) -> bool:
        """Whether a command is young enough."""
        newest = self._newest
        if newest is None or not tick.now_s - newest[1] <= self._timeout_s:
            return False
        self._command = newest[0]  # Which another thread may take back before it is asked for.
        return True


class IdleSource(CommandSource):
    """Standing up and PASSIVE.

    Args:
        idle: Commands of the kind of robot.
    """

    name, role, priority = "idle", Role.IDLE, 0

    def __init__(self, idle: IdleCommands) -> None:
        self._idle = idle

    def begin(self, tick: Tick) -> None:
        """Begin to stand up, where that is the mode."""
        if tick.transition.mode is Mode.STAND:
            self._idle.begin_stand(tick)

    def command(self, tick: Tick) -> SourceCommand:
        """Command of STAND or PASSIVE."""
        stands = tick.transition.mode is Mode.STAND
        return SourceCommand(self._idle.stand(tick) if stands else self._idle.passive())


class BrakeSource(CommandSource):
    """Damping, holding or braking.

    Args:
        idle: Commands of the kind of robot.
    """

    name, role, priority = "brake", Role.BRAKE, 0

    def __init__(self, idle: IdleCommands) -> None:
        self._idle = idle

    def begin(self, tick: Tick) -> None:
        """Brake from what was sent last."""
        self._idle.begin_brake(tick)

    def command(self, tick: Tick) -> SourceCommand:
        """Command of DAMP."""
        return SourceCommand(self._idle.brake(tick))

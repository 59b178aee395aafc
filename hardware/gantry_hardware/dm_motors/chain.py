"""The motors of an arm on one bus: one exchange of frames for all of them, and what came back."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gantry_hardware.dm_motors import frames
from gantry_hardware.dm_motors.can_bus import CanSocket
from gantry_hardware.dm_motors.frames import MotorCommand, MotorFeedback
from gantry_hardware.dm_motors.links import MotorLink
from gantry_hardware.errors import RobotError


class MotorChain:
    """Exchanges frames with every motor. Belongs to one thread.

    Args:
        bus: The bus.
        links: Motors in the order of the joints.
        joint_names: Of the joints, for messages.
    """

    def __init__(self, bus: CanSocket, links: Sequence[MotorLink], joint_names: Sequence[str]) -> None:
        self._bus, self._links, self._names = bus, links, joint_names
        self._by_answer = {link.answers_as: i for i, link in enumerate(links)}
        self._command_ids = {link.motor_id for link in links} | {frames.QUERY_ID}
        self.newest: list[tuple[MotorFeedback, float] | None] = [None] * len(links)
        """Newest reading of each motor and the local monotonic time at which it came."""
        self.foreign_s = -float("inf")
        """Local monotonic time of the newest command frame that another program or device has sent."""
        self.foreign_id = 0
        """Its id."""
        self.refused = 0
        """Feedback frames of another size, or with another motor's number inside."""
        self.strangers: set[int] = set()
        """Ids of frames that belong to no motor of this arm."""
        self.unsent = 0
        """Frames that the interface did not take."""

    def query(self, until_s: float) -> None:
        """Ask every motor for its state, which moves nothing."""
        self._exchange([(frames.QUERY_ID, frames.query_data(link.motor_id)) for link in self._links], until_s)

    def tell_all(self, data: bytes, until_s: float, only: Sequence[int] | None = None) -> None:
        """Send :data:`frames.ENABLE` and the like to all motors, or to some by their places."""
        chosen = range(len(self._links)) if only is None else only
        self._exchange([(self._links[i].motor_id, data) for i in chosen], until_s)

    def command(self, commands: Sequence[MotorCommand], until_s: float) -> None:
        """Send a command to every motor and take what they answer until a local monotonic time."""
        pairs = zip(self._links, commands, strict=True)
        self._exchange([(link.motor_id, frames.command_data(item, link.limits)) for link, item in pairs], until_s)

    def listen(self, until_s: float) -> None:
        """Take what comes until a local monotonic time, without sending anything."""
        self._exchange([], until_s, silent=True)

    def oldest_s(self) -> float:
        """Time of the oldest of the newest readings; minus infinity before there is one of every motor."""
        return min((-float("inf") if item is None else item[1]) for item in self.newest)

    def missing_text(self) -> str:
        """The motors that have not answered, and what was heard; empty if all have."""
        silent = [self.motor_text(i) for i, item in enumerate(self.newest) if item is None]
        if not silent:
            return ""
        heard = [f"{link.answers_as:#04x}" for link, item in zip(self._links, self.newest, strict=True) if item]
        strangers = [f"{number:#04x} (of no motor here)" for number in sorted(self.strangers)]
        return (
            f"{', '.join(silent)} did not answer on {self._bus.name}. Answers came from: "
            f"{', '.join(heard + strangers) or '(no motor)'}. Are the motors powered, do their ids fit, is the bit "
            "rate 1000000?"
        )

    def fault_text(self) -> str:
        """The first motor that reports a fault; empty if none does."""
        for i, item in enumerate(self.newest):
            if item is not None and item[0].state not in (frames.DISABLED, frames.ENABLED):
                return f"{self.motor_text(i)} on {self._bus.name} reports: {item[0].state_text}."
        return ""

    def disabled(self) -> list[int]:
        """Places of the motors whose newest reading says that they are switched off."""
        return [i for i, item in enumerate(self.newest) if item is None or item[0].state == frames.DISABLED]

    def motor_text(self, place: int) -> str:
        """Name of a motor for messages."""
        link = self._links[place]
        ids = f"{link.kind}, command id {link.motor_id:#04x}, feedback id {link.answers_as:#04x}"
        return f"motor of {self._names[place]} ({ids})"

    def _exchange(self, outgoing: Sequence[tuple[int, bytes]], until_s: float, *, silent: bool = False) -> None:
        """Send frames, and take frames until as many motors have answered, or until a time."""
        waiting = len(outgoing)
        for frame_id, data in outgoing:
            self.unsent += not self._bus.send(frame_id, data)
        while (silent or waiting > 0) and (left_s := until_s - time.monotonic()) > 0.0:
            received = self._bus.receive(left_s)
            if received is not None and self._take(*received):
                waiting -= 1
        while (received := self._bus.receive(0.0)) is not None:  # What came meanwhile is newer.
            self._take(*received)

    def _take(self, frame_id: int, data: bytes) -> bool:
        """Take a frame; whether it is a motor's reading."""
        now_s = time.monotonic()
        if frame_id in self._command_ids:  # A socket does not hear itself.
            self.foreign_s, self.foreign_id = now_s, frame_id
            return False
        place = self._by_answer.get(frame_id)
        if place is None:
            self.strangers.add(frame_id)
            return False
        link = self._links[place]
        try:
            feedback = frames.read_feedback(data, link.limits)
        except RobotError:
            self.refused += 1
            return False
        if feedback.motor_id != link.motor_id & 0xF:
            self.refused += 1
            return False
        self.newest[place] = (feedback, now_s)
        return True

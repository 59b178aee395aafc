"""Several devices in one hand: a gamepad for motion, the keyboard for verdicts, the web page for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gantry_deploy.teleop.operator import AttendedDevice, OperatorInput, TeleopDevice, TeleopEvent, TogglingDevice


class CombinedDevice:
    """Motion of the first device that is engaged, and the events of all.

    Args:
        devices: At least one, the preferred one first.
    """

    def __init__(self, devices: Sequence[TeleopDevice]) -> None:
        self.devices = tuple(devices)
        self.name = " + ".join(device.name for device in devices)

    def connect(self) -> None:
        """Open all; those that were opened are closed again if one cannot be.

        Raises:
            TeleopError: If a device is not there.
        """
        opened: list[TeleopDevice] = []
        try:
            for device in self.devices:
                device.connect()
                opened.append(device)
        except BaseException:
            for device in opened:
                device.close()
            raise

    def read(self, now_s: float) -> OperatorInput:
        """See :meth:`TeleopDevice.read`."""
        readings = [device.read(now_s) for device in self.devices]
        events = tuple(event for reading in readings for event in reading.events)
        moving = next((reading for reading in readings if reading.engaged), readings[0])
        return OperatorInput(moving.stamp_s, moving.engaged, moving.axes, moving.joint_pos_rad, moving.action, events)

    def release(self) -> None:
        """See :meth:`gantry_deploy.teleop.operator.TogglingDevice.release`."""
        for device in self.devices:
            if isinstance(device, TogglingDevice):
                device.release()

    def attend(self, request: Callable[[TeleopEvent], str | None], state: Callable[[], str]) -> None:
        """See :meth:`gantry_deploy.teleop.operator.AttendedDevice.attend`."""
        for device in self.devices:
            if isinstance(device, AttendedDevice):
                device.attend(request, state)

    def describe(self) -> list[str]:
        """Lines of all devices, each under its name."""
        return [line for device in self.devices for line in (f"{device.name}:", *(f"  {x}" for x in device.describe()))]

    def close(self) -> None:
        """Release all."""
        for device in self.devices:
            device.close()

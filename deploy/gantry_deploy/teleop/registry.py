"""Registry of operator's devices: keyboard, gamepad and others of this package, and those of other packages."""

from __future__ import annotations

import inspect
from typing import Any

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import TeleopError
from gantry_deploy.teleop.operator import OperatorInput, TeleopDevice
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.plugins import find_plugin, load_plugin, plugin_names

GROUP = "gantry.teleop_devices"
"""Entry-point group: name -> callable ``(contract, **options) -> TeleopDevice``."""


class NoDevice:
    """No device: the policy acts alone, and a simulator judges."""

    name = "none"

    def __init__(self, contract: PolicyContract) -> None:
        del contract

    def connect(self) -> None:
        """Nothing to open."""

    def read(self, now_s: float) -> OperatorInput:
        """Never engaged."""
        return OperatorInput(now_s)

    def describe(self) -> list[str]:
        """One line."""
        return ["no device: the policy acts alone"]

    def close(self) -> None:
        """Nothing to release."""


def device_names() -> list[str]:
    """Names of all installed devices, sorted."""
    return plugin_names(GROUP)


def make_device(name: str, contract: PolicyContract, **options: Any) -> TeleopDevice:
    """A device by name; it is not connected yet.

    Args:
        name: A name of :func:`device_names`.
        contract: Of the policy that is corrected.
        options: Keyword arguments of the device's own constructor.

    Raises:
        UnknownNameError: If there is no such device, or it has no such option.
        TeleopError: If its package is not installed, or an option makes no sense.
    """
    make = load_plugin(find_plugin(GROUP, name, "device"), "Device", TeleopError)
    known = inspect.signature(make).parameters
    if not any(item.kind is inspect.Parameter.VAR_KEYWORD for item in known.values()):
        for key in options:
            if key not in known:
                raise UnknownNameError(
                    f"option of device '{name}'", key, [item for item in known if item != "contract"]
                )
    try:
        return make(contract, **options)
    except GantryError:
        raise
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{key}={value}" for key, value in options.items()) or "no options"
        raise TeleopError(f"Device '{name}', {given}: an option is of the wrong type ({error}).") from error

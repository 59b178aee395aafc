"""Robots and teleoperators of ``lerobot`` by their type, made from plain settings.

``lerobot`` is imported only here, and only when a device is made: it brings torch, and its newer versions need a later
Python. A type with a colon, ``module:Class``, is imported as it stands; any other is looked up as LeRobot's own
commands do, among its own classes and those of installed packages named ``lerobot_robot_*`` and
``lerobot_teleoperator_*``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.files.yaml_file import read_yaml
from gantry_hardware.plugins import load_named

ROBOT, TELEOPERATOR = "robot", "teleoperator"
"""Kinds of devices."""
INSTALL = "pip install 'gantry-rl[lerobot]' (version 0.4 on Python 3.11; newer ones need Python 3.12)"
"""Remedy where the package is missing."""
_CONFIGS = {ROBOT: "RobotConfig", TELEOPERATOR: "TeleoperatorConfig"}
_MAKERS = {ROBOT: "make_robot_from_config", TELEOPERATOR: "make_teleoperator_from_config"}


def device_settings(config: str, **given: str) -> dict[str, Any]:
    """Settings of a device: those of a YAML file, and over them those that are given and not empty.

    Raises:
        GantryError: If the file cannot be used, or holds no settings by name.
    """
    settings = read_yaml(config) if config else {}
    if not isinstance(settings, dict):
        raise RobotError(f"{config} holds no settings by name, as 'port: /dev/ttyACM0'.")
    return {**settings, **{name: value for name, value in given.items() if value}}


def make_device(kind: str, name: str, settings: Mapping[str, Any], error: type[GantryError] = RobotError) -> Any:
    """A robot or teleoperator; it is not connected yet.

    Args:
        kind: :data:`ROBOT` or :data:`TELEOPERATOR`.
        name: Its type, for example ``so101_follower``, or ``module:Class``.
        settings: Fields of its configuration class, for example ``port`` and ``id``.
        error: Class of the errors to raise.

    Raises:
        GantryError: If the package is not installed, there is no such type, or the settings do not fit it.
    """
    if not name:
        raise error(f"A LeRobot {kind} needs its type, for example type=so101_{_EXAMPLES[kind]}.")
    if ":" in name:
        make = load_named(name)
        config_class = getattr(make, "config_class", None)
        if config_class is None:
            raise error(f"'{name}' has no config_class, which every LeRobot {kind} has.")
    else:
        config_class, make = _registered(kind, name, error)
    config = _configured(config_class, settings, f"LeRobot {kind} '{name}'", error)
    try:
        return make(config)
    except Exception as problem:  # A plugin may raise whatever it likes.
        raise error(f"LeRobot {kind} '{name}' cannot be made: {_words(problem)}") from problem


def connect_device(device: Any, what: str, error: type[GantryError] = RobotError) -> None:
    """Connect a device without calibrating it, and refuse one that is not calibrated.

    Raises:
        GantryError: Of class ``error``, with what the plugin says.
    """
    try:
        takes_calibrate = "calibrate" in inspect.signature(device.connect).parameters
        device.connect(calibrate=False) if takes_calibrate else device.connect()
        calibrated = device.is_calibrated  # A property, or a method of some teleoperators.
        calibrated = calibrated() if callable(calibrated) else calibrated
    except Exception as problem:
        disconnect_device(device)
        raise error(f"{what} does not connect: {_words(problem)}") from problem
    if not calibrated:
        disconnect_device(device)
        raise error(
            f"{what} is not calibrated as its file says ({getattr(device, 'calibration_fpath', 'no file')}). Calibrate "
            "it with lerobot-calibrate, under the same type, id and port."
        )


def disconnect_device(device: Any) -> None:
    """Disconnect, whatever the plugin says to that."""
    with contextlib.suppress(Exception):
        device.disconnect()


def device_text(kind: str, name: str, settings: Mapping[str, Any]) -> str:
    """Name of a device for messages, with its port and id."""
    places = [f"{key} {settings[key]}" for key in ("port", "channel", "remote_ip", "id") if settings.get(key)]
    return f"LeRobot {kind} '{name}'" + (f" ({', '.join(places)})" if places else "")


def _registered(kind: str, name: str, error: type[GantryError]) -> tuple[Any, Callable[[Any], Any]]:
    """Configuration class and maker of a type that LeRobot knows."""
    try:
        package = importlib.import_module(f"lerobot.{kind}s")
        utils = importlib.import_module(f"lerobot.{kind}s.utils")
    except ImportError as problem:
        raise error(f"LeRobot {kind} '{name}' needs the package lerobot ({problem}): {INSTALL}.") from problem
    with contextlib.suppress(ImportError, AttributeError):  # Older versions know no other packages.
        importlib.import_module("lerobot.utils.import_utils").register_third_party_plugins()
    registry = (
        getattr(package, _CONFIGS[kind], None)
        or importlib.import_module(f"lerobot.{kind}s.config").__dict__[_CONFIGS[kind]]
    )
    if name not in registry.get_known_choices():
        # Its own classes register themselves when their modules are imported; some need packages that are missing here.
        for module in pkgutil.iter_modules(package.__path__):
            if module.ispkg:
                with contextlib.suppress(Exception):
                    importlib.import_module(f"{package.__name__}.{module.name}")
    known = registry.get_known_choices()
    if name not in known:
        raise UnknownNameError(f"LeRobot {kind} type", name, known)
    return registry.get_choice_class(name), getattr(utils, _MAKERS[kind])


def _configured(config_class: Any, settings: Mapping[str, Any], what: str, error: type[GantryError]) -> Any:
    known = list(inspect.signature(config_class).parameters)
    for key in settings:
        if key not in known:
            raise UnknownNameError(f"setting of {what}", key, known)
    try:
        try:
            decode = importlib.import_module("draccus").decode  # Turns plain values into nested classes and paths.
        except ImportError:
            return config_class(**settings)
        return decode(config_class, dict(settings))
    except Exception as problem:
        raise error(f"The settings of {what} do not fit: {_words(problem)}") from problem


_EXAMPLES = {ROBOT: "follower", TELEOPERATOR: "leader"}


def _words(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"

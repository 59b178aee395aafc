"""Finding sub-commands among the installed packages; a broken one stands in the list with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from gantry_deploy.cli.command import Command
from gantry_hardware.plugins import entry_points

GROUP = "gantry.commands"
"""Entry-point group of sub-commands: name = "module:COMMAND"."""

DISTRIBUTION = "gantry-rl"
"""This project's distribution; its commands win over others of the same name."""

_ORDER = (
    "demo",
    "tasks",
    "train",
    "eval",
    "play",
    "export",
    "import-leapp",
    "inspect",
    "check",
    "run",
    "launch",
    "flash",
    "onboard",
    "keys",
    "sign",
    "data",
    "bench",
    "robot",
)
"""The way through a project; the commands of other packages follow in the alphabet's order."""

_EXTRAS = {
    "train": (
        *("torch", "mjlab", "mujoco", "mujoco_warp", "warp", "mjbatch", "rsl_rl", "onnx", "onnxscript"),
        *("tensorboard", "matplotlib"),
    ),
    "ros": ("rclpy", "sensor_msgs", "geometry_msgs", "nav_msgs", "std_msgs", "std_srvs", "diagnostic_msgs"),
    "robot": ("cv2",),
    "signing": ("cryptography",),
    "corrections": ("grpc", "google", "safetensors"),
    "data": ("pyarrow", "av"),
    "metadrive": ("metadrive",),
    "dev": ("pytest",),
}


@dataclass(frozen=True)
class Unavailable:
    """A registered command that cannot be used."""

    name: str
    """Name of its entry point."""
    reason: str
    """One sentence for the person at the keyboard."""


def command_entries() -> dict[str, EntryPoint]:
    """Every registered command by name, in the order of the help; of two that claim a name, Gantry's own wins."""
    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, not _is_own(entry), entry.value)):
        found.setdefault(entry.name, entry)
    ranks = {name: rank for rank, name in enumerate(_ORDER)}
    return dict(sorted(found.items(), key=lambda item: (ranks.get(item[0], len(ranks)), item[0])))


def load_commands(entries: Iterable[EntryPoint]) -> tuple[list[Command], list[Unavailable]]:
    """Load commands; whatever goes wrong in one of them leaves the others alone."""
    commands, broken = [], []
    for entry in entries:
        loaded = load_command(entry)
        if isinstance(loaded, Command):
            commands.append(loaded)
        else:
            broken.append(loaded)
    return commands, broken


def load_command(entry: EntryPoint) -> Command | Unavailable:
    """The command behind an entry point, or why it cannot be had."""
    try:
        command = entry.load()
    except ModuleNotFoundError as error:
        return Unavailable(entry.name, missing_module_text(error))
    except Exception as error:  # Third-party code: any exception is its own affair, not the end of `gantry`.
        return Unavailable(entry.name, f"'{entry.value}' failed to load: {type(error).__name__}: {error}")
    if not isinstance(command, Command):
        return Unavailable(entry.name, f"'{entry.value}' is a {type(command).__name__}, expected a Command")
    if command.name != entry.name:
        return Unavailable(entry.name, f"'{entry.value}' calls itself '{command.name}'")
    return command


def missing_module_text(error: ModuleNotFoundError) -> str:
    """Name of the missing module and, where Gantry knows it, of the extra that brings it."""
    module = error.name or str(error)
    extra = extra_of_module(module)
    if extra is None:
        return f"module '{module}' is not installed"
    return f"module '{module}' is not installed; it comes with pip install '{DISTRIBUTION}[{extra}]'"


def extra_of_module(module: str) -> str | None:
    """The extra of this distribution that installs a module, or None."""
    top = module.partition(".")[0]
    for extra, modules in _EXTRAS.items():
        if top in modules:
            return extra
    return None


def _is_own(entry: EntryPoint) -> bool:
    return entry.dist is not None and entry.dist.name == DISTRIBUTION

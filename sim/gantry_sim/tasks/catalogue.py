"""Names, summaries, robots and presets of tasks, known without loading a simulator or a learning library.

A package that registers tasks may register their descriptions too, as an entry point of the group :data:`GROUP` that
names a sequence of :class:`TaskInfo`. A task without one is loaded where it is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.plugins import entry_points
from gantry_sim.tasks.names import family_of, task_names

GROUP = "gantry.task_info"
"""Entry-point group of descriptions: name of a package -> a sequence of :class:`TaskInfo`, or a function that gives
one."""
GYM = "gym"
"""Family of environments of gymnasium."""
SIZES = ("cpu", "gpu")
"""Presets that most tasks have."""


@dataclass(frozen=True)
class TaskInfo:
    """Facts about a task for listings and refusals."""

    name: str
    """Registry name, equal to that of the task's entry point."""
    summary: str
    """One line for listings."""
    robot: str
    """Robot name."""
    presets: tuple[str, ...] = SIZES
    """Names of its presets."""


WIDE = (*SIZES, "cpu-wide", "gpu-wide")
"""Presets of walking quadrupeds; the last two train on machines that differ."""
FLAT_GO1 = TaskInfo("velocity-flat-go1", "Go1 follows a velocity command on flat ground", "go1", WIDE)
FLAT_GO2 = TaskInfo("velocity-flat-go2", "Go2 follows a velocity command on flat ground", "go2", WIDE)
FLAT_G1 = TaskInfo("velocity-flat-g1", "G1 follows a velocity command on flat ground", "g1")
ROUGH_GO2 = TaskInfo("velocity-rough-go2", "Go2 follows a velocity command over stairs, slopes and rubble", "go2")

AME2_GO2 = TaskInfo("ame2-go2", "Go2 walks to goals over terrain that it looks at", "go2", (*SIZES, "joints"))
AME2_G1 = TaskInfo("ame2-g1", "G1 walks to goals over terrain that it looks at", "g1")
AME2_GO2_STUDENT = TaskInfo("ame2-go2-student", "Go2 walks to goals by what its camera has seen", "go2")

CARS = (*SIZES, "cpu-wide", "gpu-wide")
"""Presets of tasks of cars; the last two train on cars that differ more."""
ROADS = (*CARS, "gpu-bev")
"""Presets of tasks on roads, which can be shown as pictures."""
DRIVE_LANE = TaskInfo("drive-lane", "follow a route through a town, alone", "bmw_320i", ROADS)
DRIVE_TRAFFIC = TaskInfo("drive-traffic", "follow a road among cars, pedestrians and obstacles", "bmw_320i", ROADS)
DRIVE_JUNCTION = TaskInfo(
    "drive-junction", "cross a town with lights, crossing traffic and roundabouts", "bmw_320i", ROADS
)
DRIVE_RACE = TaskInfo(
    "drive-race", "race a small car round closed tracks, by what its scanner sees", "f1tenth_vesc", CARS
)
DRIVE_PARK = TaskInfo("drive-park", "stand in a free slot among parked cars, driving to and fro", "bmw_320i", CARS)

ARM_PRESETS = (
    *("bc", "bc-images", "act-paper", "sac", "rlpd", "hil-serl", "hil-weighted", "hil-images", "hil-images-gpu"),
    *("hil-residual", "dagger", "wsrl", "co-rft", "resfit", "resfit-images", "resfit-paper"),
)
"""Presets of manipulation tasks, and of environments of gymnasium."""
YAM_PRESETS = (*ARM_PRESETS, "rlpd-wide", "resfit-wide")
"""Presets of the YAM's tasks; the last two train on arms that differ."""
YAM_LIFT = TaskInfo("yam-lift", "lift a cube", "yam", YAM_PRESETS)
YAM_PICK_PLACE = TaskInfo("yam-pick-place", "put a cube onto a stand and let go", "yam", YAM_PRESETS)
YAM_PUSH = TaskInfo("yam-push", "push a cube to a place on the table", "yam", YAM_PRESETS)
YAM_INSERT = TaskInfo("yam-insert", "put a held peg into a hole 2 mm wider", "yam", YAM_PRESETS)
TELL_PRESETS = (*ARM_PRESETS, "vla", "rpd-images", "dagger-images", "ppo", "rpd", "dagger-ppo", "reverse-kl")
"""Presets of tasks that are told in words: a vision-language-action model, and students of a teacher."""
YAM_TELL = TaskInfo(
    "yam-tell", "do what an instruction says: lift, push or place one of three things", "yam", TELL_PRESETS
)
YAM_TELL_PICK = TaskInfo("yam-tell-pick", "lift the thing that an instruction names", "yam", TELL_PRESETS)
YAM_TELL_PUSH = TaskInfo("yam-tell-push", "push the thing that an instruction names to a zone", "yam", TELL_PRESETS)
YAM_TELL_PLACE = TaskInfo("yam-tell-place", "put the thing that an instruction names on a zone", "yam", TELL_PRESETS)

TASKS = (
    *(FLAT_GO1, FLAT_GO2, FLAT_G1, ROUGH_GO2),
    *(AME2_GO2, AME2_G1, AME2_GO2_STUDENT),
    *(DRIVE_LANE, DRIVE_TRAFFIC, DRIVE_JUNCTION, DRIVE_RACE, DRIVE_PARK),
    *(YAM_LIFT, YAM_PICK_PLACE, YAM_PUSH, YAM_INSERT),
    *(YAM_TELL, YAM_TELL_PICK, YAM_TELL_PUSH, YAM_TELL_PLACE),
)
"""Gantry's own."""


def described() -> Mapping[str, TaskInfo]:
    """Every registered description by the name of its task."""
    found: dict[str, TaskInfo] = {}
    for entry in entry_points(group=GROUP):
        loaded: Any = entry.load()
        infos: Any = loaded() if callable(loaded) else loaded
        found |= {info.name: info for info in infos if isinstance(info, TaskInfo)}
    return found


def task_infos() -> list[TaskInfo]:
    """Of all installed tasks and of the described ones of families, sorted by name; one without a description is
    loaded.
    """
    known = described()
    names = {*task_names(), *(name for name in known if family_of(name) is not None)}
    return [known[name] if name in known else _told(name) for name in sorted(names)]


def require_preset(task: str, preset: str) -> str:
    """The preset's name itself, of any installed task.

    Raises:
        UnknownNameError: If the task has none of that name.
    """
    family = family_of(task)
    if family is not None and family.name == GYM:
        available = ARM_PRESETS
    else:
        available = (described().get(task) or _loaded(task)).presets
    if preset not in available:
        raise UnknownNameError(f"preset of {task}", preset, available)
    return preset


def _told(name: str) -> TaskInfo:
    """A task without a description; one whose package is broken is listed with the reason."""
    try:
        return _loaded(name)
    except GantryError as error:
        return TaskInfo(name, f"cannot be used: {error}", "", ())


def _loaded(name: str) -> TaskInfo:
    from gantry_sim.tasks.registry import find_task

    task = find_task(name)
    return TaskInfo(task.name, task.summary, task.robot, tuple(task.presets))

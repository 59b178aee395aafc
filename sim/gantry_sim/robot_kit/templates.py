"""Texts of the files of a new robot's package."""

from __future__ import annotations

from gantry_sim.robot_kit.findings import opens
from gantry_sim.robot_kit.joint_numbers import FROM_MODEL, JointNumbers
from gantry_sim.robot_kit.study import Study, fall_height_m


def package_name(name: str) -> str:
    """Module of a robot's package."""
    return f"{name}_robot"


def files(study: Study, name: str, source: str) -> dict[str, str]:
    """Path in the package to text.

    Args:
        study: The robot.
        name: Of the robot.
        source: The model that it was made from, with its hash.
    """
    package = package_name(name)
    texts = {
        "pyproject.toml": _pyproject(name, walks=study.walks),
        "README.md": _readme(study, name, source),
        f"{package}/__init__.py": f'"""The robot {name}."""\n',
        f"{package}/numbers.py": _numbers(study, name, source),
        f"tests/test_{name}.py": _TEST.format(name=name),
    }
    if study.walks:
        texts[f"{package}/task_info.py"] = _TASK_INFO.format(name=name)
        texts[f"{package}/tasks.py"] = _TASKS.format(package=package, more="" if study.mirror else ", mirror=False")
    return texts


def _pyproject(name: str, *, walks: bool) -> str:
    package = package_name(name)
    text = _PYPROJECT.format(name=name, package=package)
    return text + (_TASK_ENTRIES.format(name=name, package=package) if walks else "") + _BUILD.format(package=package)


_PYPROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}-robot"
version = "0.1.0"
description = "The robot {name} for Gantry."
requires-python = ">=3.11"
dependencies = ["gantry-rl"]

[project.entry-points."gantry.robots"]
{name} = "{package}.numbers:SPEC"
"""
_TASK_ENTRIES = """
[project.entry-points."gantry.tasks"]
velocity-flat-{name} = "{package}.tasks:FLAT"

[project.entry-points."gantry.task_info"]
{package} = "{package}.task_info:TASKS"
"""
_BUILD = """
[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""
_TASK_INFO = '''"""Names and summaries of the tasks, which listings read without loading a simulator."""

from gantry_sim.tasks.catalogue import TaskInfo

FLAT = TaskInfo("velocity-flat-{name}", "{name} follows a velocity command on flat ground", "{name}")
TASKS = (FLAT,)
'''
_TASKS = '''"""Tasks that are trained: presets `cpu` and `gpu`, as those of the Go2."""

from gantry_sim.tasks.locomotion.presets import flat_task

from {package} import task_info

FLAT = flat_task(task_info.FLAT{more})
'''
_TEST = '''"""Everything that `gantry robot check {name}` asks."""

from gantry_sim.robot_kit.checking import check_robot
from gantry_sim.robot_kit.findings import fails


def test_every_check_passes():
    assert [finding.line for finding in fails(check_robot("{name}"))] == []
'''


def _readme(study: Study, name: str, source: str) -> str:
    lines = [
        f"# {name}",
        "",
        f"A robot for Gantry, made by `gantry robot new {name}` from {source}. The model's licence ",
    ]
    lines[-1] += "is that of its author; put its text here before you pass the package on."
    lines += ["", "```sh", "pip install -e .", f"gantry robot check {name}"]
    lines += [f"gantry train velocity-flat-{name}"] if study.walks else []
    lines += ["```", "", "## Still open", ""]
    lines += [f"* {finding.check}: {finding.text}" for finding in opens(study.findings)] or ["Nothing."]
    if not study.walks:
        lines += ["", "No task is registered: a gait is derived for four legs with three joints each alone."]
    return "\n".join(lines) + "\n"


def _numbers(study: Study, name: str, source: str) -> str:
    joints = "".join(_joint(joint, study.pose_source) for joint in study.joints)
    return f'''"""Numbers of the robot {name}: angles in rad, lengths in m, masses in kg, torques in N m.

A comment says where a number comes from: "from model" is what `source` below names. Numbers marked TODO are
placeholders or derived; replace them and write the source into the comment: data sheet, page, measurement.
"""

from gantry_hardware.model.spec import JointSpec, RobotSpec

JOINTS = (
{joints})
"""In the order of the model, which is that of every array of joints."""

SPEC = RobotSpec(
    name="{name}",
    embodiment="legs",
    joints=JOINTS,
    feet={_words(foot.name for foot in study.feet)},
    base_height_m={study.base_height_m!r},  # from model: above the lowest point of the feet in the default pose
    fall_height_m={fall_height_m(study.base_height_m)!r},  # TODO: derived, 0.55 of the height above
    mass_kg={study.mass_kg!r},  # from model: sum of all bodies
    source={_text(source)},
    damp_gains_nm_s_rad={_damp(study)},  # TODO: derived, lets the robot down slowly
    mjcf="{package_name(name)}:model/{name}.xml",
    mirrored_joints={_pairs(study.mirror)},  # from model: partner on the other side, sign of its angle
    mirrored_feet={_words(study.mirrored_feet)},
)
'''


def _joint(joint: JointNumbers, pose_source: str) -> str:
    source = joint.sources
    rows = (
        ("name", joint.name, ""),
        ("lower_rad", joint.lower_rad, source["range"]),
        ("upper_rad", joint.upper_rad, source["range"]),
        ("velocity_limit_rad_s", joint.velocity_rad_s, source["velocity"]),
        ("effort_limit_nm", joint.effort_nm, source["effort"]),
        ("default_rad", joint.default_rad, FROM_MODEL if pose_source.startswith(FROM_MODEL) else pose_source),
        ("stiffness_nm_rad", joint.stiffness_nm_rad, source["gains"]),
        ("damping_nm_s_rad", joint.damping_nm_s_rad, source["gains"]),
        ("armature_kg_m2", joint.armature_kg_m2, source["armature"]),
    )
    lines = [
        f"        {key}={_text(value) if isinstance(value, str) else repr(value)}," + (f"  # {told}" if told else "")
        for key, value, told in rows
    ]
    return "\n".join(["    JointSpec(", *lines, "    ),"]) + "\n"


def _text(value: str) -> str:
    """A string of Python in double quotes."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _words(names: object) -> str:
    """A tuple of strings."""
    words = [_text(str(name)) for name in names]  # type: ignore[attr-defined]
    return "(" + ", ".join(words) + ("," if len(words) == 1 else "") + ")"


def _pairs(mirror: tuple[tuple[str, float], ...]) -> str:
    return (
        "(" + "".join(f"\n        ({_text(name)}, {sign!r})," for name, sign in mirror) + ("\n    )" if mirror else ")")
    )


def _damp(study: Study) -> str:
    values = [joint.damp_nm_s_rad for joint in study.joints]
    return f"({values[0]!r},) * {len(values)}" if len(set(values)) == 1 else repr(tuple(values))

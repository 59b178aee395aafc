"""Preparation of a URDF for MuJoCo: mesh files by absolute paths, links kept apart, and a base with a mass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from gantry_hardware.errors import GantryError
from gantry_sim.robot_kit.findings import Finding, Level

READABLE = (".stl", ".obj", ".msh")
"""Suffixes of meshes that MuJoCo reads."""
PACKAGE = "package://"
"""Scheme of a path inside a ROS package."""


@dataclass(frozen=True)
class UrdfLimits:
    """Limits of a joint that MuJoCo does not keep."""

    effort_nm: float | None
    """Largest torque; None where the URDF has none, or zero."""
    velocity_rad_s: float | None
    """Largest speed; None where the URDF has none, or zero."""


def meet_mujoco(
    root: Element, path: Path, packages: Mapping[str, Path], findings: list[Finding]
) -> dict[str, UrdfLimits]:
    """Change a URDF in place for MuJoCo's reader.

    Args:
        root: Element ``robot``.
        path: The file, from which relative paths start.
        packages: Folders of ROS packages by name.
        findings: Takes missing meshes and what was left out.

    Returns:
        Limits by joint name.

    Raises:
        GantryError: If it is a xacro file that was not expanded, or a number is none.
    """
    if any("xacro" in element.tag for element in root.iter()):
        raise GantryError(f"'{path}' holds xacro macros; expand them first: xacro {path.name} > robot.urdf.")
    _find_meshes(root, path, packages, findings)
    _drop_empty_roots(root, findings)
    for extension in root.findall("mujoco"):
        root.remove(extension)
    compiler = SubElement(SubElement(root, "mujoco"), "compiler")
    compiler.attrib.update(strippath="false", fusestatic="false", discardvisual="false", balanceinertia="false")
    return {joint.get("name", ""): _limits(joint) for joint in root.findall("joint")}


def _number(element: Element | None, key: str, what: str) -> float:
    """An attribute as a number; zero where it is missing."""
    text = "0" if element is None else element.get(key, "0")
    try:
        return float(text)
    except ValueError as error:
        raise GantryError(f'The URDF has {key}="{text}" at {what}; expected a number.') from error


def _limits(joint: Element) -> UrdfLimits:
    limit, what = joint.find("limit"), f"joint '{joint.get('name', '')}'"
    values = [_number(limit, key, what) for key in ("effort", "velocity")]
    effort, velocity = (value if value > 0.0 else None for value in values)
    return UrdfLimits(effort, velocity)


def _find_meshes(root: Element, path: Path, packages: Mapping[str, Path], findings: list[Finding]) -> None:
    stems: dict[str, Path] = {}
    lost: set[str] = set()
    for kind in ("collision", "visual"):  # In this order: MuJoCo tells meshes apart by their stems alone.
        for link in root.findall("link"):
            for shape in link.findall(kind):
                mesh = shape.find("geometry/mesh")
                if mesh is None:
                    continue
                name = mesh.get("filename", "")
                place, tried = _resolve(name, path, packages)
                if place is None or place.suffix.lower() not in READABLE:
                    link.remove(shape)
                    if name not in lost:
                        findings.append(_lost(name, kind, link.get("name", ""), place, tried))
                    lost.add(name)
                elif stems.setdefault(place.stem, place) != place:
                    link.remove(shape)  # The drawing of a link whose collision mesh has the same name.
                else:
                    mesh.set("filename", str(place))


def _lost(name: str, kind: str, link: str, place: Path | None, tried: list[Path]) -> Finding:
    level = Level.FAIL if kind == "collision" else Level.NOTE
    if place is not None:
        return Finding(
            level,
            "mesh",
            f"'{name}' ({kind} of '{link}') is {place.suffix}; MuJoCo reads .stl, .obj, .msh. Convert it.",
        )
    text = f"'{name}' ({kind} of '{link}') is missing; expected at {' or '.join(map(str, tried)) or 'a path'}."
    if name.startswith(PACKAGE):
        package = name.removeprefix(PACKAGE).partition("/")[0]
        text += f" Copy it there, or say where the ROS package lies: --package {package}=FOLDER."
    else:
        text += " Copy it there."
    return Finding(level, "mesh", text + ("" if kind == "collision" else " The drawing is left out."))


def _resolve(name: str, path: Path, packages: Mapping[str, Path]) -> tuple[Path | None, list[Path]]:
    tried = list(_places(name, path.resolve(), packages))
    return next((place for place in tried if place.is_file()), None), tried[:2]


def _places(name: str, path: Path, packages: Mapping[str, Path]) -> Iterator[Path]:
    """Places at which a mesh may lie; of a ROS package, a folder of its name around the URDF."""
    if not name.startswith(PACKAGE):
        yield path.parent / name.removeprefix("file://")
        return
    package, _, rest = name.removeprefix(PACKAGE).partition("/")
    if package in packages:
        yield packages[package].resolve() / rest
    for folder in path.parents:
        yield folder / rest if folder.name == package else folder / package / rest


def _drop_empty_roots(root: Element, findings: list[Finding]) -> None:
    """Drop links without mass above the trunk, such as ``base`` or ``world``, so that the trunk is the base."""
    while True:
        links = {link.get("name"): link for link in root.findall("link")}
        joints = root.findall("joint")
        children = {child.get("link") for joint in joints for child in joint.findall("child")}
        tops = [name for name in links if name not in children]
        below = [joint for joint in joints for parent in joint.findall("parent") if parent.get("link") in tops]
        if len(tops) != 1 or len(below) != 1 or below[0].get("type") not in ("fixed", "floating"):
            return
        if _number(links[tops[0]].find("inertial/mass"), "value", f"link '{tops[0]}'") > 0.0:
            return
        root.remove(links[tops[0]])
        root.remove(below[0])
        findings.append(Finding(Level.NOTE, "base", f"link '{tops[0]}' weighs nothing; the link below it is the base."))

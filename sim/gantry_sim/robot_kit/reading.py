"""A robot's model as its author left it, MJCF or URDF, read by MuJoCo; the files that it names are looked for first."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import mujoco

from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import plain_text
from gantry_sim.robot_kit.findings import Finding, Level
from gantry_sim.robot_kit.urdf_files import UrdfLimits, meet_mujoco


@dataclass(frozen=True)
class SourceModel:
    """A model that was parsed and not yet compiled."""

    path: Path
    """The file."""
    spec: mujoco.MjSpec
    """The model, without shapes whose mesh is missing."""
    limits: Mapping[str, UrdfLimits] = field(default_factory=dict)
    """Joint name to the limits of effort and velocity, as far as a URDF has them."""
    findings: tuple[Finding, ...] = ()
    """Missing files and what was left out."""


def read_source(path: Path, packages: Mapping[str, Path] | None = None) -> SourceModel:
    """Parse a model; nothing is compiled.

    Args:
        path: MJCF or URDF; which of them is told by its root element.
        packages: Folders of ROS packages by name, for ``package://`` paths that are not found around the URDF.

    Raises:
        GantryError: If there is no such file, or it is no MJCF and no URDF.
    """
    if path.is_dir():
        raise GantryError(f"'{path}' is a folder; expected the path of an MJCF (.xml) or a URDF (.urdf).")
    if not path.is_file():
        raise GantryError(f"There is no model '{path}'; expected the path of an MJCF (.xml) or a URDF (.urdf).")
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, UnicodeDecodeError, ValueError) as error:
        raise GantryError(
            f"'{path}' is no XML ({error}); expected an MJCF (root <mujoco>) or a URDF (root <robot>)."
        ) from error
    if root.tag == "mujoco":
        return _require_printable(_read_mjcf(path))
    if root.tag != "robot":
        raise GantryError(f"'{path}' has the root <{root.tag}>; expected <mujoco> (MJCF) or <robot> (URDF).")
    findings: list[Finding] = []
    limits = meet_mujoco(root, path, packages or {}, findings)
    try:
        spec = mujoco.MjSpec.from_string(ElementTree.tostring(root, encoding="unicode"))
    except ValueError as error:
        raise GantryError(f"'{path}' is no URDF that MuJoCo reads: {one_line(error)}.") from error
    return _require_printable(SourceModel(path, spec, limits, tuple(findings)))


def _require_printable(source: SourceModel) -> SourceModel:
    """Refuse names with line breaks or control characters: names are written into a Python module.

    Raises:
        GantryError: With the name, escaped.
    """
    spec = source.spec
    parts = (spec.bodies, spec.joints, spec.geoms, spec.sites, spec.actuators, spec.meshes)
    for name in (source.path.name, *(str(part.name) for group in parts for part in group)):
        if not name.isprintable():
            raise GantryError(f"The name '{plain_text(name)}' of the model has control characters; expected none.")
    return source


def one_line(error: Exception) -> str:
    """A library's message without its line breaks and its full stop."""
    return " ".join(str(error).split()).rstrip(".")


def _read_mjcf(path: Path) -> SourceModel:
    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise GantryError(f"'{path}' is no MJCF that MuJoCo reads: {one_line(error)}.") from error
    findings = []
    lost = set()
    for mesh in spec.meshes:
        place = mesh_place(spec, path, mesh)
        if place is not None and not place.is_file():
            lost.add(mesh.name or place.stem)
            findings.append(
                Finding(Level.FAIL, "mesh", f"'{mesh.file}' is missing; expected at {place}. Copy it there.")
            )
    for geom in list(spec.geoms):
        if geom.meshname in lost:
            spec.delete(geom)
    for mesh in list(spec.meshes):
        if mesh.file and (mesh.name or Path(mesh.file).stem) in lost:
            spec.delete(mesh)
    for texture in list(spec.textures):
        _leave_out_texture(spec, path, texture, findings)
    return SourceModel(path, spec, {}, tuple(findings))


def mesh_place(spec: mujoco.MjSpec, path: Path, mesh: mujoco.MjsMesh) -> Path | None:
    """Path at which a mesh's file should lie; None for a mesh without a file."""
    if not mesh.file:
        return None
    name = Path(mesh.file).name if spec.strippath else mesh.file
    return path.parent / (spec.meshdir or "") / name


def _leave_out_texture(spec: mujoco.MjSpec, path: Path, texture: mujoco.MjsTexture, findings: list[Finding]) -> None:
    """Leave out a texture from a file: the package carries meshes alone."""
    if not texture.file:
        return
    for material in spec.materials:
        material.textures = ["" if name == texture.name else name for name in material.textures]
    findings.append(
        Finding(Level.NOTE, "texture", f"'{texture.file}' of {path.name} is left out; it changes looks only.")
    )
    spec.delete(texture)

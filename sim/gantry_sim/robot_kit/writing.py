"""The installable package of a new robot: numbers, model with its meshes, tasks and a test."""

from __future__ import annotations

import hashlib
import keyword
import re
import shutil
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import mujoco
import numpy as np

from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_names
from gantry_sim.robot_kit import templates
from gantry_sim.robot_kit.reading import SourceModel, mesh_place
from gantry_sim.robot_kit.study import Study

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""Names of robots: they stand in entry points, file names and modules."""


def require_name(name: str) -> str:
    """The name itself, of a robot that is to be made.

    Raises:
        GantryError: If no package can be called so, or a robot of that name is installed.
    """
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise GantryError(
            f"'{name}' is no name for a robot; expected a small letter, then small letters, digits and '_', no keyword "
            "of Python, for example 'mydog'."
        )
    if name in robot_names():
        raise GantryError(
            f"A robot '{name}' is installed already; expected another name than {', '.join(robot_names())}."
        )
    return name


def write_package(study: Study, source: SourceModel, name: str, folder: Path) -> list[Path]:
    """Write the package whole, or nothing.

    Args:
        study: What goes into it.
        source: Where the model came from.
        name: Of the robot.
        folder: Must not exist.

    Returns:
        The files, relative to the folder.

    Raises:
        GantryError: If the folder exists, or the written model is not the same robot.
    """
    require_new(folder)
    place = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        package = place / templates.package_name(name)
        (package / "model" / "assets").mkdir(parents=True)
        (place / "tests").mkdir()
        _write_model(study, source, package / "model", name)
        digest = hashlib.sha256(source.path.read_bytes()).hexdigest()
        for path, text in templates.files(study, name, f"{source.path.name}, SHA-256 {digest}").items():
            (place / path).write_text(text, encoding="utf-8")
        if not any((package / "model" / "assets").iterdir()):
            (package / "model" / "assets").rmdir()
        place.chmod(0o755)
        place.rename(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def require_new(folder: Path) -> None:
    """Refuse a folder that exists, or that has no parent.

    Raises:
        GantryError: With the path.
    """
    if folder.exists() or folder.is_symlink():
        raise GantryError(
            f"'{folder}' exists already; expected a new folder. Remove it, or name another with --output."
        )
    if not folder.parent.is_dir():
        raise GantryError(f"Folder '{folder.parent}' does not exist; expected one to write '{folder.name}' into.")


def _write_model(study: Study, source: SourceModel, folder: Path, name: str) -> None:
    """Write the MJCF with explicit inertias and sites at the feet, and copy its meshes beside it."""
    spec = study.prepared.spec
    for foot in study.feet:
        if foot.site_pos_m is not None:
            spec.body(foot.body).add_site(name=foot.name, pos=list(foot.site_pos_m), group=5)
    spec.modelname = name
    spec.compiler.saveinertial = True
    files = {}
    for mesh in spec.meshes:
        place = mesh_place(spec, source.path, mesh)
        if place is not None:
            mesh.name = mesh.name or place.stem
            files[mesh.name] = place
    spec.compile()
    root = ElementTree.fromstring(spec.to_xml())
    compiler = root.find("compiler")
    if compiler is None:
        compiler = ElementTree.SubElement(root, "compiler")
    for key in ("strippath", "assetdir"):
        compiler.attrib.pop(key, None)
    compiler.attrib.update(meshdir="assets", inertiafromgeom="false")
    _copy_meshes(root, files, folder / "assets")
    ElementTree.indent(root)
    path = folder / f"{name}.xml"
    path.write_text(ElementTree.tostring(root, encoding="unicode") + "\n", encoding="utf-8")
    _require_same(study.prepared.model, path)


def _copy_meshes(root: ElementTree.Element, files: dict[str, Path], folder: Path) -> None:
    taken: dict[str, Path] = {}
    for mesh in root.findall("asset/mesh"):
        place = files.get(mesh.get("name", ""))
        if place is None:
            continue
        name, number = place.name, 1
        while taken.setdefault(name, place) != place:
            number += 1
            name = f"{place.stem}_{number}{place.suffix}"
        shutil.copyfile(place, folder / name)
        mesh.set("file", name)


def _require_same(model: mujoco.MjModel, path: Path) -> None:
    """Refuse a written model that weighs or moves otherwise than what was read."""
    try:
        written = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise GantryError(f"The model that was written cannot be read: {error}") from error
    for field in ("body_mass", "body_inertia", "body_pos", "jnt_range", "jnt_axis"):
        one, other = getattr(model, field), getattr(written, field)
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-5, atol=1e-8):
            raise GantryError(
                f"The model that was written differs from '{path.name}' in {field}; this is a fault here."
            )

"""Files that Isaac Lab's tasks open, made of MuJoCo models that are installed here, in place of NVIDIA's servers.

Isaac Lab looks for all of them below one root. Where ``ISAACSIM_ASSET_ROOT`` names none, it is a folder of the user's
cache that :func:`use_own_root` announces and :func:`provide` fills, file by file, as tasks ask for them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import mujoco

import gantry_sim
from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import write_whole
from gantry_hardware.robots import robot_names, robot_spec
from gantry_sim.robots.models import robot_model

ROOT_VARIABLE = "ISAACSIM_ASSET_ROOT"
"""Isaac Lab's own variable, read when it is imported: a folder, or the address of a server."""
GROUND = "Isaac/IsaacLab/Environments/Grid/default_ground_plane_checker_v1/default_ground_plane.usda"
"""The endless plane that flat tasks open."""
ROBOTS = {
    "Isaac/IsaacLab/Robots/Classic/Cartpole/cartpole.usd": "cartpole",
    "Isaac/IsaacLab/Robots/Unitree/Go1/go1.usd": "go1",
    "Isaac/IsaacLab/Robots/Unitree/Go2/go2.usd": "go2",
    "Isaac/IsaacLab/Robots/Unitree/G1/g1.usd": "g1",
    "Isaac/IsaacLab/Robots/Unitree/G1/g1_minimal.usd": "g1",
}
"""Isaac Lab's file of a robot -> Gantry's name of that robot. Any other file stands for the robot of its own name, such
as one of another package: ``a1.usd`` for the robot ``a1``."""
MACHINES = {
    "Isaac/Robots/IsaacSim/Ant/ant_instanceable.usd": "ant",
}
"""Isaac Lab's file of a machine that is no robot of Gantry -> its MJCF in the assets."""
OTHER_JOINTS = ("g1",)
"""Robots of which NVIDIA's file has other joints than Gantry's model."""
REVISION = 1
"""Counts changes of what this module makes, so that a cache never holds an older kind."""


def use_own_root() -> None:
    """Let Isaac Lab look for its files in the cache, unless the user said where, or Isaac Lab is imported already and
    has asked.
    """
    if "isaaclab.utils.assets" not in sys.modules:
        os.environ.setdefault(ROOT_VARIABLE, str(own_root()))


def own_root() -> Path:
    """Folder of the files that are made here."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gantry" / f"isaaclab-assets-{REVISION}"


def is_own(path: str) -> bool:
    """Whether a file of Isaac Lab's is one that is made here."""
    return path.startswith(f"{own_root()}/")


def below_root(path: str) -> str:
    """Path of a file that is made here, without the root."""
    return path.removeprefix(f"{own_root()}/")


def robot_of(path: str) -> str | None:
    """Gantry's name of the robot in a file of Isaac Lab's; None for another machine."""
    found = next((robot for name, robot in ROBOTS.items() if path.endswith(name)), None)
    same = Path(path).stem
    return found or (same if "/Robots/" in path and same in robot_names() else None)


def provide(path: str) -> None:
    """Make a file, if it is to lie in our own root and is not there yet.

    Args:
        path: Of the file, as Isaac Lab's configuration has it.

    Raises:
        GantryError: If there is no model to make it of.
    """
    if not is_own(path):
        return
    name = below_root(path)
    if name == GROUND:
        _write(Path(path), (_own_assets() / "ground_plane.usda").read_bytes())
        return
    if robot_of(name) is None and name not in MACHINES:
        raise GantryError(
            f"Isaac Lab's file {name} comes from NVIDIA's servers, and Gantry has no model to make it of. It makes "
            f"{', '.join(sorted({*ROBOTS.values(), *MACHINES.values()}))} and any robot of the file's name, which "
            f"`gantry robot new {Path(name).stem} --model FILE` makes; or set {ROOT_VARIABLE} to a folder with Isaac "
            "Sim's assets or to the address of a server."
        )
    source = source_model(name)
    text = source.to_xml()
    stamp = Path(path).with_suffix(".stamp")
    digest = hashlib.sha256(text.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest and Path(path).is_file():
        return
    _write(Path(path), _converted(source))
    _write(stamp, digest.encode())


@lru_cache
def source_model(name: str) -> mujoco.MjSpec:
    """MuJoCo model that stands for a file of Isaac Lab's, without shapes that are only looked at.

    Args:
        name: Of the file, below Isaac Lab's root; one of a robot, or a key of :data:`MACHINES`.
    """
    robot = robot_of(name)
    if robot is not None:
        model = robot_model(robot, visuals=False)
        for light in list(model.lights):
            model.delete(light)
        _drop_idle_meshes(model)
    else:
        model = mujoco.MjSpec.from_file(str(_own_assets() / f"{MACHINES[name]}.xml"))
    model.compile()
    return model


def _own_assets() -> Path:
    return Path(gantry_sim.__file__).parent / "assets"


def _drop_idle_meshes(model: mujoco.MjSpec) -> None:
    """Delete meshes that no shape has, and find the files of the others wherever the model is written to."""
    used = {geom.meshname for geom in model.geoms}
    for mesh in list(model.meshes):
        if mesh.name not in used:
            model.delete(mesh)
    model.meshdir = str(Path(model.modelfiledir) / model.meshdir)


def feet_links(robot: str) -> dict[str, str]:
    """Names ``FOOT_foot`` of a robot's feet -> link that carries the foot, where Isaac Lab has links for feet."""
    model = robot_model(robot, visuals=False)
    return {f"{foot}_foot": model.site(foot).parent.name for foot in robot_spec(robot).feet}


def _converted(source: mujoco.MjSpec) -> bytes:
    """A model as one USD file, in a process of its own: USD learns Newton's schemas before its first use or never.

    Raises:
        GantryError: If the converter is not installed, or does not take the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "model.xml", Path(folder) / "model.usdc"
        path.write_text(source.to_xml(), encoding="utf-8")
        words = [sys.executable, "-m", "gantry_sim.isaaclab_tasks.convert", str(path), str(out)]
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        if ended.returncode != 0 or not out.is_file():
            reason = ended.stderr.strip().splitlines()[-1:] or ["it ended without a reason"]
            raise GantryError(f"mujoco-usd-converter made no USD file of '{source.modelname}': {reason[0]}")
        return out.read_bytes()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)

"""MuJoCo's models as USD files for Isaac Lab: ``python -m gantry_sim.isaaclab_tasks.convert MODEL.xml OUT.usdc``.

A process of its own, which imports the converter first: USD looks for the schemas of MuJoCo and Newton once.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from mujoco_usd_converter import Converter  # isort: skip
from pxr import Usd, UsdGeom, UsdPhysics


def convert(source: Path, target: Path) -> None:
    """Write a model as one USD file, all links directly below its root, as in NVIDIA's files.

    Args:
        source: MJCF.
        target: The file, ``.usdc`` or ``.usda``.
    """
    with tempfile.TemporaryDirectory() as folder:
        asset = Converter().convert(str(source), folder)
        stage = Usd.Stage.Open(Usd.Stage.Open(asset.path).Flatten())
        lift_links(stage)
        stage.GetRootLayer().Export(str(target))


def lift_links(stage: Usd.Stage) -> None:
    """Move every link from below its parent to directly below the root, where it stands in the world.

    Raises:
        RuntimeError: If USD refuses to move one.
    """
    root = stage.GetDefaultPrim()
    links = [prim for prim in stage.Traverse() if prim.HasAPI(UsdPhysics.RigidBodyAPI)]
    poses = {
        link.GetName(): UsdGeom.Xformable(link).ComputeLocalToWorldTransform(Usd.TimeCode.Default()) for link in links
    }
    editor = Usd.NamespaceEditor(stage)
    for path in sorted((link.GetPath() for link in links), key=lambda path: -path.pathElementCount):
        editor.ReparentPrim(stage.GetPrimAtPath(path), root)
        if not editor.ApplyEdits():
            raise RuntimeError(f"The link {path} cannot be moved to the root of its model.")
    for name, pose in poses.items():
        link = UsdGeom.Xformable(stage.GetPrimAtPath(root.GetPath().AppendChild(name)))
        link.ClearXformOpOrder()
        link.MakeMatrixXform().Set(pose)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))

"""Workbench of an arm: one object to handle, perhaps a fixture it belongs to, cameras, and the arm's pads.

It is added to any scene that has the arm, so that training and the simulated robot of the runtime share it. A fixture
is a mocap body: it does not move by itself, and every episode puts it somewhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from gantry_hardware.errors import UnknownNameError
from gantry_sim.robots import scene_visuals

OBJECT, FIXTURE, TABLE = "object", "fixture", "table"
"""Bodies, and the geom of the table's top."""
WRIST, FRONT = "wrist", "front"
CAMERAS = (WRIST, FRONT)
"""Cameras: one on the hand, and one that looks at the robot from ahead."""
TIPS = tuple(f"{side}f_down{number}_collision" for side in "lr" for number in range(6, 12))
"""Small spheres on the fingers' inner faces, six each, which grasp: whatever is held has several points of contact on
each side, in every simulator. Flat boxes alone meet in a single one in MuJoCo Warp, about which things turn."""
PADS = (*TIPS, "lf_down4_collision", "rf_down4_collision")
"""The shapes of the fingers that touch things: the spheres, and the flat boxes behind them."""

CUBE_HALF_M = (0.02, 0.02, 0.02)
PEG_HALF_M = (0.008, 0.008, 0.04)
STAND_HALF_M = (0.04, 0.04, 0.02)
GOAL_RADIUS_M = 0.025
HOLE_DEPTH_M = 0.04
WALL_M = 0.02
"""Thickness of the walls around the hole."""

OBJECT_MASS_KG = 0.05
PAD_FRICTION = (1.0, 0.005, 0.0005)
TABLE_FRICTION = (0.6, 0.005, 0.0001)
_RED, _BLUE, _GREEN, _GREY = (
    (0.8, 0.15, 0.12, 1.0),
    (0.1, 0.3, 0.75, 1.0),
    (0.1, 0.6, 0.25, 1.0),
    (0.55, 0.55, 0.58, 1.0),
)
_WOOD = (0.42, 0.38, 0.33, 1.0)
_BOX = mujoco.mjtGeom.mjGEOM_BOX


@dataclass(frozen=True)
class Workbench:
    """Things that a task lays on the table."""

    half_m: tuple[float, float, float] = CUBE_HALF_M
    """Half sizes of the object, a box."""
    rgba: tuple[float, float, float, float] = _RED
    """Its colour."""
    fixture: str = ""
    """``disc``, ``stand``, ``hole``, or empty for none."""
    clearance_m: float = 0.002
    """By so much the hole is wider than the object."""


FIXTURES = ("", "disc", "stand", "hole")


def add_workbench(scene: mujoco.MjSpec, bench: Workbench, prefix: str = "") -> None:
    """Lay table, object, fixture and cameras into a scene that has the arm; a floor becomes the table.

    Args:
        scene: The scene, changed.
        bench: What to lay.
        prefix: Of the names of the arm's parts in the scene, for example ``robot/``.

    Raises:
        UnknownNameError: If there is no such fixture.
    """
    if bench.fixture not in FIXTURES:
        raise UnknownNameError("fixture", bench.fixture, FIXTURES)
    world = scene.worldbody
    floor = scene.geom("floor")
    if floor is not None:
        floor.material, floor.rgba[:], floor.friction[:] = "", _WOOD, TABLE_FRICTION
    else:
        scene_visuals.add_sky_and_light(scene)
        world.add_geom(
            name=TABLE,
            type=mujoco.mjtGeom.mjGEOM_PLANE,
            size=[0.0, 0.0, 0.05],
            rgba=list(_WOOD),
            friction=list(TABLE_FRICTION),
        )
    world.add_camera(name=FRONT, pos=[0.9, 0.0, 0.45], xyaxes=[0.0, 1.0, 0.0, -0.474, 0.0, 0.881], fovy=38.0)
    hand = scene.camera(f"{prefix}camera_d405").parent
    hand.add_camera(name=WRIST, quat=[0.0, 1.0, 0.0, 0.0], fovy=75.0)
    _add_object(world, bench)
    if bench.fixture:
        body = world.add_body(name=FIXTURE, mocap=True, pos=[0.35, 0.15, 0.0])
        {"disc": _add_disc, "stand": _add_stand, "hole": _add_hole}[bench.fixture](body, bench)
    for name in PADS:
        pad = scene.geom(prefix + name)
        pad.friction[:] = PAD_FRICTION
        pad.condim, pad.priority = 3, 1  # The pads' friction counts, whatever the object's is.
        pad.solref[:] = (0.01, 1.0)


def _add_object(world: mujoco.MjsBody, bench: Workbench) -> None:
    body = world.add_body(name=OBJECT, pos=[0.3, 0.0, bench.half_m[2]])
    body.add_freejoint(name=OBJECT)
    body.add_geom(
        name=OBJECT,
        type=_BOX,
        size=list(bench.half_m),
        mass=OBJECT_MASS_KG,
        rgba=list(bench.rgba),
        friction=list(TABLE_FRICTION),
    )


def _add_disc(body: mujoco.MjsBody, bench: Workbench) -> None:
    del bench
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        size=[GOAL_RADIUS_M, 0.0005, 0.0],
        rgba=list(_GREEN),
        contype=0,
        conaffinity=0,
    )


def _add_stand(body: mujoco.MjsBody, bench: Workbench) -> None:
    del bench
    body.add_geom(
        name="stand", type=_BOX, size=list(STAND_HALF_M), pos=[0.0, 0.0, STAND_HALF_M[2]], rgba=list(_GREEN),
        friction=list(TABLE_FRICTION),
    )  # fmt: skip


def _add_hole(body: mujoco.MjsBody, bench: Workbench) -> None:
    """Four walls around a square hole, the fixture's origin on the table in its middle."""
    inner = bench.half_m[0] + 0.5 * bench.clearance_m
    outer, height = inner + WALL_M, 0.5 * HOLE_DEPTH_M
    for axis, sign in ((0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0)):
        pos, size = [0.0, 0.0, height], [0.0, 0.0, height]
        pos[axis] = sign * (inner + 0.5 * WALL_M)
        size[axis], size[1 - axis] = 0.5 * WALL_M, outer if axis == 0 else inner
        body.add_geom(
            name=f"wall_{'xy'[axis]}{'+' if sign > 0 else '-'}", type=_BOX, pos=pos, size=size, rgba=list(_GREY),
            friction=list(TABLE_FRICTION),
        )  # fmt: skip


WORKBENCHES: dict[str, Workbench] = {
    "lift": Workbench(),
    "push": Workbench(fixture="disc"),
    "pick-place": Workbench(fixture="stand"),
    "insert": Workbench(half_m=PEG_HALF_M, rgba=_BLUE, fixture="hole"),
}
"""Things that each task lays on the table."""

"""Workbench of an arm: things to handle, perhaps a fixture or zones they belong to, cameras, and the arm's pads.

It is added to any scene that has the arm, so that training and the simulated robot of the runtime share it. Fixtures
and zones are mocap bodies: they do not move by themselves, and every episode puts them somewhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from gantry_hardware.errors import UnknownNameError
from gantry_sim.robots import scene_visuals

OBJECT, FIXTURE, TABLE = "object", "fixture", "table"
"""Bodies, and the geom of the table's top; further things are ``object_1`` and so on, zones ``zone_0`` and so on."""
WRIST, FRONT, SIDE = "wrist", "front", "side"
CAMERAS = (WRIST, FRONT)
"""Cameras that a policy has where none is named: one on the hand, and one that looks at the robot from ahead."""
ALL_CAMERAS = (*CAMERAS, SIDE)
"""Those, and one that looks at the table from the robot's left."""
TIPS = tuple(f"{side}f_down{number}_collision" for side in "lr" for number in range(6, 12))
"""Small spheres on the fingers' inner faces, six each, which grasp: whatever is held has several points of contact on
each side, in every simulator. Flat boxes alone meet in a single one in MuJoCo Warp, about which things turn."""
PADS = (*TIPS, "lf_down4_collision", "rf_down4_collision")
"""The shapes of the fingers that touch things: the spheres, and the flat boxes behind them."""

CUBE_HALF_M = (0.02, 0.02, 0.02)
PEG_HALF_M = (0.008, 0.008, 0.04)
STAND_HALF_M = (0.04, 0.04, 0.02)
GOAL_RADIUS_M, ZONE_RADIUS_M = 0.025, 0.03
"""Radii of the disc that a cube is pushed to, and of the zones that instructions name."""
HOLE_DEPTH_M = 0.04
WALL_M = 0.02
"""Thickness of the walls around the hole."""

OBJECT_MASS_KG = 0.05
PAD_FRICTION = (1.0, 0.005, 0.0005)
TABLE_FRICTION = (0.6, 0.005, 0.0001)
COLOURS: dict[str, tuple[float, float, float, float]] = {
    "red": (0.8, 0.15, 0.12, 1.0),
    "blue": (0.1, 0.3, 0.75, 1.0),
    "green": (0.1, 0.6, 0.25, 1.0),
    "grey": (0.55, 0.55, 0.58, 1.0),
    "yellow": (0.9, 0.75, 0.1, 1.0),
    "white": (0.92, 0.92, 0.92, 1.0),
}
"""Colours of things, fixtures and zones, red, green, blue and opacity from 0 to 1."""
_WOOD = (0.42, 0.38, 0.33, 1.0)
_BOX, _CYLINDER = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
_GEOMS = {"cube": _BOX, "peg": _BOX, "cylinder": _CYLINDER}


@dataclass(frozen=True)
class Thing:
    """A thing on the table that can be handled."""

    colour: str = "red"
    """A name of :data:`COLOURS`."""
    shape: str = "cube"
    """``cube``, ``peg`` or ``cylinder``."""
    half_m: tuple[float, float, float] = CUBE_HALF_M
    """Half sizes; of an upright cylinder its radius twice, and half of its height."""


@dataclass(frozen=True)
class Zone:
    """A flat disc on the table that nothing touches."""

    colour: str
    """A name of :data:`COLOURS`."""
    radius_m: float = ZONE_RADIUS_M
    """Radius."""


@dataclass(frozen=True)
class Workbench:
    """Things that a task lays on the table."""

    things: tuple[Thing, ...] = (Thing(),)
    """Things to handle; where an instruction chooses among several, all have the same half sizes."""
    zones: tuple[Zone, ...] = ()
    """Places that an instruction chooses among; a bench with zones has no fixture."""
    fixture: str = ""
    """``disc``, ``stand``, ``hole``, or empty for none."""
    clearance_m: float = 0.002
    """By so much the hole is wider than the object."""

    @property
    def half_m(self) -> tuple[float, float, float]:
        """Half sizes of whatever is handled."""
        return self.things[0].half_m

    @property
    def is_told(self) -> bool:
        """Whether an instruction says which thing is handled."""
        return len(self.things) > 1

    @property
    def thing_bodies(self) -> tuple[str, ...]:
        """Bodies, and free joints, of the things."""
        return tuple(f"{OBJECT}_{place}" if place else OBJECT for place in range(len(self.things)))

    @property
    def mocap_bodies(self) -> tuple[str, ...]:
        """Bodies of the fixture, or of the zones."""
        return (FIXTURE,) if self.fixture else tuple(f"zone_{place}" for place in range(len(self.zones)))


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
    world.add_camera(name=SIDE, pos=[0.35, 0.55, 0.45], xyaxes=[-1.0, 0.0, 0.0, 0.0, -0.474, 0.881], fovy=50.0)
    hand = scene.camera(f"{prefix}camera_d405").parent
    hand.add_camera(name=WRIST, quat=[0.0, 1.0, 0.0, 0.0], fovy=75.0)
    for name, thing in zip(bench.thing_bodies, bench.things, strict=True):
        _add_thing(world, name, thing)
    for name, zone in zip(() if bench.fixture else bench.mocap_bodies, bench.zones, strict=True):
        _add_flat(world.add_body(name=name, mocap=True, pos=[0.4, 0.0, 0.0]), zone.radius_m, zone.colour)
    if bench.fixture:
        body = world.add_body(name=FIXTURE, mocap=True, pos=[0.35, 0.15, 0.0])
        {"disc": _add_disc, "stand": _add_stand, "hole": _add_hole}[bench.fixture](body, bench)
    for name in PADS:
        pad = scene.geom(prefix + name)
        pad.friction[:] = PAD_FRICTION
        pad.condim, pad.priority = 3, 1  # The pads' friction counts, whatever the object's is.
        pad.solref[:] = (0.01, 1.0)


def _add_thing(world: mujoco.MjsBody, name: str, thing: Thing) -> None:
    body = world.add_body(name=name, pos=[0.3, 0.0, thing.half_m[2]])
    body.add_freejoint(name=name)
    radius, _, half = thing.half_m
    body.add_geom(
        name=name,
        type=_GEOMS[thing.shape],
        size=[radius, half, 0.0] if thing.shape == "cylinder" else list(thing.half_m),
        mass=OBJECT_MASS_KG,
        rgba=list(COLOURS[thing.colour]),
        friction=list(TABLE_FRICTION),
    )


def _add_flat(body: mujoco.MjsBody, radius_m: float, colour: str) -> None:
    body.add_geom(
        type=_CYLINDER, size=[radius_m, 0.0005, 0.0], rgba=list(COLOURS[colour]), contype=0, conaffinity=0,
    )  # fmt: skip


def _add_disc(body: mujoco.MjsBody, bench: Workbench) -> None:
    del bench
    _add_flat(body, GOAL_RADIUS_M, "green")


def _add_stand(body: mujoco.MjsBody, bench: Workbench) -> None:
    del bench
    body.add_geom(
        name="stand", type=_BOX, size=list(STAND_HALF_M), pos=[0.0, 0.0, STAND_HALF_M[2]], rgba=list(COLOURS["green"]),
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
            name=f"wall_{'xy'[axis]}{'+' if sign > 0 else '-'}", type=_BOX, pos=pos, size=size,
            rgba=list(COLOURS["grey"]), friction=list(TABLE_FRICTION),
        )  # fmt: skip


WORKBENCHES: dict[str, Workbench] = {
    "lift": Workbench(),
    "push": Workbench(fixture="disc"),
    "pick-place": Workbench(fixture="stand"),
    "insert": Workbench((Thing("blue", "peg", PEG_HALF_M),), fixture="hole"),
    "tell": Workbench((Thing("red"), Thing("green"), Thing("blue", "cylinder")), zones=(Zone("yellow"), Zone("white"))),
}
"""Things that each task lays on the table."""

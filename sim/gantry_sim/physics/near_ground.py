"""Ground of many static boxes, of which every simulation holds the few that its robot can touch.

MuJoCo computes the place of every geom in every step and holds it in every simulation's memory, however far away: on
2,270 boxes that was more than half of a physics step. The engine's model therefore has a few boxes of the world alone,
as many as ever lie within a robot's reach, and each simulation's are placed where they are near it. Nothing else
changes: what is left out cannot be touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_sim.physics.engine import BatchEngine
from gantry_sim.physics.ground import bounds

CELL_M = 0.25
"""Edge length of the cells that a robot is looked up in; boxes change when it enters another."""
MARGIN_M = 0.1
"""Robots may move so far between two look-ups: a control step of 20 ms at 5 m/s."""
FAR_M = 1000.0
"""Unused boxes lie so far below the ground."""
SAME = ("contype", "conaffinity", "condim", "friction", "solref", "solimp", "margin", "gap", "priority", "solmix")
"""Properties of a geom that all boxes must share."""
_BOX = int(mujoco.mjtGeom.mjGEOM_BOX)


@dataclass(frozen=True)
class NearModel:
    """A model whose ground is a few boxes, and where these belong."""

    model: mujoco.MjModel
    """The engine's model; its first geoms are the boxes."""
    boxes: NDArray[np.float64]
    """(boxes + 1, 10) centre, half edges, quaternion; the last row is an unused one."""
    table: NDArray[np.int32]
    """(rows along y, columns along x, slots) boxes within reach of a robot anywhere in a cell, and the unused one."""
    corner_m: NDArray[np.float64]
    """(2,) outer corner of cell (0, 0)."""

    @property
    def slots(self) -> int:
        """Boxes that each simulation holds."""
        return int(self.table.shape[2])


def near_model(spec: mujoco.MjSpec, full: mujoco.MjModel) -> NearModel:
    """The model of a scene with as few boxes of ground as possible.

    Args:
        spec: The scene; its ground is replaced, so that what belongs to the scene knows its place in the model.
        full: The scene, compiled. Everything that collides and never moves must be a box of the world, and one free
            joint must carry all that moves.

    Raises:
        GantryError: If the scene is of another kind.
    """
    data = mujoco.MjData(full)
    mujoco.mj_kinematics(full, data)
    solid = np.flatnonzero((full.geom_bodyid == 0) & ((full.geom_contype > 0) | (full.geom_conaffinity > 0)))
    _check(full, solid)
    corners = np.array([bounds(full, data, int(geom)) for geom in solid])
    table, corner = _table(corners, reach_m(full) + MARGIN_M)
    quat = np.array([full.geom_quat[geom] for geom in solid])
    boxes = np.concatenate((full.geom_pos[solid], full.geom_size[solid], quat), axis=1)
    unused = np.array([[0.0, 0.0, -FAR_M, 0.01, 0.01, 0.01, 1.0, 0.0, 0.0, 0.0]])
    return NearModel(
        model=_with_slots(spec, full, int(solid[0]), table.shape[2]),
        boxes=np.concatenate((boxes, unused)),
        table=table,
        corner_m=corner,
    )


def reach_m(model: mujoco.MjModel) -> float:
    """Farthest that a shape of the robot can be from the origin of its free joint's body, in whatever pose, m."""
    root = int(model.jnt_bodyid[np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)[0]])
    far = np.zeros(model.nbody)
    for body in range(root + 1, model.nbody):  # a joint's anchor may lie beside its body's origin
        start, count = model.body_jntadr[body], model.body_jntnum[body]
        anchors = np.linalg.norm(model.jnt_pos[start : start + count], axis=1).sum() if count else 0.0
        slides = model.jnt_type[start : start + count] == mujoco.mjtJoint.mjJNT_SLIDE
        travel = np.abs(model.jnt_range[start : start + count][slides]).max(initial=0.0)
        far[body] = far[model.body_parentid[body]] + np.linalg.norm(model.body_pos[body]) + 2.0 * anchors + travel
    shapes = [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] >= root]
    colliding = [geom for geom in shapes if model.geom_contype[geom] or model.geom_conaffinity[geom]]
    return max(
        far[model.geom_bodyid[geom]] + np.linalg.norm(model.geom_pos[geom]) + model.geom_rbound[geom]
        for geom in colliding
    )


def _check(model: mujoco.MjModel, solid: NDArray[np.int64]) -> None:
    if not len(solid) or np.any(model.geom_type[solid] != _BOX):
        kinds = sorted({mujoco.mjtGeom(kind).name for kind in model.geom_type[solid]})
        raise GantryError(f"Ground that is placed as it is needed is made of boxes; this scene's is made of {kinds}.")
    if np.count_nonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE) != 1 or np.any(model.body_mocapid >= 0):
        raise GantryError("Ground is placed around one free joint, and nothing else of the scene may move by itself.")
    for name in SAME:
        values = getattr(model, f"geom_{name}")[solid]
        if np.any(values != values[0]):
            raise GantryError(f"Ground that is placed as it is needed must be alike; geoms differ in '{name}'.")


def _table(corners: NDArray[np.float64], reach: float) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Boxes within reach of each cell, larger ones first, and the grid's corner.

    Args:
        corners: (boxes, 2, 3) lowest and highest corner of each.
        reach: Distance from a cell within which boxes belong to it, m.
    """
    low, high = corners[:, 0, :2] - reach, corners[:, 1, :2] + reach
    corner = low.min(axis=0)
    columns, rows = np.ceil((high.max(axis=0) - corner) / CELL_M).astype(int) + 1
    area = np.prod(corners[:, 1, :2] - corners[:, 0, :2], axis=1)
    order = np.argsort(-area, kind="stable")
    first, last = (np.floor((edge[order] - corner) / CELL_M).astype(int) for edge in (low, high))
    found = [
        (np.arange(y0, y1 + 1)[:, None] * columns + np.arange(x0, x1 + 1)).reshape(-1)
        for (x0, y0), (x1, y1) in zip(first, last, strict=True)
    ]
    cell, box = np.concatenate(found), np.repeat(order, [len(cells) for cells in found])
    by_cell = np.argsort(cell, kind="stable")
    cell, box = cell[by_cell], box[by_cell]
    count = np.bincount(cell, minlength=rows * columns)
    slot = np.arange(len(cell)) - np.repeat(np.cumsum(count) - count, count)
    table = np.full((rows * columns, int(count.max())), len(corners), np.int32)
    table[cell, slot] = box
    return table.reshape(rows, columns, -1), corner


def _with_slots(spec: mujoco.MjSpec, full: mujoco.MjModel, like: int, slots: int) -> mujoco.MjModel:
    for geom in list(spec.worldbody.geoms):
        spec.delete(geom)
    for slot in range(slots):
        spec.worldbody.add_geom(
            name=f"near_ground_{slot}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=[float(slot), 0.0, -FAR_M],
            size=[0.01, 0.01, 0.01],
            quat=[0.5, 0.5, 0.5, -0.5],  # MuJoCo would skip the rotation of geoms that it compiles upright
            group=int(full.geom_group[like]),
            **{name: getattr(full, f"geom_{name}")[like] for name in SAME},
        )
    model = spec.compile()
    # The world's tree of boxes is of the places at compile time; bounding spheres alone decide which pairs are near.
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
    found = [model.geom(geom).name for geom in range(slots)]
    if found != [f"near_ground_{slot}" for slot in range(slots)] or np.any(model.geom_sameframe[:slots] != 0):
        raise GantryError(f"The scene with placed ground begins with geoms {found[:3]}, expected 'near_ground_0'.")
    return model


class NearGround:
    """Places the boxes of every simulation.

    Args:
        near: The model and its boxes.
        engine: Engine of that model.
        num_envs: Simulations N.
    """

    def __init__(self, near: NearModel, engine: BatchEngine, num_envs: int) -> None:
        self._near = near
        model, slots = near.model, near.slots
        joint = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)[0]
        self._address = int(model.jnt_qposadr[joint])
        self._cell = np.full(num_envs, -1, np.int64)
        self._pos, self._size, self._quat = (engine.expand(f"geom_{name}") for name in ("pos", "size", "quat"))
        self._radius, self._half = engine.expand("geom_rbound"), engine.expand("geom_aabb")
        self._radii = np.linalg.norm(near.boxes[:, 3:6], axis=1)
        self._slots = slice(0, slots)

    def place(self, qpos: NDArray[np.float32]) -> None:
        """Put the boxes near the robots into simulations whose robots, (N, nq) coordinates, are in a new cell."""
        near = self._near
        rows, columns = near.table.shape[:2]
        where = np.nan_to_num((qpos[:, self._address : self._address + 2] - near.corner_m) / CELL_M, posinf=0, neginf=0)
        x, y = np.clip(where[:, 0], 0, columns - 1).astype(int), np.clip(where[:, 1], 0, rows - 1).astype(int)
        cell = y * columns + x
        moved = np.flatnonzero(cell != self._cell)
        if not len(moved):
            return
        self._cell[moved] = cell[moved]
        which = near.table.reshape(rows * columns, -1)[cell[moved]]
        boxes, slots = near.boxes[which], self._slots
        self._pos[moved, slots], self._size[moved, slots] = boxes[..., :3], boxes[..., 3:6]
        self._quat[moved, slots] = boxes[..., 6:]
        self._radius[moved, slots] = self._radii[which]
        self._half[moved, slots, 3:] = boxes[..., 3:6]

"""The ground below many points at once, in torch: what a vertical ray would hit, without casting it.

Exact for planes, boxes and upright height fields; where anything else may be on top, MuJoCo casts the ray. Rays that
start below the surface follow MuJoCo Warp, which mjlab's sensors are made for: planes and height fields have no
underside (a miss), a box is left through its far side (a hit whose normal points down).
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from gantry_sim.physics.ground import EXACT, Ground, bounds, sort_ground

_HFIELD = int(mujoco.mjtGeom.mjGEOM_HFIELD)
_INF = float("inf")
_ABOVE_M = 50.0
"""Rays of :meth:`HeightMap.tops` start here: above everything, and low enough for float32 to tell micrometres."""
_TOUCH = 1e-5  # neighbours that touch must leave no gap between them in float32: m, or parts of a quad


class HeightMap:
    """Heights below points in the world; the same ground in every environment.

    Args:
        model: Compiled model.
        groups: Geom groups that count as ground; None for all. None of their geoms may move.
        cell_m: Edge length of the cells that geoms are sorted into.
        max_cells: Bound on the number of cells, 4 bytes each.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        groups: tuple[int, ...] | None,
        *,
        cell_m: float = 0.025,
        max_cells: int = 40_000_000,
    ) -> None:
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        self.ground = sort_ground(model, data, groups, cell_m=cell_m, max_cells=max_cells)
        """Which geoms to look at where."""
        self.rays = ExactRays(model, data, groups)
        """MuJoCo's own rays, for the rest."""
        self._codes = torch.from_numpy(self.ground.codes).reshape(-1)
        self._candidates = torch.from_numpy(self.ground.candidates).long()
        self._has_exact = bool((self._codes == EXACT).any())
        self._planes = _Planes(data, self.ground)
        self._shapes = _Shapes(model, data, self.ground)
        self._top_of_code = torch.cat((torch.tensor([-_INF]), self._shapes.flat_top))
        """Height of cells that one upright box covers, by code; -inf where there is nothing."""
        self._all_boxes = not (self._has_exact or self._planes.count or bool(self._shapes.is_field.any()))
        rectangles = self._shapes.rectangles
        """(S, 5) x and y from and to, and height, of upright boxes; NaN for tilted ones."""
        listed = torch.cat((rectangles, torch.tensor([[_INF, -_INF, _INF, -_INF, -_INF]])))[self._candidates]
        self._listed = listed.permute(2, 0, 1).contiguous()
        self._listed_upright = ~listed[..., 0].isnan().any(-1)

    def tops(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Height of the ground at points: where vertical rays from far above would end, without their normals.

        Args:
            x: (P,) in the world, m.
            y: (P,) the same.

        Returns:
            (P,) m; -inf where there is nothing.
        """
        if not self._all_boxes:
            distance = self.cast_down(torch.stack((x, y, torch.full_like(x, _ABOVE_M)), dim=-1))[0]
            return torch.where(distance >= 0, _ABOVE_M - distance, -_INF)
        code = self._codes_at(x, y)
        height = self._top_of_code[code.clamp(min=0)]
        rows = (code < 0).nonzero().squeeze(-1)
        if len(rows):
            which, x, y = -1 - code[rows].long(), x[rows, None], y[rows, None]
            x0, x1, y0, y1, top = self._listed[:, which]
            inside = (x >= x0 - _TOUCH) & (x <= x1 + _TOUCH) & (y >= y0 - _TOUCH) & (y <= y1 + _TOUCH)
            height[rows] = torch.where(inside, top, -_INF).amax(-1)
            tilted = (~self._listed_upright[which]).nonzero().squeeze(-1)
            if len(tilted):
                height[rows[tilted]] = self._highest_listed(self._candidates[which[tilted]], x[tilted], y[tilted])
        return height

    def _highest_listed(self, candidates: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Height (k,) of the highest of surfaces (k, c), -1 for none, at points x and y (k, 1)."""
        row, column = (candidates >= 0).nonzero(as_tuple=True)
        found = torch.full(candidates.shape, -_INF)
        points = torch.nn.functional.pad(torch.cat((x, y), dim=-1), (0, 1))
        found[row, column] = self._shapes.box_top(candidates[row, column], points[row])[0]
        return found.amax(-1)

    def cast_down(self, origin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cast vertical rays.

        Args:
            origin: (P, 3) where they start, m, in the world.

        Returns:
            (P,) distances to the first surface below, m, -1 for none; and (P, 3) its unit normals in the world, zero
            for none.
        """
        height, normal = self._planes.top(origin)
        surface = torch.full((len(origin),), -1)
        code = self._codes_at(origin[:, 0], origin[:, 1]) if len(self._codes) else surface
        if len(self._codes):
            self._merge_owners(origin, code, height, normal, surface)
            rows = ((code < 0) & (code != EXACT)).nonzero().squeeze(-1)
            if len(rows):
                self._merge_candidates(origin, rows, code, height, normal, surface)
        distance = origin[:, 2] - height
        # A height of -inf (nothing there) gives an infinite distance, an origin of NaN one of NaN.
        hit = (distance >= 0) & (distance < _INF)
        if not bool(hit.all()):
            under = distance < 0
            distance.masked_fill_(~hit, -1.0)
            normal.masked_fill_(~hit.unsqueeze(-1), 0.0)
            if len(self._codes):
                self._leave_underground(origin, under, surface, distance, normal)
        if self._has_exact:
            rows = (code == EXACT).nonzero().squeeze(-1)
            distance[rows], normal[rows] = self.rays.cast_down(origin[rows])
        return distance, normal

    def _codes_at(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows, columns = self.ground.codes.shape
        (corner_x, corner_y), per_m = self.ground.corner_m, 1.0 / self.ground.cell_m
        column, row = ((x - corner_x) * per_m).floor().int(), ((y - corner_y) * per_m).floor().int()
        last_column, last_row = column.clamp(0, columns - 1), row.clamp(0, rows - 1)
        inside = (column == last_column) & (row == last_row)
        return torch.where(inside, self._codes[last_row * columns + last_column], 0)

    def _merge_owners(
        self,
        origin: torch.Tensor,
        code: torch.Tensor,
        height: torch.Tensor,
        normal: torch.Tensor,
        surface: torch.Tensor,
    ) -> None:
        """Raise ``height`` to the surfaces that cover their cells alone."""
        shapes = self._shapes
        owner = code.clamp(min=0).long() - 1
        owned = owner >= 0
        top = torch.where(owned, shapes.flat_top[owner], -_INF)
        above = top > height
        height.copy_(torch.where(above, top, height))
        surface.copy_(torch.where(above, owner, surface))
        if self._planes.tilted:
            normal[above] = torch.tensor([0.0, 0.0, 1.0])
        elif not self._planes.count:
            normal[:, 2] = torch.where(above, 1.0, normal[:, 2])
        rows = (owned & shapes.is_field[owner]).nonzero().squeeze(-1)
        if len(rows):
            self._raise_to(rows, owner[rows], *shapes.field_top(owner[rows], origin[rows]), height, normal, surface)

    def _merge_candidates(
        self,
        origin: torch.Tensor,
        rows: torch.Tensor,
        code: torch.Tensor,
        height: torch.Tensor,
        normal: torch.Tensor,
        surface: torch.Tensor,
    ) -> None:
        """Raise ``height`` to the highest of the surfaces in each of these rows' cells."""
        for column in self._candidates[-1 - code[rows].long()].unbind(-1):
            some = column >= 0
            at, candidate = rows[some], column[some]
            is_field = self._shapes.is_field[candidate]
            for kind, top_of in ((is_field, self._shapes.field_top), (~is_field, self._shapes.box_top)):
                here, which = at[kind], candidate[kind]
                if len(here):
                    self._raise_to(here, which, *top_of(which, origin[here]), height, normal, surface)

    @staticmethod
    def _raise_to(
        rows: torch.Tensor,
        candidate: torch.Tensor,
        top: torch.Tensor,
        face: torch.Tensor,
        height: torch.Tensor,
        normal: torch.Tensor,
        surface: torch.Tensor,
    ) -> None:
        above = top > height[rows]
        rows = rows[above]
        height[rows], normal[rows], surface[rows] = top[above], face[above], candidate[above]

    def _leave_underground(
        self,
        origin: torch.Tensor,
        under: torch.Tensor,
        surface: torch.Tensor,
        distance: torch.Tensor,
        normal: torch.Tensor,
    ) -> None:
        rows = under.nonzero().squeeze(-1)
        if not len(rows):
            return
        bottom = torch.where(surface[rows] >= 0, self._shapes.lone_bottom[surface[rows]], torch.nan)
        known = ~bottom.isnan()
        leaves = rows[known & (origin[rows, 2] >= bottom)]
        distance[leaves] = origin[leaves, 2] - self._shapes.lone_bottom[surface[leaves]]
        normal[leaves] = torch.tensor([0.0, 0.0, -1.0])
        rows = rows[~known]
        if len(rows):
            distance[rows], normal[rows] = self.rays.cast_down(origin[rows], skip_fields=True)


class _Planes:
    """Infinite planes that face up."""

    def __init__(self, data: mujoco.MjData, ground: Ground) -> None:
        normals = data.geom_xmat[ground.planes][:, [2, 5, 8]]
        offsets = (normals * data.geom_xpos[ground.planes]).sum(axis=1)
        self.count = len(normals)
        self.tilted = bool(np.any(np.abs(normals[:, :2]) > 1e-9)) if self.count else False
        self._normals = torch.tensor(normals, dtype=torch.float32)
        self._offsets = torch.tensor(offsets, dtype=torch.float32)

    def top(self, origin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(P,) height of the highest plane, -inf without any, and (P, 3) its normal."""
        height = torch.full((len(origin),), -_INF)
        normal = torch.zeros_like(origin)
        for plane, offset in zip(self._normals, self._offsets, strict=True):
            top = (offset - origin[:, :2] @ plane[:2]) / plane[2]
            above = top > height
            height = torch.where(above, top, height)
            normal = torch.where(above.unsqueeze(-1), plane, normal)
        return height, normal


class _Shapes:
    """Boxes and upright height fields as tensors, one row per entry of ``ground.surfaces``."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, ground: Ground) -> None:
        geoms = ground.surfaces
        field = model.geom_type[geoms] == _HFIELD
        rotation = data.geom_xmat[geoms].reshape(-1, 3, 3)
        upright = np.all(np.abs(rotation - np.eye(3)) < 1e-9, axis=(1, 2))
        top = data.geom_xpos[geoms, 2] + model.geom_size[geoms, 2]
        self.flat_top = torch.tensor(np.where(upright & ~field, top, -np.inf), dtype=torch.float32)
        """(S,) height of upright boxes, -inf for the rest."""
        self.is_field = torch.tensor(field, dtype=torch.bool)
        """(S,) which surfaces are height fields."""
        self.rectangles = _rectangles(model, data, geoms, upright & ~field)
        """(S, 5) x and y from and to, and height, of upright boxes; NaN for the rest."""
        bottom = np.where(field, np.inf, data.geom_xpos[geoms, 2] - model.geom_size[geoms, 2])
        alone = upright & _lie_alone(model, data, ground)
        self.lone_bottom = torch.tensor(np.where(alone, bottom, np.nan), dtype=torch.float32)
        """(S,) height of the underside of surfaces with nothing else above or below: +inf (none) for height fields;
        NaN for other surfaces."""
        self._position = torch.tensor(data.geom_xpos[geoms], dtype=torch.float32)
        self._rotation = torch.tensor(rotation, dtype=torch.float32)
        self._half = torch.tensor(model.geom_size[geoms], dtype=torch.float32)
        dataid = np.where(field, model.geom_dataid[geoms], 0)
        if field.any():
            self._half = torch.where(
                self.is_field[:, None],
                torch.tensor(model.hfield_size[dataid][:, :3], dtype=torch.float32),
                self._half,
            )
            count = np.stack([model.hfield_ncol[dataid], model.hfield_nrow[dataid]], axis=1)
            self._quads = torch.tensor(np.maximum(count - 1, 1), dtype=torch.float32)
            self._start = torch.tensor(model.hfield_adr[dataid], dtype=torch.long)
            self._columns = torch.tensor(count[:, 0], dtype=torch.long)
            self._data = torch.tensor(model.hfield_data, dtype=torch.float32)

    def field_top(self, surface: torch.Tensor, point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(P,) height of height fields above or below points, -inf beside them, and (P, 3) their normals there."""
        half, position = self._half[surface], self._position[surface]
        quads = self._quads[surface]
        quad_m = 2.0 * half[:, :2] / quads
        place = (point[:, :2] - position[:, :2] + half[:, :2]) / quad_m
        inside = ((place >= -_TOUCH) & (place <= quads + _TOUCH)).all(-1)
        corner = torch.minimum(place.floor(), quads - 1).clamp(min=0)
        corner = torch.where(inside.unsqueeze(-1), corner, 0.0)
        u, v = (place - corner).unbind(-1)
        columns = self._columns[surface]
        first = self._start[surface] + corner[:, 1].long() * columns + corner[:, 0].long()
        z00, z10 = self._data[first], self._data[first + 1]
        z01, z11 = self._data[first + columns], self._data[first + columns + 1]
        # MuJoCo cuts each quad from (0, 0) to (1, 1).
        lower = u >= v
        slope_x = torch.where(lower, z10 - z00, z11 - z01)
        slope_y = torch.where(lower, z11 - z10, z01 - z00)
        top = position[:, 2] + half[:, 2] * (z00 + u * slope_x + v * slope_y)
        normal = torch.ones_like(point)
        normal[:, 0] = -slope_x * half[:, 2] / quad_m[:, 0]
        normal[:, 1] = -slope_y * half[:, 2] / quad_m[:, 1]
        return torch.where(inside, top, -_INF), normal / normal.norm(dim=-1, keepdim=True)

    def box_top(self, surface: torch.Tensor, point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(P,) height at which vertical lines through points leave boxes, -inf if they miss, and (P, 3) normals."""
        rotation, half = self._rotation[surface], self._half[surface]
        start = torch.zeros_like(point)
        start[:, :2] = point[:, :2] - self._position[surface, :2]
        local = torch.einsum("pij,pi->pj", rotation, start)
        direction = rotation[:, 2, :]
        parallel = direction.abs() < 1e-9
        step = torch.where(parallel, 1.0, direction)
        near, far = (-half - local) / step, (half - local) / step
        enter, leave = torch.minimum(near, far), torch.maximum(near, far)
        beside = parallel & (local.abs() > half + _TOUCH)
        enter = torch.where(parallel, torch.where(beside, _INF, -_INF), enter)
        leave = torch.where(parallel, _INF, leave)
        last, axis = leave.min(dim=-1)
        hit = enter.amax(dim=-1) <= last + _TOUCH
        side = torch.zeros_like(point).scatter_(1, axis.unsqueeze(-1), 1.0) * direction.sign()
        normal = torch.einsum("pij,pj->pi", rotation, side)
        return torch.where(hit, last + self._position[surface, 2], -_INF), normal


def _rectangles(
    model: mujoco.MjModel, data: mujoco.MjData, geoms: NDArray[np.int64], upright: NDArray[np.bool_]
) -> torch.Tensor:
    low, high = data.geom_xpos[geoms] - model.geom_size[geoms], data.geom_xpos[geoms] + model.geom_size[geoms]
    found = np.stack((low[:, 0], high[:, 0], low[:, 1], high[:, 1], high[:, 2]), axis=1)
    return torch.tensor(np.where(upright[:, None], found, np.nan), dtype=torch.float32)


def _lie_alone(model: mujoco.MjModel, data: mujoco.MjData, ground: Ground) -> NDArray[np.bool_]:
    """(S,) whether a surface shares its rectangle in the horizontal plane with nothing else."""
    if len(ground.planes):
        return np.zeros(len(ground.surfaces), bool)
    geoms = [*ground.surfaces, *ground.others]
    rectangles = np.array([bounds(model, data, geom) for geom in geoms]).reshape(-1, 2, 3)[:, :, :2]
    low, high = rectangles[:, 0] + 1e-6, rectangles[:, 1]
    alone = [
        np.count_nonzero(np.all((low < rectangle[1]) & (rectangle[0] < high - 1e-6), axis=1)) == 1
        for rectangle in rectangles[: len(ground.surfaces)]
    ]
    return np.array(alone, bool)


class ExactRays:
    """MuJoCo's own rays, one call each: exact for every shape, slow.

    Args:
        model: Compiled model.
        data: Its kinematics; kept, and used as they are at each call.
        groups: Geom groups that rays look at; None for all.
    """

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, groups: tuple[int, ...] | None) -> None:
        self.model = model
        self.data = data
        self._mask = None if groups is None else np.isin(np.arange(mujoco.mjNGROUP), groups).astype(np.uint8)
        self._without_fields: mujoco.MjModel | None = None

    def cast_down(self, origin: torch.Tensor, skip_fields: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Vertical rays; arguments and results as of :meth:`HeightMap.cast_down`.

        Args:
            origin: (P, 3) where they start, m, in the world.
            skip_fields: Look through height fields.
        """
        return self.cast(origin, torch.tensor([0.0, 0.0, -1.0]).expand_as(origin), -1, skip_fields)

    def cast(
        self, origin: torch.Tensor, direction: torch.Tensor, exclude_body: int, skip_fields: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Any rays, (P, 3) from and (P, 3) unit direction; geoms of ``exclude_body`` (-1 for none) are ignored."""
        model = self._fieldless_model() if skip_fields else self.model
        geom = np.zeros(1, np.int32)
        normals = np.zeros(origin.shape)
        distances = np.full(len(origin), -1.0)
        starts, vectors = origin.double().numpy(), direction.double().numpy()
        for i in np.flatnonzero(np.isfinite(starts).all(axis=1)):
            distances[i] = mujoco.mj_ray(
                model, self.data, starts[i], vectors[i], self._mask, 1, exclude_body, geom, normals[i]
            )
        normals[distances < 0] = 0.0
        return torch.tensor(distances, dtype=torch.float32), torch.tensor(normals, dtype=torch.float32)

    def _fieldless_model(self) -> mujoco.MjModel:
        if self._without_fields is None:
            model = copy.copy(self.model)
            fields = model.geom_type == _HFIELD
            model.geom_matid[fields] = -1
            model.geom_rgba[fields, 3] = 0.0  # rays ignore what is fully transparent
            self._without_fields = model
        return self._without_fields

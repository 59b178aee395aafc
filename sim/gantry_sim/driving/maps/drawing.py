"""Maps seen from above, for eyes and reports. Matplotlib is imported when something is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gantry_sim.driving.maps.graph import YAW, FloatArray, LaneMap, X, Y
from gantry_sim.driving.maps.lines import Line, edges
from gantry_sim.driving.maps.lots import ParkingLot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

PAVEMENT, MARKING, CENTRE, STOP = "#c9ccd1", "#ffffff", "#8a93a0", "#c0392b"


def draw_lanes(axes: Axes, lane_map: LaneMap, *, routes: Sequence[FloatArray] = ()) -> None:
    """Draw lanes as strips with an arrow each, stop lines in red and routes (n, 2) as coloured lines."""
    for lane in lane_map.lanes:
        left, right = edges(lane.points)
        outline = np.concatenate([left, right[::-1]])
        axes.fill(*outline.T, color=PAVEMENT, lw=0.0, zorder=1)
    for lane in lane_map.lanes:
        if not lane.in_junction:
            for edge in edges(lane.points):
                axes.plot(*edge.T, color=MARKING, lw=0.5, zorder=2)
        axes.plot(*lane.points[:, :2].T, color=CENTRE, lw=0.3, zorder=3)
        middle = lane.points[len(lane.points) // 2]
        x, y, yaw = (float(middle[column]) for column in (X, Y, YAW))
        tip = (x + 2.5 * np.cos(yaw), y + 2.5 * np.sin(yaw))
        arrow: Any = {"arrowstyle": "-|>", "lw": 0.3, "color": CENTRE, "mutation_scale": 4}
        axes.annotate("", tip, (x, y), arrowprops=arrow, zorder=3)
    for line in lane_map.stop_lines:
        left, right = edges(lane_map.lanes[line.lane].points[-1:])
        axes.plot(*np.concatenate([left, right]).T, color=STOP, lw=1.2, zorder=4, ls="-" if line.group >= 0 else ":")
    for index, route in enumerate(routes):
        axes.plot(*route[:, :2].T, color=f"C{index}", lw=1.0, zorder=5)
    axes.set_aspect("equal")
    axes.set_axis_off()


def draw_track(axes: Axes, track: Line) -> None:
    """Draw a track as a strip with its middle line, and where and whereto it starts."""
    left, right = edges(track.points)
    axes.fill(*np.concatenate([left, right[::-1]]).T, color=PAVEMENT, lw=0.0)
    for edge in (left, right):
        axes.plot(*edge.T, color="k", lw=0.8)
    axes.plot(*track.points[:, :2].T, color=CENTRE, lw=0.4)
    arrow: Any = {"arrowstyle": "-|>", "color": STOP}
    (x, y), tip = track.points[0, :2].tolist(), track.points[8, :2].tolist()
    axes.annotate("", (tip[0], tip[1]), (x, y), arrowprops=arrow)
    axes.set_aspect("equal")
    axes.set_axis_off()


def draw_lot(axes: Axes, lot: ParkingLot) -> None:
    """Draw a lot: aisle, walls, parked cars, and the slot to reach in red with an arrow for its heading."""
    for boxes, color, fill in (
        (lot.start[None], PAVEMENT, True),
        (lot.boxes, "k", True),
        (lot.goal[None], STOP, False),
    ):
        for x, y, yaw, length, width in boxes:
            turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
            outline = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * [0.5 * length, 0.5 * width] @ turn + [x, y]
            axes.fill(*outline.T, color=color, fill=fill)
    for x0, y0, x1, y1 in lot.walls:
        axes.plot([x0, x1], [y0, y1], color="k", lw=1.0)
    x, y, yaw, length, _ = lot.goal
    arrow: Any = {"arrowstyle": "-|>", "color": STOP}
    axes.annotate("", (x + 0.4 * length * np.cos(yaw), y + 0.4 * length * np.sin(yaw)), (x, y), arrowprops=arrow)
    axes.set_aspect("equal")
    axes.set_axis_off()


def write_sheet(path: Path, items: Sequence[LaneMap | Line | ParkingLot], *, columns: int = 4, dpi: int = 130) -> None:
    """Write a contact sheet of maps, tracks and lots as PNG."""
    from matplotlib.figure import Figure

    rows = -(-len(items) // columns)
    figure = Figure(figsize=(3.6 * columns, 3.6 * rows), layout="constrained")
    figure.subplots(rows, columns, squeeze=False)
    for panel in figure.axes:
        panel.set_axis_off()
    for panel, item in zip(figure.axes, items, strict=False):
        if isinstance(item, LaneMap):
            draw_lanes(panel, item)
            panel.set_title(f"map {item.seed}, {len(item.lanes)} lanes", fontsize=7)
        elif isinstance(item, Line):
            draw_track(panel, item)
            panel.set_title(f"track of {item.length_m:.0f} m", fontsize=7)
        else:
            draw_lot(panel, item)
            panel.set_title(f"lot {item.seed}, {len(item.boxes)} cars", fontsize=7)
    figure.savefig(path, dpi=dpi)

"""Terrains, their difficulty for each robot, and the shares in which they are mixed for training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.robots.terrain_names import TESTS
from gantry_sim.terrains import climb, dense, held_out, sparse
from gantry_sim.terrains.held_out import HeldOutCfg
from gantry_sim.terrains.tile import GoalTerrainCfg

GROUPS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "dense": ("rough", "stairs_up", "stairs_down", "boxes", "obstacles"),
        "climb": ("climb_up", "climb_down", "climb_consecutive"),
        "sparse": ("gap", "pallets", "stones", "beam"),
    }
)
"""Training terrains by group, as results are reported."""

SHARES: MappingProxyType[str, float] = MappingProxyType(
    {kind: 0.05 for kinds in GROUPS.values() for kind in kinds} | {"climb_up": 0.20, "stones": 0.30}
)
"""Share of the robots on each training terrain (paper, table of training terrains)."""

ANYMAL_LEG_M = 0.634
"""ANYmal's thigh and shank: 0.285 and sqrt(0.08795^2 + 0.33797^2) m in the public description."""
GO2_LEG_M = 0.426
"""Go2's thigh and calf, 0.213 m each (Unitree's description)."""

Span = tuple[float, float]


@dataclass(frozen=True)
class TerrainRanges:
    """The sizes that depend on the robot, each as (easiest, hardest) unless said otherwise, in m.

    Angles, shares, densities, the depth of floors and what is made for people (treads, passages) do not.
    """

    rough: Span
    """Amplitude of rough ground."""
    stair_rise: Span
    """Height of a step of a stair."""
    boxes: Span
    """Height of boxes."""
    box_edge: Span
    """Smallest and largest edge of a box."""
    obstacle_edge: Span
    """Smallest and largest edge of an obstacle."""
    obstacle_height: Span
    """Lowest and highest obstacle."""
    clearance: Span
    """Least free space between obstacles, twice the same."""
    climb_up: Span
    """Height of a climb up."""
    climb_down: Span
    """Height of a climb down."""
    first_wall: Span
    """Height of the first of two walls."""
    second_wall: Span
    """Height of the second one."""
    wall_top: Span
    """Smallest and largest length of their tops."""
    gap: Span
    """Width of a gap."""
    plank: Span
    """Width of a plank."""
    plank_gap: Span
    """Free space between planks."""
    plank_step: Span
    """Difference in height between planks."""
    stone_pitch: Span
    """Distance between stones, centre to centre."""
    stone_gap: Span
    """Free space between stones."""
    stone_step: Span
    """Stones' tops lie within plus and minus this."""
    stone_lane: Span
    """Width of the stones' lane, twice the same."""
    beam: Span
    """Width of a beam."""
    beam_length: Span
    """Length of a beam, twice the same."""
    beam_step: Span
    """Beams' heights lie within plus and minus this."""

    def scaled(self, factor: float) -> TerrainRanges:
        """All lengths multiplied by a factor."""
        spans = {field.name: getattr(self, field.name) for field in fields(self)}
        return TerrainRanges(**{name: (factor * span[0], factor * span[1]) for name, span in spans.items()})


ANYMAL_D = TerrainRanges(
    rough=(0.0, 0.20),
    stair_rise=(0.026, 0.30),  # 5 to 45 degrees with treads of 0.3 m
    boxes=(0.05, 0.40),
    box_edge=(0.8, 2.0),
    obstacle_edge=(0.3, 0.8),
    obstacle_height=(0.2, 2.0),
    clearance=(0.9, 0.9),
    climb_up=(0.1, 1.0),
    climb_down=(0.2, 1.0),
    first_wall=(0.05, 0.5),
    second_wall=(0.05, 0.4),
    wall_top=(1.2, 1.6),
    gap=(0.1, 1.1),
    plank=(0.40, 0.16),
    plank_gap=(0.08, 0.35),
    plank_step=(0.0, 0.3),
    # Unpublished for ANYmal-D; the authors' numbers for the G1, whose legs are as long.
    stone_pitch=(0.71, 0.41),
    stone_gap=(0.16, 0.24),
    stone_step=(0.01, 0.06),
    stone_lane=(2.6, 2.6),
    beam=(0.9, 0.18),
    beam_length=(2.0, 2.0),
    beam_step=(0.0, 0.2),
)
"""The paper's quadruped. What its table leaves out (edges, obstacles, stones) is from the authors' code for the G1;
clearance and the lengths of tops and lanes are ours."""

GO2 = ANYMAL_D.scaled(GO2_LEG_M / ANYMAL_LEG_M)
"""The paper's quadruped made smaller in proportion to its legs, by 0.67."""

G1 = replace(
    ANYMAL_D,
    rough=(0.0, 0.08),  # 0.16 m from lowest to highest
    stair_rise=(0.05, 0.27),
    boxes=(0.05, 0.30),
    climb_up=(0.1, 0.65),
    climb_down=(0.2, 0.88),
    first_wall=(0.05, 0.35),
    second_wall=(0.05, 0.35),
    wall_top=(0.9, 0.9),
    gap=(0.18, 1.2),
    plank_gap=(0.16, 0.24),
    plank_step=(0.0, 0.2),
    beam=(0.5, 0.17),
)
"""The authors' code for the G1."""

RANGES: MappingProxyType[str, TerrainRanges] = MappingProxyType({"go2": GO2, "g1": G1})
"""Robots that have terrains."""

_MAKERS: dict[str, Callable[[TerrainRanges], GoalTerrainCfg]] = {
    "rough": lambda r: dense.RoughCfg(amplitude_m=r.rough),
    "stairs_up": lambda r: dense.StairsCfg(rise_m=r.stair_rise),
    "stairs_down": lambda r: dense.StairsCfg(rise_m=r.stair_rise, down=True),
    "boxes": lambda r: dense.BoxesCfg(height_m=r.boxes, edge_m=r.box_edge),
    "obstacles": lambda r: dense.ObstaclesCfg(
        density_m2=(0.0, 0.5), edge_m=r.obstacle_edge, height_m=r.obstacle_height, clearance_m=r.clearance[0]
    ),
    "climb_up": lambda r: climb.ClimbCfg(height_m=r.climb_up),
    "climb_down": lambda r: climb.ClimbCfg(height_m=r.climb_down, down=True),
    "climb_consecutive": lambda r: climb.ConsecutiveCfg(first_m=r.first_wall, second_m=r.second_wall, top_m=r.wall_top),
    "gap": lambda r: sparse.GapCfg(gap_m=r.gap),
    "pallets": lambda r: sparse.PalletsCfg(plank_m=r.plank, gap_m=r.plank_gap, step_m=r.plank_step),
    "stones": lambda r: sparse.StonesCfg(
        pitch_m=r.stone_pitch, gap_m=r.stone_gap, step_m=r.stone_step, lane_m=r.stone_lane[0]
    ),
    "beam": lambda r: sparse.BeamCfg(beam_m=r.beam, length_m=r.beam_length[0], step_m=r.beam_step),
}

_TEST_TYPES: dict[str, type[HeldOutCfg]] = {
    "t1_stones": held_out.IrregularStonesCfg,
    "t2_course": held_out.StonesPalletsClimbCfg,
    "t3_parkour": held_out.ParkourCfg,
    "t4_debris": held_out.DebrisCfg,
}


class HeldOutTerrainError(GantryError):
    """A held-out test terrain where a training terrain was asked for."""


def robot_ranges(robot: str) -> TerrainRanges:
    """The sizes of a robot's terrains.

    Raises:
        UnknownNameError: If the robot has none.
    """
    if robot not in RANGES:
        raise UnknownNameError("robot with terrains", robot, RANGES)
    return RANGES[robot]


def training_kinds(names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Names of training terrains and of groups of them, resolved to kinds in the catalogue's order.

    Args:
        names: Kinds or groups; None for all kinds.

    Raises:
        HeldOutTerrainError: If one is a held-out terrain.
        UnknownNameError: If one is neither a kind nor a group.
    """
    wanted: set[str] = set()
    for name in SHARES if names is None else names:
        if name in TESTS:
            raise HeldOutTerrainError(
                f"'{name}' is a held-out test terrain; training takes {', '.join(SHARES)} or the groups "
                f"{', '.join(GROUPS)}."
            )
        if name not in SHARES and name not in GROUPS:
            raise UnknownNameError("training terrain", name, [*SHARES, *GROUPS])
        wanted.update(GROUPS.get(name, (name,)))
    return tuple(kind for kind in SHARES if kind in wanted)


def group_of(kind: str) -> str:
    """Group of a training terrain, or "test" for a held-out one.

    Raises:
        UnknownNameError: If there is no such terrain.
    """
    if kind in TESTS:
        return "test"
    for group, kinds in GROUPS.items():
        if kind in kinds:
            return group
    raise UnknownNameError("terrain", kind, [*SHARES, *TESTS])


def training_mix(robot: str, kinds: Iterable[str] | None = None) -> dict[str, GoalTerrainCfg]:
    """Fresh configurations of a robot's training terrains, with the paper's shares as proportions.

    Args:
        robot: Robot name, one of :data:`RANGES`.
        kinds: Kinds or groups; None for all.

    Raises:
        HeldOutTerrainError: If a held-out terrain is asked for.
        UnknownNameError: If there is no such robot, kind or group.
    """
    ranges = robot_ranges(robot)
    mix = {kind: _MAKERS[kind](ranges) for kind in training_kinds(kinds)}
    for kind, cfg in mix.items():
        cfg.proportion = SHARES[kind]
    return mix


def test_terrains(robot: str, names: Iterable[str] | None = None) -> dict[str, GoalTerrainCfg]:  # noqa: PT028
    """Fresh configurations of a robot's held-out terrains, each with the same proportion.

    Raises:
        UnknownNameError: If there is no such robot or test.
    """
    chosen = TESTS if names is None else tuple(names)
    for name in chosen:
        if name not in TESTS:
            raise UnknownNameError("test terrain", name, TESTS)
    robot_ranges(robot)
    scale = GO2_LEG_M / ANYMAL_LEG_M if robot == "go2" else 1.0  # a G1's legs are as long as ANYmal-D's
    return {name: _TEST_TYPES[name](scale=scale) for name in chosen}


test_terrains.__test__ = False  # type: ignore[attr-defined]  # pytest would take the function for a test

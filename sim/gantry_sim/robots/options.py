"""Options of a simulated robot: what their numbers may be."""

from __future__ import annotations

from collections.abc import Mapping

from gantry_hardware.files.bounds import Range, finite
from gantry_sim.robots.sensor_noise import SensorNoise

RANGES = {
    "timestep_s": Range(1e-4, 0.02),
    "delay_s": Range(0.0, 1.0),
    "command_delay_s": Range(0.0, 1.0),
    "friction": Range(0.0, 10.0),
    "ground_softness_s": Range(0.0, 1.0),
    "object_mass_share": Range(0.01, 100.0),
    "object_friction_share": Range(0.01, 10.0),
    "mass_share": Range(0.1, 10.0),
    "friction_share": Range(0.01, 10.0),
    "added_mass_kg": Range(-100.0, 1000.0),
    "terrain_difficulty": Range(0.0, 1.0),
    "camera_rate_hz": Range(0.1, 1000.0),
    "camera_delay_s": Range(0.0, 10.0),
    "camera_noise": Range(0.0, 100.0),
    "noise": Range(0.0, 100.0),
    "response_s": Range(0.001, 10.0),
    "route_m": Range(0.0, 1e5),
    "scan_range_m": Range(0.01, 1000.0),
    "scan_x_m": Range(-100.0, 100.0),
    "road_cell_m": Range(0.0, 100.0),
    "map_count": Range(1, 10_000),
    "scan_beams": Range(0, 100_000),
}
"""Option to what it may be."""


def check_options(options: Mapping[str, object]) -> None:
    """Refuse options out of their ranges.

    Args:
        options: Arguments of a backend by name; those that are no names of :data:`RANGES` are left out, and so are None
            and sensor noise that is given in full.

    Raises:
        GantryError: With option, value and range.
    """
    for name, value in options.items():
        if name in RANGES and value is not None and not isinstance(value, SensorNoise):
            finite(f"The robot's option '{name}'", value, *RANGES[name])

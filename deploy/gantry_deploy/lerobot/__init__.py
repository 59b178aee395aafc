"""Robots and teleoperators of the package ``lerobot`` and its plugins, as backends and devices of Gantry."""

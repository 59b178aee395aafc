"""highway-env as a simulator that evaluates bundles of cars: ``gantry bench highway``."""

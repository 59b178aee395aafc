"""Elevation mapping: depth to local grid, fusion with uncertainty, egocentric query; for numpy and torch alike."""

"""Elevation map: grid, fusion, visibility, filling of gaps, errors against the truth."""

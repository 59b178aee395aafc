"""Geometry of boxes, and planar laser scanners in batches."""

"""Scenes of driving tasks: roads, parking lots and race tracks."""

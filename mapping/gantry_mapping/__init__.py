"""Elevation mapping; arrives with the perceptive policies."""

"""Observation terms, and the signals that they are built from."""

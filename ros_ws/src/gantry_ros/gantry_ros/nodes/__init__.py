"""Executables of this package, and what their parameters name."""

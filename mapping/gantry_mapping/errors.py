"""Errors of the mapping shelf."""

from __future__ import annotations

from gantry_hardware.errors import GantryError


class MappingError(GantryError):
    """A map, a mapper or a measurement cannot do what was asked."""


class MapperError(MappingError):
    """A mapping network does not load, computes for too long, or needs too much memory."""


class NotFiniteError(MapperError):
    """A mapping network answered with numbers that are not finite."""

"""Packages of training for tests that a robot's computer runs, too; what needs a missing one is skipped."""

from importlib.util import find_spec

import pytest


class _Absent:
    def __init__(self, name):
        self._name = name

    def __bool__(self):
        return False

    def __getattr__(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        pytest.skip(f"{self._name} is not installed")


try:
    import torch
except ModuleNotFoundError:
    torch = _Absent("torch")


def needs(name):
    """Mark of a test, or of one of its cases, that needs a package."""
    return pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed")

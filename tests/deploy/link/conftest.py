"""Tests of the link; left out where the packages of the extra ``corrections`` are not installed."""

import time

import pytest

pytest.importorskip("grpc")
pytest.importorskip("safetensors")


def wait_until(condition, what, limit_s=60.0):
    """The first true result of a condition; the limit is against hanging alone."""
    deadline_s = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {limit_s:g} s: {what}"
        time.sleep(0.01)
    return found


@pytest.fixture
def until():
    return wait_until

"""Connections that are cut at random bytes: the robot always has a whole release, and the next flash goes on."""

import random

import pytest

from gantry_fixtures.flash_cuts import cut_flashes


def cut(robot, cuts):
    seed = random.randrange(10**6)
    print("seed", seed)
    counts = cut_flashes(robot, cuts, seed)
    assert counts["cuts"] == cuts
    # What was on its way when the connection was cut is sent again; the rest is not.
    assert counts["bytes of the last release that were sent"] < 2 * counts["bytes of the last release"]


def test_a_few_cuts(robot):
    cut(robot, 4)


@pytest.mark.soak
def test_many_cuts(robot):
    cut(robot, 50)

"""What is said of a simulated robot's options before it is built."""

from gantry_sim.robots import terrain_names
from gantry_sim.terrains import SHARES


def test_the_names_of_terrains_are_those_that_there_are():
    assert tuple(SHARES) == terrain_names.TRAINING

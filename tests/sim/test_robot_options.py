"""Numbers of a simulated robot's options are finite and bounded."""

import numpy as np
import pytest

from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.backends.road_robot import RoadRobot


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e308, 1e308])
@pytest.mark.parametrize("option", ["timestep_s", "delay_s", "friction", "added_mass_kg", "camera_rate_hz", "noise"])
def test_options_of_a_legged_robot(option, value):
    with pytest.raises(GantryError, match=f"option '{option}' is .*, expected a number from"):
        MujocoRobot(robot_spec("go2"), visuals=False, **{option: value})


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e308, 1e308])
@pytest.mark.parametrize("option", ["response_s", "noise", "route_m", "scan_range_m", "road_cell_m"])
def test_options_of_a_car(option, value):
    with pytest.raises(GantryError, match=f"option '{option}' is .*, expected a number from"):
        RoadRobot(robot_spec("f1tenth"), task="drive-race", **{option: value})


@pytest.mark.parametrize(("option", "value"), [("timestep_s", 1e-300), ("timestep_s", 0.0), ("camera_rate_hz", 1e-300)])
def test_what_is_divided_by_is_not_almost_nothing(option, value):
    with pytest.raises(GantryError, match=f"option '{option}' is"):
        MujocoRobot(robot_spec("go2"), visuals=False, **{option: value})

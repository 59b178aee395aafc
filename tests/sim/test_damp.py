"""DAMP lets a standing robot down in MuJoCo: slowly, by the simulator's own clock."""

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Event, Mode, SafetyMachine
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.mujoco_robot import MujocoRobot

SINK_S = 6.0
PERIOD_S = 0.02


def let_down(spec):
    """Heights of the base [m] every control period from the emergency stop of a standing robot on."""
    robot = MujocoRobot(spec, visuals=False)
    robot.connect()
    loop = Controller(robot, None, SafetyMachine(spec))
    loop.tick()
    loop.request(Event.STAND)
    loop.run(3.0)
    assert loop.safety.mode is Mode.STAND
    heights = []
    loop.request(Event.ESTOP)
    loop.run(SINK_S, on_tick=lambda report: heights.append(report.state.pos_base_in_world_m[2]))
    assert loop.safety.mode is Mode.DAMP
    assert len(heights) == round(SINK_S / PERIOD_S)
    return np.array(heights)


def down_after_s(heights):
    """Time until the base is within 1 cm of where it comes to rest."""
    return PERIOD_S * int(np.argmax(heights < heights[-1] + 0.01))


@pytest.mark.parametrize("name", ["go2", "go1"])
def test_a_standing_robot_takes_more_than_a_second_to_the_ground(name):
    spec = robot_spec(name)
    heights = let_down(spec)
    speed = -np.gradient(heights, PERIOD_S)
    assert heights[0] > 0.2
    assert heights[-1] < 0.1  # the trunk lies on the ground
    assert np.ptp(heights[-25:]) < 0.005
    assert down_after_s(heights) > 1.0
    assert speed.max() < 0.45
    # A fall over the same height would end at 1.8 m/s; the last centimetres are no slower than that of a hand.
    near = heights < heights[-1] + 0.03
    assert speed[near].max() < 0.3


def test_the_gains_of_the_position_loop_would_drop_it():
    heights = let_down(replace(robot_spec("go2"), damp_gains_nm_s_rad=()))
    assert down_after_s(heights) < 0.6
    assert -np.gradient(heights, PERIOD_S).min() > 0.6

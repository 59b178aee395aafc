"""Latency of hand-overs: a robot that falls ends the measurement at once."""

from __future__ import annotations

import numpy as np
import pytest

from gantry_deploy.benchmarks import hand_over
from gantry_hardware.errors import GantryError
from gantry_sim.backends.mujoco_robot import MujocoRobot


def test_a_robot_that_falls_ends_the_measurement(monkeypatch):
    """A count that would take a quarter of an hour; the robot is turned over in the middle of its first attempt."""

    class Falling(MujocoRobot):
        reads = 0

        def read(self):
            self.reads += 1
            if self.reads > 250:
                self.set_velocity(np.zeros(3), np.array([8.0, 0.0, 0.0]))
            return super().read()

    monkeypatch.setattr(hand_over, "make_backend", lambda name, spec, **options: Falling(spec, **options))
    with pytest.raises(GantryError, match="The robot stopped: "):
        hand_over.measure_hand_overs("pretrained:go2-walk", 5000)

"""A camera that shows the same picture again and again: noticed by the pixels, whatever the stamps say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.errors import ContractError
from gantry_deploy.perception.images import FROZEN_S, Picture, PictureSource
from gantry_fixtures.arm import arm_contract_for, with_cameras
from gantry_hardware.robots import robot_spec

CONTRACT = with_cameras(arm_contract_for(robot_spec("yam")), "wrist", "front", size_px=4)


class Cameras:
    """Two cameras whose stamps are always new; each may stand still."""

    def __init__(self):
        self.now_s, self.frozen = 0.0, set()

    def read_pictures(self):
        shown = {}
        for name in ("wrist", "front"):
            value = 7 if name in self.frozen else round(1000 * self.now_s) % 251
            shown[name] = Picture(self.now_s, np.full((3, 4, 4), value, np.uint8))
        return shown


def looked(source, cameras, seconds, moving):
    """Pictures for some seconds, 20 in each."""
    for _ in range(round(20 * seconds)):
        cameras.now_s += 0.05
        source.newest(cameras.now_s, moving=moving)


def test_a_frozen_camera_is_named_while_the_robot_moves():
    cameras = Cameras()
    source = PictureSource(CONTRACT, cameras)
    looked(source, cameras, 3.0, moving=True)
    cameras.frozen = {"front"}
    looked(source, cameras, FROZEN_S, moving=True)
    with pytest.raises(ContractError, match=r"Camera 'front' is frozen: .* for 1\.\d s while the robot moved"):
        looked(source, cameras, 0.2, moving=True)


def test_a_still_scene_before_a_still_robot_is_no_fault():
    cameras = Cameras()
    cameras.frozen = {"front", "wrist"}
    source = PictureSource(CONTRACT, cameras)
    looked(source, cameras, 10.0, moving=False)
    looked(source, cameras, 0.8, moving=True)
    cameras.frozen = set()
    looked(source, cameras, 5.0, moving=True)


def test_a_picture_that_changes_begins_the_time_anew():
    cameras = Cameras()
    source = PictureSource(replace(CONTRACT, cameras=CONTRACT.cameras[:1]), cameras)
    for _ in range(5):
        cameras.frozen = {"wrist"}
        looked(source, cameras, 0.8, moving=True)
        cameras.frozen = set()
        looked(source, cameras, 0.1, moving=True)


def test_a_pause_of_the_policy_does_not_count():
    cameras = Cameras()
    cameras.frozen = {"front"}
    source = PictureSource(CONTRACT, cameras)
    looked(source, cameras, 0.2, moving=True)
    cameras.now_s += 60.0
    looked(source, cameras, 0.2, moving=True)

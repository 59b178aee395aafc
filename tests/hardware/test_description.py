"""Descriptions of robots without a simulator: hand-made trees, cars, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gantry_hardware.errors import GantryError
from gantry_hardware.model.description import BASE_LINK, RobotDescription, robot_description
from gantry_hardware.robots import robot_names, robot_spec

CRANE = """<robot name="crane">
  <link name="base_link"/><link name="boom"/><link name="hook"/><link name="lamp"/><link name="twin"/>
  <joint name="turn" type="revolute">
    <parent link="base_link"/><child link="boom"/><origin xyz="0 0 2" rpy="0 0 1.5707963267948966"/><axis xyz="0 0 1"/>
  </joint>
  <joint name="lower" type="prismatic">
    <parent link="boom"/><child link="hook"/><origin xyz="1 0 0" rpy="0 1.5707963267948966 0"/><axis xyz="1 0 0"/>
  </joint>
  <joint name="glass" type="fixed"><parent link="boom"/><child link="lamp"/><origin xyz="0 1 0"/></joint>
  <joint name="other" type="revolute">
    <parent link="base_link"/><child link="twin"/><axis xyz="1 0 0"/>
    <mimic joint="turn" multiplier="-2" offset="0.5"/>
  </joint>
</robot>"""


def test_links_turn_slide_and_follow_as_the_description_says():
    crane = RobotDescription(CRANE, ("lower", "turn"))
    assert (crane.fixed.parents, crane.fixed.children) == (("boom",), ("lamp",))
    np.testing.assert_allclose(crane.fixed.pos_m, [[0.0, 1.0, 0.0]])
    found = crane.moving([0.25, 0.5])
    assert found.children == ("boom", "hook", "twin")
    assert found.parents == ("base_link", "boom", "base_link")
    # Pitched by a quarter of a turn, the slide's x points down.
    np.testing.assert_allclose(found.pos_m, [[0, 0, 2], [1, 0, -0.25], [0, 0, 0]], atol=1e-12)
    yaw = 0.5 * (0.5 * math.pi + 0.5)
    np.testing.assert_allclose(found.quat_wxyz[0], [math.cos(yaw), 0, 0, math.sin(yaw)], atol=1e-12)
    half = 0.5 * (-2 * 0.5 + 0.5)
    np.testing.assert_allclose(found.quat_wxyz[2], [math.cos(half), math.sin(half), 0, 0], atol=1e-12)


def test_a_joint_that_the_robot_does_not_have_stays_at_zero():
    crane = RobotDescription(CRANE, ("lower",))
    assert crane.moving([0.1]).children == ("hook",)
    assert set(crane.fixed.children) == {"boom", "lamp", "twin"}


@pytest.mark.parametrize("name", [name for name in robot_names() if name != "rover"])  # Of tests/outside: no URDF.
def test_every_robot_of_the_registry_is_described_from_its_base_on(name):
    spec = robot_spec(name)
    description = robot_description(spec)
    assert description is not None
    frames = (description.fixed, description.moving(np.zeros(spec.num_joints)))
    parents = {parent for part in frames for parent in part.parents}
    children = [child for part in frames for child in part.children]
    assert len(set(children)) == len(children)
    assert parents - set(children) == {BASE_LINK}


def test_a_car_is_its_box_and_shows_where_it_steers():
    spec = robot_spec("bmw_320i")
    found = robot_description(spec).moving([0.2, 100.0])
    assert found.children == ("front_axle",)
    np.testing.assert_allclose(found.pos_m, [[spec.body.wheelbase_m, 0, 0]])
    np.testing.assert_allclose(found.quat_wxyz, [[math.cos(0.1), 0, 0, math.sin(0.1)]])
    assert f'<box size="{spec.body.length_m!r} {spec.body.width_m!r} ' in robot_description(spec).urdf


@pytest.mark.parametrize(
    ("urdf", "text"),
    [
        ("<robot", "no URDF"),
        ("<robot><joint/></robot>", "no URDF"),
        ('<robot><link name="base"/></robot>', "root of a robot description is base, expected base_link"),
        (CRANE.replace("0 0 2", "0 0 two"), "no URDF"),
    ],
)
def test_what_is_no_description_is_refused(urdf, text):
    with pytest.raises(GantryError, match=text):
        RobotDescription(urdf, ())

"""Descriptions of robots: the shipped files are those of the models, and their links are where MuJoCo has them."""

from __future__ import annotations

import secrets
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import mujoco
import numpy as np
import pytest

import gantry_hardware
from gantry_hardware.model.description import BASE_LINK, quat_product, robot_description, rotated
from gantry_hardware.robots import robot_spec
from gantry_sim.robots.models import base_body, model_names, robot_model
from gantry_sim.robots.urdf import urdf_of


@pytest.mark.parametrize("name", model_names())
def test_the_shipped_description_is_that_of_the_model(name):
    shipped = Path(gantry_hardware.__path__[0]) / "descriptions" / f"{name}.urdf"
    assert shipped.read_text() == urdf_of(name), "python -m gantry_sim.robots.urdf writes them anew"


def poses(name, joint_pos):
    """Position and orientation of every link in the base frame, from the description."""
    spec = robot_spec(name)
    description = robot_description(spec)
    found = {BASE_LINK: (np.zeros((1, 3)), np.array([[1.0, 0.0, 0.0, 0.0]]))}
    parts = [description.fixed, description.moving(joint_pos)]
    edges = [edge for frames in parts for edge in zip(frames.parents, frames.children, *frames_of(frames), strict=True)]
    while edges:
        ready = [edge for edge in edges if edge[0] in found]
        assert ready, f"links that hang on nothing: {edges}"
        for parent, child, pos, quat in ready:
            base_pos, base_quat = found[parent]
            found[child] = (base_pos + rotated(base_quat, pos[None]), quat_product(base_quat, quat[None]))
        edges = [edge for edge in edges if edge not in ready and edge[1] not in found]
    return found


def frames_of(frames):
    return list(frames.pos_m), list(frames.quat_wxyz)


@pytest.mark.parametrize("name", model_names())
def test_every_link_is_where_mujoco_has_it(name):
    spec, described = robot_spec(name), robot_model(name)
    base = base_body(described).name
    model = described.compile()
    data, seed = mujoco.MjData(model), secrets.randbits(32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        joint_pos = rng.uniform(spec.array("lower_rad"), spec.array("upper_rad"))
        data.qpos[:] = model.qpos0
        for joint, value in zip(spec.joint_names, joint_pos, strict=True):
            data.qpos[model.joint(joint).qposadr[0]] = value
        if name == "yam":  # The second finger follows the first; MuJoCo knows that as a constraint alone.
            data.qpos[model.joint("right_finger").qposadr[0]] = -data.qpos[model.joint("left_finger").qposadr[0]]
        mujoco.mj_kinematics(model, data)
        found = poses(name, joint_pos)
        origin, turn = data.body(base).xpos, data.body(base).xmat.reshape(3, 3)
        bodies = [model.body(i).name for i in range(1, model.nbody)]
        assert set(bodies) - {base} <= set(found)
        for body in bodies:
            pos, quat = found[BASE_LINK if body == base else body]
            np.testing.assert_allclose(pos[0], turn.T @ (data.body(body).xpos - origin), atol=1e-9, err_msg=body)
            matrix = np.empty(9)
            mujoco.mju_quat2Mat(matrix, quat[0])
            np.testing.assert_allclose(
                matrix.reshape(3, 3), turn.T @ data.body(body).xmat.reshape(3, 3), atol=1e-9, err_msg=body
            )
        for foot in spec.feet:
            pos, _ = found[foot if "foot" in foot else f"{foot}_foot"]
            np.testing.assert_allclose(pos[0], turn.T @ (data.site(foot).xpos - origin), atol=1e-9, err_msg=foot)


@pytest.mark.parametrize("name", model_names())
def test_joints_have_the_limits_of_the_robot_and_links_its_mass(name):
    spec, robot = robot_spec(name), ElementTree.fromstring(urdf_of(name))
    joints = {joint.get("name"): joint for joint in robot.iter("joint")}
    for joint in spec.joints:
        limit = {key: float(value) for key, value in joints[joint.name].find("limit").attrib.items()}
        assert limit["lower"] == pytest.approx(joint.lower_rad, abs=1e-9)
        assert limit["upper"] == pytest.approx(joint.upper_rad, abs=1e-9)
        assert limit["effort"] == pytest.approx(joint.effort_limit_nm)
        assert limit["velocity"] == pytest.approx(joint.velocity_limit_rad_s)
    kinds = {joint.get("type") for joint in joints.values()}
    assert kinds <= {"fixed", "revolute", "prismatic"}
    mass = sum(float(element.get("value")) for element in robot.iter("mass"))
    assert mass == pytest.approx(spec.mass_kg, rel=0.01)
    drawn = [link for link in robot.iter("link") if link.find("visual") is not None]
    assert len(drawn) > 0.5 * len(spec.joints)

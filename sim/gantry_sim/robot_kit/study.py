"""The numbers of a robot as its model has them, those derived from it, and those that are still open."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mujoco
import numpy as np

from gantry_sim.robot_kit.feet import Foot, find_feet
from gantry_sim.robot_kit.findings import Finding, Level, fails
from gantry_sim.robot_kit.geometry import ancestors, geom_text, is_solid, lowest_point_m, overlaps, posed
from gantry_sim.robot_kit.joint_numbers import JointNumbers, joint_numbers
from gantry_sim.robot_kit.mirror import mirrored_joints, mirrored_places
from gantry_sim.robot_kit.preparing import Prepared
from gantry_sim.robot_kit.reading import SourceModel
from gantry_sim.robot_kit.stance import bent_legs
from gantry_sim.robots.model_conventions import base_body
from gantry_sim.tasks.locomotion.derived import LEG_JOINTS

DEPTH_M = 0.002
"""Bodies that reach deeper into each other in the default pose collide."""
FLOOR_M = 0.005
"""Parts that reach further below the soles are in the floor."""
FALL_SHARE = 0.55
"""Height of the base below which the robot has fallen, over that in the default pose: a Go2's is 0.15 of 0.27 m."""


@dataclass(frozen=True)
class Study:
    """All that a numbers file of a robot holds."""

    prepared: Prepared
    """The model."""
    joints: tuple[JointNumbers, ...]
    """In the order of the model."""
    feet: tuple[Foot, ...]
    """In the order of the model."""
    walks: bool
    """Whether a gait is derived from the model: for four legs with three joints each."""
    pose_source: str
    """Source of the default pose."""
    base_height_m: float
    """Height of the base's origin above the lowest point of the feet in the default pose."""
    mass_kg: float
    """Sum of the masses of all bodies."""
    mirror: tuple[tuple[str, float], ...]
    """Partner and sign of every joint; empty if the geometry has none."""
    mirrored_feet: tuple[str, ...]
    """Partner of every foot; empty if the geometry has none."""
    findings: tuple[Finding, ...]
    """Everything that was found, in the order of the checks."""


def study(source: SourceModel, prepared: Prepared) -> Study:
    """Judge a model and derive a robot's numbers from it."""
    model, findings = prepared.model, list(prepared.findings)
    pose, pose_source, feet = _stance(prepared, findings)
    data = posed(model, pose)
    soles_m = min((lowest_point_m(model, data, foot.geom) for foot in feet), default=0.0)
    _check_pose(model, data, soles_m, {foot.body for foot in feet}, findings)
    joints = joint_numbers(source, prepared, feet, pose, data, findings)
    places = np.array([_place(model, data, foot) for foot in feet]).reshape(-1, 3)
    names = [joint.name for joint in joints]
    mirror = mirrored_joints(model, names)
    mass = float(model.body_mass[1:].sum())
    _tell(prepared, feet, mirror, mass, findings)
    legs = [_leg_joints(prepared, foot) for foot in feet]
    walks = legs == [LEG_JOINTS] * 4
    if len(feet) in (2, 4) and not walks:
        text = (
            f"legs of {', '.join(map(str, legs))} joints; a gait is derived for four legs of {LEG_JOINTS}. No task is "
        )
        text += "written: register a LeggedRobotCfg of its own in the entry-point group gantry.legged_robots."
        findings.append(Finding(Level.OPEN, "gait", text))
    return Study(
        prepared=prepared,
        walks=walks,
        joints=joints,
        feet=tuple(feet),
        pose_source=pose_source,
        base_height_m=round(-soles_m, 4),
        mass_kg=round(mass, 6),
        mirror=mirror,
        mirrored_feet=mirrored_places([foot.name for foot in feet], places),
        findings=tuple(findings),
    )


def _stance(prepared: Prepared, findings: list[Finding]) -> tuple[dict[str, float], str, list[Foot]]:
    """Default pose by joint name, where it comes from, and the feet on which the robot stands in it."""
    model = prepared.model
    straight = {name: _within(model, name, prepared.home_rad.get(name, 0.0)) for name in prepared.joints}
    feet = find_feet(prepared, posed(model, straight))
    zero = {name: _within(model, name, 0.0) for name in prepared.joints}
    stretched = find_feet(prepared, posed(model, zero))
    folded = bool(prepared.home_rad) and len(stretched) in (2, 4) and len(stretched) > len(feet)
    feet = stretched if folded else feet
    if prepared.home_rad and not folded:
        for name in prepared.joints:
            asked = prepared.home_rad[name]
            if abs(asked - straight[name]) > 1e-6:
                text = f"'{name}' of key frame '{prepared.home_name}' is {asked:.4g} rad, outside its range; "
                text += f"{straight[name]:.4g} rad is taken. Correct the key frame."
                findings.append(Finding(Level.OPEN, "pose", text))
        return straight, f"from model, key frame '{prepared.home_name}'", feet
    straight = zero
    why = f"in key frame '{prepared.home_name}' the robot does not stand" if folded else "the model has no key frame"
    bent = bent_legs(model, prepared.joints, feet, straight)
    text = f"{why}; expected one with the standing pose. "
    if bent == straight:
        text += "Zero angles are taken: fill in default_rad."
    else:
        text += "Knees are bent so that the feet are below the hips: check default_rad."
    findings.append(Finding(Level.OPEN, "pose", text))
    return bent, f"TODO: bent by `gantry robot new`; {why}", feet


def _leg_joints(prepared: Prepared, foot: Foot) -> int:
    model = prepared.model
    above = ancestors(model, model.body(foot.body).id)
    return sum(int(model.jnt_bodyid[model.joint(name).id]) in above for name in prepared.joints)


def _place(model: mujoco.MjModel, data: mujoco.MjData, foot: Foot) -> np.ndarray:
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, foot.name)
    return data.geom_xpos[foot.geom] if site < 0 else data.site_xpos[site]


def _within(model: mujoco.MjModel, name: str, angle: float) -> float:
    joint = model.joint(name).id
    if not model.jnt_limited[joint]:
        return angle
    low, high = (float(value) for value in model.jnt_range[joint])
    return min(max(angle, low), high)


def _check_pose(
    model: mujoco.MjModel, data: mujoco.MjData, soles_m: float, feet: set[str], findings: list[Finding]
) -> None:
    for one, other, depth in overlaps(model, data, DEPTH_M):
        text = (
            f"'{one}' and '{other}' reach {1000.0 * depth:.1f} mm into each other in the default pose; expected none."
        )
        findings.append(
            Finding(
                Level.OPEN, "collision", f"{text} Change default_rad, the shapes, or exclude the pair in the model."
            )
        )
    for geom in range(model.ngeom):
        if is_solid(model, geom) and model.body(int(model.geom_bodyid[geom])).name not in feet:
            depth = soles_m - lowest_point_m(model, data, geom)
            if depth > FLOOR_M:
                text = f"{geom_text(model, geom)} reaches {1000.0 * depth:.0f} mm below the feet in the default pose; "
                text += "expected the feet to be lowest. Change default_rad."
                findings.append(Finding(Level.OPEN, "floor", text))


def _tell(
    prepared: Prepared, feet: list[Foot], mirror: tuple[tuple[str, float], ...], mass: float, findings: list[Finding]
) -> None:
    """Findings: what is as expected, and what is missing."""
    add = findings.append
    if len(feet) in (2, 4):
        ways = ", ".join(f"{foot.name} ({foot.found_by})" for foot in feet)
        add(Finding(Level.PASS, "feet", ways))
    elif not any(is_solid(prepared.model, geom) for geom in range(prepared.model.ngeom)):
        text = "the model has no shape that collides; expected one at the end of every leg, in a URDF a <collision>."
        add(Finding(Level.FAIL, "feet", text))
    else:
        names = ", ".join(foot.name for foot in feet) or "none"
        text = f"found {names}; expected the lowest ends of two or four legs. Name their sites or shapes with "
        text += "'foot'; robots without legs are written by hand, docs/robots.md says how."
        add(Finding(Level.FAIL, "feet", text))
    if not 0.05 < mass < 2000.0:
        add(Finding(Level.OPEN, "mass", f"{mass:.4g} kg in all; expected 0.05 to 2000 kg. Check the units."))
    elif not fails(findings):  # Otherwise placeholders are in the sum.
        add(Finding(Level.PASS, "mass", f"{mass:.4g} kg in {prepared.model.nbody - 1} bodies"))
    if prepared.spec.site("imu") is None:
        text = f"the model has no site 'imu'; the sensors are put at the origin of '{base_body(prepared.spec).name}'."
        add(Finding(Level.NOTE, "imu", text))
    if mirror:
        add(Finding(Level.PASS, "symmetry", f"{len(mirror)} joints have their mirror images"))
    else:
        text = "some joint has no mirror image in the plane y = 0 of the base; expected +x forward and equal sides. "
        text += "The task learns without mirroring: fill in mirrored_joints, and leave mirror=False out of tasks.py."
        add(Finding(Level.OPEN, "symmetry", text))


def fall_height_m(base_height_m: float) -> float:
    """Height below which the base has fallen, m, rounded to centimetres."""
    return math.floor(100.0 * FALL_SHARE * base_height_m) / 100.0

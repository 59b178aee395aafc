"""A parsed model brought to what Gantry's own models are, motors and home pose noted down before they are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import mujoco
import numpy as np

from gantry_hardware.errors import GantryError
from gantry_sim.robot_kit.findings import Finding, Level
from gantry_sim.robot_kit.geometry import VISUAL_GROUP
from gantry_sim.robot_kit.inertias import check_inertias
from gantry_sim.robot_kit.reading import SourceModel, one_line
from gantry_sim.robots.model_conventions import base_body

HOME_NAMES = ("home", "stand", "standing", "default")
"""Key frames that hold a standing pose, the first found wins; of other names, the model's first key frame."""
_FREE, _HINGE = mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_HINGE


@dataclass(frozen=True)
class Motor:
    """Motor of a joint according to the model; None for what it does not state."""

    effort_nm: float | None
    """Largest torque at the joint."""
    stiffness_nm_rad: float | None
    """Proportional gain of a position loop."""
    damping_nm_s_rad: float | None
    """Derivative gain of a position loop."""


@dataclass(frozen=True)
class Prepared:
    """A model with a floating base and nothing but the robot."""

    spec: mujoco.MjSpec
    """The model."""
    model: mujoco.MjModel
    """The same, compiled."""
    joints: tuple[str, ...]
    """Joints that have motors, or all hinges of a model without motors, in the model's order."""
    motors: Mapping[str, Motor]
    """By joint name."""
    home_rad: Mapping[str, float]
    """Angles of the key frame with the standing pose by joint name; empty for a model without one."""
    home_name: str = ""
    """Name of that key frame."""
    findings: tuple[Finding, ...] = field(default=())
    """Findings, with what was changed on the way."""


def prepare(source: SourceModel) -> Prepared:
    """Compile a model and bring it to the conventions.

    Raises:
        GantryError: If MuJoCo refuses it for a reason that no check of ours names, or it is no robot with a base.
    """
    spec = source.spec
    findings = [*source.findings, *check_inertias(spec)]
    original = _compile(spec, source, findings)
    motors = {name: _motor(original, index) for index, name in _joint_motors(original)}
    home_name, home_rad = _home(original)
    hinges = [joint.name for joint in spec.joints if joint.type == _HINGE]
    _refuse_joints(spec)
    joints = tuple(name for name in hinges if name in motors or not motors)
    for joint in spec.joints:
        if joint.type != _FREE and joint.name not in joints:
            kind = "has no motor" if joint.type == _HINGE else "is no hinge"
            findings.append(Finding(Level.NOTE, "joint", f"'{joint.name}' {kind}; it stays passive in the simulator."))
    _only_the_robot(spec, findings)
    return Prepared(spec, _compile(spec, source, findings), joints, motors, home_rad, home_name, tuple(findings))


def top_body(spec: mujoco.MjSpec) -> mujoco.MjsBody:
    """The body on the world that the robot hangs from.

    Raises:
        GantryError: If the first joint turns on the world itself.
    """
    body = base_body(spec)
    if body.name == "world":
        raise GantryError(f"Joint '{spec.joints[0].name}' turns on the world; expected a body as the robot's base.")
    while body.parent.name != "world":
        body = body.parent
    return body


def _compile(spec: mujoco.MjSpec, source: SourceModel, findings: list[Finding]) -> mujoco.MjModel:
    try:
        return spec.compile()
    except ValueError as error:
        known = "".join(f"\n{finding.line}" for finding in findings)
        raise GantryError(f"'{source.path}' cannot be simulated: {one_line(error)}.{known}") from error


def _refuse_joints(spec: mujoco.MjSpec) -> None:
    if not any(joint.type == _HINGE for joint in spec.joints):
        raise GantryError("The model has no hinge joint; expected the joints of a robot.")
    for joint in spec.joints:
        if joint.type == _HINGE and not joint.name:
            raise GantryError(f"A joint of body '{joint.parent.name}' has no name; give every joint one.")


def _joint_motors(model: mujoco.MjModel) -> list[tuple[int, str]]:
    return [
        (index, model.joint(int(model.actuator_trnid[index, 0])).name)
        for index in range(model.nu)
        if model.actuator_trntype[index] == mujoco.mjtTrn.mjTRN_JOINT
    ]


def _motor(model: mujoco.MjModel, index: int) -> Motor:
    gear = abs(float(model.actuator_gear[index, 0]))
    gain, bias = model.actuator_gainprm[index], model.actuator_biasprm[index]
    is_position = model.actuator_biastype[index] == mujoco.mjtBias.mjBIAS_AFFINE and bias[1] < 0.0
    joint = model.joint(int(model.actuator_trnid[index, 0])).id
    effort = None
    if model.actuator_forcelimited[index]:
        effort = float(np.abs(model.actuator_forcerange[index]).max()) * gear
    elif not is_position and model.actuator_ctrllimited[index]:
        effort = float(np.abs(model.actuator_ctrlrange[index]).max() * abs(gain[0])) * gear
    elif model.jnt_actfrclimited[joint]:
        effort = float(np.abs(model.jnt_actfrcrange[joint]).max())
    if not is_position:
        return Motor(effort or None, None, None)
    # A position servo's own damping may stand at its joint.
    damping = -float(bias[2]) * gear**2 or float(np.ravel(model.dof_damping)[model.jnt_dofadr[joint]])
    return Motor(effort or None, -float(bias[1]) * gear**2, damping or None)


def _home(model: mujoco.MjModel) -> tuple[str, dict[str, float]]:
    names = [model.key(index).name for index in range(model.nkey)]
    if not names:
        return "", {}
    name = next((name for name in HOME_NAMES if name in names), names[0])
    qpos = model.key_qpos[names.index(name)]
    hinges = [index for index in range(model.njnt) if model.jnt_type[index] == _HINGE]
    return name or "the first one", {model.joint(index).name: float(qpos[model.jnt_qposadr[index]]) for index in hinges}


def _only_the_robot(spec: mujoco.MjSpec, findings: list[Finding]) -> None:
    """Leave out motors, key frames, floor and lights; name bodies; let the base float."""
    for item in (*spec.actuators, *spec.keys, *spec.worldbody.lights):
        spec.delete(item)
    for geom in list(spec.worldbody.geoms):
        findings.append(
            Finding(Level.NOTE, "world", f"shape '{geom.name}' of the world is left out; Gantry adds a floor.")
        )
        spec.delete(geom)
    for number, body in enumerate(spec.bodies):
        body.name = body.name or f"body{number}"
    for geom in spec.geoms:
        if not (geom.contype or geom.conaffinity):
            geom.group = VISUAL_GROUP
    base = top_body(spec)
    for body in spec.worldbody.bodies:
        if body.name != base.name:
            text = f"body '{body.name}' stands beside the robot '{base.name}'; expected the robot alone. Take it out."
            findings.append(Finding(Level.FAIL, "world", text))
    if any(joint.type == _FREE for joint in spec.joints):
        return
    base.add_freejoint(name="floating_base")
    findings.append(Finding(Level.NOTE, "base", f"'{base.name}' has no free joint; one is added."))

"""Numbers of every joint: from the model where it has them, derived from masses and lengths or open where not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_sim.robot_kit.feet import Foot
from gantry_sim.robot_kit.findings import Finding, Level
from gantry_sim.robot_kit.preparing import Motor, Prepared
from gantry_sim.robot_kit.reading import SourceModel

BANDWIDTH_HZ = 5.0
"""Of a position loop that is derived: as of a Go2, soft enough to land on."""
DAMPING_RATIO = 0.4
"""Of a position loop that is derived."""
SAG_RAD = 0.15
"""Largest sag of a joint under the robot's weight with a gain that is derived."""
EFFORT_MARGIN = 3.0
"""Placeholder of an unknown torque limit over the torque that carries the robot."""
SWING_RAD = 0.3
"""Error of a position loop that an unknown torque limit still answers in full."""
SINKING_RAD_S = 1.2
"""Speed at which a joint gives way under the robot's weight when the robot is let down: as of a Go2."""
SPEED_RAD_S = 20.0
"""Placeholder of an unknown speed limit."""
FROM_MODEL = "from model"
"""Source of a number that the model has."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class JointNumbers:
    """One joint's numbers; the sources are texts that stand beside them in the numbers file."""

    name: str
    """Name in the model."""
    lower_rad: float
    """Lower position limit."""
    upper_rad: float
    """Upper position limit."""
    default_rad: float
    """Angle in the default pose."""
    effort_nm: float
    """Largest torque."""
    velocity_rad_s: float
    """Largest speed."""
    stiffness_nm_rad: float
    """Proportional gain."""
    damping_nm_s_rad: float
    """Derivative gain."""
    armature_kg_m2: float
    """Reflected rotor inertia."""
    damp_nm_s_rad: float
    """Derivative gain for letting the robot down."""
    sources: Mapping[str, str]
    """Source by ``range``, ``effort``, ``velocity``, ``gains`` and ``armature``; open ones begin with TODO."""


def joint_numbers(
    source: SourceModel,
    prepared: Prepared,
    feet: Sequence[Foot],
    pose: Mapping[str, float],
    data: mujoco.MjData,
    findings: list[Finding],
) -> tuple[JointNumbers, ...]:
    """Numbers of all joints that have motors.

    Args:
        source: Limits of a URDF.
        prepared: The robot.
        feet: Carry its weight.
        pose: The default pose.
        data: Kinematics in it.
        findings: Takes what is open.
    """
    inertia, carrying = _inertias_kg_m2(prepared, data), _carrying_nm(prepared, feet, data)
    found = tuple(
        _numbers(source, prepared, name, pose[name] + 0.0, inertia[i], carrying[i])
        for i, name in enumerate(prepared.joints)
    )
    reversed_ranges = [name for name in prepared.joints if np.diff(prepared.model.joint(name).range)[0] < 0.0]
    for name in reversed_ranges:
        low, high = prepared.model.joint(name).range
        text = f"'{name}' has the range {low:.4g} to {high:.4g} rad; expected the lower limit first. Correct the model."
        findings.append(Finding(Level.FAIL, "range", text))
    for field, told in _TOLD.items():
        open_ones = [joint.name for joint in found if joint.sources[field].startswith("TODO")]
        if field == "range":
            open_ones = [name for name in open_ones if name not in reversed_ranges]
        if open_ones:
            which = "all joints" if len(open_ones) == len(found) else ", ".join(open_ones)
            findings.append(Finding(Level.OPEN, field, f"{which}: {told}"))
        elif field != "armature" and not (field == "range" and reversed_ranges):
            findings.append(Finding(Level.PASS, field, f"{len(found)} joints: {found[0].sources[field]}"))
    return found


_TOLD = {
    "range": "the model has no range; expected lower and upper limit. One turn each way is taken: fill in the range.",
    "effort": "the model has no torque limit; expected forcerange, actuatorfrcrange or URDF effort. "
    f"At least {EFFORT_MARGIN:g} times what carries the robot is taken: fill in from the motor's data sheet.",
    "velocity": f"the model has no speed limit; {SPEED_RAD_S:g} rad/s is taken: fill in from the motor's data sheet.",
    "gains": f"the model has no position loop; {BANDWIDTH_HZ:g} Hz at the joint's inertia is taken: fill in what your "
    "motors run with.",
    "armature": "the model has no rotor inertia; zero is taken: fill in rotor inertia times gear ratio squared.",
}


def _numbers(
    source: SourceModel, prepared: Prepared, name: str, default: float, inertia_kg_m2: float, carrying_nm: float
) -> JointNumbers:
    model, joint = prepared.model, prepared.model.joint(name)
    motor, limits = prepared.motors.get(name, Motor(None, None, None)), source.limits.get(name)
    sources = dict.fromkeys(_TOLD, FROM_MODEL)
    lower, upper = (float(value) for value in model.jnt_range[joint.id])
    if not model.jnt_limited[joint.id]:
        lower, upper = -math.tau, math.tau
        sources["range"] = "TODO: the model has no range"
    effort = (limits.effort_nm if limits else None) or motor.effort_nm or _force_limit(model, joint.id)
    velocity = limits.velocity_rad_s if limits else None
    if velocity is None:
        velocity = SPEED_RAD_S
        sources["velocity"] = "TODO: the model has no speed limit"
    stiffness, damping = motor.stiffness_nm_rad, motor.damping_nm_s_rad
    if stiffness is None:
        # A loop of that bandwidth, stiff enough to carry the robot without sagging much.
        stiffness = _rounded(max(inertia_kg_m2 * (math.tau * BANDWIDTH_HZ) ** 2, carrying_nm / SAG_RAD))
        sources["gains"] = "TODO: derived, the model has no position loop"
    if damping is None:
        damping = _rounded(2.0 * DAMPING_RATIO * math.sqrt(stiffness * inertia_kg_m2))
        if sources["gains"] == FROM_MODEL:
            sources["gains"] = "TODO: damping derived, the model has none of a position loop"
    if effort is None:
        effort = _rounded(max(EFFORT_MARGIN * carrying_nm, SWING_RAD * stiffness))
        sources["effort"] = "TODO: the model has no torque limit"
    armature = float(np.ravel(model.dof_armature)[joint.dofadr[0]])
    if armature == 0.0:
        sources["armature"] = "TODO: the model has no rotor inertia"
    damp = max(_rounded(carrying_nm / SINKING_RAD_S), damping)
    return JointNumbers(name, lower, upper, default, effort, velocity, stiffness, damping, armature, damp, sources)


def _force_limit(model: mujoco.MjModel, joint: int) -> float | None:
    return float(np.abs(model.jnt_actfrcrange[joint]).max()) if model.jnt_actfrclimited[joint] else None


def _inertias_kg_m2(prepared: Prepared, data: mujoco.MjData) -> FloatArray:
    """Per joint the inertia that its motor turns with the base held: the largest of all limbs alike."""
    model = prepared.model
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_crb(model, data)
    mujoco.mj_fullM(model, data, full)
    return _largest_of_limb(prepared, np.diag(full)[_dofs(prepared)])


def _carrying_nm(prepared: Prepared, feet: Sequence[Foot], data: mujoco.MjData) -> FloatArray:
    """Per joint the torque that carries the robot's weight on all feet in the default pose: the largest of all limbs
    alike."""
    model = prepared.model
    torque = np.zeros(model.nv)
    share_n = float(model.body_mass[1:].sum()) * GRAVITY_M_S2 / max(len(feet), 1)
    for foot in feet:
        jacobian = np.zeros((3, model.nv))
        mujoco.mj_jacGeom(model, data, jacobian, None, foot.geom)
        torque += np.abs(jacobian[2]) * share_n
    return _largest_of_limb(prepared, torque[_dofs(prepared)])


def _dofs(prepared: Prepared) -> list[int]:
    return [int(prepared.model.joint(name).dofadr[0]) for name in prepared.joints]


def _largest_of_limb(prepared: Prepared, values: FloatArray) -> FloatArray:
    """Per joint the largest value in its limb and in limbs of as many joints, so that left and right are alike."""
    roots = [_limb(prepared.model, prepared.model.joint(name).id) for name in prepared.joints]
    sizes = [roots.count(root) for root in roots]
    return np.array([max(value for value, size in zip(values, sizes, strict=True) if size == mine) for mine in sizes])


def _limb(model: mujoco.MjModel, joint: int) -> int:
    """The body at the base that a joint's limb begins with."""
    body = int(model.jnt_bodyid[joint])
    while model.body_parentid[body] != model.body_rootid[body]:
        body = int(model.body_parentid[body])
    return body


def _rounded(value: float) -> float:
    """Two significant digits, as befits what is derived."""
    return float(f"{value:.2g}")

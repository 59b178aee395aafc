"""Check of an installed robot: its numbers against its model, and the conformance kit on its simulator."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import mujoco
import numpy as np

from gantry_deploy.observations.sides import partners, sign_of_joint
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import FALL_TILT_RAD, RobotSpec
from gantry_hardware.plugins import entry_points
from gantry_hardware.robots import robot_spec
from gantry_sim.robot_kit.findings import Finding, Level
from gantry_sim.robot_kit.geometry import lowest_point_m, overlaps, posed
from gantry_sim.robot_kit.inertias import check_inertias
from gantry_sim.robot_kit.mirror import mirrored_joints
from gantry_sim.robot_kit.study import DEPTH_M
from gantry_sim.robots.model_conventions import base_body
from gantry_sim.robots.models import foot_geoms, model_file, robot_model
from gantry_sim.tasks.catalogue import task_infos
from gantry_sim.tasks.locomotion.robots import legged_robot_cfg

MASS_SHARE = 0.01
"""Share by which the masses of numbers and model may differ."""
HEIGHT_M = 0.02
"""Largest difference of the base's height in the default pose from that of the numbers."""
RANGE_RAD = 0.002
"""Largest difference of limits."""
STAND_S, STAND_DT_S = 2.0, 0.02
"""Duration for which a robot stands on its own, and rate of its commands."""


def check_robot(name: str) -> list[Finding]:
    """Every check, in the order in which one builds on another.

    Args:
        name: Of a registered robot.

    Raises:
        UnknownNameError: If there is none of that name.
        RobotError: If what is registered is no robot.
    """
    spec = robot_spec(name)
    text = f"{spec.embodiment}, {spec.num_joints} joints, {len(spec.feet)} feet, {spec.mass_kg:.4g} kg; {spec.source}"
    findings = [Finding(Level.PASS, "numbers", text), *_marked(name)]
    if not spec.mjcf:
        findings.append(Finding(Level.NOTE, "model", "none; the mock is checked instead of a simulator"))
        return [*findings, *_try("conformance", lambda: _conformance(spec, "mock"))]
    loaded = _try("model", lambda: _model(spec))
    findings += loaded
    if any(finding.level is Level.FAIL for finding in loaded):
        return findings
    findings += _try("joints", lambda: _joints(spec))
    if spec.feet:
        for check, function in (
            ("mass", _mass),
            ("pose", _pose),
            ("symmetry", _symmetry),
            ("gait", _gait),
            ("standing", _standing),
        ):
            findings += _try(check, lambda function=function: function(spec))
    findings += _try("conformance", lambda: _conformance(spec, "mujoco"))
    return [*findings, *_tasks(name)]


def _try(check: str, function: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return function()
    except GantryError as error:
        return [Finding(Level.FAIL, check, str(error))]


def _marked(name: str) -> list[Finding]:
    """Count of the numbers that are marked TODO in the module that the robot's entry point names."""
    entry = next(entry for entry in entry_points(group="gantry.robots") if entry.name == name)
    module = find_spec(entry.module)
    if module is None or module.origin is None or not Path(module.origin).is_file():
        return []
    path = Path(module.origin)
    count = sum("# TODO" in line for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    if not count:
        return []
    return [
        Finding(
            Level.OPEN, "numbers", f"{count} lines of {entry.module} are marked TODO; fill them in with their sources."
        )
    ]


def _model(spec: RobotSpec) -> list[Finding]:
    path = model_file(spec.name)
    try:
        found = check_inertias(mujoco.MjSpec.from_file(str(path)))
        model = robot_model(spec.name, visuals=False).compile()
    except ValueError as error:
        raise GantryError(f"{path}: {error}") from error
    return [*found, Finding(Level.PASS, "model", f"{model.nbody - 1} bodies, {model.ngeom} shapes; {path.name}")]


def _compiled(spec: RobotSpec) -> mujoco.MjModel:
    return robot_model(spec.name, visuals=False).compile()


def _joints(spec: RobotSpec) -> list[Finding]:
    model, findings = _compiled(spec), []
    for joint in spec.joints:
        index = model.joint(joint.name).id
        if not model.jnt_limited[index]:
            continue
        low, high = (float(value) for value in model.jnt_range[index])
        if max(abs(low - joint.lower_rad), abs(high - joint.upper_rad)) > RANGE_RAD:
            text = f"'{joint.name}' is [{joint.lower_rad:.4g}, {joint.upper_rad:.4g}] rad in the numbers and "
            findings.append(
                Finding(Level.OPEN, "joints", f"{text}[{low:.4g}, {high:.4g}] rad in the model; make them equal.")
            )
    return findings or [Finding(Level.PASS, "joints", f"{spec.num_joints} joints of the model, with equal ranges")]


def _mass(spec: RobotSpec) -> list[Finding]:
    mass = float(_compiled(spec).body_mass[1:].sum())
    if abs(mass - spec.mass_kg) > MASS_SHARE * spec.mass_kg:
        text = f"mass_kg is {spec.mass_kg:.4g} kg, the model weighs {mass:.4g} kg; expected at most 1 % between them."
        return [Finding(Level.FAIL, "mass", f"{text} Correct mass_kg or the model.")]
    return [Finding(Level.PASS, "mass", f"{mass:.4g} kg in the model")]


def _pose(spec: RobotSpec) -> list[Finding]:
    spec_model = robot_model(spec.name, visuals=False)
    model = spec_model.compile()
    data = posed(model, dict(zip(spec.joint_names, spec.numbers("default_rad"), strict=True)))
    findings = []
    for one, other, depth in overlaps(model, data, DEPTH_M):
        text = f"'{one}' and '{other}' reach {1000.0 * depth:.1f} mm into each other in the default pose; expected none"
        findings.append(Finding(Level.OPEN, "pose", text))
    shapes = [model.geom(geom.name).id for foot in spec.feet for geom in foot_geoms(spec_model, foot)]
    height = float(data.xpos[model.body(base_body(spec_model).name).id, 2])
    height -= min(lowest_point_m(model, data, index) for index in shapes)
    if abs(height - spec.base_height_m) > HEIGHT_M:
        text = f"base_height_m is {spec.base_height_m:.3f} m, the model's base is {height:.3f} m above its feet"
        findings.append(Finding(Level.FAIL, "pose", f"{text}; correct base_height_m or default_rad."))
    return findings or [Finding(Level.PASS, "pose", f"base {height:.3f} m above the feet, nothing collides")]


def _symmetry(spec: RobotSpec) -> list[Finding]:
    geometry = mirrored_joints(_compiled(spec), spec.joint_names)
    try:
        told = spec.mirrored_joints or tuple(
            zip(partners(spec.joint_names, spec.central_joints), map(sign_of_joint, spec.joint_names), strict=True)
        )
    except GantryError as error:
        return [Finding(Level.OPEN, "symmetry", f"{error} Or fill in RobotSpec.mirrored_joints.")]
    if not geometry:
        return [Finding(Level.NOTE, "symmetry", "the model's joints are no mirror images of one another; names decide")]
    for name, one, other in zip(spec.joint_names, told, geometry, strict=True):
        if one != other:
            text = f"'{name}' mirrors to '{one[0]}' by {one[1]:+g} in the numbers and to '{other[0]}' by {other[1]:+g}"
            return [Finding(Level.FAIL, "symmetry", f"{text} in the model; correct RobotSpec.mirrored_joints.")]
    return [Finding(Level.PASS, "symmetry", f"{len(told)} joints, as the model's axes say")]


def _gait(spec: RobotSpec) -> list[Finding]:
    try:
        gait = legged_robot_cfg(spec.name).gait
    except GantryError as error:
        return [Finding(Level.OPEN, "gait", str(error))]
    return [Finding(Level.PASS, "gait", f"{gait.frequency_hz:g} Hz, {len(spec.feet)} feet")]


def _standing(spec: RobotSpec) -> list[Finding]:
    robot = make_backend("mujoco", spec, visuals=False)
    robot.connect()
    try:
        goal, start = JointCommand.position(spec, spec.array("default_rad")), robot.now_s()
        for step in range(1, round(STAND_S / STAND_DT_S) + 1):
            robot.write(goal)
            robot.sleep_until(start + step * STAND_DT_S)
        state = robot.read()
    finally:
        robot.close()
    height = float(state.pos_base_in_world_m[2]) if state.pos_base_in_world_m is not None else np.nan
    _, x, y, _ = state.quat_base_to_world_wxyz
    tilt = float(np.arccos(np.clip(1.0 - 2.0 * (x * x + y * y), -1.0, 1.0)))
    text = f"base {height:.3f} m above the ground and tilted {np.degrees(tilt):.0f} deg after {STAND_S:g} s"
    if height > spec.fall_height_m and tilt < FALL_TILT_RAD:
        return [Finding(Level.PASS, "standing", text)]
    level = Level.FAIL if len(spec.feet) == 4 else Level.OPEN
    text += (
        f"; expected more than {spec.fall_height_m:g} m. Raise the gains, or bend the legs otherwise in default_rad."
    )
    return [Finding(level, "standing", text)]


def _conformance(spec: RobotSpec, backend: str) -> list[Finding]:
    options = {"visuals": False, "fixed_base": bool(spec.feet)} if backend == "mujoco" else {}
    check_backend(make_backend(backend, spec, **options))
    return [Finding(Level.PASS, "conformance", f"backend '{backend}' keeps every promise")]


def _tasks(name: str) -> list[Finding]:
    names = [info.name for info in task_infos() if info.robot == name]
    if not names:
        return [Finding(Level.NOTE, "tasks", "no installed task is for it")]
    return [Finding(Level.PASS, "tasks", ", ".join(names))]

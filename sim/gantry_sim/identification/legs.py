"""Identification of robots with joints that are held: hanging by a fixed base, and walking on flat ground."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.state import GRAVITY_M_S2
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.identification.actuators import ActuatorFit, fit_actuators
from gantry_sim.identification.findings import Curve, Findings
from gantry_sim.identification.hanging import HangingFit, fit_hanging
from gantry_sim.identification.imu import UNKNOWN_OFFSET_RAD, Feet, latency_of, mounting_of, up_by_imu
from gantry_sim.identification.motion_log import MotionLog
from gantry_sim.identification.parameters import DELAY, JOINT_PARAMETERS, WHOLE_PARAMETERS
from gantry_sim.identification.saturation import Saturation, saturation_of
from gantry_sim.identification.uncertainty import CONFIDENCE_95, block_mean

FloatArray = NDArray[np.float64]

HANGING, WALKING, AUTO = "hanging", "walking", "auto"
"""Kinds of recordings, and the choice by what the recording shows."""
SWINGS_RAD_S = 0.1
"""Root mean square of the turning rate from which on a base is not fixed."""
ON_GROUND_SHARE = 0.2
"""Share of the time from which on feet on the ground say that a robot walks."""
STEP_DEVIATION_S = 1e-4
"""Standard deviation that is allowed for a delay beside the data's, as commands act at whole physics steps."""
PLOT_S = 8.0
"""Length of the courses that are plotted."""
MECHANICS = ("armature_kg_m2", "viscous_friction_nm_s_rad", "coulomb_friction_nm", "encoder_offset_rad")
"""Parameters that walking does not show."""
LIMITS = ("effort_limit_nm", "corner_speed_rad_s", "no_load_speed_rad_s")
"""Parameters of saturation."""
IMU_PARAMETERS = ("imu_roll_rad", "imu_pitch_rad", "imu_delay_s")
"""Parameters of the IMU."""


@dataclass(frozen=True)
class IdentifyCfg:
    """Choices of an identification."""

    kind: str = AUTO
    """Kind of all recordings: ``hanging``, ``walking``, or ``auto``."""
    level_base: bool = False
    """Whether the base of the hanging robot was level; otherwise the IMU says how it hung."""
    told: Callable[[str], None] = lambda _: None
    """Told of progress."""


def identify(spec: RobotSpec, logs: list[MotionLog], cfg: IdentifyCfg) -> Findings:
    """Identify a robot from recordings of it; hanging ones first, as their encoders' offsets serve the others.

    Args:
        spec: The robot.
        logs: Its recordings.
        cfg: Choices.

    Raises:
        GantryError: If a recording does not fit.
    """
    findings = Findings(spec)
    kinds = [kind_of(log) if cfg.kind == AUTO else cfg.kind for log in logs]
    for kind in (HANGING, WALKING):
        if kind in kinds:
            findings.kinds.append(kind)
    hanging = [log for log, kind in zip(logs, kinds, strict=True) if kind == HANGING]
    if hanging:
        _hanging(findings, hanging, cfg)
    for log, kind in zip(logs, kinds, strict=True):
        if kind == WALKING:
            add_walking(findings, log, cfg)
    if not hanging:
        findings.refuse_everywhere(MECHANICS, "a robot that walks does not show it; record it hanging (gantry excite)")
    findings.refuse("imu_yaw_rad", "gravity looks the same from every heading, so that it cannot show")
    findings.refuse_everywhere((*JOINT_PARAMETERS, *LIMITS, DELAY, *IMU_PARAMETERS), "nothing in the data shows it")
    return findings


def kind_of(log: MotionLog) -> str:
    """Kind of a recording by its feet, and by its base where they were not recorded."""
    if log.has_contacts:
        return WALKING if float((log.foot_contact > 0.5).mean()) > ON_GROUND_SHARE else HANGING
    if not log.has_imu:
        return HANGING
    rate = float(np.sqrt(np.mean(np.sum(log.ang_vel_base_in_base_rad_s**2, axis=1))))
    return WALKING if rate > SWINGS_RAD_S else HANGING


def _hanging(findings: Findings, logs: list[MotionLog], cfg: IdentifyCfg) -> None:
    spec, gravity = findings.spec, None
    for log in logs:
        if log.has_imu:
            rate = float(np.sqrt(np.mean(np.sum(log.ang_vel_base_in_base_rad_s**2, axis=1))))
            if rate > SWINGS_RAD_S:
                findings.notes.append(
                    f"{log.source}: the base turns by {rate:.2f} rad/s (root mean square), expected at most "
                    f"{SWINGS_RAD_S:g}: it swings, and what is told of friction and inertia is wrong by that"
                )
    if not cfg.level_base and all(log.has_imu for log in logs):
        up = np.mean([up_by_imu(log.quat_base_to_world_wxyz).mean(axis=0) for log in logs], axis=0)
        gravity = -GRAVITY_M_S2 * up / np.linalg.norm(up)
        tilt = float(np.degrees(np.arccos(np.clip(up[2] / np.linalg.norm(up), -1.0, 1.0))))
        findings.notes.append(f"the base hung with a tilt of {tilt:.2f} degrees by its IMU, whose mounting is trusted")
    fit = fit_hanging(logs, spec.array("effort_limit_nm"), gravity, cfg.told)
    _take_joints(findings, fit)
    _take_limits(findings, fit)
    _take_level(findings, logs, cfg)
    if not fit.converged:
        findings.notes.append(f"the fit had not come to an end after {fit.steps} steps; intervals are too narrow")
    findings.refuse("imu_delay_s", "the base hung still, so that nothing turned for the IMU to tell of late")
    for part, motion in list(zip(fit.stretches, fit.motions, strict=True))[-1:]:
        rows = part.time_s >= part.time_s[-1] - PLOT_S
        for joint, name in enumerate(spec.joint_names):
            pair = part.joint_pos_rad[rows, joint], motion.pos_rad[rows, joint]
            findings.curves.append(Curve(name, "position [rad]", part.time_s[rows], *pair))


def _take_joints(findings: Findings, fit: HangingFit) -> None:
    vector = fit.vector
    for joint, name in enumerate(findings.spec.joint_names):
        speed = max(float(np.abs(part.joint_vel_rad_s[:, joint]).max()) for part in fit.stretches)
        moved = max(float(np.ptp(part.joint_pos_rad[:, joint])) for part in fit.stretches)
        for parameter, numbers in JOINT_PARAMETERS.items():
            place = vector.of_joints(parameter).start + joint
            half = CONFIDENCE_95 * float(fit.deviations[place])
            if half > numbers.widest:
                reason = (
                    f"the joint moved over {moved:.3f} rad at up to {speed:.2f} rad/s, which tells it to +-{half:.2g} "
                    f"only, expected +-{numbers.widest:g}"
                )
                findings.refuse(parameter, reason, name)
            else:
                findings.found(parameter, float(fit.values[place]), float(fit.deviations[place]), name)
    place = vector.of_whole(DELAY)
    half = CONFIDENCE_95 * float(fit.deviations[place])
    if half > WHOLE_PARAMETERS[DELAY].widest:
        findings.refuse(DELAY, f"commands change too little: it is told to +-{1e3 * half:.1f} ms only")
    else:
        deviation_s = float(np.hypot(fit.deviations[place], STEP_DEVIATION_S))
        findings.found(DELAY, float(fit.values[place]), deviation_s)


def _take_limits(findings: Findings, fit: HangingFit) -> None:
    """Limits of torque where the motors gave less than the simulation without limits asks for."""
    spec, vector = findings.spec, fit.vector
    shares = vector.joint_arrays(fit.values)
    measured = all(part.has_effort for part in fit.stretches)
    for joint, name in enumerate(spec.joint_names):
        if not measured:
            for parameter in LIMITS:
                findings.refuse(parameter, "torques were not measured", name)
            continue
        asked, given, speed = (
            np.concatenate(parts)
            for parts in zip(
                *(_asked(part, shares, joint, fit.values[vector.of_whole(DELAY)]) for part in fit.stretches),
                strict=True,
            )
        )
        _take_limit(
            findings, name, saturation_of(asked, given, speed), float(np.abs(given).max()), float(np.abs(speed).max())
        )


def _asked(
    part: MotionLog, shares: dict[str, FloatArray], joint: int, delay_s: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Torque by the gains in effect, measured torque, and speed, (T,) each, of one joint."""
    sent = part.commands[np.maximum(part.command_rows(part.time_s - delay_s), 0)][:, :, joint]
    pull = shares["stiffness_share"][joint] * sent[:, 3] * (sent[:, 0] - part.joint_pos_rad[:, joint])
    damp = shares["damping_share"][joint] * sent[:, 4] * (sent[:, 1] - part.joint_vel_rad_s[:, joint])
    return sent[:, 2] + pull + damp, part.joint_effort_nm[:, joint], part.joint_vel_rad_s[:, joint]


def _take_limit(
    findings: Findings, name: str, limit: Saturation | None, largest_nm: float, fastest_rad_s: float
) -> None:
    spec = findings.spec
    nominal = float(spec.array("effort_limit_nm")[spec.joint_index(name)])
    if limit is None:
        reason = f"largest torque was {largest_nm:.1f} of {nominal:g} N m: the limit is not seen; it is at least "
        findings.refuse("effort_limit_nm", f"{reason}{largest_nm:.1f}", name)
    else:
        findings.found("effort_limit_nm", limit.limit_nm, limit.limit_deviation_nm, name)
    if limit is None or not limit.has_curve:
        reason = f"torque did not fall with speed up to {fastest_rad_s:.1f} rad/s"
        for parameter in LIMITS[1:]:
            findings.refuse(parameter, reason, name)
        return
    findings.found("corner_speed_rad_s", limit.corner_rad_s, limit.corner_deviation_rad_s, name)
    findings.found("no_load_speed_rad_s", limit.no_load_rad_s, limit.no_load_deviation_rad_s, name)


def _take_level(findings: Findings, logs: list[MotionLog], cfg: IdentifyCfg) -> None:
    """Mounting of the IMU on a base that is level."""
    names = ("imu_roll_rad", "imu_pitch_rad")
    if not all(log.has_imu for log in logs):
        findings.refuse_everywhere(names, "the attitude was not recorded")
        return
    if not cfg.level_base:
        findings.refuse_everywhere(
            names, "gravity was taken from the IMU itself; say --level of a base that was level, or add a walk"
        )
        return
    up = np.concatenate([up_by_imu(log.quat_base_to_world_wxyz) for log in logs])
    block = np.concatenate([log.time_s // 1.0 for log in logs]).astype(np.intp)
    # The IMU's up axis is the world's, turned back by pitch and then by roll.
    for name, angle in zip(names, (np.arctan2(up[:, 1], up[:, 2]), np.arcsin(-up[:, 0])), strict=True):
        findings.found(name, *block_mean(angle, block))


def add_walking(findings: Findings, log: MotionLog, cfg: IdentifyCfg) -> None:
    """Identify from a walk, beside what is known already; offsets of encoders that are known serve the IMU.

    Args:
        findings: Gets the estimates.
        log: The recording.
        cfg: Choices.
    """
    cfg.told(f"{log.source}: motors")
    if not log.has_effort:
        reason = "torques were not measured, and a walking robot shows its motors by them alone"
        findings.refuse_everywhere(("stiffness_share", "damping_share", *LIMITS, DELAY), reason)
    else:
        try:
            _take_motors(findings, log, fit_actuators(log))
        except GantryError as error:
            findings.refuse_everywhere(("stiffness_share", "damping_share", *LIMITS, DELAY), str(error))
    if not (log.has_imu and log.has_contacts):
        missing = "attitude and turning rate" if not log.has_imu else "contacts of the feet"
        findings.refuse_everywhere(IMU_PARAMETERS, f"{missing} were not recorded")
        return
    _take_imu(findings, log, cfg)


def _take_motors(findings: Findings, log: MotionLog, fit: ActuatorFit) -> None:
    for joint, name in enumerate(findings.spec.joint_names):
        for column, (parameter, values) in enumerate(
            (("stiffness_share", fit.stiffness_share), ("damping_share", fit.damping_share))
        ):
            deviation = float(fit.deviations[joint, column])
            widest = JOINT_PARAMETERS[parameter].widest
            if CONFIDENCE_95 * deviation > widest or not 0.01 < values[joint] < 10.0:
                reason = f"its torque is told to +-{CONFIDENCE_95 * deviation:.2g} of it, expected +-{widest:g}"
                findings.refuse(parameter, reason, name)
            else:
                findings.found(parameter, float(values[joint]), deviation, name)
        _take_limit(
            findings, name, fit.saturation[joint], float(fit.largest_nm[joint]), float(fit.fastest_rad_s[joint])
        )
        rows = log.time_s >= log.time_s[-1] - 0.5 * PLOT_S
        pair = log.joint_effort_nm[rows, joint], fit.asked_nm[rows, joint]
        findings.curves.append(Curve(name, "torque [N m]", log.time_s[rows], *pair))
    findings.found(DELAY, fit.delay_s, fit.delay_deviation_s)


def _take_imu(findings: Findings, log: MotionLog, cfg: IdentifyCfg) -> None:
    spec = findings.spec
    if len(spec.feet) < 3:
        findings.refuse_everywhere(IMU_PARAMETERS[:2], f"{len(spec.feet)} feet span no plane, expected at least 3")
    known = [findings.joints.get(name, {}).get("encoder_offset_rad") for name in spec.joint_names]
    offsets = np.array([0.0 if item is None else item.value for item in known])
    spread = np.array(
        [
            UNKNOWN_OFFSET_RAD
            if item is None or item.high is None or item.low is None
            else (item.high - item.low) / 2.0 / CONFIDENCE_95
            for item in known
        ]
    )
    log = replace(log, joint_pos_rad=log.joint_pos_rad - offsets)
    feet = Feet(log)
    cfg.told(f"{log.source}: mounting of the IMU")
    mounting = mounting_of(log, feet, spread) if len(spec.feet) >= 3 else None
    if mounting is None:
        reason = "three feet did not stand on the ground at rest for long enough; expected some seconds of standing"
        findings.refuse_everywhere(IMU_PARAMETERS[:2], reason)
    else:
        findings.found("imu_roll_rad", mounting.roll_rad, mounting.deviations_rad[0])
        findings.found("imu_pitch_rad", mounting.pitch_rad, mounting.deviations_rad[1])
    cfg.told(f"{log.source}: latency of the IMU")
    latency = latency_of(log, feet, _matrix(findings))
    if latency is None or latency.deviation_s * CONFIDENCE_95 > 0.02:
        turned = float(np.abs(log.ang_vel_base_in_base_rad_s).max())
        findings.refuse("imu_delay_s", f"the base turned at up to {turned:.2f} rad/s with two feet on the ground")
    else:
        findings.found("imu_delay_s", latency.delay_s, latency.deviation_s)


def _matrix(findings: Findings) -> FloatArray:
    """Shape (3, 3), rotates vectors of the IMU's frame into the base frame, as far as its mounting is known."""
    angles = [findings.whole[name].value if name in findings.whole else 0.0 for name in IMU_PARAMETERS[:2]]
    quat, matrix = np.zeros(4), np.zeros(9)
    mujoco.mju_euler2Quat(quat, np.array([*angles, 0.0]), "XYZ")
    mujoco.mju_quat2Mat(matrix, quat)
    return matrix.reshape(3, 3)

"""Steps of commissioning in which nothing is commanded: readings, network, ranges by hand, the camera's floor."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.commission.site import Site, StepResult
from gantry_deploy.diagnosis.doctor import examine
from gantry_deploy.diagnosis.state_log import log_of_robot
from gantry_deploy.perception.maps import eyes_and_map
from gantry_hardware.model.capabilities import other_commanders

MOST_TILT_OF_FLOOR_RAD = 0.05
"""Largest angle between the floor by a camera and the horizontal by the IMU."""
LEAST_RANGE_SHARE = 0.8
"""Share of a joint's range that must have been reached by hand for its limits to count as seen."""
LEAST_POINTS = 1000
"""Points of a camera from which the floor is told."""


def check_readings(site: Site) -> StepResult:
    """Read the robot without moving it, and examine what it says."""
    site.operator.tell(f"Reading for {site.cfg.readings_s:g} s; nothing is commanded.")
    log = log_of_robot(site.robot, site.cfg.readings_s, site.cfg.rate_hz)
    found = examine(log, upright=site.operator.ask("Does the robot stand, lie or hang the right way up?") == "y")
    rows = [("wrong", finding.subject, finding.text) for finding in found.findings]
    rows += [("ok" if item.judged else "not judged", item.subject, item.text) for item in found.checked]
    verdict = "failed" if found.findings else "passed"
    return StepResult("readings", verdict, f"{len(found.findings)} wrong, {len(found.checked)} other", rows)


def check_network(site: Site) -> StepResult:
    """Ages and gaps of readings as fast as they come, and other programs that command the robot."""
    robot, seconds = site.robot, site.cfg.readings_s
    begin_s, stamps, ages = robot.now_s(), [], []
    while (now_s := robot.now_s()) - begin_s < seconds:
        stamp_s = robot.read().stamp_s
        if not stamps or stamp_s != stamps[-1]:
            stamps.append(stamp_s)
            ages.append(now_s - stamp_s)
        robot.sleep_until(now_s + 0.001)
    told = other_commanders(robot)
    others = "cannot be told" if told is None else told or "none"
    gaps = np.diff(stamps) if len(stamps) > 1 else np.array([np.inf])
    limit_s = site.safety.state_timeout_s
    fine = (
        float(gaps.max()) < limit_s
        and float(np.percentile(ages, 99)) < limit_s
        and others in ("none", "cannot be told")
    )
    data = {
        "rate_hz": len(stamps) / seconds,
        "gap_p50_s": float(np.median(gaps)),
        "gap_p99_s": float(np.percentile(gaps, 99)),
        "gap_max_s": float(gaps.max()),
        "age_p99_s": float(np.percentile(ages, 99)),
        "other_commanders": others,
    }
    text = (
        f"{data['rate_hz']:.0f} readings/s, gaps p99 {1e3 * data['gap_p99_s']:.1f} ms and at most "
        f"{1e3 * data['gap_max_s']:.1f} ms (allowed {1e3 * limit_s:.0f}); other programs that command: {others}"
    )
    return StepResult("network", "passed" if fine else "failed", text, data=data)


def check_ranges(site: Site) -> StepResult:
    """Follow the joints while the operator moves them by hand from stop to stop."""
    if site.operator.ask("Move every joint by hand from stop to stop? The robot stays limp.") == "n":
        return StepResult("ranges", "skipped", "not wanted")
    spec = site.robot.spec
    site.operator.tell("Move each joint to both of its stops; Enter when all are done.")
    low = high = site.robot.read().joint_pos_rad
    while not site.operator.pressed():
        pos = site.robot.read().joint_pos_rad
        low, high = np.minimum(low, pos), np.maximum(high, pos)
        site.robot.sleep_until(site.robot.now_s() + 0.01)
    lower, upper = spec.array("lower_rad"), spec.array("upper_rad")
    share = (high - low) / (upper - lower)
    beyond = np.maximum(lower - low, high - upper)
    rows, failed = [], 0
    for i, name in enumerate(spec.joint_names):
        bad = beyond[i] > site.safety.joint_pos_margin_rad
        failed += bad
        words = (
            "beyond its limits: offset or sign" if bad else "seen" if share[i] > LEAST_RANGE_SHARE else "not all seen"
        )
        limits = f"{lower[i]:.2f} to {upper[i]:.2f}"
        rows.append((name, f"{low[i]:.2f} to {high[i]:.2f}", limits, words))
    seen = int((share > LEAST_RANGE_SHARE).sum())
    text = f"{failed} joints beyond their limits; {seen} of {spec.num_joints} moved over most of their range"
    verdict = "failed" if failed else "passed" if seen == spec.num_joints else "skipped"
    return StepResult("ranges", verdict, text, rows)


def check_camera(site: Site) -> StepResult:
    """Compare the floor that a depth camera sees with the horizontal of the IMU."""
    cameras, _ = eyes_and_map(site.robot)
    if cameras is None:
        return StepResult("camera", "skipped", "the robot has no depth camera here")
    if site.operator.ask("Is there nothing but level floor in front of the depth camera?") == "n":
        return StepResult("camera", "skipped", "no free floor")
    points = []
    begin_s = site.robot.now_s()
    while site.robot.now_s() - begin_s < 2.0:
        state = site.robot.read()  # First: an image waits for the robot's attitude.
        for frame in cameras.read_depth():
            camera = cameras.depth_cameras[frame.camera]
            seen, valid = camera.points_in_base_yaw(frame.depth_m[None], state.quat_base_to_world_wxyz[None])
            points.append(np.asarray(seen)[0][np.asarray(valid)[0]])
        site.robot.sleep_until(site.robot.now_s() + 0.02)
    if not points or sum(map(len, points)) < LEAST_POINTS:
        return StepResult("camera", "failed", "no depth came within 2 s")
    floor = floor_of(np.concatenate(points))
    tilt_rad = float(np.hypot(floor["pitch_rad"], floor["roll_rad"]))
    text = (
        f"the floor is tilted by {np.degrees(tilt_rad):.1f} degrees against the IMU (pitch "
        f"{np.degrees(floor['pitch_rad']):+.1f}, roll {np.degrees(floor['roll_rad']):+.1f}), {floor['height_m']:.3f} m "
        f"below the base, {1e3 * floor['rough_m']:.0f} mm rough"
    )
    return StepResult("camera", "passed" if tilt_rad < MOST_TILT_OF_FLOOR_RAD else "failed", text, data=floor)


def floor_of(points_in_base_yaw_m: NDArray[np.float64]) -> dict[str, float]:
    """The plane through points (N, 3): pitch and roll, rad, depth below the base and roughness, m."""
    cloud = points_in_base_yaw_m[:: max(1, len(points_in_base_yaw_m) // 20000)]
    middle = cloud.mean(axis=0)
    _, spread, axes = np.linalg.svd(cloud - middle, full_matrices=False)
    normal = axes[2] * np.sign(axes[2][2])
    return {
        "pitch_rad": float(np.arctan2(normal[0], normal[2])),
        "roll_rad": float(np.arctan2(-normal[1], normal[2])),
        "height_m": float(-(middle @ normal) / normal[2]),
        "rough_m": float(spread[2] / np.sqrt(len(cloud))),
    }

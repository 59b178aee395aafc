"""The contracts of driving policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gantry_deploy.contract.drive_spec import DRIVE_TARGET, DriveSpec, drive_spec_of
from gantry_deploy.contract.policy_contract import ActionSpec, CommandSpec, PolicyContract
from gantry_deploy.observations.builder import make_term
from gantry_deploy.observations.road import term_sizes
from gantry_hardware.robots import robot_spec
from gantry_policies.networks.layout import RASTER_STEPS, RASTER_TERM
from gantry_sim.driving.cfg import CarTaskCfg, DriveCfg
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.track_cfg import RaceCfg

OWN_TERMS = {"speed": 0.1, "steering_angle": 2.0, "yaw_rate": 2.0, "last_action": 1.0}
"""Terms of a car's own motion, with their scales."""
ROUTE_TERMS = {
    "route_points": 0.05,
    "route_error": 1.0,
    "route_curvature": 10.0,
    "route_speed_limits": 0.1,
    "lane_edges": 0.5,
}
"""Terms of a car that follows a route."""
OTHERS_TERMS = {"stop_line": 0.05, "lead_object": 0.1, "route_objects": 0.1}
"""Terms of a car that is not alone."""
RASTER_TERMS = {RASTER_TERM: 1.0 / RASTER_STEPS}
"""The picture from above, as networks want it."""
CLIPS = {RASTER_TERM: float(RASTER_STEPS)}
"""Bounds of terms before their scale; 100 of all others."""
ALONE = ("road", "route", "markings", "speed_limit")
"""Channels of the picture without traffic."""
RACE_TERMS = {"speed": 0.3, "yaw_rate": 0.5, "last_action": 1.0, "lidar": 1.0}
"""Terms of a small car that races; none measures the angle of its wheels."""
MIDDLE_TERMS = {"route_points": 0.2, "route_error": 1.0, "route_curvature": 1.0, "lane_edges": 1.0}
"""Terms of one that has a map of the track."""
PARK_TERMS = {"goal_pose": 0.5, "pose_in_goal": 0.5, "lidar": 1.0}
"""Terms of a car that parks."""
REMEMBERED = ("last_action", "steering_angle", "yaw_rate")
"""Terms with ``history``: what a steering that is off, lags or is slow shows in."""


def task_contract(cfg: CarTaskCfg, drive: DriveSpec, scales: Mapping[str, float]) -> PolicyContract:
    """A contract from what a policy is to see.

    Args:
        cfg: The task.
        drive: The car, and the layout of what the policy sees.
        scales: Observation terms in order, with their scales.
    """
    spec = robot_spec(cfg.robot)
    sizes = term_sizes(drive)
    terms = tuple(
        make_term(
            name,
            sizes[name],
            scale=scale,
            clip=CLIPS.get(name, 100.0),
            history=cfg.history if name in REMEMBERED else 1,
        )
        for name, scale in scales.items()
    )
    return PolicyContract(
        robot=spec.name,
        embodiment=spec.embodiment,
        rate_hz=cfg.rate_hz,
        joint_names=spec.joint_names,
        joint_lower_rad=spec.numbers("lower_rad"),
        joint_upper_rad=spec.numbers("upper_rad"),
        default_pos_rad=spec.numbers("default_rad"),
        stiffness_nm_rad=spec.numbers("stiffness_nm_rad"),
        damping_nm_s_rad=spec.numbers("damping_nm_s_rad"),
        effort_limit_nm=spec.numbers("effort_limit_nm"),
        observations=terms,
        action=ActionSpec(DRIVE_TARGET, (1.0, 1.0), (0.0, 0.0), clip=1.0),
        command=CommandSpec("", (), (), (), ()),
        body=drive,
        acceptance=cfg.acceptance,
        trained_for=cfg.randomization.trained_for(*spec.joint_names),
    )


def road_contract(cfg: DriveCfg) -> PolicyContract:
    """The contract of a policy that drives on roads."""
    car = cfg.driver
    more: dict[str, object] = {} if cfg.traffic is None else {"max_objects": cfg.max_objects}
    others = {} if cfg.traffic is None else OTHERS_TERMS
    if cfg.bev is not None:
        channels = tuple(name for name in cfg.bev.channels if cfg.traffic is not None or name in ALONE)
        more["bev"] = replace(cfg.bev, channels=channels, nose_m=car.center_x_in_base_m + 0.5 * car.length_m)
        others = {name: scale for name, scale in others.items() if name == "stop_line"} | RASTER_TERMS
    drive = drive_spec_of(car, lookahead_m=cfg.lookahead_m, curvature_reach_m=4.0, allow_reverse=cfg.reverse, **more)
    return task_contract(cfg, drive, OWN_TERMS | ROUTE_TERMS | others)


def park_contract(cfg: ParkCfg) -> PolicyContract:
    """The contract of a policy that parks."""
    drive = drive_spec_of(cfg.driver, allow_reverse=cfg.reverse, lidar=cfg.lidar)
    return task_contract(cfg, drive, OWN_TERMS | PARK_TERMS)


def track_contract(cfg: RaceCfg) -> PolicyContract:
    """The contract of a policy that races: it sees a scan and, with ``lookahead_m``, the middle of the track."""
    drive = drive_spec_of(
        cfg.driver, lidar=cfg.lidar, lookahead_m=cfg.lookahead_m, curvature_reach_m=1.0, allow_reverse=cfg.reverse
    )
    return task_contract(cfg, drive, RACE_TERMS | (MIDDLE_TERMS if cfg.lookahead_m else {}))

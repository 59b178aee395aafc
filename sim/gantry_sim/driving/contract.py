"""The contracts of driving policies."""

from __future__ import annotations

from collections.abc import Mapping

from gantry_deploy.contract import ActionSpec, CommandSpec, PolicyContract
from gantry_deploy.drive_spec import DRIVE_TARGET, DriveSpec, drive_spec_of
from gantry_deploy.driving import term_sizes
from gantry_deploy.observations import make_term
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.cfg import CarTaskCfg, DriveCfg

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
OTHERS_TERMS = {"stop_line": 0.05, "objects": 0.1}
"""Terms of a car that is not alone."""
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
        make_term(name, sizes[name], scale=scale, clip=100.0, history=cfg.history if name in REMEMBERED else 1)
        for name, scale in scales.items()
    )
    return PolicyContract(
        robot=spec.name,
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
        drive=drive,
        acceptance=cfg.acceptance,
    )


def road_contract(cfg: DriveCfg) -> PolicyContract:
    """The contract of a policy that drives on roads."""
    among = {} if cfg.traffic is None else {"max_objects": cfg.max_objects}
    drive = drive_spec_of(
        cfg.driver, lookahead_m=cfg.lookahead_m, curvature_reach_m=4.0, allow_reverse=cfg.reverse, **among
    )
    return task_contract(cfg, drive, OWN_TERMS | ROUTE_TERMS | ({} if cfg.traffic is None else OTHERS_TERMS))

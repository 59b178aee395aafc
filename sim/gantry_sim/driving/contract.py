"""The contract of policies that drive on roads."""

from __future__ import annotations

from gantry_deploy.contract import ActionSpec, CommandSpec, PolicyContract
from gantry_deploy.drive_spec import DRIVE_TARGET, drive_spec_of
from gantry_deploy.driving import term_sizes
from gantry_deploy.observations import make_term
from gantry_hardware.cars import car_spec
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.cfg import DriveCfg

SCALES = {
    "speed": 0.1,
    "steering_angle": 2.0,
    "yaw_rate": 2.0,
    "route_points": 0.05,
    "route_error": 1.0,
    "route_curvature": 10.0,
    "route_speed_limits": 0.1,
    "lane_edges": 0.5,
    "last_action": 1.0,
}
"""Terms of a policy that follows its lane, in order, with their scales."""


def lane_contract(cfg: DriveCfg) -> PolicyContract:
    """The contract of a policy trained on this task; training and runtime both obey it."""
    spec = robot_spec(cfg.robot)
    drive = drive_spec_of(car_spec(cfg.robot), lookahead_m=cfg.lookahead_m, curvature_reach_m=4.0)
    sizes = term_sizes(drive)

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
        observations=tuple(make_term(name, sizes[name], scale=scale, clip=100.0) for name, scale in SCALES.items()),
        action=ActionSpec(DRIVE_TARGET, (1.0, 1.0), (0.0, 0.0), clip=1.0),
        command=CommandSpec("", (), (), (), ()),
        drive=drive,
        acceptance=cfg.acceptance,
    )

"""Gait, heights and weights of each robot that the velocity tasks are built from."""

from __future__ import annotations

from gantry_deploy.contract.policy_contract import BalanceSpec, GaitSpec
from gantry_hardware.errors import GantryError
from gantry_hardware.plugins import entry_points
from gantry_hardware.robots import robot_spec
from gantry_sim.tasks.locomotion.derived import derived_quadruped
from gantry_sim.tasks.locomotion.legged_robot import LeggedRobotCfg

LEGGED_ROBOT_GROUP = "gantry.legged_robots"
"""Entry-point group of other packages: robot name -> a function without arguments that makes its
:class:`~gantry_sim.tasks.locomotion.legged_robot.LeggedRobotCfg`."""


def _quadruped(
    name: str,
    root_body: str,
    *,
    foot_radius_m: float,
    foot_x_m: float,
    foot_y_m: float,
    leg_m: float,
    base_height_m: float,
    spawn_height_m: float,
    bandwidth: dict[str, float] | None = None,
) -> LeggedRobotCfg:
    """Trot: diagonal feet together. In swing the thigh moves forward and the calf folds twice as far."""
    spec = robot_spec(name)
    feet = spec.feet
    gain = {"hip": 0.0, "thigh": 1.0, "calf": -2.0}
    parts = [joint.split("_") for joint in spec.joint_names]
    gait = GaitSpec(
        frequency_hz=2.0,
        duty=0.55,
        foot_offset=tuple(0.0 if foot in ("FR", "RL") else 0.5 for foot in feet),
        amplitude_rad=0.3,
        lead_s=0.03,
        joint_foot=tuple(feet.index(leg) for leg, _, _ in parts),
        joint_gain=tuple(gain[kind] for _, kind, _ in parts),
        stand_below=0.1,
        foot_x_m=tuple(foot_x_m if foot.startswith("F") else -foot_x_m for foot in feet),
        foot_y_m=tuple(foot_y_m if foot.endswith("L") else -foot_y_m for foot in feet),
        # A foot hanging leg_m below its hip moves forward by -leg_m per rad of thigh and to the left by leg_m per rad
        # of hip.
        stride_x_rad_m=tuple(-1.0 / leg_m if kind == "thigh" else 0.0 for _, kind, _ in parts),
        stride_y_rad_m=tuple(1.0 / leg_m if kind == "hip" else 0.0 for _, kind, _ in parts),
    )
    return LeggedRobotCfg(
        spec=spec,
        root_body=root_body,
        heavy_body=root_body,
        foot_geoms=tuple(f"^{foot}_foot_collision$" for foot in feet),
        foot_radius_m=foot_radius_m,
        gait=gait,
        action_scale=tuple(0.25 for _ in spec.joints),
        base_height_m=base_height_m,
        swing_height_m=0.08,
        deviation_weight=tuple(1.0 if kind == "hip" else 0.5 for _, kind, _ in parts),
        spawn_height_m=spawn_height_m,
        bandwidth=tuple(bandwidth[kind] for _, kind, _ in parts) if bandwidth else (),
    )


def _go1() -> LeggedRobotCfg:
    return _quadruped(
        "go1",
        "trunk",
        foot_radius_m=0.023,
        foot_x_m=0.188,
        foot_y_m=0.1,
        leg_m=0.265,
        base_height_m=0.27,
        spawn_height_m=0.30,
        # The spec's gains let the robot sag; these carry it, so that few samples are enough.
        bandwidth={"hip": 1.5, "thigh": 1.5, "calf": 1.2},
    )


def _go2() -> LeggedRobotCfg:
    return _quadruped(
        "go2",
        "base",
        foot_radius_m=0.022,
        foot_x_m=0.193,
        foot_y_m=0.142,
        leg_m=0.265,
        base_height_m=0.27,
        spawn_height_m=0.30,
    )


def _by_part(names: tuple[str, ...], table: dict[str, float], default: float) -> tuple[float, ...]:
    """Per joint, the value of the first key that is part of its name."""
    return tuple(next((value for part, value in table.items() if part in name), default) for name in names)


def _g1_gait(names: tuple[str, ...]) -> GaitSpec:
    """Walking on alternate feet: in swing hip and ankle pitch and the knee twice as far, which lifts the sole level.

    Feet are placed where the body is falling to. A body of height h turning at rate r moves at h r, and the linear
    inverted pendulum of rate w = sqrt(g / h) = 3.8 1/s comes to rest over a foot that is h r / w ahead: about 0.2 s of
    hip angle per unit of rate, on top of one that keeps the swinging leg upright while the body tilts. Stance hips and
    ankles push the body upright. The numbers are rounded from a search that started there, over walks of the randomised
    model with sensor noise; seven of eight robots then follow commands for 20 s without any policy.
    """
    lift = {"hip_pitch": -1.0, "knee": 2.1, "ankle_pitch": -1.1, "left_hip_roll": 0.18, "right_hip_roll": -0.18}
    # Pitch of hip and ankle, roll of hip and ankle. The swinging ankle keeps the sole level.
    balance = BalanceSpec(
        joint_axis=tuple(1 if "pitch" in name else 0 for name in names),
        stance_tilt=_by_part(names, {"hip_pitch": 0.14, "ankle_pitch": 0.68, "hip_roll": 0.1, "ankle_roll": 0.29}, 0.0),
        stance_rate_s=_by_part(
            names, {"hip_pitch": 0.059, "ankle_pitch": 0.03, "hip_roll": 0.087, "ankle_roll": 0.063}, 0.0
        ),
        swing_tilt=_by_part(names, {"hip_pitch": -0.97, "ankle_pitch": -0.03, "hip_roll": -1.21}, 0.0),
        swing_rate_s=_by_part(names, {"hip_pitch": -0.107, "ankle_pitch": 0.107, "hip_roll": -0.095}, 0.0),
    )
    # Weight from foot to foot; the pelvis turns against the swinging leg, and so do the arms.
    sway = {
        "hip_roll": 0.045,
        "ankle_roll": -0.024,
        "hip_yaw": -0.032,
        "left_shoulder_pitch": -0.073,
        "right_shoulder_pitch": 0.073,
    }
    ahead, aside = 1.32, 1.2
    return GaitSpec(
        frequency_hz=1.84,
        duty=0.61,
        foot_offset=(0.0, 0.5),
        amplitude_rad=0.192,
        lead_s=0.03,
        joint_foot=tuple(1 if name.startswith("right") else 0 for name in names),
        joint_gain=_by_part(names, lift, 0.0),
        stand_below=0.1,
        foot_x_m=(0.0, 0.0),
        foot_y_m=(0.1185, -0.1185),
        # The ankle turns against the hip, so that the sole stays level.
        stride_x_rad_m=_by_part(names, {"hip_pitch": -ahead, "ankle_pitch": ahead}, 0.0),
        stride_y_rad_m=_by_part(names, {"hip_roll": aside, "ankle_roll": -aside}, 0.0),
        sway_rad=_by_part(names, sway, 0.0),
        stride_yaw=_by_part(names, {"hip_yaw": 0.92}, 0.0),
        stride_lag=(0.49, 0.32),
        balance=balance,
    )


def _g1() -> LeggedRobotCfg:
    spec = robot_spec("g1")
    names = spec.joint_names
    # Feet a little apart, weight on their balls.
    pose = {
        "left_hip_roll": 0.02,
        "right_hip_roll": -0.02,
        "left_ankle_roll": -0.02,
        "right_ankle_roll": 0.02,
        "ankle_pitch": 0.018,
    }
    return LeggedRobotCfg(
        spec=spec,
        root_body="pelvis",
        heavy_body="torso_link",
        # Two of the seven capsules under each sole, the outer ones, span the support of all.
        foot_geoms=("^left_foot[26]_collision$", "^right_foot[26]_collision$"),
        all_foot_geoms=("^left_foot[1-7]_collision$", "^right_foot[1-7]_collision$"),
        foot_radius_m=-0.002,
        gait=_g1_gait(names),
        action_scale=_by_part(names, {"shoulder": 0.1, "elbow": 0.1, "wrist": 0.05, "waist": 0.15}, 0.25),
        base_height_m=0.74,
        swing_height_m=0.05,
        deviation_weight=_by_part(names, {"hip_pitch": 0.1, "knee": 0.1, "ankle": 0.1, "hip_roll": 0.5}, 1.0),
        spawn_height_m=0.765,
        offset_rad=_by_part(names, pose, 0.0),
        # The spec's gains leave all balance to the policy; these carry the robot, so that few samples are enough.
        bandwidth=_by_part(names, {"ankle": 3.0, "hip": 2.0, "knee": 2.0, "waist": 2.0}, 1.0),
    )


def legged_robot_cfg(name: str) -> LeggedRobotCfg:
    """The walking parameters of a robot: found by hand, here or in its own package, or derived from its model.

    Raises:
        UnknownNameError: If there is no such robot, or it has no model.
        GantryError: If it has no numbers of its own and is no quadruped with three joints per leg.
    """
    makers = {"go1": _go1, "go2": _go2, "g1": _g1}
    if name in makers:
        return makers[name]()
    for entry in entry_points(group=LEGGED_ROBOT_GROUP):
        if entry.name == name:
            body = entry.load()()
            if not isinstance(body, LeggedRobotCfg):
                raise GantryError(
                    f"Entry point '{entry.value}' made a {type(body).__name__}, expected a LeggedRobotCfg."
                )
            return body
    return derived_quadruped(robot_spec(name))

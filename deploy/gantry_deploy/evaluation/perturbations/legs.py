"""Perturbations of robots with legs: joints, delays, pushes, ground, payload and mountings."""

from __future__ import annotations

import numpy as np

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.evaluation.perturbations.perturbation import (
    Perturbation,
    Pushes,
    all_joints,
    merged,
    scaled_joints,
)
from gantry_hardware.model.spec import RobotSpec

STRONG_NM = 20.0
"""Torque limit from which a joint gets the whole friction; weaker ones get their share of it."""
LATE_S = 0.02
"""Delay of commands, one step of a policy at 50 Hz."""
LIGHT_SHARE, HEAVY_SHARE = -1.0 / 15.0, 3.0 / 15.0
"""Payloads in units of the robot's mass."""


def legs_perturbations(contract: PolicyContract, spec: RobotSpec) -> tuple[Perturbation, ...]:
    """Perturbations of a robot with legs under a contract's policy."""
    size = np.minimum(1.0, spec.array("effort_limit_nm") / STRONG_NM)
    late = {"command_delay_s": (LATE_S, LATE_S)}
    curve = scaled_joints(
        spec, spec.array("velocity_limit_rad_s"), corner_speed_rad_s=(0.6, 0.6), no_load_speed_rad_s=(1.0, 1.0)
    )
    lower = {name: (0.85, 0.85) for name in ("stiffness_share", "damping_share", "effort_limit_nm")}
    higher = {name: (1.15, 1.15) for name in ("stiffness_share", "damping_share")}
    stiff = scaled_joints(spec, size, coulomb_friction_nm=(0.1, 1.4), viscous_friction_nm_s_rad=(0.1, 0.3))
    return (
        Perturbation(
            "damped",
            "viscous friction of 2 N m s/rad in every joint",
            joints=scaled_joints(spec, size, viscous_friction_nm_s_rad=(2.0, 2.0)),
        ),
        Perturbation(
            "stiff_joints",
            "dry friction of 0.1 to 1.4 N m and viscous friction of 0.1 to 0.3 N m s/rad, drawn for each joint",
            joints=stiff,
        ),
        Perturbation("late", "commands act 20 ms later", whole=late),
        Perturbation(
            "pushed",
            "pushes of the base by 0.5 to 1 m/s every 3 to 5 s, and commands act 20 ms later",
            whole=late,
            pushes=Pushes(),
        ),
        Perturbation(
            "weak",
            "gains and torque limits 15 % lower, torque falling to none from 60 % of the joint's top speed",
            joints=merged(all_joints(spec, **lower), curve),
        ),
        Perturbation("strong", "gains 15 % higher", joints=all_joints(spec, **higher)),
        Perturbation("slippery", "friction of 0.3 between feet and ground", options={"friction": 0.3}),
        Perturbation(
            "soft_ground", "ground that gives way under the feet by about 1 cm", options={"ground_softness_s": 0.05}
        ),
        Perturbation(
            "light", "1/15 of the mass less at the base", options={"added_mass_kg": LIGHT_SHARE * spec.mass_kg}
        ),
        Perturbation(
            "heavy", "3/15 of the mass more at the base", options={"added_mass_kg": HEAVY_SHARE * spec.mass_kg}
        ),
        Perturbation(
            "misaligned",
            "encoders off by up to 0.02 rad, and an IMU that is pitched by 0.03 rad",
            joints=all_joints(spec, encoder_offset_rad=(-0.02, 0.02)),
            whole={"imu_pitch_rad": (0.03, 0.03)},
        ),
    )

"""A pole on a cart on a rail, the machine of Isaac Lab's Cartpole tasks.

Names, torque limit and damping of the cart's motor are those of Isaac Lab's ``CARTPOLE_CFG`` (BSD-3); masses and
lengths are this model's own. The cart slides, so that its position is in m where a name says rad, its force in N and
its damping in N s/m. Nothing drives the pole. Its limits are those of a joint that turns for ever.
"""

from __future__ import annotations

from gantry_hardware.model.mechanism import PASSIVE_EFFORT_NM, Mechanism
from gantry_hardware.model.spec import JointSpec, RobotSpec

CART_JOINT, POLE_JOINT = "slider_to_cart", "cart_to_pole"
"""The cart on its rail, and the pole on the cart."""
ENDLESS_RAD = 1e3
"""Limit of a joint that turns for ever."""
RAIL_HEIGHT_M = 1.5
"""Height of the rail above the floor, so that the pole swings freely."""

SPEC = RobotSpec(
    name="cartpole",
    embodiment="mechanism",
    joints=(
        JointSpec(
            name=CART_JOINT,
            lower_rad=-4.0,
            upper_rad=4.0,
            velocity_limit_rad_s=20.0,
            effort_limit_nm=400.0,
            default_rad=0.0,
            stiffness_nm_rad=0.0,
            damping_nm_s_rad=10.0,
            armature_kg_m2=0.0,
        ),
        JointSpec(
            name=POLE_JOINT,
            lower_rad=-ENDLESS_RAD,
            upper_rad=ENDLESS_RAD,
            velocity_limit_rad_s=50.0,
            effort_limit_nm=PASSIVE_EFFORT_NM,
            default_rad=0.0,
            stiffness_nm_rad=0.0,
            damping_nm_s_rad=0.0,
            armature_kg_m2=0.0,
        ),
    ),
    feet=(),
    base_height_m=RAIL_HEIGHT_M,
    fall_height_m=0.0,
    mass_kg=2.2,
    source="Isaac Lab's CARTPOLE_CFG (BSD-3) for names, force limit and damping; masses and lengths of the model",
    # 200 N/m on 2 kg are 1.6 Hz, and 40 N s/m damp that critically.
    hold_gains=((200.0, 40.0), (0.0, 0.0)),
    damp_gains_nm_s_rad=(10.0, 1e-3),
    body=Mechanism(passive_joints=(POLE_JOINT,)),
    mjcf="gantry_sim:assets/cartpole.xml",
)
"""Registered as ``cartpole``."""

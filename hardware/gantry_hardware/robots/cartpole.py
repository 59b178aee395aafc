"""A pole on a cart on a rail: the machines of Isaac Lab's and of mjlab's Cartpole tasks.

Of the first, names, force limit and damping of the cart's motor are those of Isaac Lab's ``CARTPOLE_CFG`` (BSD-3);
masses and lengths are this model's own. The second has all numbers of mjlab's ``cartpole.xml`` (Apache-2.0), which are
those of dm_control. The cart slides, so that its position is in m where a name says rad, its force in N and its damping
in N s/m. Nothing drives the pole. Its limits are those of a joint that turns for ever.
"""

from __future__ import annotations

from gantry_hardware.model.mechanism import PASSIVE_EFFORT_NM, Mechanism
from gantry_hardware.model.spec import JointSpec, RobotSpec

CART_JOINT, POLE_JOINT = "slider_to_cart", "cart_to_pole"
"""The cart on its rail, and the pole on the cart."""
MJLAB_CART_JOINT, MJLAB_POLE_JOINT = "slider", "hinge_1"
"""The same in mjlab's model."""
ENDLESS_RAD = 1e3
"""Limit of a joint that turns for ever."""
RAIL_HEIGHT_M = 1.5
"""Height of the rail above the floor, so that the pole swings freely."""


def _cart(name: str, reach_m: float, force_n: float, damping_n_s_m: float) -> JointSpec:
    return JointSpec(
        name=name,
        lower_rad=-reach_m,
        upper_rad=reach_m,
        velocity_limit_rad_s=20.0,
        effort_limit_nm=force_n,
        default_rad=0.0,
        stiffness_nm_rad=0.0,
        damping_nm_s_rad=damping_n_s_m,
        armature_kg_m2=0.0,
    )


def _pole(name: str) -> JointSpec:
    return JointSpec(
        name=name,
        lower_rad=-ENDLESS_RAD,
        upper_rad=ENDLESS_RAD,
        velocity_limit_rad_s=50.0,
        effort_limit_nm=PASSIVE_EFFORT_NM,
        default_rad=0.0,
        stiffness_nm_rad=0.0,
        damping_nm_s_rad=0.0,
        armature_kg_m2=0.0,
    )


SPEC = RobotSpec(
    name="cartpole",
    embodiment="mechanism",
    joints=(_cart(CART_JOINT, 4.0, 400.0, 10.0), _pole(POLE_JOINT)),
    feet=(),
    base_height_m=RAIL_HEIGHT_M,
    fall_height_m=0.0,
    mass_kg=2.2,
    source="Isaac Lab's CARTPOLE_CFG (BSD-3) for names, force limit and damping; masses and lengths of the model",
    # 200 N/m on 2 kg are 1.6 Hz, and 40 N s/m damp that critically.
    hold_gains=((200.0, 40.0), (0.0, 0.0)),
    damp_gains_nm_s_rad=(10.0, 1e-3),
    body=Mechanism(passive_joints=(POLE_JOINT,), endless_joints=(POLE_JOINT,)),
    mjcf="gantry_sim:assets/cartpole.xml",
)
"""Registered as ``cartpole``."""

MJLAB = RobotSpec(
    name="cartpole_mjlab",
    embodiment="mechanism",
    joints=(_cart(MJLAB_CART_JOINT, 1.8, 10.0, 0.0), _pole(MJLAB_POLE_JOINT)),
    feet=(),
    base_height_m=RAIL_HEIGHT_M,
    fall_height_m=0.0,
    mass_kg=1.1,
    source="mjlab's cartpole.xml (Apache-2.0), which has the numbers of dm_control's cart-pole (Apache-2.0)",
    # 50 N/m on 1.1 kg are 1.1 Hz, and 15 N s/m damp that critically.
    hold_gains=((50.0, 15.0), (0.0, 0.0)),
    damp_gains_nm_s_rad=(10.0, 1e-3),
    body=Mechanism(passive_joints=(MJLAB_POLE_JOINT,), endless_joints=(MJLAB_POLE_JOINT,)),
    mjcf="gantry_sim:assets/cartpole_mjlab.xml",
)
"""Registered as ``cartpole_mjlab``."""

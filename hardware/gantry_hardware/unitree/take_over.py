"""Taking a Unitree robot over from its own controller, and the state in which it must be for that."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import RobotError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.unitree.motor_loop import MotorLoop
from gantry_hardware.unitree.rpc import MotionSwitcher

MAX_TILT_RAD = 1.0
"""Largest angle between the base's up axis and the vertical at which a robot is taken over."""
POS_MARGIN_RAD = 0.1
"""By which a joint may be beyond its limit."""
MAX_SPEED_RAD_S = 1.0
"""Largest speed of a joint."""
MAX_AGE_S = 0.5
"""Largest age of the state that is looked at."""
SETTLE_S = 0.3
"""Time for which the joints must have been slow after the release."""
RELEASES = 5
"""Releases of a controller before giving up: one may hand over to another."""


def require_envelope(
    spec: RobotSpec, state: RobotState, now_s: float, max_speed_rad_s: float = MAX_SPEED_RAD_S
) -> None:
    """Refuse a state from which the robot must not be commanded.

    Args:
        spec: The robot.
        state: Its newest state.
        now_s: On the clock of the state's stamp.
        max_speed_rad_s: Largest speed of a joint.

    Raises:
        RobotError: With the first value that is out of place, and what is allowed.
    """
    age_s = now_s - state.stamp_s
    if not age_s <= MAX_AGE_S:
        raise RobotError(f"its state is {1e3 * age_s:.0f} ms old, allowed are {1e3 * MAX_AGE_S:g} ms.")
    if not state.is_finite():
        raise RobotError("its state holds numbers that are not finite.")
    w, x, y, z = state.quat_base_to_world_wxyz
    norm2 = w * w + x * x + y * y + z * z
    if not 0.9 < norm2 < 1.1:
        raise RobotError(f"its orientation has norm {norm2**0.5:.3f}, expected 1: the IMU does not work.")
    tilt = float(np.arccos(np.clip(1.0 - 2.0 * (x * x + y * y) / norm2, -1.0, 1.0)))
    if tilt > MAX_TILT_RAD:
        raise RobotError(f"it is tilted by {tilt:.2f} rad, allowed are {MAX_TILT_RAD:g} rad.")
    lower, upper = spec.array("lower_rad") - POS_MARGIN_RAD, spec.array("upper_rad") + POS_MARGIN_RAD
    beyond = np.maximum(lower - state.joint_pos_rad, state.joint_pos_rad - upper)
    worst = int(np.argmax(beyond))
    if beyond[worst] > 0.0:
        raise RobotError(
            f"joint '{spec.joint_names[worst]}' is at {state.joint_pos_rad[worst]:.3f} rad, allowed are "
            f"[{lower[worst]:.3f}, {upper[worst]:.3f}] rad."
        )
    fastest = int(np.argmax(np.abs(state.joint_vel_rad_s)))
    if abs(state.joint_vel_rad_s[fastest]) > max_speed_rad_s:
        raise RobotError(
            f"joint '{spec.joint_names[fastest]}' turns at {state.joint_vel_rad_s[fastest]:.2f} rad/s, allowed are "
            f"{max_speed_rad_s:g} rad/s."
        )


def release(switcher: MotionSwitcher, timeout_s: float) -> list[str]:
    """Release the robot's own controllers until none is active. Returns the names of those that were.

    Raises:
        RobotError: If one stays.
    """
    released: list[str] = []
    end_s = time.monotonic() + timeout_s
    while name := switcher.active():
        if len(released) >= RELEASES or time.monotonic() > end_s:
            raise RobotError(
                f"The robot's own controller '{name}' is still active after {len(released)} releases within "
                f"{timeout_s:g} s; switch it off with the robot's app."
            )
        released.append(name)
        switcher.release()
    return released


def wait_for_rest(read: Callable[[], RobotState], timeout_s: float) -> None:
    """Wait until the joints have been slow for :data:`SETTLE_S`.

    Raises:
        RobotError: If they are not in time.
    """
    end_s, slow_since_s = time.monotonic() + timeout_s, time.monotonic()
    while (now_s := time.monotonic()) - slow_since_s < SETTLE_S:
        fastest = float(np.abs(read().joint_vel_rad_s).max())
        if fastest > MAX_SPEED_RAD_S:
            slow_since_s = now_s
        if now_s > end_s:
            raise RobotError(f"its joints still turn at {fastest:.1f} rad/s, {timeout_s:g} s after it was let go.")
        time.sleep(0.01)


def require_alone(loop: MotorLoop, look_s: float, link_text: str) -> None:
    """Refuse a robot that another program announces commands for; one that has just been released gets time to go.

    Raises:
        RobotError: If one is there for the whole time.
    """
    end_s = time.monotonic() + look_s
    while others := loop.others():
        if time.monotonic() > end_s:
            raise RobotError(
                f"another program announces commands on 'rt/lowcmd' ({', '.join(others)}; {link_text}). Two of them "
                "make the robot twitch: end the other one."
            )
        time.sleep(0.02)

"""Transports of ROS 2 messages in Gantry's own processes: UDP, unless the environment chooses others.

Fast DDS prefers shared memory between processes of one machine. Processes that are killed, or that start at the same
moment, can leave a segment there in which every later participant waits for ever while it is made, in whatever domain:
all of them open the segment of the same port. UDP has no state that outlives a process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

PROFILE_VARIABLE = "FASTRTPS_DEFAULT_PROFILES_FILE"
"""Environment variable with a file of Fast DDS's settings."""
RANGE_VARIABLE = "ROS_AUTOMATIC_DISCOVERY_RANGE"
"""Environment variable with the range of discovery: this machine, its subnet, none."""
LOCALHOST = "LOCALHOST"
"""Range of this machine alone."""
OF_THIS_MACHINE, OF_A_NETWORK = (
    os.path.join(os.path.dirname(os.path.abspath(__file__)), name) for name in ("udp_loopback.xml", "udp.xml")
)
"""Profiles beside this module."""

_AS_PROFILE = "SYSTEM_DEFAULT"
_OTHER_CHOICES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTDDS_BUILTIN_TRANSPORTS")
_RMW, _FAST_DDS = "RMW_IMPLEMENTATION", "rmw_fastrtps_cpp"
_ONLY, _PEERS = "ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS"


def use_udp() -> None:
    """Let this process and its children exchange ROS 2 messages over UDP.

    To be called before the process makes its first participant: Fast DDS reads its settings once.
    """
    for name, value in udp_variables(os.environ).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def udp_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Environment variables to change so that Fast DDS uses UDP alone; None for one to unset.

    Args:
        environment: The variables as they are, maybe changed by a parent process already.

    Returns:
        Nothing where another middleware is used or transports are chosen already. With ``ROS_STATIC_PEERS`` in the
        range LOCALHOST ROS 2 itself makes the transports, shared memory included, and nothing can be changed.
    """
    profile, heard = environment.get(PROFILE_VARIABLE, ""), environment.get(RANGE_VARIABLE, "")
    if environment.get(_RMW, "") not in ("", _FAST_DDS) or any(environment.get(name) for name in _OTHER_CHOICES):
        return {}
    if profile not in ("", OF_THIS_MACHINE, OF_A_NETWORK) or (profile and heard == _AS_PROFILE):
        return {}
    only_here = environment.get(_ONLY) == "1"
    if not only_here and heard != LOCALHOST:
        return {PROFILE_VARIABLE: OF_A_NETWORK}
    if environment.get(_PEERS) and not only_here:
        return {PROFILE_VARIABLE: None} if profile else {}
    # In the range LOCALHOST ROS 2 would add shared memory to what a profile says.
    changes: dict[str, str | None] = {PROFILE_VARIABLE: OF_THIS_MACHINE, RANGE_VARIABLE: _AS_PROFILE}
    return {**changes, _ONLY: None, _PEERS: None} if only_here else changes


def keeps_to_this_machine(environment: Mapping[str, str]) -> bool:
    """Whether nodes with these variables communicate on this machine alone."""
    heard = environment.get(RANGE_VARIABLE, "")
    return heard == LOCALHOST or (heard == _AS_PROFILE and environment.get(PROFILE_VARIABLE) == OF_THIS_MACHINE)

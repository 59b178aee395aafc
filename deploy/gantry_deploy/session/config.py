"""Settings of a correction session."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_deploy.errors import SessionError


@dataclass(frozen=True)
class SessionCfg:
    """Beginnings and ends of attempts, penalties, and advice to the person."""

    episode_s: float | None = None
    """Length of an attempt, s; None for the task's own, or :data:`EPISODE_S` where there is none."""
    auto_start: bool = True
    """Begin the next attempt as soon as scene and robot are back at a start; otherwise wait for ``start_episode``."""
    gripper_penalty: float = -0.02
    """Penalty of a step whose gripper command opens or closes it, at most 0 (HIL-SERL's value)."""
    recent: int = 20
    """Finished attempts over which rates are told."""
    advice_ratio: float = 2.5
    """Disagreement of the critic's heads, relative to its median, from which stepping in is advised."""
    stall_s: float = 3.0
    """Time without any motion of the robot after which stepping in is advised, s."""
    max_attempts: int = 0
    """Attempts after which the session ends by itself; 0 for no end."""

    def __post_init__(self) -> None:
        if self.episode_s is not None and not self.episode_s > 0.0:
            raise SessionError(f"episode_s is {self.episode_s}, expected more than 0 s.")
        if not self.gripper_penalty <= 0.0:
            raise SessionError(f"gripper_penalty is {self.gripper_penalty}, expected 0 or less.")
        for name, least in (("recent", 1), ("advice_ratio", 1.0), ("stall_s", 0.0), ("max_attempts", 0)):
            if not getattr(self, name) >= least:
                raise SessionError(f"{name} is {getattr(self, name)}, expected at least {least}.")


LOGGED_EVENTS = 20
"""Events that a snapshot shows."""
EPISODE_S = 20.0
"""Length of an attempt of a robot that knows of no task, s."""

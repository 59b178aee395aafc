"""Per-step quantities that rewards use (batch of N cars), and the interface of every kind of reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from gantry_deploy.observations.surroundings import Surroundings

Look = Callable[[], tuple[Surroundings, Tensor]]
"""Function that gives the surroundings of N cars after the step, and their poses ``(N, 3)`` in the world; N rows."""
COMFORT = ("lon_jerk", "jerk", "lon_acc", "lat_acc", "yaw_rate", "yaw_acc")
"""Quantities that passengers feel, in the order of :attr:`StepInfo.discomfort`."""


@dataclass(frozen=True)
class StepInfo:
    """Quantities of one step of N cars."""

    progress: Tensor
    """``(N,)`` share of the route that was driven in this step, in percent."""
    off_route: Tensor
    """``(N,)`` bool: outside the lanes of the route."""
    speed_m_s: Tensor
    """``(N,)``, forward."""
    speed_limit_m_s: Tensor
    """``(N,)``, where the car is."""
    near_collision: Tensor
    """``(N,)`` bool: a user would be hit within the forecast, all going on as they do."""
    discomfort: Tensor
    """``(N, 6)`` bool: limits of :data:`COMFORT` that are exceeded."""
    lane_share: Tensor
    """``(N,)`` distance from the middle of the lane, in half widths of the lane."""
    heading_error_rad: Tensor
    """``(N,)`` against the lane."""
    in_junction: Tensor
    """``(N,)`` bool: where no lane need be kept."""
    steer_change: Tensor
    """``(N,)`` change of the steering action since the last step."""
    safe_speed_m_s: Tensor
    """``(N,)`` that the vehicle ahead and the next stop line leave; the limit without them."""
    fault: Tensor
    """``(N,)`` bool: a collision, a red light or leaving the road, which ends the episode."""
    look: Look | None = None
    """Surroundings that the cars could see, for rewards that want a picture of them; called when they do."""


class Reward(Protocol):
    """Reward of steps of N cars."""

    @property
    def remembered(self) -> Tensor:
        """``(N, M)`` about earlier steps that later rewards depend on, for the critic."""
        ...

    def reset(self, env_ids: Tensor) -> None:
        """Forget what cars ``(m,)`` did."""
        ...

    def __call__(self, step: StepInfo) -> tuple[Tensor, dict[str, Tensor]]:
        """Reward ``(N,)`` of a step, and what it is made of, ``(N,)`` by name."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        ...

"""Comfort of passengers: accelerations and jerks of a ride, smoothed, against limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gantry_sim.driving.step_info import COMFORT

WINDOW = 15
"""Samples that a derivative is fitted to."""


@dataclass(frozen=True)
class ComfortLimits:
    """Largest values that are comfortable; those of nuPlan's planning challenge (arXiv 2106.11810)."""

    lon_jerk_m_s3: float = 4.13
    """Change of the acceleration along the car."""
    jerk_m_s3: float = 8.37
    """Change of the acceleration in all."""
    brake_m_s2: float = 4.05
    """Deceleration."""
    accel_m_s2: float = 2.40
    """Acceleration."""
    lat_acc_m_s2: float = 4.89
    """Acceleration across the car."""
    yaw_rate_rad_s: float = 0.95
    """Turning rate."""
    yaw_acc_rad_s2: float = 1.93
    """Change of the turning rate."""


def fit_weights(samples: int, order: int, derivative: int, dt_s: float) -> np.ndarray:
    """Weights (samples,) that give a derivative (0 or 1) at the newest of evenly spaced samples, oldest first.

    That of the polynomial which fits them best (Savitzky and Golay, 1964).
    """
    times = dt_s * np.arange(1 - samples, 1)
    powers = times[:, None] ** np.arange(order + 1)
    return np.linalg.pinv(powers)[derivative]


class Comfort:
    """Remembers the last accelerations of N cars and says which limits they exceed.

    Args:
        limits: What is comfortable.
        num_envs: N.
        dt_s: Time between samples.
        device: Of all tensors.
    """

    def __init__(self, limits: ComfortLimits, num_envs: int, dt_s: float, device: str = "cpu") -> None:
        self.limits = limits
        self._past = torch.zeros(num_envs, WINDOW, 3, device=device)
        self._count = torch.zeros(num_envs, dtype=torch.int64, device=device)
        rows = np.zeros((WINDOW + 1, 2, WINDOW), dtype=np.float32)
        for count in range(1, WINDOW + 1):
            # With few samples there is no curve to fit: a mean, and no change.
            order = min(2, count - 1) if count >= 5 else 0
            rows[count, 0, WINDOW - count :] = fit_weights(count, order, 0, dt_s)
            if order:
                rows[count, 1, WINDOW - count :] = fit_weights(count, order, 1, dt_s)
        self._weights = torch.as_tensor(rows, device=device)

    def reset(self, env_ids: Tensor) -> None:
        """Forget the past of cars ``(m,)``."""
        self._past[env_ids] = 0.0
        self._count[env_ids] = 0

    def __call__(self, accel_m_s2: Tensor, yaw_rate_rad_s: Tensor) -> Tensor:
        """Mask of the limits that are exceeded, ``(N, 6)`` bool in the order of
        :data:`~gantry_sim.driving.step_info.COMFORT`.

        Args:
            accel_m_s2: ``(N, 2)`` in the base frame: forward and to the left.
            yaw_rate_rad_s: ``(N,)``.
        """
        newest = torch.cat((accel_m_s2, yaw_rate_rad_s[:, None]), dim=1)
        self._past = torch.cat((self._past[:, 1:], newest[:, None]), dim=1)
        self._count = (self._count + 1).clamp(max=WINDOW)
        smooth, change = torch.einsum("ndw,nwk->dnk", self._weights[self._count], self._past)
        limits = self.limits
        lon, lat, yaw = smooth.unbind(-1)
        felt = {
            "lon_jerk": change[:, 0].abs() > limits.lon_jerk_m_s3,
            "jerk": change[:, :2].norm(dim=1) > limits.jerk_m_s3,
            "lon_acc": (lon > limits.accel_m_s2) | (lon < -limits.brake_m_s2),
            "lat_acc": lat.abs() > limits.lat_acc_m_s2,
            "yaw_rate": yaw.abs() > limits.yaw_rate_rad_s,
            "yaw_acc": change[:, 2].abs() > limits.yaw_acc_rad_s2,
        }
        return torch.stack([felt[name] for name in COMFORT], dim=1)

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        return {"past": self._past.clone(), "count": self._count.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        self._past, self._count = state["past"].to(self._past.device), state["count"].to(self._count.device)

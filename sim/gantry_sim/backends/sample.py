"""The truth of a simulated robot at one instant, from which readings are made."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """The truth at one instant."""

    time_s: float
    """Time on the robot's clock."""
    qpos: FloatArray
    """Shape (nq,), as MuJoCo has it."""
    qvel: FloatArray
    """Shape (nv,), as MuJoCo has it."""
    effort_nm: FloatArray
    """Shape (n,), torque of the motors."""
    lin_acc_m_s2: FloatArray
    """Shape (3,), what an accelerometer at the base reads."""
    contact_geoms: NDArray[np.int32]
    """Shape (contacts, 2), pairs of touching shapes."""

    @classmethod
    def take(cls, data: mujoco.MjData, time_s: float, lin_acc_m_s2: FloatArray) -> Sample:
        """Copy a simulation's state; MuJoCo leaves forces one physics step older than the positions."""
        return cls(
            time_s=time_s,
            qpos=data.qpos.copy(),
            qvel=data.qvel.copy(),
            effort_nm=data.actuator_force.copy(),
            lin_acc_m_s2=lin_acc_m_s2.copy(),
            contact_geoms=data.contact.geom.copy(),
        )


class History:
    """The last samples, from which delayed readings are made.

    Args:
        delay_steps: Age of every reading, physics steps.
        imu_delay_steps: Age of the IMU's readings beyond that.
    """

    def __init__(self, delay_steps: int, imu_delay_steps: int) -> None:
        self._delay, self._imu = delay_steps, delay_steps + imu_delay_steps
        self._samples: deque[Sample] = deque(maxlen=self._imu + 1)
        self.needs_every_step = self._imu > 0
        """Whether a sample of every physics step is wanted."""

    def restart(self, sample: Sample) -> None:
        """Forget everything but one sample."""
        self._samples.clear()
        self._samples.append(sample)

    def add(self, sample: Sample) -> None:
        """Take the newest sample."""
        self._samples.append(sample)

    @property
    def joints(self) -> Sample:
        """The sample that is read now."""
        return self._aged(self._delay)

    @property
    def imu(self) -> Sample:
        """The sample of which the IMU tells now."""
        return self._aged(self._imu)

    def _aged(self, steps: int) -> Sample:
        return self._samples[max(0, len(self._samples) - 1 - steps)]

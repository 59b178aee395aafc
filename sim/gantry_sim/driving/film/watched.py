"""Cars that drive as ever, while what happens to them is written down to be drawn later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gantry_deploy.evaluation.drive_metrics import COLLISIONS
from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import EnvStep, Observation
from gantry_sim.driving.cfg import CarTaskCfg
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import COUNTED
from gantry_sim.driving.scenes.scene import Outcome
from gantry_sim.driving.step_info import StepInfo

FloatArray = NDArray[np.float32]

TIME_UP = "time_up"
"""End of an episode that nothing ended but time."""
COLLIDED = COLLISIONS
"""Ends that are collisions."""
INFRACTIONS = COUNTED
"""Ends that are infractions."""


@dataclass(frozen=True)
class Episode:
    """One episode of one car, T moments: its beginning, and one after each decision. The last one is how it ended."""

    car: int
    """Index among the cars side by side."""
    place: int
    """Row of the scene's routes, lots or tracks that it drove on."""
    ended: str
    """End: a name of the environment's ends, :data:`TIME_UP`, or empty if it was left before its end."""
    seen: Mapping[str, FloatArray]
    """Name -> (T, ...), what :class:`WatchedEnv` writes down."""
    factors: Mapping[str, FloatArray]
    """Factors of the reward, each (T,); not a number at the beginning."""
    result: Mapping[str, float]
    """Results that the environment reported when it ended."""

    @property
    def steps(self) -> int:
        """Decisions, T - 1."""
        return len(self.seen["time_s"]) - 1

    def cut(self, seconds: float, *, end: bool) -> Episode:
        """No more than so many seconds of it, from its beginning, or before its end."""
        times = self.seen["time_s"]
        inside = times >= times[-1] - seconds - 1e-6 if end else times <= times[0] + seconds + 1e-6
        rows = np.flatnonzero(inside)
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        whole = part.stop == len(times)
        return Episode(
            self.car,
            self.place,
            self.ended if whole else "",
            {name: values[part] for name, values in self.seen.items()},
            {name: values[part] for name, values in self.factors.items()},
            self.result,
        )


class WatchedEnv(DriveEnv):
    """The same, and the first episode of every car after a reset is written down.

    Each moment holds, for N cars: ``time_s``, ``pose`` (3) in the world, ``speed_m_s``, ``steering_rad``, ``action``
    (2), ``reward`` and its sum ``earned``, ``completion``, ``lateral_m``, ``limit_m_s``, ``near`` and ``off_route``;
    ``route_m``, the place on the route or track, where there is one; and of what is around ``objects`` (K, 7),
    ``kinds`` (K), ``lights`` (J, G), ``stop_line`` (2), ``scan`` (beams) and ``goal`` (3), see
    :class:`gantry_deploy.observations.surroundings.Surroundings`.

    Args:
        cfg: The task.
        device: Of all tensors.
        seed: Of starts, noise, cars and traffic.
    """

    def __init__(self, cfg: CarTaskCfg, device: str = "cpu", seed: int = 0) -> None:
        self._log: list[dict[str, FloatArray]] = []
        self._outcome: Outcome | None = None
        self._last: NDArray[np.int64] = np.zeros(cfg.num_envs, np.int64)
        self._ended: list[str] = []
        self._results: dict[int, dict[str, float]] = {}
        self._places: NDArray[np.int64] = np.zeros(cfg.num_envs, np.int64)
        super().__init__(cfg, device, seed)

    def reset(self) -> Observation:
        """New episodes everywhere; what was written down before is forgotten."""
        obs = super().reset()
        self._outcome, self._ended, self._results = None, [""] * self.num_envs, {}
        self._last = np.full(self.num_envs, -1, np.int64)
        self._places = self.scene.places.cpu().numpy().copy()
        self._log = [self._moment() | {"reward": np.zeros(self.num_envs, np.float32)}]
        return obs

    def step(self, actions: Tensor) -> EnvStep:
        """See :meth:`gantry_sim.driving.env.DriveEnv.step`."""
        found = super().step(actions)
        self._log[-1]["reward"] = _array(found.reward)
        for row, car in enumerate(self.ended["envs"].tolist()):
            if self._last[car] >= 0:
                continue
            self._last[car] = len(self._log) - 1
            self._results[car] = {name: float(values[row]) for name, values in self.ended.items()}
            self._ended[car] = next((name for name in self.ends if self._results[car][name]), TIME_UP)
        return found

    @property
    def how_ended(self) -> list[str]:
        """End of the first episode of each car; empty for those that still run."""
        return list(self._ended)

    def episode(self, car: int) -> Episode:
        """Episode of a car since the last reset, up to the end of its first one.

        Raises:
            GantryError: If there is no such car.
        """
        if not 0 <= car < self.num_envs:
            raise GantryError(f"There is no car {car}, expected 0 to {self.num_envs - 1}.")
        last = int(self._last[car]) if self._last[car] >= 0 else len(self._log) - 1
        rows = self._log[: last + 1]
        columns = {name: _column(rows, name, car) for name in rows[-1]}
        factors = {name[7:]: values for name, values in columns.items() if name.startswith("factor.")}
        seen = {name: values for name, values in columns.items() if not name.startswith("factor.")}
        seen["earned"] = np.cumsum(seen["reward"])
        return Episode(car, int(self._places[car]), self._ended[car], seen, factors, self._results.get(car, {}))

    def episodes(self) -> list[Episode]:
        """Of all cars."""
        return [self.episode(car) for car in range(self.num_envs)]

    def _step_info(self, outcome: Outcome, ends: dict[str, Tensor], action: Tensor) -> StepInfo:
        self._outcome = outcome
        return super()._step_info(outcome, ends, action)

    def _summary(self, which: Tensor, ends: dict[str, Tensor]) -> dict[str, Tensor]:
        # The last look before those cars that are done begin anew.
        self._log.append(self._moment())
        return super()._summary(which, ends)

    def _moment(self) -> dict[str, FloatArray]:
        cars, scene, outcome = self.cars, self.scene, self._outcome
        time_s = self.episode_length_buf * self.dt_s
        around = scene.surroundings()
        found: dict[str, Tensor | None] = {
            "time_s": time_s,
            "pose": cars.pose,
            "speed_m_s": cars.speed_m_s,
            "steering_rad": cars.steering_rad,
            "action": self.last_action,
            "completion": scene.summary(torch.arange(self.num_envs, device=self.device))["completion"],
            "objects": around.objects,
            "stop_line": around.stop_line,
            "scan": around.scan_ranges_m,
            "goal": around.goal_pose,
        } | scene.drawn(time_s)
        if outcome is not None:
            found |= {
                "lateral_m": outcome.lateral_m,
                "limit_m_s": outcome.speed_limit_m_s,
                "near": outcome.near_collision,
                "off_route": outcome.off_route,
            }
            found |= {f"factor.{name}": values for name, values in self.factors.items()}
        return {name: _array(values) for name, values in found.items() if values is not None}


def _column(rows: list[dict[str, FloatArray]], name: str, car: int) -> FloatArray:
    """(T, ...) of a car; of its beginning nothing is known but what there is to see."""
    blank = np.full_like(rows[-1][name][car], np.nan)
    return np.stack([row[name][car] if name in row else blank for row in rows])


def _array(values: Tensor) -> FloatArray:
    """A copy in single precision."""
    return values.detach().to("cpu", torch.float32, copy=True).numpy()

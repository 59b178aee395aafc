"""Traffic lights: the state of every light group from time alone, reproducible from (seed, car, episode)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.observations.surroundings import STOP_GO, STOP_RED, STOP_YELLOW
from gantry_hardware.errors import GantryError
from gantry_sim.driving.maps.graph import Junction, LaneMap

GREEN, YELLOW, RED = STOP_GO, STOP_YELLOW, STOP_RED
"""States of a light group; where there is no light it is green."""


@dataclass(frozen=True)
class LightsCfg:
    """Durations of the lights' phases."""

    green_s: tuple[float, float] = (6.0, 15.0)
    """Range from which the green of each phase is drawn, once per episode."""
    yellow_s: float = 3.0
    """Yellow after green."""
    all_red_s: float = 1.0
    """Red for all after yellow, in which the junction empties."""

    def __post_init__(self) -> None:
        if not 0.0 < self.green_s[0] <= self.green_s[1]:
            raise GantryError(f"lights.green_s is {self.green_s}, expected a range above 0.")
        if self.yellow_s < 0.0 or self.all_red_s < 0.0:
            raise GantryError(
                f"lights.yellow_s is {self.yellow_s} and lights.all_red_s {self.all_red_s}, expected at least 0."
            )


@dataclass(frozen=True)
class LightPlan:
    """Groups that are green together, for M maps with up to J junctions of up to G groups."""

    phase: Tensor
    """``(M, J, G)`` int64, phase in which a group is green; -1 where there is no light."""
    count: Tensor
    """``(M, J)`` int64, phases of a junction, at least 1."""


def junction_phases(junction: Junction) -> list[int]:
    """Phase of each group: the first one without a conflict, or a new one; -1 without lights."""
    groups = len(junction.approaches)
    if not junction.lights:
        return [-1] * groups
    forbidden = {frozenset(pair) for pair in junction.group_conflicts}
    phases: list[list[int]] = []
    found: list[int] = []
    for group in range(groups):
        fits = [n for n, phase in enumerate(phases) if not any(frozenset((group, o)) in forbidden for o in phase)]
        if not fits:
            phases.append([])
            fits = [len(phases) - 1]
        phases[fits[0]].append(group)
        found.append(fits[0])
    return found


def light_plan(maps: Sequence[LaneMap], device: str | torch.device = "cpu") -> LightPlan:
    """Phases of all junctions of maps."""
    junctions = max(1, *(len(m.junctions) for m in maps)) if maps else 1
    groups = max([1, *(len(j.approaches) for m in maps for j in m.junctions)])
    phase = np.full((len(maps), junctions, groups), -1, dtype=np.int64)
    for number, lane_map in enumerate(maps):
        for index, junction in enumerate(lane_map.junctions):
            found = junction_phases(junction)
            phase[number, index, : len(found)] = found
    count = np.maximum(phase.max(axis=2) + 1, 1)
    return LightPlan(torch.as_tensor(phase, device=device), torch.as_tensor(count, device=device))


def hashed_uniform(*keys: Tensor | int) -> Tensor:
    """A number in [0, 1) from integers that broadcast against each other: the same for the same ones, on any device.

    Keys are mixed one after the other by 32-bit multiplications and shifts.
    """
    mask = 0xFFFFFFFF
    value: Tensor | int = 0x9E3779B9
    for key in keys:
        value = (value ^ (key & mask)) & mask
        for _ in range(2):
            value = ((value ^ (value >> 16)) * 0x45D9F3B) & mask
        value = value ^ (value >> 16)
    return torch.as_tensor(value >> 8).to(torch.float32) / float(1 << 24)


class Lights:
    """Lights around N cars, each of which is alone on its map.

    Args:
        plan: Which groups are green together.
        num_envs: N.
        cfg: For how long.
        seed: Of greens and offsets.
    """

    def __init__(self, plan: LightPlan, num_envs: int, cfg: LightsCfg | None = None, seed: int = 0) -> None:
        self.plan, self.cfg, self.seed = plan, cfg or LightsCfg(), seed
        _, junctions, groups = plan.phase.shape
        self._most = int(plan.count.max())
        device, shape = plan.phase.device, (num_envs, junctions, groups)
        self._start = torch.zeros(shape, device=device)
        self._green = torch.ones(shape, device=device)
        self._cycle = torch.ones((num_envs, junctions, 1), device=device)
        self._offset = torch.zeros((num_envs, junctions, 1), device=device)
        self._has = torch.zeros(shape, dtype=torch.bool, device=device)

    def reset(self, env_ids: Tensor, map_index: Tensor, episode: Tensor) -> None:
        """Draw greens and offsets of some environments.

        Args:
            env_ids: ``(m,)``.
            map_index: ``(m,)`` map that each is on.
            episode: ``(m,)`` int64, counts the episodes of each.
        """
        phase, count = self.plan.phase[map_index], self.plan.count[map_index]
        most = self._most
        junction = torch.arange(phase.shape[1], device=phase.device)[None, :, None]
        number = torch.arange(most + 1, device=phase.device)[None, None]
        env, turn = env_ids[:, None, None], episode[:, None, None]
        drawn = hashed_uniform(self.seed, env, turn, junction, number)
        low, high = self.cfg.green_s
        green = low + (high - low) * drawn[..., :most]
        span = green + self.cfg.yellow_s + self.cfg.all_red_s
        span = torch.where(number[..., :most] < count[..., None], span, 0.0)
        begin = span.cumsum(-1) - span
        own = phase.clamp(min=0)
        self._start[env_ids], self._green[env_ids] = begin.gather(2, own), green.gather(2, own)
        cycle = span.sum(-1, keepdim=True)
        self._cycle[env_ids], self._offset[env_ids] = cycle, cycle * drawn[..., most:]
        self._has[env_ids] = phase >= 0

    def _since_green(self, time_s: Tensor, env_ids: Tensor | slice) -> Tensor:
        now = torch.remainder(time_s[:, None, None] + self._offset[env_ids], self._cycle[env_ids])
        return now - self._start[env_ids]

    def state(self, time_s: Tensor, env_ids: Tensor | None = None) -> Tensor:
        """``(N, J, G)``: 0 green or no light, 0.5 yellow, 1 red.

        Args:
            time_s: ``(N,)`` time of each episode; ``(m,)`` with ``env_ids``.
            env_ids: ``(m,)`` which environments; all if left out.
        """
        rows = slice(None) if env_ids is None else env_ids
        since, green = self._since_green(time_s, rows), self._green[rows]
        shown = torch.where(since < green, GREEN, torch.where(since < green + self.cfg.yellow_s, YELLOW, RED))
        return torch.where(self._has[rows], torch.where(since < 0.0, RED, shown), GREEN)

    def state_dict(self) -> dict[str, Tensor]:
        """For an exact continuation."""
        return {name: value.clone() for name, value in self._tensors().items()}

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        """Go on where it was."""
        for name, value in self._tensors().items():
            value.copy_(saved[name])

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "start": self._start,
            "green": self._green,
            "cycle": self._cycle,
            "offset": self._offset,
            "has": self._has,
        }

"""Surroundings of batched cars: their starts, obstacles, and the ends of their episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from gantry_deploy.observations.surroundings import Surroundings
from gantry_hardware.model.cars import CarSpec
from gantry_sim.driving.drivers.baselines import Manners
from gantry_sim.driving.maps.projection import Window
from gantry_sim.process.device_work import numbers_like

MOVING_M_S = 0.3
"""A slower car does not move."""
BLOCKED = "blocked"
"""End of the episode of a car that does not move any more, whatever the scene."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a step of N cars, seen from around them; every field has shape ``(N,)``."""

    progress: Tensor
    """Share of the way that was made in this step, in percent."""
    off_route: Tensor
    """Bool, outside the lanes of the route."""
    speed_limit_m_s: Tensor
    """Speed limit at the car's place."""
    safe_speed_m_s: Tensor
    """Part of it that the vehicle ahead and the next stop line leave."""
    near_collision: Tensor
    """Bool, a collision within a second if everybody went straight on."""
    lateral_m: Tensor
    """Distance from the middle of the lane, left positive."""
    lane_share: Tensor
    """The same in half widths of the lane."""
    heading_error_rad: Tensor
    """Against the lane."""
    in_junction: Tensor
    """Bool, where no lane need be kept."""
    ends: Mapping[str, Tensor]
    """Bool, the names of :attr:`Scene.ends`; of several that are true the first counts."""


class Scene(Protocol):
    """Surroundings of N cars."""

    ends: tuple[str, ...]
    """Ends of an episode for good here; ``finished`` is the good end."""
    faults: tuple[str, ...]
    """Those of them that cost something beside the rest of the route."""
    extras: int
    """Numbers of :meth:`critic_extras`."""
    grounds: str
    """Name of the surroundings, in the plural."""

    @property
    def manners(self) -> Manners | None:
        """Style of drivers that follow the line ahead; None where there is no line."""
        ...

    @property
    def places(self) -> Tensor:
        """``(N,)`` int64, row of the routes, lots or tracks that each car is on."""
        ...

    @property
    def constant_factors(self) -> frozenset[str]:
        """Names of reward factors that are always 1 here."""
        ...

    def begin(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Choose new places for some cars.

        Args:
            env_ids: ``(m,)``, int64.

        Returns:
            Poses ``(m, 3)`` of ``base_link`` in the world and speeds ``(m,)``, in m, rad and m/s.
        """
        ...

    def started(self, env_ids: Tensor) -> None:
        """Arrange the surroundings of cars, indices ``(m,)``, that have been put there."""
        ...

    def moved(self, time_s: Tensor) -> Outcome:
        """All cars have moved, ``(N,)`` seconds into their episodes: move everything else on and look what happened."""
        ...

    def surroundings(self) -> Surroundings:
        """Surroundings of the cars without errors; N rows."""
        ...

    def line_ahead(self) -> Window | None:
        """The middle of the lane or track around the cars, in the world, m; None where there is neither."""
        ...

    def scripted_actions(self) -> Tensor:
        """Actions ``(N, 2)`` in [-1, 1] of the scripted driver, which knows what the simulator knows."""
        ...

    def drawn(self, time_s: Tensor) -> dict[str, Tensor]:
        """Details that a picture shows beside :meth:`surroundings`, as far as there are any.

        ``route_m`` ``(N,)``, the place on the line in m; ``kinds`` ``(N, K)`` of others; ``lights`` ``(N, J, G)``.

        Args:
            time_s: ``(N,)`` s since the beginning of the episodes.
        """
        ...

    def whole_route(self, car: int) -> Tensor | None:
        """Table ``(P, 10)`` of a car's route in the world, m, with the columns of :mod:`gantry_sim.driving.maps.graph`;
        None without one.
        """
        ...

    def road_cells(self, car: int) -> tuple[Tensor, Tensor, float] | None:
        """The road around a car as cells ``(rows, columns)``, their corner ``(2,)`` in the world and size, m, where
        policies see them; else None.
        """
        ...

    def critic_extras(self) -> Tensor:
        """Numbers ``(N, extras)`` about the way to the end, scaled, for the critic alone."""
        ...

    def summary(self, env_ids: Tensor) -> dict[str, Tensor]:
        """Of episodes that end, each ``(m,)``: ``completion``, 0 to 1, ``driven_m``, and more by the kind of scene."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """For an exact continuation."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where it was."""
        ...


def boxes_at(pose: Tensor, spec: CarSpec) -> Tensor:
    """Boxes of cars at poses ``(N, 3)`` of ``base_link``: ``(N, 5)``, middle and yaw in the same frame, length and
    width.
    """
    ahead = spec.center_x_in_base_m * torch.stack((torch.cos(pose[:, 2]), torch.sin(pose[:, 2])), dim=1)
    size = numbers_like((spec.length_m, spec.width_m), pose)
    return torch.cat((pose[:, :2] + ahead, pose[:, 2:], size.expand(len(pose), 2)), dim=1)


def spread(count: int, half: float, generator: torch.Generator) -> Tensor:
    """Numbers ``(count,)`` in any unit, drawn uniformly from -half to half."""
    return half * (2.0 * torch.rand(count, generator=generator, device=generator.device) - 1.0)


def kept(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Copies of tensors of any shape and unit, as part of a state."""
    return {name: value.clone() for name, value in tensors.items()}

"""Size and place of a fleet of actors on Ray; apart from the fleet itself, which needs Ray."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_hardware.errors import GantryError
from gantry_sim.process.ray_cluster import LOCAL


@dataclass(frozen=True)
class FleetCfg:
    """Actors of one training on Ray."""

    actors: int
    """Number of actors; each has ``env.num_envs`` environments."""
    address: str = LOCAL
    """Address of a cluster such as ``auto`` or ``ray://HOST:10001``, or ``local``."""
    cores_per_actor: float = 1.0
    """Cores of an actor."""
    retries: int = 3
    """Times in a row that an actor is begun again after it was lost."""

    def __post_init__(self) -> None:
        if self.actors < 1:
            raise GantryError(f"--actors is {self.actors}, expected at least 1.")
        if not self.cores_per_actor > 0.0:
            raise GantryError(f"--cpus is {self.cores_per_actor:g}, expected more than 0.")

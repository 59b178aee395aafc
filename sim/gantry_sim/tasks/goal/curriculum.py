"""Harder terrain for robots that arrive, easier terrain for those that end far away (AME-2, Sec. on curricula)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gantry_sim.tasks.goal.rewards import NEAR_M
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.terrains.grid import terrain_sites

FAR_M = 4.0
"""A robot that ends farther from its goal than this moves down: the mean distance at the start is about twice that
on our tiles, and this on the paper's."""
PROMOTE_ABOVE = 0.5
"""Running success that moves up."""
LEAVING_LEVEL = 1
"""A robot that moves up from this level of the school leaves it; one that comes back starts there."""


class GoalLevels:
    """Judges the episodes that end; called before a reset.

    With a *school*, every robot begins on that terrain, is sent to its own column when it has done well there, and
    comes back when it fails on its column's lowest level. Few samples then go into terrain that is still too hard.
    """

    def __init__(self, cfg: Any, env: Any) -> None:
        terrain = env.scene.terrain
        self._home = terrain.terrain_types.clone()
        self._school = school_columns(terrain, cfg.params.get("school", ()) if cfg is not None else ())
        if len(self._school):
            away = ~torch.isin(self._home, self._school)
            _move(terrain, torch.nonzero(away).flatten(), self._random_columns(int(away.sum())), None)
        # The first episode of an environment starts somewhere in its middle; it is not judged.
        self._judged = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)

    def _random_columns(self, count: int) -> Tensor:
        return self._school[torch.randint(len(self._school), (count,), device=self._school.device)]

    def _change_terrain(self, env: Any, env_ids: Tensor, up: Tensor, down: Tensor) -> Tensor:
        """Send robots home from school and back; those that moved, (k,) bool."""
        terrain = env.scene.terrain
        level, column = terrain.terrain_levels[env_ids], terrain.terrain_types[env_ids]
        at_home = column == self._home[env_ids]
        leaves = up & ~at_home & (level >= LEAVING_LEVEL)
        returns = down & at_home & (level == 0) & ~torch.isin(column, self._school)
        _move(terrain, env_ids[leaves], self._home[env_ids[leaves]], 0)
        _move(terrain, env_ids[returns], self._random_columns(int(returns.sum())), LEAVING_LEVEL)
        return leaves | returns

    def __call__(self, env: Any, env_ids: Tensor, newest: float, school: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """Move robots; mean levels over all and by kind of terrain.

        Args:
            env: The environment.
            env_ids: (k,) episodes that end.
            newest: Weight of the newest episode in the running success.
            school: Kinds or groups of terrain that robots begin on; as at the beginning.
        """
        del school
        state = GoalState.of(env)
        terrain = env.scene.terrain
        judged = self._judged[env_ids]
        ended_early = env.termination_manager.terminated[env_ids]
        arrived = (state.distance[env_ids] < NEAR_M) & ~ended_early
        before = state.success_ema[env_ids]
        success = torch.where(judged, (1.0 - newest) * before + newest * arrived, before)
        up = judged & arrived & (success > PROMOTE_ABOVE)
        down = judged & ~up & (state.distance[env_ids] > FAR_M)
        if len(self._school):
            moved = self._change_terrain(env, env_ids, up, down)
            success = torch.where(moved, 0.0, success)  # of this terrain it knows nothing yet
            up, down = up & ~moved, down & ~moved
        state.success_ema[env_ids] = success
        terrain.update_env_origins(env_ids, up, down)
        self._judged[env_ids] = True
        levels = terrain.terrain_levels.float()
        kinds = state.sites.kinds
        found = {"mean": levels.mean()}
        for kind in dict.fromkeys(kinds):
            columns = torch.tensor([i for i, name in enumerate(kinds) if name == kind], device=levels.device)
            found[kind] = levels[torch.isin(terrain.terrain_types, columns)].mean()
        return found


def school_columns(terrain: Any, names: tuple[str, ...]) -> Tensor:
    """Columns of a terrain of these kinds or groups of kinds, all of which it may lack."""
    sites = terrain_sites(terrain)
    found = [
        i for i, (kind, group) in enumerate(zip(sites.kinds, sites.groups, strict=True)) if {kind, group} & {*names}
    ]
    return torch.tensor(found, dtype=torch.long, device=terrain.terrain_types.device)


def _move(terrain: Any, env_ids: Tensor, columns: Tensor, level: int | None) -> None:
    """Put environments (k,) on columns (k,), and on a level if one is given."""
    terrain.terrain_types[env_ids] = columns
    if level is not None:
        terrain.terrain_levels[env_ids] = min(level, terrain.max_terrain_level - 1)
    terrain.env_origins[env_ids] = terrain.terrain_origins[
        terrain.terrain_levels[env_ids], terrain.terrain_types[env_ids]
    ]

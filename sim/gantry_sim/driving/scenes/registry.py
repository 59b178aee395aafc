"""Scene and contract of a driving task, by the type of its configuration."""

from __future__ import annotations

from dataclasses import replace

import torch

from gantry_deploy.contract.drive_spec import LidarLayout
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.builder import make_term
from gantry_sim.driving.cfg import CarTaskCfg, DriveCfg
from gantry_sim.driving.contract import park_contract, road_contract, track_contract
from gantry_sim.driving.park_cfg import ParkCfg
from gantry_sim.driving.scenes.lot_scene import LotScene
from gantry_sim.driving.scenes.road_scene import RoadScene
from gantry_sim.driving.scenes.scene import Scene
from gantry_sim.driving.scenes.track_scene import TrackScene
from gantry_sim.driving.track_cfg import RaceCfg
from gantry_sim.driving.vehicle.cars import BatchedCars


def drive_contract(cfg: CarTaskCfg) -> PolicyContract:
    """The contract of a policy trained on a task; training and runtime both obey it."""
    if isinstance(cfg, DriveCfg):
        return _with_scan(road_contract(cfg), cfg.lidar)
    if isinstance(cfg, ParkCfg):
        return park_contract(cfg)
    if isinstance(cfg, RaceCfg):
        return track_contract(cfg)
    raise TypeError(f"No contract for tasks of {type(cfg).__name__}.")


def make_scene(cfg: CarTaskCfg, cars: BatchedCars, device: str, generator: torch.Generator, seed: int) -> Scene:
    """The surroundings of a task's cars.

    Args:
        cfg: The task.
        cars: The cars.
        device: Of all tensors.
        generator: Of starts.
        seed: Of what else is random.
    """
    if isinstance(cfg, DriveCfg):
        return RoadScene(cfg, cars, device, generator, seed)
    if isinstance(cfg, ParkCfg):
        return LotScene(cfg, cars, device, generator)
    if isinstance(cfg, RaceCfg):
        return TrackScene(cfg, cars, device, generator)
    raise TypeError(f"No scene for tasks of {type(cfg).__name__}.")


def _with_scan(contract: PolicyContract, layout: LidarLayout | None) -> PolicyContract:
    """The same, seeing a scan beside all else."""
    if layout is None:
        return contract
    terms = (*contract.observations, make_term("lidar", layout.beams, clip=100.0))
    return replace(contract, observations=terms, body=replace(contract.body, lidar=layout))

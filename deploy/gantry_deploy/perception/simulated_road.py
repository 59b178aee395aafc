"""Simulated perception: a simulated car publishes its surroundings to a listener; on a real car other nodes do."""

from __future__ import annotations

import inspect
from typing import Any

from gantry_deploy.contract.drive_spec import DriveSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.perception.road import RoadView, needs
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.registry import backend_factory
from gantry_hardware.model.capabilities import HasRoad, capability, missing_methods

ROAD = "road"
"""Backend of simulated cars, unless asked otherwise."""

RAYS_PER_BEAM = 4
"""Rays of a simulated scanner on roads in the share of the angles that a beam of the policy stands for, in training
and here."""


def road_options(contract: PolicyContract, drive: DriveSpec) -> dict[str, Any]:
    """Options of the simulated road that suit a policy: its task, a scanner that covers what it sees, a road map.

    Args:
        contract: The policy's.
        drive: Its body.
    """
    options: dict[str, Any] = {"task": contract.provenance.task} if contract.provenance.task else {}
    if drive.bev is not None and "road" in needs(contract):
        options["road_cell_m"] = drive.bev.metres_per_pixel
    lidar = drive.lidar
    if lidar is None or "scan" not in needs(contract):
        return options
    scan = {"beams": RAYS_PER_BEAM * lidar.beams, "min_rad": lidar.angle_min_rad, "max_rad": lidar.angle_max_rad}
    scan |= {"range_m": lidar.range_max_m, "x_m": lidar.pos_x_in_base_m}
    return {**options, **{f"scan_{name}": value for name, value in scan.items()}}


def refuse_roadless(contract: PolicyContract, backend: str) -> None:
    """Refuse to run a policy that drives a car on a backend whose class knows no road, before it is built.

    Raises:
        ContractError: With what there is instead.
    """
    made_by = backend_factory(backend)
    if inspect.isclass(made_by) and missing_methods(made_by, HasRoad):
        raise _no_road(contract, f"backend '{backend}'")


def make_road_view(contract: PolicyContract, robot: Robot) -> RoadView:
    """Make a control loop's view of a simulated car's road.

    Args:
        contract: The policy's, of a car.
        robot: On which it runs.

    Raises:
        ContractError: If the robot does not tell of its road.
    """
    car = capability(robot, HasRoad)
    if car is None:
        raise _no_road(contract, f"this robot ({type(robot).__name__})")
    view = RoadView(contract)
    car.tell_road(view)
    return view


def _no_road(contract: PolicyContract, what: str) -> ContractError:
    return ContractError(
        f"The policy drives a car and sees {', '.join(needs(contract)) or 'its own motion'}; {what} tells of no road. "
        f"Simulated: --backend {ROAD}. Over ROS 2, where other nodes tell of it: 'gantry launch car bundle:=BUNDLE', "
        "'gantry launch robot bundle:=BUNDLE' for a car with a driver node, or in simulation 'gantry launch "
        "sim_drive bundle:=BUNDLE'."
    )

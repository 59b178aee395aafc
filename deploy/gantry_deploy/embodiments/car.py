"""Cars: steering and speed, a road around them; they brake where legs are damped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gantry_deploy.actions.decoder import ActionKind
from gantry_deploy.contract.bounds import SLOWEST_RATE_HZ, require
from gantry_deploy.contract.drive_spec import DRIVE_ACTIONS, DRIVE_TARGET, DriveSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.embodiment import Embodiment
from gantry_deploy.observations.surroundings import Surroundings
from gantry_deploy.perception.road import RoadView, rest_surroundings
from gantry_deploy.perception.simulated_road import ROAD, make_road_view, refuse_roadless, road_options
from gantry_hardware.backends.backend import Robot
from gantry_hardware.model.cars import CarSpec
from gantry_hardware.model.spec import RobotSpec


class Car(Embodiment):
    """A car with front steering."""

    name = "car"
    noun = "a car"
    body_type = DriveSpec
    robot_body_type = CarSpec
    action_kinds = (
        ActionKind(
            DRIVE_TARGET,
            "gantry_deploy.actions.drive:DriveDecoder",
            lambda contract: DRIVE_ACTIONS,
            gives_velocity=True,
        ),
    )
    min_rate_hz = SLOWEST_RATE_HZ
    needs_odometry = True
    repeats_episodes = True
    simulated_backend = ROAD
    start_words = "drive for"
    perturbations = "gantry_deploy.evaluation.perturbations.car:car_perturbations"
    idle_commands = "gantry_deploy.control.car_idle_commands:CarIdleCommands"
    operator_map = "gantry_deploy.embodiments.operator_maps:CarMap"
    ros_robot = "gantry_ros.robots.ros_car:RosCar"
    ros_surroundings = "gantry_ros.robots.ros_road:RosRoad"
    sim_node = "sim_car_node"
    identification = "gantry_sim.identification.cars:identify"
    launch = "sim_drive"
    driver_launches = ("car",)

    def scenario(self, contract: PolicyContract) -> str:
        """Routes, lots or tracks of the simulated road."""
        return "gantry_deploy.evaluation.driving:RoadScenario"

    def simulated_options(self, contract: PolicyContract) -> dict[str, Any]:
        """The road's task, a scanner and a map that cover what the policy sees."""
        return road_options(contract, contract.body_as(DriveSpec))

    def check_backend(self, contract: PolicyContract, backend: str) -> None:
        """Refuse a backend that knows no road."""
        refuse_roadless(contract, backend)

    def surroundings_source(self, contract: PolicyContract, robot: Robot) -> RoadView:
        """The car's own view of its simulated road."""
        return make_road_view(contract, robot)

    def check_contract(self, contract: PolicyContract) -> None:
        """Refuse also what a car has not, and scales beside the car's limits, which could contradict them."""
        require(len(contract.joint_names) == 2, "joint_names", contract.joint_names, "two for a car")
        super().check_contract(contract)
        for name in ("gait", "map_window"):
            require(getattr(contract, name) is None, name, "given", "none for a car")
        action, drive = contract.action, contract.body_as(DriveSpec)
        require(action.scale == (1.0, 1.0), "action.scale", action.scale, "(1.0, 1.0) for a car")
        require(action.offset_rad == (0.0, 0.0), "action.offset_rad", action.offset_rad, "zeros for a car")
        require(action.clip <= 1.0, "action.clip", action.clip, "at most 1 for a car")
        limit, mine = min(-contract.joint_lower_rad[0], contract.joint_upper_rad[0]), drive.steering_limit_rad
        require(mine <= limit + 1e-9, "body.steering_limit_rad", mine, f"at most the joint's {limit:g} rad")

    def check_robot(self, contract: PolicyContract, spec: RobotSpec) -> None:
        """Refuse a car of other dimensions."""
        contract.body_as(DriveSpec).check_car(spec.body_as(CarSpec), spec.name)

    def body_of_teacher(self, contract: PolicyContract, teacher: PolicyContract) -> DriveSpec:
        """The student's car; fewer objects, and no matter what scan or raster where the teacher has none."""
        mine, theirs = contract.body_as(DriveSpec), teacher.body_as(DriveSpec)
        seen = {term.name for term in teacher.observations}
        unseen = {name: getattr(theirs, name) for name in ("lidar", "bev") if name not in seen}
        return replace(mine, max_objects=theirs.max_objects, **unseen)

    def rest_surroundings(self, contract: PolicyContract) -> Surroundings:
        """An empty straight road."""
        return rest_surroundings(contract.body_as(DriveSpec))


CAR = Car()
"""Registered as ``car``."""

"""Simulated perception: a simulated car publishes its surroundings to a listener; on a real car other nodes do."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.perception.road import RoadView, Route, needs
from gantry_hardware.backend import Robot

ROAD = "road"
"""Backend of simulated cars, unless asked otherwise."""

RAYS_PER_BEAM = 4
"""Rays of a simulated scanner on roads in the share of the angles that a beam of the policy stands for, in training
and here."""
ROADLESS = ("mock", "mujoco", "ros", "workbench")
"""Backends that know no road; over ROS 2 a node of its own listens for it."""


class RoadListener(Protocol):
    """Receiver of a car's surroundings: a ``RoadView``, or an object that passes them
    on.
    """

    def set_route(self, route: Route) -> None:
        """The way to go."""
        ...

    def set_road(self, cells: ArrayLike, corner_m: ArrayLike, cell_m: float) -> None:
        """A map of the road (R, C), where it begins (2,), m, and how large a cell is, m."""
        ...

    def set_goal(self, pose: ArrayLike) -> None:
        """Set the goal pose, x, y, yaw (3,)."""
        ...

    def set_objects(self, objects: ArrayLike, stamp_s: float, kinds: ArrayLike | None = None) -> None:
        """All objects, (K, 7), and their kinds (K,) where they are told apart."""
        ...

    def set_stop_line(self, distance_m: float, state: float, stamp_s: float) -> None:
        """The next stop line; infinitely far for none."""
        ...

    def set_scan(self, ranges_m: ArrayLike, angle_min_rad: float, angle_step_rad: float, stamp_s: float) -> None:
        """A scan (beams,)."""
        ...


@runtime_checkable
class RoadTeller(Protocol):
    """Capability of a simulated car beside the interface of a robot: it reports its surroundings."""

    def tell_road(self, listener: RoadListener) -> None:
        """From now on tell a listener, whenever the surroundings have moved on; stamps are on the robot's clock."""
        ...

    def obey(self, steering_rad: float, speed_m_s: float, accel_m_s2: float | None = None) -> None:
        """Go to a steering angle and a speed, at an acceleration of that size if one is given."""
        ...

    @property
    def outcome(self) -> dict[str, Any]:
        """Events since the start, the truth; plain data."""
        ...


def road_options(contract: PolicyContract) -> dict[str, Any]:
    """Options of the simulated road that suit a policy: its task, a scanner that covers what it sees, a road map."""
    options: dict[str, Any] = {"task": contract.provenance.task} if contract.provenance.task else {}
    if contract.drive is not None and contract.drive.bev is not None and "road" in needs(contract):
        options["road_cell_m"] = contract.drive.bev.metres_per_pixel
    lidar = None if contract.drive is None else contract.drive.lidar
    if lidar is None or "scan" not in needs(contract):
        return options
    scan = {"beams": RAYS_PER_BEAM * lidar.beams, "min_rad": lidar.angle_min_rad, "max_rad": lidar.angle_max_rad}
    scan |= {"range_m": lidar.range_max_m, "x_m": lidar.pos_x_in_base_m}
    return {**options, **{f"scan_{name}": value for name, value in scan.items()}}


def refuse_roadless(contract: PolicyContract, backend: str) -> None:
    """Refuse to run a policy that drives a car on a backend of Gantry's own that knows no road, before it is built.

    Raises:
        ContractError: With what there is instead.
    """
    if contract.drive is not None and backend in ROADLESS:
        raise _no_road(contract, backend)


def make_road_view(contract: PolicyContract, robot: Robot, backend: str) -> RoadView | None:
    """Make a control loop's view of a simulated car's road; None for a policy that drives no car.

    Args:
        contract: The policy's.
        robot: On which it runs.
        backend: Its name, for the message.

    Raises:
        ContractError: If the policy drives a car and the robot does not tell of its road.
    """
    if contract.drive is None:
        return None
    if not isinstance(robot, RoadTeller):
        raise _no_road(contract, backend)
    view = RoadView(contract)
    robot.tell_road(view)
    return view


def _no_road(contract: PolicyContract, backend: str) -> ContractError:
    return ContractError(
        f"The policy drives a car and sees {', '.join(needs(contract)) or 'its own motion'}; backend '{backend}' tells "
        f"of no road. Simulated: --backend {ROAD}. Over ROS 2: 'gantry launch sim_drive bundle:=BUNDLE', or "
        "'gantry launch robot bundle:=BUNDLE' for a car whose driver runs."
    )

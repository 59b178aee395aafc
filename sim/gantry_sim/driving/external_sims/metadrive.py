"""MetaDrive (Li et al., arXiv 2109.12674) as a simulator that no policy here was trained in.

Its maps, its traffic and its physics (Bullet's vehicle with suspension and friction at its wheels) are its own. Its
stock car, 4.515 m x 1.852 m with axles 2.469 m apart, is none of ours, and a contract refuses a car of other
dimensions. MetaDrive takes vehicle classes with other numbers, so the car that drives has the box, the axles, the mass
and the steering limit of the bundle's car; engine, brakes, tyres and suspension stay those of the stock car, drawn anew
for every map as MetaDrive does.
"""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_hardware.model.cars import CarSpec
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.external_sims.car import HeldOutCar, Motion, motion_at_rear_axle
from gantry_sim.driving.external_sims.lanes import choose_lanes, lane_of, route_along, way_along
from gantry_sim.driving.external_sims.riding import Scene
from gantry_sim.driving.external_sims.servo import PedalGains, SpeedServo

VERSION = "0.4.3"
"""That this was written against."""
INSTALL = "pip install 'gantry-rl[metadrive]'"
"""Command that installs it."""
PHYSICS_DT_S = 0.02
"""MetaDrive's."""
ARRIVES_M = 5.0
"""MetaDrive's destination begins so far before the end of the last lane."""
LIMIT_M_S = 30.0 / 3.6
"""Speed limit of its roads, which set none: what its own drivers keep to."""
FIRST_SEED = 1000
"""Of the maps."""
ENGINE_N, BRAKE_NS = 800.0, 130.0
"""Force and braking impulse at each of four wheels under a whole pedal, the middle of what MetaDrive draws (750 to 850
and 80 to 180)."""
_SHORTEST_M = 3.0
_STOCK_WIDTH_M, _STOCK_TRACK_M = 1.852, 0.815
_MODEL = "gantry_car"
_NO_RENDER = {"use_render": False, "image_observation": False, "preload_models": False, "show_terrain": False}
_CRASHES = {"crash_vehicle": "vehicle", "crash_object": "static", "crash_building": "static"}
_CRASHES |= {"crash_human": "pedestrian"}


def pedal_gains(mass_kg: float) -> PedalGains:
    """Effect of pedals on a car of that mass.

    Measured on the vehicle, from 0.25 to 1 of the accelerator and from 0.1 to 0.25 of the brake: it speeds up by the
    force of four wheels over its mass to the second digit and at any speed, and slows down by four impulses in each
    step of the physics over its mass, until its tyres slide (0.5 of the brake and more). Without any pedal it slows
    down by 0.37 m/s^2.
    """
    return PedalGains(4.0 * ENGINE_N / mass_kg, 4.0 * BRAKE_NS / (mass_kg * PHYSICS_DT_S))


def require_metadrive() -> None:
    """Refuse to go on without the package.

    Raises:
        GantryError: With the command that installs it.
    """
    if importlib.util.find_spec("metadrive") is None:
        raise GantryError(f"MetaDrive is not installed; it needs Python 3.11 and comes with {INSTALL}")


def ending_of(info: Mapping[str, Any]) -> tuple[str | None, dict[str, int]]:
    """Translate MetaDrive's report of a step to an end of a ride and its infractions.

    Off the road is a car whose middle is on no lane, or whose box touches what stands beside the road. It costs what is
    left of the route and nothing else, as in our own episodes. MetaDrive's own rule is stricter, see
    :func:`touches_line`.

    Args:
        info: Of MetaDrive's step, whose rule about lines is off; empty before the first one.
    """
    if not info:
        return None, {}
    hits = {kind: 1 for name, kind in _CRASHES.items() if info[name]}
    if hits:
        return "crashed", hits
    if info["arrive_dest"]:
        return "finished", {}
    return ("off_road" if info["out_of_road"] or info["crash_sidewalk"] else None), {}


def touches_line(vehicle: Any) -> bool:
    """Whether a box of MetaDrive's touches a solid line, which ends its own episodes.

    At the ends of ramps and around junctions such lines lie in the way even of a car that follows its lane's middle, so
    that this rule is reported and does not end ours; ours count the time outside the lane instead.
    """
    return bool(vehicle.on_white_continuous_line or vehicle.on_yellow_continuous_line)


class MetaDriveCar(HeldOutCar):
    """The one car of a MetaDrive environment that is commanded.

    Args:
        spec: The car whose dimensions its vehicle has.
        dt_s: Length of a decision.
        env: After its reset.
    """

    def __init__(self, spec: RobotSpec, dt_s: float, env: Any) -> None:
        super().__init__(spec, dt_s)
        self._env, self._vehicle = env, env.agent
        self._servo = SpeedServo(pedal_gains(self.car.mass_kg), dt_s)
        self._last: Motion | None = None
        self._over = False
        self.info: Mapping[str, Any] = {}
        """What MetaDrive said of the newest step; empty before the first one."""
        self.on_line = False
        """Whether the newest step touched a solid line."""

    def motion(self) -> Motion:
        """Current motion; that of the moment when MetaDrive took the car away, once the episode is over."""
        if self._over and self._last is not None:
            return self._last
        vehicle = self._vehicle
        (x, y), (vx, vy) = vehicle.position, vehicle.velocity
        self._last = motion_at_rear_axle(
            float(x),
            float(y),
            float(vehicle.heading_theta),
            (float(vx), float(vy)),
            float(vehicle.body.get_angular_velocity()[2]),
            self.car.rear_axle_to_cog_m,
            # MetaDrive's names are of a car that faces y; its angles are small.
            pitch_rad=-float(vehicle.roll),
            roll_rad=float(vehicle.pitch),
        )
        return self._last

    def advance(self, steering_rad: float, speed_m_s: float) -> None:
        """One decision of MetaDrive; nothing once the episode is over."""
        if self._over:
            return
        pedal = self._servo(speed_m_s, self.motion().forward_m_s)
        share = steering_rad / self.car.steering_limit_rad
        _, _, terminated, truncated, self.info = self._env.step(np.array([share, pedal]))
        self._over = bool(terminated or truncated)
        self.on_line = touches_line(self._vehicle)


class MetaDriveWorld:
    """MetaDrive with maps of three blocks; there can be one at a time in a process.

    Args:
        robot: A registered car of full size.
        dt_s: Length of a decision, a whole multiple of 0.02 s.
        traffic: MetaDrive's density: cars for each 10 m of lane.
        maps: How many different maps there are.
        first_seed: Of the first of them.
        limit_m_s: Speed limit of the roads.
        own_driver: Let MetaDrive's own driver (IDM with lane changes) have the wheel, for comparison.

    Raises:
        GantryError: If MetaDrive is not installed, or the car is too small for its roads.
    """

    def __init__(
        self,
        robot: str,
        dt_s: float,
        traffic: float,
        maps: int,
        first_seed: int = FIRST_SEED,
        limit_m_s: float = LIMIT_M_S,
        own_driver: bool = False,
    ) -> None:
        require_metadrive()
        self.spec = robot_spec(robot)
        car = self.spec.body_as(CarSpec)
        if car.length_m < _SHORTEST_M:
            raise GantryError(f"'{robot}' is no car of at least {_SHORTEST_M} m; MetaDrive's roads are for such.")
        repeat = round(dt_s / PHYSICS_DT_S)
        if not math.isclose(repeat * PHYSICS_DT_S, dt_s, rel_tol=1e-6):
            raise GantryError(f"Decisions every {dt_s:g} s, expected a whole multiple of {PHYSICS_DT_S} s.")
        self._dt_s, self._seeds, self._limit_m_s = dt_s, range(first_seed, first_seed + maps), limit_m_s
        _teach(car)
        from metadrive.envs import MetaDriveEnv

        vehicle = {"vehicle_model": _MODEL, "lidar": {"num_lasers": 0}, "show_navi_mark": False}
        setting: dict[str, Any] = {"decision_repeat": repeat, "traffic_density": traffic, "num_scenarios": maps}
        setting |= {"start_seed": first_seed, "map": 3, "vehicle_config": vehicle, "log_level": logging.ERROR}
        setting |= {"on_continuous_line_done": False}
        if own_driver:
            from metadrive.policy.idm_policy import IDMPolicy

            setting["agent_policy"] = IDMPolicy
        self._env: Any = MetaDriveEnv({**_NO_RENDER, **setting})

    def scene(self, index: int) -> Scene:
        """The episode on a map, from its beginning; ends the one before.

        Args:
            index: From 0 on; indices beyond the number of maps begin again.
        """
        self._env.reset(seed=self._seeds[index % len(self._seeds)])
        car = MetaDriveCar(self.spec, self._dt_s, self._env)
        network, navigation = self._env.current_map.road_network.graph, self._env.agent.navigation
        stops = navigation.checkpoints
        roads = [[lane_of(lane) for lane in network[a][b]] for a, b in pairwise(stops)]
        points, width = way_along(roads, choose_lanes(roads, int(self._env.agent.lane_index[2])))
        route = route_along(points, width, self._limit_m_s)
        finish_m = float(route.along_m[-1]) - ARRIVES_M - car.car.rear_axle_to_cog_m
        return Scene(car, route, finish_m, self._others, lambda: ending_of(car.info), lambda: car.on_line)

    def close(self) -> None:
        """End MetaDrive; it may be started again."""
        self._env.close()

    def _others(self) -> NDArray[np.float64]:
        """Everything that stands or drives on the roads, (K, 7)."""
        mine = self._env.agents.values()
        found = self._env.engine.get_objects(lambda item: hasattr(item, "LENGTH") and hasattr(item, "speed"))
        rows = [_row(item) for item in found.values() if item not in mine]
        return np.array(rows).reshape(-1, 7)


def _row(item: Any) -> tuple[float, ...]:
    (x, y), (vx, vy), yaw = item.position, item.velocity, float(item.heading_theta)
    along = math.cos(yaw) * float(vx) + math.sin(yaw) * float(vy)
    return float(x), float(y), yaw, along, float(item.LENGTH), float(item.WIDTH), 1.0


def _teach(car: CarSpec) -> None:
    """Make MetaDrive know a vehicle with that car's dimensions, and start without files that it would download."""
    from metadrive.component.pg_space import ConstantSpace, ParameterSpace, VehicleParameterSpace
    from metadrive.component.vehicle import vehicle_type
    from metadrive.engine.base_engine import BaseEngine

    numbers = {
        "PARAMETER_SPACE": ParameterSpace(
            {
                **VehicleParameterSpace.DEFAULT_VEHICLE,
                "max_steering": ConstantSpace(math.degrees(car.steering_limit_rad)),
            }
        ),
        "DEFAULT_LENGTH": car.length_m,
        "DEFAULT_WIDTH": car.width_m,
        "FRONT_WHEELBASE": car.front_axle_to_cog_m,
        "REAR_WHEELBASE": car.rear_axle_to_cog_m,
        "LATERAL_TIRE_TO_CENTER": _STOCK_TRACK_M * car.width_m / _STOCK_WIDTH_M,
        "MASS": car.mass_kg,
    }
    shaped = type("GantryCar", (vehicle_type.DefaultVehicle,), numbers)
    vehicle_type.vehicle_type[_MODEL] = shaped
    vehicle_type.vehicle_class_to_type[shaped] = _MODEL
    # Pictures and sounds alone; physics does without.
    BaseEngine.try_pull_asset = staticmethod(lambda: None)

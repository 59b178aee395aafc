"""Capabilities of robot backends beside :class:`gantry_hardware.backends.backend.Robot`: one each.

A backend has a capability by having its methods; it registers nothing. :func:`capability` asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import RobotError

C = TypeVar("C")
FloatArray = NDArray[np.float64]


@runtime_checkable
class HasExclusiveCommand(Protocol):
    """A robot that other programs could command at the same time."""

    def refuse_other_commanders(self) -> None:
        """Look for other programs that command the robot, or publish its state.

        Raises:
            RobotError: If there is one, with the names.
        """
        ...


@dataclass(frozen=True)
class RobotFault:
    """A fault that a robot knows of by itself."""

    kind: str
    """Kind, for programs: ``motor_hot``, ``second_writer``, ..."""
    text: str
    """One sentence with the value and its limit, for people."""


@runtime_checkable
class HasFaults(Protocol):
    """A robot that knows faults of its own. The loop asks in every tick and damps; the robot may have done so already.

    A fault is kept from when it began until :meth:`reset_faults`, even if its cause has passed: a loop at 50 Hz must
    not miss one of 10 ms. The loop resets when its operator does, and as long as the robot is not powered.
    """

    def fault(self) -> RobotFault | None:
        """The first fault since the last reset, or None."""
        ...

    def reset_faults(self) -> None:
        """Forget the fault: an operator has seen it. One whose cause lasts is there again at the next question."""
        ...


@runtime_checkable
class NeedsTakeOver(Protocol):
    """A robot that a controller of its own holds until it is taken over."""

    def take_over(self) -> None:
        """Look whether the robot may be commanded, and take it from its own controller; asked before it stands up.

        It may take seconds. Before it, commands that brake are withheld and all others refused. Once taken over, a
        robot is looked at again and nothing else happens.

        Raises:
            RobotError: With the reason for which it may not; its own controller then still has it, or it is damped.
        """
        ...


@runtime_checkable
class HasRemote(Protocol):
    """A robot with a remote controller in an operator's hands. What stops it is a fault of :class:`HasFaults`."""

    def take_requests(self) -> list[str]:
        """Requests since the last call, oldest first: ``stand``, ``start``, ``stop`` or ``reset``."""
        ...

    def stick_axes(self) -> FloatArray:
        """Shape (3,), deflection of the sticks in [-1, 1]: forward, left, turning left; zero where they rest."""
        ...


@runtime_checkable
class HasHealth(Protocol):
    """A robot that tells how it is."""

    def health(self) -> dict[str, float]:
        """Numbers by name, each with its unit: charge, temperatures, messages lost; for reports."""
        ...


@runtime_checkable
class HasLink(Protocol):
    """A robot that is reached in a way that can be chosen wrongly."""

    link_text: str
    """Place at which it is looked for, for people: network interface and domain."""


@runtime_checkable
class HasDepthCameras(Protocol):
    """A robot with depth cameras.

    One that knows why it sees nothing may say so: ``depth_trouble() -> str``, empty while it sees, and
    ``depth_statistics() -> dict[str, object]``, plain values for diagnostics.
    """

    depth_cameras: tuple[Any, ...]
    """The cameras (``gantry_mapping.config.DepthCamera``); none where they are switched off."""

    def read_depth(self) -> list[Any]:
        """The images (``gantry_deploy.perception.maps.DepthFrame``) since the last call, oldest first."""
        ...


@runtime_checkable
class HasElevationMap(Protocol):
    """A robot for which another program maps."""

    def follow_map(self) -> None:
        """Ask for the map; call it before :meth:`gantry_hardware.backends.backend.Robot.connect`."""
        ...

    def read_map(self) -> tuple[Any, float] | None:
        """The newest map (``gantry_mapping.elevation.snapshot.MapSnapshot``) and when its newest frame became known, on
        the robot's clock; None before the first."""
        ...


@runtime_checkable
class HasImages(Protocol):
    """A robot with colour cameras."""

    def read_pictures(self) -> Mapping[str, Any]:
        """The newest ``gantry_deploy.perception.images.Picture`` of each camera that has taken one."""
        ...


@runtime_checkable
class FollowsScene(Protocol):
    """A robot whose object and pictures come from other programs."""

    def follow_object(self) -> None:
        """Ask for the object's pose; call it before :meth:`gantry_hardware.backends.backend.Robot.connect`."""
        ...

    def follow_scene(self) -> None:
        """Ask for the places of several things and zones, likewise."""
        ...

    def follow_pictures(self, cameras: tuple[str, ...]) -> None:
        """Ask for the pictures of these cameras, likewise."""
        ...

    def note_scene(self) -> None:
        """Listen to the poses of the object, things and zones without need of them, so that they are recorded."""
        ...


@runtime_checkable
class HasGroundTruth(Protocol):
    """A simulated robot that knows its own motion, at the present of its clock."""

    @property
    def true_lin_vel_base_in_base_m_s(self) -> FloatArray:
        """Shape (3,), velocity of the base frame's origin over the world, along the base's axes [m/s]."""
        ...

    @property
    def true_ang_vel_base_in_base_rad_s(self) -> FloatArray:
        """Shape (3,), angular velocity of the base over the world, along the base's axes [rad/s]."""
        ...

    @property
    def quat_base_to_world_wxyz(self) -> FloatArray:
        """Shape (4,), unit quaternion from the base to the world frame."""
        ...

    @property
    def base_height_m(self) -> float:
        """Of the base's origin above the ground."""
        ...


@runtime_checkable
class HasPush(Protocol):
    """A simulated robot with a base that can be pushed."""

    def push(self, vel_change_in_world_m_s: FloatArray) -> None:
        """Change the base's velocity at once by (3,) [m/s], along the world's axes."""
        ...


@runtime_checkable
class HasReset(Protocol):
    """A simulated robot that can be put back to a start, its scene included."""

    def reset(self) -> None:
        """Begin another episode, at rest."""
        ...


@runtime_checkable
class HasTask(Protocol):
    """A simulated robot with a task that can be done or lost."""

    @property
    def episode_s(self) -> float:
        """Length of an episode of the task in training."""
        ...

    @property
    def goal_in_base_m(self) -> FloatArray | None:
        """Shape (3,), place where the object belongs, in the base frame [m]; None in a task without a goal."""
        ...

    @property
    def instruction(self) -> str:
        """Instruction of the episode in plain words; empty in a task that is told nothing in words."""
        ...

    def ask(self, instruction: str) -> bool:
        """Ask for something else in the scene that is laid; false where the words do not say one thing there."""
        ...

    @property
    def task_done(self) -> bool:
        """Whether the task is done now."""
        ...

    @property
    def task_lost(self) -> bool:
        """Whether it cannot be done any more."""
        ...


class RoadListener(Protocol):
    """Receiver of a car's surroundings: ``gantry_deploy.perception.road.RoadView``, or what passes them on."""

    def set_route(self, route: Any) -> None:
        """The route to follow (``gantry_deploy.perception.road.Route``)."""
        ...

    def set_road(self, cells: Any, corner_m: Any, cell_m: float) -> None:
        """A map of the road (R, C), where it begins (2,), m, and how large a cell is, m."""
        ...

    def set_goal(self, pose: Any) -> None:
        """Set the goal pose, x, y in m and yaw in rad (3,)."""
        ...

    def set_objects(self, objects: Any, stamp_s: float, kinds: Any = None) -> None:
        """All objects, (K, 7), and their kinds (K,) where they are told apart."""
        ...

    def set_stop_line(self, distance_m: float, state: float, stamp_s: float) -> None:
        """The next stop line; infinitely far for none."""
        ...

    def set_scan(self, ranges_m: Any, angle_min_rad: float, angle_step_rad: float, stamp_s: float) -> None:
        """A scan (beams,), m."""
        ...


@runtime_checkable
class HasRoad(Protocol):
    """A simulated car that reports its surroundings and what really happened to it."""

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


@runtime_checkable
class HasEpisodes(HasRoad, Protocol):
    """A simulated car that drives one episode after another."""

    @property
    def episode_s(self) -> float:
        """Length of an episode of its task in training."""
        ...

    def reset(self) -> None:
        """Begin another episode, at rest."""
        ...


def capability(robot: object, kind: type[C]) -> C | None:
    """The robot as one that has a capability; None if it lacks it.

    A robot that passes on what it does not have itself has what it passes on, which ``isinstance`` denies from Python
    3.12 on.
    """
    return cast(C, robot) if not missing_methods(robot, kind) else None


def other_commanders(robot: object) -> str | None:
    """Words for programs that command the robot beside this one; empty without any, None where that cannot be told."""
    shared = capability(robot, HasExclusiveCommand)
    if shared is None:
        return None
    try:
        shared.refuse_other_commanders()
    except RobotError as error:
        return str(error)
    return ""


def missing_methods(robot: object, kind: type) -> list[str]:
    """Names of a capability's methods and attributes that a robot lacks, sorted."""
    own = (name for base in kind.__mro__ for name in getattr(base, "__annotations__", {}))
    names = {name for name in (*dir(kind), *own) if not name.startswith("_")}
    return sorted(name for name in names if not hasattr(robot, name))

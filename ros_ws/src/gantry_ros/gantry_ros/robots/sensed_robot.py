"""A robot behind any registered backend, with what other nodes report of its surroundings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.depth.attached import with_depth
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.perception.images import Picture
from gantry_deploy.perception.maps import needs_map
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.registry import has_option, make_backend, moves_metal
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import GantryError, RobotError, UnknownNameError
from gantry_hardware.model.capabilities import HasImages, HasTask, capability
from gantry_hardware.model.spec import RobotSpec
from gantry_ros.convert import robot as convert
from gantry_ros.mapping.depth_input import split_sources
from gantry_ros.robots import BACKEND_OPTIONS
from gantry_ros.robots.senses import OPTIONAL_TIMEOUT_S, TopicSenses
from gantry_ros.robots.state_topics import StateTopics
from gantry_ros.runtime import topics
from gantry_ros.runtime.frames import Frames
from gantry_ros.runtime.host import NodeHost, Parameter
from gantry_ros.runtime.listening import Listener

ROBOT, TOPIC = "robot", "topic"
ODOMETRY = (ROBOT, TOPIC)
"""Values of ``odometry``."""

PARAMETERS = (
    Parameter(
        "backend",
        "",
        "Backend's name in the registry gantry.backends, for example unitree: this node is the robot's driver as well. "
        "Empty for a robot with a driver node of its own.",
    ),
    Parameter(BACKEND_OPTIONS, "", "Options of that backend by name, for example backend_options.interface."),
    Parameter(
        "odometry",
        ROBOT,
        "With a backend, where the robot's pose comes from: 'robot', and the topic odom where it reports none; or "
        "'topic' in any case, for a localisation that knows better.",
    ),
)
"""Of a node that can be a robot's driver."""


class SensedRobot(TopicSenses):
    """Implements :class:`gantry_hardware.backends.backend.Robot` around another robot.

    Everything that is not named here is the other robot's: methods, attributes and capabilities.

    Args:
        robot: Not connected yet.
        host: Node to use; its executor runs before :meth:`connect`.
        odometry: One of :data:`ODOMETRY`.
        connect_timeout_s: How long :meth:`connect` waits for what is followed.
        frames: Which names mean the same frame, and where sensors sit.
        map_max_latency_s: See :class:`gantry_ros.mapping.map_inbox.MapInbox`.

    Raises:
        UnknownNameError: If ``odometry`` has no such value.
    """

    def __init__(
        self,
        robot: Robot,
        host: NodeHost,
        *,
        odometry: str = ROBOT,
        connect_timeout_s: float = 10.0,
        frames: Frames | None = None,
        map_max_latency_s: float = 0.0,
    ) -> None:
        if odometry not in ODOMETRY:
            raise UnknownNameError("odometry", odometry, ODOMETRY)
        self._always = odometry == TOPIC
        told = StateTopics([topics.ODOM], []) if self._always else StateTopics([], [topics.ODOM])
        super().__init__(told, frames or Frames(), map_max_latency_s)
        self._robot, self._own_host, self._timeout_s = robot, host, connect_timeout_s
        self._listener = Listener(host.node)
        # A simulated robot with a task knows where its object is; one with cameras takes its pictures itself.
        self._own = [kind for kind in (HasTask, HasImages) if capability(robot, kind) is not None]
        self.spec = robot.spec
        """See :class:`gantry_hardware.backends.backend.Robot`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_robot"], name)

    def connect(self) -> None:
        """Connect the robot, and wait for what is followed.

        Raises:
            RobotError: If the robot does not answer, or what its policy needs is not reported.
        """
        self._robot.connect()
        if self._host is not None:
            return
        assert self._listener is not None
        try:
            self._entities += [("subscription", item) for item in self._open_senses(self._own_host, self._listener)]
            self._told.wait(self._own_host, self._timeout_s, f"What robot '{self.spec.name}' is to see")
        except RobotError:
            self.close()
            raise

    def now_s(self) -> float:
        """See :class:`gantry_hardware.backends.backend.Robot`."""
        return self._robot.now_s()

    def sleep_until(self, time_s: float) -> None:
        """See :class:`gantry_hardware.backends.backend.Robot`."""
        self._robot.sleep_until(time_s)

    def read(self) -> RobotState:
        """The newest state, with the newest odometry and pose of the object where those are reported.

        Raises:
            RobotError: If the robot cannot be read, or two nodes speak of it.
        """
        self._refuse_second_publisher()
        state = self._robot.read()
        if self._always or state.pos_base_in_world_m is None:
            odometry = self._told.fresh(topics.ODOM, OPTIONAL_TIMEOUT_S)
            state = _without_place(state) if odometry is None else convert.with_odometry(state, odometry, self.frames)
        if (pose := self._object_pose()) is not None:
            state = replace(state, object_pose_in_base=pose)
        return replace(state, extra={**state.extra, **scene}) if (scene := self._scene()) else state

    def write(self, command: JointCommand) -> JointCommand | None:
        """See :class:`gantry_hardware.backends.backend.Robot`."""
        return self._robot.write(command)

    def close(self) -> None:
        """Release the robot; may be called twice."""
        host, self._host = self._host, None
        try:
            self._robot.close()
        finally:
            if host is not None:
                host.destroy(self._entities)
                self._entities.clear()
                self._told.clear()
                self._maps.newest = None

    def follow_object(self) -> None:
        """As of the base, for a robot that does not know its object itself."""
        if HasTask not in self._own:
            super().follow_object()

    def follow_scene(self) -> None:
        """As of the base, for a robot that does not know its scene itself."""
        if HasTask not in self._own:
            super().follow_scene()

    def note_scene(self) -> None:
        """As of the base, for a robot that does not know its scene itself."""
        if HasTask not in self._own:
            super().note_scene()

    def follow_pictures(self, cameras: tuple[str, ...]) -> None:
        """As of the base, for a robot without cameras."""
        if HasImages not in self._own:
            super().follow_pictures(cameras)

    def read_pictures(self) -> Mapping[str, Picture]:
        """The newest picture of each camera, the robot's own where it has cameras."""
        return cast(HasImages, self._robot).read_pictures() if HasImages in self._own else super().read_pictures()


def driven_robot(spec: RobotSpec, host: NodeHost, values: dict[str, Any], contract: PolicyContract) -> Robot:
    """The robot that the parameters name, driven by this node; not connected yet.

    Args:
        spec: The robot.
        host: Node to use.
        values: Of :data:`PARAMETERS`, :data:`gantry_ros.robots.ros_backend.PARAMETERS` and ``depth_source``.
        contract: The policy's.

    Raises:
        GantryError: If the backend does not exist, an option does not fit, or a depth source cannot be opened.
    """
    if values["depth_source"] and not needs_map(contract):
        raise GantryError("Parameter 'depth_source': this policy looks at no map; leave it out.")
    name, embodiment = values["backend"], embodiment_of(contract)
    options = {**embodiment.backend_options(contract, name), **values[BACKEND_OPTIONS]}
    if not moves_metal(name) and has_option(name, "realtime"):  # Other nodes live in real time.
        options = {"realtime": True, **options}
    robot = SensedRobot(
        make_backend(name, spec, **options),
        host,
        odometry=values["odometry"],
        connect_timeout_s=values["connect_timeout_s"],
        frames=Frames.of(values),
        map_max_latency_s=values["map_max_latency_s"],
    )
    return with_depth(robot, split_sources(values["depth_source"]))


def _without_place(state: RobotState) -> RobotState:
    """The state of a robot whose place is not known at present."""
    if state.pos_base_in_world_m is None:
        return state
    return replace(state, pos_base_in_world_m=None, quat_base_to_odom_wxyz=None)

"""A policy on ROS 2: the controller of ``gantry_deploy`` on a robot behind topics, or behind a driver of this process,
its requests as services.

Nothing is published before the bundle is verified, fits the robot and the robot answers; until then the reason for a
refusal is one message and exit code 2. The control loop owns the main thread, ROS has its executor's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Mode, SafetyMachine
from gantry_deploy.flash.status import publisher_for_service
from gantry_deploy.perception.images import watch_scene
from gantry_deploy.perception.maps import MapLimits, MapSource, make_map_source, map_values
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.process.realtime import prepare_thread
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import RobotError
from gantry_hardware.model.capabilities import other_commanders
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_mapping.config import load_mapping_cfg
from gantry_ros.control import bundle_parameters, command_topics, safety_parameters
from gantry_ros.control.bundle_parameters import load_named_bundle
from gantry_ros.control.policy_services import PolicyServices
from gantry_ros.mapping import depth_input
from gantry_ros.robots import ros_backend, ros_road, sensed_robot
from gantry_ros.runtime import lifecycle
from gantry_ros.runtime.host import NodeHost, Parameter, stop_on_signals, write_json
from gantry_ros.runtime.lifecycle import LifeCycle

if TYPE_CHECKING:
    from gantry_deploy.recording.recorder import Recorder

NAME = "policy_node"

PARAMETERS = (
    *bundle_parameters.PARAMETERS,
    Parameter("robot", "", "Robot's name in the registry gantry.robots; empty for the one in the bundle's contract."),
    Parameter("record", "", "Path of an MCAP file to record to; empty for no recording."),
    Parameter(
        "record_scene", False, "Record the poses of object, things and zones also where the policy does not see them."
    ),
    Parameter("statistics", "", "Path of a JSON file for the loop's statistics at the end; empty for none."),
    Parameter("auto_start", False, "Stand up and start by itself, once; for simulated robots."),
    *command_topics.PARAMETERS,
    lifecycle.PARAMETER,
    *sensed_robot.PARAMETERS,
    depth_input.PARAMETER,
    Parameter(
        "mapping", "", "With depth_source: YAML file of the mapping, as of mapping_node; empty: as the policy learned."
    ),
    *ros_backend.PARAMETERS,
    *ros_road.PARAMETERS,
    Parameter(
        "map_stale_s", MapLimits().stale_s, "A policy that looks at a map sees unseen ground beyond this age, s."
    ),
    Parameter("map_lost_s", MapLimits().lost_s, "Beyond this age of the map the policy is asked to stay, s."),
    Parameter("diagnostics_rate_hz", 10.0, "Rate of the published diagnostics, Hz."),
    Parameter("realtime_priority", 0, "SCHED_FIFO priority of the control loop, 1 to 99; 0 for the default scheduler."),
    Parameter("cpu", -1, "Core that the control loop is pinned to; -1 for any."),
    *safety_parameters.PARAMETERS,
)
"""Every parameter of this node."""

NEWCOMER_S = 5.0
"""For how long after connecting a passive node steps back for another commander."""


class PolicyWork:
    """Work of the node, by the steps of its life cycle: robot and policy, the control loop, the end of both.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.
    """

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        self._host, self._values = host, values
        self._kept: list[tuple[str, Any]] = host.entities()
        self._robot: Robot | None = None
        self._recorder: Recorder | None = None
        self._parts: tuple[Controller, PolicyServices] | None = None
        self._ended: dict[str, Any] | None = None
        self._recordings = 0

    def configure(self) -> None:
        """Load and check the bundle, and connect the robot; nothing moves.

        Raises:
            GantryError: If parameters, bundle or robot are refused; nothing has been sent.
        """
        values, host = self._values, self._host
        self._kept = host.entities()
        bundle = load_named_bundle(values)
        contract = bundle.contract
        spec = robot_spec(values["robot"] or contract.robot)
        runner = PolicyRunner(bundle, spec)
        safety = SafetyMachine(spec, safety_parameters.safety_config(values))
        robot = self._robot = ros_backend.make_robot(spec, host, values, contract)
        watch_scene(contract, robot, note=bool(values["record"]) and values["record_scene"])
        limits = MapLimits(values["map_stale_s"], values["map_lost_s"])
        mapping = load_mapping_cfg(values["mapping"]) if values["mapping"] else None
        eyes = make_map_source(contract, robot, runner.mapper_model, mapping, limits)
        road = ros_road.ros_road(contract, host, robot, values)
        self._recorder = _recorder(self._record_path(), bundle, spec, eyes)  # It replaces an older file.
        controller = Controller(robot, runner, safety, self._recorder, map_source=eyes, surroundings=road)
        node = PolicyServices(host, controller, self._recorder, values)
        robot.connect()
        if road is not None:
            road.open()
        node.open(values)
        self._parts = controller, node

    def _record_path(self) -> str:
        """File of this configuration's recording; later ones of the same process are numbered, so that none is lost."""
        if not self._values["record"]:
            return ""
        path = Path(self._values["record"])
        self._recordings += 1
        return str(path if self._recordings == 1 else path.with_name(f"{path.stem}-{self._recordings}{path.suffix}"))

    def run(self, leave: threading.Event, begun: Callable[[], None]) -> int:
        """Run the control loop, and leave the robot without a target to follow.

        Args:
            leave: Ends the loop, as the end of the node does.
            begun: Called once requests are taken.

        Returns:
            0; 1 if the robot was damped at the end, or if a callback failed.
        """
        assert self._parts is not None
        (controller, node), values = self._parts, self._values
        name = self._host.node.get_fully_qualified_name()
        self._host.node.get_logger().info(
            f"Robot '{controller.robot.spec.name}' answers; {controller.rate_hz:g} Hz. "
            + ("Starting by itself." if values["auto_start"] else f"Waiting for {name}/stand, then {name}/start.")
        )
        prepare_thread(values["realtime_priority"], values["cpu"])
        # A thread that waits for the interpreter gets it after this time; the default of 5 ms shows in the loop's
        # period.
        sys.setswitchinterval(0.0005)
        node.active = True
        begun()
        try:
            steps = _Steps(self._host, controller, node, values, leave)
            try:
                controller.run(on_tick=steps)
            finally:
                steps.close()
            damped = controller.safety.mode is Mode.DAMP
            self._ended = controller.statistics()
            if leave.is_set() and controller.safety.is_powered:
                self._host.node.get_logger().info(
                    f"Asked to leave in {controller.safety.mode}: damping the robot, holding an arm, braking a car."
                )
            controller.leave()
        finally:
            node.active = False
        return int(damped or self._host.failure is not None)

    def cleanup(self) -> int:
        """Release the robot, end the recording, write the statistics.

        Returns:
            0; 1 if the recording is not whole.

        Raises:
            GantryError: If the statistics cannot be written.
        """
        robot, self._robot = self._robot, None
        recorder, self._recorder = self._recorder, None
        parts, self._parts = self._parts, None
        try:
            if robot is not None:
                robot.close()
        finally:
            if recorder is not None:
                recorder.close()
            self._host.destroy_all_but(self._kept)
        if parts is not None and self._values["statistics"]:
            _write_statistics(self._values["statistics"], self._ended, *parts, recorder)
        failure = None if recorder is None else recorder.failure
        if failure is not None:
            self._host.node.get_logger().error(failure)
        return int(failure is not None)


def main(arguments: list[str]) -> int:
    """Run the node until it is stopped.

    Returns:
        0; 1 if the robot was damped at the end, if a callback failed, or if the recording is not whole.

    Raises:
        GantryError: If parameters, bundle or robot are refused; nothing has been sent.
    """
    with NodeHost(NAME, arguments) as host, stop_on_signals(host.stop):
        values = host.declare(PARAMETERS)
        return LifeCycle(host, PolicyWork(host, values), managed=values["managed"]).run()


class _Steps:
    """Steps of the control loop after each tick."""

    def __init__(
        self,
        host: NodeHost,
        controller: Controller,
        node: PolicyServices,
        values: dict[str, Any],
        leave: threading.Event,
    ) -> None:
        self._host = host
        self._controller = controller
        self._node = node
        self._leave = leave
        road = controller.surroundings
        self._route_end = ros_road.RouteEnd(road, controller, values) if isinstance(road, ros_road.RosRoad) else None
        self._status = publisher_for_service()
        self._newcomer = True
        self._newcomer_until_s = controller.robot.now_s() + NEWCOMER_S

    def close(self) -> None:
        """Write the newest status."""
        if self._status is not None:
            self._status.close()

    def __call__(self, report: TickReport) -> None:
        """Take note, and end the loop when asked to."""
        self._node.on_tick(report)
        if self._status is not None:
            self._status.note(report, self._controller.counts())
        self._newcomer = self._newcomer and report.mode is Mode.PASSIVE and report.time_s < self._newcomer_until_s
        if self._newcomer and (others := other_commanders(self._controller.robot)):
            # A node that was here first, and was discovered late, goes on; this one has moved nothing yet.
            raise RobotError(others)
        stopped = self._host.stop.is_set() or self._leave.is_set()
        if stopped or (self._route_end is not None and self._route_end.on_tick(report)):
            self._controller.stop()


def _write_statistics(
    path: str,
    ended: dict[str, Any] | None,
    controller: Controller,
    services: PolicyServices,
    recorder: Recorder | None,
) -> None:
    """Write the statistics at the end of the loop, before the robot was left; without a run those of now."""
    result, damped = ended or controller.statistics(), services.damped
    result["damped"] = None if damped is None else {**asdict(damped), "reaction_s": damped.reaction_s}
    result["recording"] = None if recorder is None else recorder.statistics()
    result["map"] = map_values(controller.map_source)
    write_json(path, result, "statistics")


def _recorder(path: str, bundle: Bundle, spec: RobotSpec, eyes: MapSource | None) -> Recorder | None:
    if not path:
        return None
    from gantry_deploy.recording.recorder import Recorder  # A robot that does not record needs no MCAP packages.

    return Recorder(path, bundle.contract, spec, map_source=eyes)

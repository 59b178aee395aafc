"""A correction session on ROS 2: ``gantry session start`` on a robot behind topics, its events as services.

The node brings along what belongs to ROS: the robot and the device on its own topics, services, diagnostics, and a
service that lays out the scene. Everything else is the command's.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from diagnostic_msgs.msg import DiagnosticArray
from std_srvs.srv import Trigger

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.bundle.locate import WHERE
from gantry_deploy.cli.command import output_trouble, parse_numbers
from gantry_deploy.cli.session import start
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.operator_maps import make_operator_map
from gantry_deploy.errors import TeleopError
from gantry_deploy.session.snapshot import SessionSnapshot
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import GantryError
from gantry_hardware.files.structured import from_plain
from gantry_hardware.robots import robot_spec
from gantry_ros.control import command_topics, safety_parameters
from gantry_ros.control.command_topics import CommandTopics
from gantry_ros.convert import robot as convert
from gantry_ros.convert.session import session_values
from gantry_ros.mapping import depth_input
from gantry_ros.nodes.teleop_node import device_options
from gantry_ros.robots import ros_backend, ros_road, sensed_robot
from gantry_ros.robots.senses import TopicSenses
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost, Parameter, answer, stop_on_signals, write_json
from gantry_ros.teleop.scene_service import SceneService
from gantry_ros.teleop.services import EventServices
from gantry_ros.teleop.topic_device import TopicCfg, TopicDevice

if TYPE_CHECKING:
    from gantry_deploy.session.run import SessionRun

NAME = "session_node"
ROS = "ros"
"""Name of the device behind topics, which this node is itself."""

PARAMETERS = (
    Parameter("bundle", "", f"The policy bundle: {WHERE}; empty for the learner's own."),
    Parameter("learner", "", "HOST:PORT of the learner; empty for none."),
    Parameter("identity", "robot", "Name of this actor at the learner."),
    Parameter("certificates", "", "Folder of 'authority.crt' and the actor's certificate and key; empty on loopback."),
    Parameter("spool", "", "Folder of steps that are not sent yet; empty for ./gantry-spool/IDENTITY."),
    Parameter("device", ROS, "Operator's devices, names in gantry.teleop_devices with commas between them."),
    Parameter("device_options", "", "Their options, 'map=xbox, timeout_s=0.3'; of one of several 'ros.map=xbox'."),
    Parameter("page", -1, "Port of the page; 0 for a free one, -1 for no page.", bounds=(-1, 65535)),
    Parameter("dataset", "", "Folder of a LeRobot v3 dataset for every attempt; empty for none."),
    Parameter("record", "", "Path of an MCAP file to record to; empty for no recording."),
    Parameter("results", "", "Path of a JSON file for the session's counts at the end; empty for none."),
    Parameter("attempts", 0, "End after so many attempts; 0 for no end.", bounds=(0, 1_000_000)),
    Parameter("episode_s", 0.0, "Length of an attempt, s; 0 for the usual one."),
    Parameter("classifier", "", "ONNX file of a reward classifier, which judges success; empty for none."),
    Parameter("explore", True, "Whether the learner's exploration noise is added."),
    Parameter("command", "", "What to ask of a policy that walks, 'x,y,yaw'; empty for nothing."),
    Parameter("scene_reset", "", "Trigger service that lays out the scene between attempts; empty: a person does."),
    Parameter("auto_start", False, "Stand up by itself; otherwise once the service ~/stand is called."),
    Parameter("diagnostics_rate_hz", 2.0, "Rate of the published diagnostics, Hz."),
    *sensed_robot.PARAMETERS,
    depth_input.PARAMETER,
    *ros_backend.PARAMETERS,
    *ros_road.PARAMETERS,
    *command_topics.PARAMETERS,
    *safety_parameters.PARAMETERS,
)
"""Every parameter of this node."""
_PATHS = ("certificates", "spool", "dataset", "record", "classifier")
_TEXTS = ("bundle", "learner", "identity")


class SessionNode:
    """Services and diagnostics around one session.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.

    Raises:
        GantryError: If a parameter makes no sense.
    """

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        self._host, self._values = host, values
        self.options = _options(values)
        """Options of ``gantry session start``."""
        self._layout = SceneService(host, values["scene_reset"]) if values["scene_reset"] else None
        self._stands = threading.Event()
        self._session: SessionRun | None = None
        self._senses: TopicSenses | None = None
        self._logged = ""
        node = host.node
        # Without the device behind topics the services are there all the same.
        self._services = None if ROS in self.options.device else EventServices(host)
        node.create_service(Trigger, "~/stand", answer(self._on_stand))
        self._publisher = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.REPORT_QOS)
        host.create_timer(1.0 / values["diagnostics_rate_hz"], self._publish)

    def run(self) -> int:
        """Run the session to its end.

        Returns:
            0; 1 if a fault ended it, or a callback failed.

        Raises:
            GantryError: If something is refused; nothing has been sent.
        """
        with contextlib.ExitStack() as stack:
            session, link = start.open_session(self.options, stack, self._around())
            self._session = session
            told = {"stamped": self._values["cmd_vel_stamped"], "instruction": self._values["instruction"]}
            CommandTopics(self._host, session.controller, self._senses, **told)
            if self._services is not None:
                self._services.attend(session.session.request, lambda: session.session.state.value)
            if self._may_stand():
                session.run()
            result = start.session_result(session, link)
        if self._values["results"]:
            write_json(self._values["results"], result, "results")
        return 1 if result["loop"]["fault"] is not None or self._host.failure is not None else 0

    def _around(self) -> start.Surroundings:
        return start.Surroundings(
            {ROS: self._device},
            self._open_robot,
            safety_parameters.safety_config(self._values),
            self._layout,
            (self._look,),
        )

    def _device(self, contract: PolicyContract, **options: Any) -> TopicDevice:
        cfg = from_plain(TopicCfg, options, f"device '{ROS}'", TeleopError)
        return TopicDevice(self._host, make_operator_map(contract).axes, cfg)

    def _open_robot(self, bundle: Bundle) -> Robot:
        contract = bundle.contract
        robot = ros_backend.make_robot(robot_spec(contract.robot), self._host, self._values, contract)
        self._senses = cast(TopicSenses, robot)  # Every robot of make_robot has them, perhaps wrapped.
        return robot

    def _may_stand(self) -> bool:
        """Wait until the robot may stand up; False if the node is stopped before."""
        name, log = self._host.node.get_fully_qualified_name(), self._host.node.get_logger()
        if not self._values["auto_start"]:
            log.info(f"Robot answers. Waiting for {name}/stand.")
            while not self._stands.wait(0.05) and not self._host.stop.is_set():
                pass
        return not self._host.stop.is_set()

    def _look(self, snapshot: SessionSnapshot) -> None:
        """Take a snapshot, about ten times a second."""
        if self._host.stop.is_set() and self._session is not None:
            self._session.close()
        if snapshot.log and snapshot.log[-1] != self._logged:
            self._logged = snapshot.log[-1]
            self._host.node.get_logger().info(self._logged.rstrip(".") + ".")

    def _on_stand(self) -> str:
        if self._values["auto_start"] or self._stands.is_set():
            raise GantryError("The robot has been told to stand up already.")
        if self._session is None:
            raise GantryError("The robot does not answer yet.")
        self._stands.set()
        return "The robot stands up."

    def _publish(self) -> None:
        session, senses = self._session, self._senses
        if session is None or senses is None:
            return
        node, seen = self._host.node, session.session.snapshot()
        stamp, name = node.get_clock().now().to_msg(), node.get_name()
        robot = session.controller.robot.spec.name
        values = session_values(seen) | senses.statistics()
        text = f"{seen.state}: {seen.fault}" if seen.fault else seen.state
        message = convert.diagnostics_message(stamp, name, robot, text, values, error=bool(seen.fault))
        self._publisher.publish(message)


def _options(values: dict[str, Any]) -> argparse.Namespace:
    """Options of ``gantry session start`` from parameters; an empty one is an option that is not given.

    Raises:
        GantryError: If there is neither bundle nor learner, or a file cannot be written.
    """
    if not values["bundle"] and not values["learner"]:
        raise GantryError("Parameters 'bundle' and 'learner' are empty, expected one of them.")
    for name, suffix in (("record", ".mcap"), ("results", ".json")):
        if values[name] and (trouble := output_trouble(values[name], suffix)):
            raise GantryError(f"Parameter '{name}': {trouble}.")
    parser = argparse.ArgumentParser()
    start.add_arguments(parser)
    args = parser.parse_args([])
    for name in _TEXTS:
        setattr(args, name, values[name] or None)
    for name in _PATHS:
        setattr(args, name, Path(values[name]) if values[name] else None)
    args.backend, args.yes = ROS, True
    args.device = [name.strip() for name in values["device"].split(",") if name.strip()]
    args.device_option = list(device_options(values["device_options"]).items())
    args.page = None if values["page"] < 0 else values["page"]
    args.attempts, args.episode_s = values["attempts"], values["episode_s"] or None
    args.no_explore = not values["explore"]
    args.command = parse_numbers(values["command"]) if values["command"] else None
    return args


def main(arguments: list[str]) -> int:
    """Run the node until its session ends, or it is stopped.

    Raises:
        GantryError: If parameters, bundle, learner or robot are refused; nothing has been sent.
    """
    with NodeHost(NAME, arguments) as host, stop_on_signals(host.stop):
        node = SessionNode(host, host.declare(PARAMETERS))
        host.start()
        try:
            return node.run()
        except GantryError:
            if host.stop.is_set():
                return 0  # Stopped while robot or learner were still silent.
            raise

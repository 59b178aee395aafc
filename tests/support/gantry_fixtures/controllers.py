"""Controllers of ros2_control made of standard messages, with nodes, topics, parameters and habits of the real ones.

A forward controller keeps its last command for ever and goes to it when it is switched on; a trajectory controller ends
where its last point is. The joint states have an order of their own and joints of another robot, and tell no torque.
"""

from __future__ import annotations

import threading
import time
from array import array

import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import SetBool
from trajectory_msgs.msg import JointTrajectory

from gantry_hardware.model.spec import RobotSpec
from gantry_ros.runtime.host import NodeHost

PERIOD_S = 0.02
SPEED_RAD_S = 3.0
"""Of the arm towards its command."""


class FakeController:
    """One controller's node.

    Args:
        manager: Whose arm it commands.
        name: Of the node.
        joints: In its own order.
        interface: What it commands.
        active: Whether it is switched on.
    """

    def __init__(self, manager, name, joints, interface="position", active=True):
        self.manager, self.joints, self.active = manager, joints, active
        self.command = None  # Positions by joint; kept while it is off.
        self.path = None  # Times, points and where and when the path began.
        self.received, self.wrong = 0, []
        self.host = NodeHost(name)
        node = self.host.node
        node.declare_parameter("joints", joints)
        if "trajectory" in name:
            node.declare_parameter("command_interfaces", [interface])
            node.create_subscription(JointTrajectory, "~/joint_trajectory", self._on_trajectory, 10)
        else:
            node.declare_parameter("interface_name", interface)
            node.create_subscription(Float64MultiArray, "~/commands", self._on_positions, 10)
        node.create_service(SetBool, "~/set_active", self._on_switch)
        self.host.start()

    def _on_switch(self, request, response):
        self.active, response.success = request.data, True
        return response

    def _on_positions(self, message):
        self.received += 1
        if len(message.data) != len(self.joints):
            self.wrong.append(f"{len(message.data)} numbers for {len(self.joints)} joints")
            return
        self.command = dict(zip(self.joints, message.data, strict=True))

    def _on_trajectory(self, message):
        self.received += 1
        if sorted(message.joint_names) != sorted(self.joints):
            self.wrong.append(f"joints {list(message.joint_names)}")
            return
        point = message.points[-1]
        self.command = dict(zip(message.joint_names, point.positions, strict=True))


class FakeManager:
    """An arm, its joint states and its controllers. Use it as a context manager.

    Args:
        spec: The arm.
        pos_rad: Shape (n,), where it is at the start.
    """

    def __init__(self, spec: RobotSpec, pos_rad):
        self.spec, self.pos = spec, np.array(pos_rad, dtype=np.float64)
        self.controllers: dict[str, FakeController] = {}
        self.moved = 0.0
        self.silent = False
        self.wall_rad = 10.0  # The first joint gets no further.
        self.grip_m = 1.0  # And the last no wider.
        self.host = NodeHost("joint_state_broadcaster")
        self._publisher = self.host.node.create_publisher(JointState, "joint_states", 10)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.host.start()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(5.0)
        for controller in self.controllers.values():
            controller.host.close()
        self.host.close()

    def add(self, name, joints=None, **options):
        """Another controller, by default of all joints from last to first."""
        joints = list(reversed(self.spec.joint_names)) if joints is None else joints
        self.controllers[name] = FakeController(self, name, joints, **options)
        return self.controllers[name]

    def _run(self):
        names = ["conveyor", *reversed(self.spec.joint_names)]
        last_s = time.monotonic()
        while not self._stop.wait(PERIOD_S):
            now_s = time.monotonic()
            reach, last_s = SPEED_RAD_S * (now_s - last_s), now_s
            before = self.pos.copy()
            for controller in self.controllers.values():
                if controller.active and controller.command is not None:
                    for name, goal in controller.command.items():
                        i = self.spec.joint_index(name)
                        self.pos[i] += np.clip(goal - self.pos[i], -reach, reach)
            self.pos[0], self.pos[-1] = min(self.pos[0], self.wall_rad), min(self.pos[-1], self.grip_m)
            self.moved += float(np.abs(self.pos - before).sum())
            if self.silent:
                continue
            message = JointState(name=names, position=array("d", [0.0, *self.pos[::-1]]))
            message.velocity = array("d", [0.0] * len(names))
            message.effort = array("d", [float("nan")] * len(names))
            message.header.stamp = self.host.node.get_clock().now().to_msg()
            self._publisher.publish(message)

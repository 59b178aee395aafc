"""Scene of the ROS 2 attacks: robot, policy and operator in a DDS domain of their own, and nodes that disturb them."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from cases import WrongError, wait_for

PATIENT = {
    "safety__stand_duration_s": 0.3,
    "safety__state_timeout_s": 1.0,
    "safety__max_missed_deadlines": 1000,
    "connect_timeout_s": 60.0,
}
"""Limits that a busy machine does not reach, so that only the disturbance can damp."""


class Scene:
    """Nodes of one scenario, an operator, and an intruder that publishes what it likes."""

    def __init__(self, folder: Path, rng: np.random.Generator) -> None:
        from gantry_ros.testing import NodeProcess, Operator

        self.folder, self.rng = folder, rng
        self._make, self.nodes = NodeProcess, []
        self.operator = Operator()
        self._intruder: Any = None

    def start(self, executable: str, environment: dict[str, str] | None = None, **parameters: Any) -> Any:
        """Start a node in a process of its own."""
        log = self.folder / f"{executable}{len(self.nodes)}.log"
        node = self._make(executable, environment or {}, log, **parameters)
        self.nodes.append(node)
        return node

    def robot(self, **parameters: Any) -> Any:
        """A Go2 without physics."""
        robot = self.start("sim_robot_node", robot="go2", backend="mock", rate_hz=100.0, **parameters)
        robot.wait_for_output("on backend 'mock'", 90.0)
        return robot

    def policy(self, **parameters: Any) -> Any:
        """The policy that walks."""
        settings = {**PATIENT, "auto_start": True, **parameters}
        return self.start("policy_node", bundle="pretrained:go2-walk", **settings)

    def walking(self, **parameters: Any) -> tuple[Any, Any]:
        """Robot and policy, in mode POLICY."""
        robot, policy = self.robot(), self.policy(**parameters)
        policy.wait_for_output("Mode POLICY", 90.0)
        return robot, policy

    @property
    def mode(self) -> str:
        """Mode of the policy's node by its diagnostics."""
        return self.operator.values("policy_node").get("mode", "")

    def wait_mode(self, mode: str, patience_s: float = 30.0) -> dict[str, str]:
        """Wait for a mode and return the diagnostics."""
        wait_for(lambda: self.mode == mode, f"mode {mode}; it is {self.mode}", patience_s)
        return self.operator.values("policy_node")

    def damped(self, *words: str) -> str:
        """The policy damps, says why, and what it sends is a damping command."""
        values = self.wait_mode("DAMP")
        reason = values.get("damped because", "")
        if not all(word in reason for word in words):
            raise WrongError(f"damped, and the reason is '{reason}', expected {words}")
        own = "a damping command of the policy"
        wait_for(lambda: self.operator.commands and is_braking(self.operator.commands[-1]), own)
        return f"damped: {reason[:120]}"

    def robot_damps(self) -> str:
        """The robot itself notices that its commands have ended, damps and says so."""
        robot = "sim_robot_node"
        wait_for(lambda: int(self.operator.values(robot).get("watchdog trips", 0)) > 0, "the robot's watchdog")
        activity = self.operator.values(robot)["activity"]
        if "damping" not in activity:
            raise WrongError(f"the robot's activity is '{activity}', expected damping")
        return f"robot: {activity}"

    def node(self) -> Any:
        """The intruder's node."""
        import rclpy

        if self._intruder is None:
            if not rclpy.ok():
                rclpy.init()
            self._intruder = rclpy.create_node(f"intruder_{self.rng.integers(1000)}")
        return self._intruder

    @contextmanager
    def repeat(self, make: Callable[[], None], rate_hz: float = 100.0) -> Iterator[None]:
        """Do something at a rate, in a thread, while the block runs."""
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                make()
                time.sleep(1.0 / rate_hz)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def judge_logs(self) -> None:
        """No node printed a traceback, control characters, or an endless line."""
        for node in self.nodes:
            output = node.output
            if "Traceback" in output or "Warning:" in output:
                raise RuntimeError(f"{node.executable}: {output[-800:]}")
            if longest := max((len(line) for line in output.splitlines()), default=0) > 3000:
                raise RuntimeError(f"{node.executable} prints a line of {longest} characters")

    def close(self) -> None:
        """End every node."""
        for node in self.nodes:
            node.kill()
        self.operator.close()


def is_braking(message: Any) -> bool:
    """Whether a joint command has no stiffness and no feed-forward."""
    values = dict(zip(message.name, message.position, strict=True))
    return not any(value for name, value in values.items() if name.endswith(("/stiffness", "/effort")))


def second(
    scene: Scene, offset_rad: float = 0.0, stamp_s: int | None = None, frame: str = "", imu: bool = False
) -> Any:
    """A function that speaks for the robot once."""
    from sensor_msgs.msg import Imu, JointState

    from gantry_hardware.robots import robot_spec

    spec, node = robot_spec("go2"), scene.node()
    joints = node.create_publisher(JointState, "joint_states", 1)
    turn = node.create_publisher(Imu, "imu/data", 1) if imu else None

    def speak() -> None:
        message = JointState(name=list(spec.joint_names))
        message.position = (spec.array("default_rad") + offset_rad).tolist()
        message.velocity = message.effort = [0.0] * spec.num_joints
        message.header.stamp = node.get_clock().now().to_msg()
        if stamp_s is not None:
            message.header.stamp.sec = stamp_s
        message.header.frame_id = frame
        joints.publish(message)
        if turn is not None:
            tilted = Imu()
            tilted.header.stamp = message.header.stamp
            tilted.orientation.w, tilted.orientation.x = math.cos(0.3), math.sin(0.3)
            tilted.linear_acceleration.z = 9.81
            turn.publish(tilted)

    return speak


def commander(scene: Scene, value: Callable[[str], float]) -> Any:
    """A function that commands the robot once; ``value`` gives each interface's number."""
    from sensor_msgs.msg import JointState

    node = scene.node()
    publisher = node.create_publisher(JointState, "joint_command", 1)
    wait_for(lambda: scene.operator.commands, "a command to imitate")
    names = list(scene.operator.commands[-1].name)

    def speak() -> None:
        message = JointState(name=names, position=[value(name) for name in names])
        message.header.stamp = node.get_clock().now().to_msg()
        publisher.publish(message)

    return speak


def crouch(name: str) -> float:
    """A crouch with the gains of walking."""
    if name.endswith("/position"):
        return 1.2 if "thigh" in name else -2.4 if "calf" in name else 0.0
    return 40.0 if name.endswith("/stiffness") else 1.0 if name.endswith("/damping") else 0.0


def pause(node: Any, duration_s: float) -> None:
    """Let a process stand still."""
    os.kill(node._child.pid, signal.SIGSTOP)
    time.sleep(duration_s)
    os.kill(node._child.pid, signal.SIGCONT)

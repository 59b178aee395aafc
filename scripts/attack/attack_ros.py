"""Disturbed ROS 2 nodes: second publishers and commanders, stopped and killed processes, nonsense, bad parameters.

Real nodes over real DDS in a domain of their own. After each disturbance the robot must be damped, held or driven by
the policy alone, with a reason in the log or the diagnostics; no node prints a traceback or an endless line.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cases import WrongError, wait_for
from ros_scene import Scene, commander, crouch, pause, second


class Attack:
    """Scenarios on a simulated Go2 without physics, a policy and an operator."""

    max_cpu_s = 600

    def __init__(self, folder: Path, seed: int) -> None:
        self.scenarios = SCENARIOS

    def case(self, number: int, rng: np.random.Generator, folder: Path) -> tuple[str, Callable[[], str]]:
        """Scenario ``number``, modulo their count."""
        scenario = self.scenarios[number % len(self.scenarios)]
        return scenario.__name__, lambda: attempt(scenario, folder, rng)


def attempt(scenario: Callable[[Scene], str], folder: Path, rng: np.random.Generator) -> str:
    """Play a scenario; a child process has this to itself."""
    from gantry_ros.testing import isolated_environment

    os.environ.update(isolated_environment())
    scene = Scene(folder, rng)
    try:
        said = scenario(scene)
        scene.judge_logs()
        return said
    except (AssertionError, WrongError) as error:
        said = "".join(f"\n    {node.executable}: {node.output[-2000:]}" for node in scene.nodes)
        raise WrongError(f"{str(error)[-1500:]}{said}") from error
    finally:
        scene.close()


def second_publisher_same_pose(scene: Scene) -> str:
    """A second driver reports the default pose while the policy walks."""
    scene.walking()
    with scene.repeat(second(scene), 200.0):
        return scene.damped()


def second_publisher_other_pose(scene: Scene) -> str:
    """A second driver reports other joints."""
    scene.walking()
    with scene.repeat(second(scene, 0.3), 200.0):
        return scene.damped()


def second_publisher_tilted(scene: Scene) -> str:
    """A second driver reports a tilted base as well."""
    scene.walking()
    with scene.repeat(second(scene, 0.0, imu=True), 300.0):
        return scene.damped()


def second_publisher_before_standing(scene: Scene) -> str:
    """A second driver speaks before the robot stands up: it must not stand up."""
    scene.robot()
    with scene.repeat(second(scene), 100.0):
        time.sleep(1.0)
        scene.policy()
        time.sleep(8.0)
        if scene.mode in ("STAND", "POLICY"):
            raise WrongError(f"the robot is in mode {scene.mode}")
    return f"mode '{scene.mode}'"


def second_publisher_far_stamp(scene: Scene) -> str:
    """A second driver whose stamps lie in 2038."""
    scene.walking()
    with scene.repeat(second(scene, stamp_s=2**31 - 1), 100.0):
        return scene.damped()


def second_publisher_old_stamp(scene: Scene) -> str:
    """A second driver whose stamps lie before 1970."""
    scene.walking()
    with scene.repeat(second(scene, stamp_s=-(2**31)), 100.0):
        return scene.damped()


def second_publisher_long_frame(scene: Scene) -> str:
    """A second driver with a frame of a megabyte."""
    scene.walking()
    with scene.repeat(second(scene, frame="f" * 2**20), 20.0):
        return scene.damped()


def second_commander_crouch(scene: Scene) -> str:
    """Another node commands a crouch."""
    scene.walking()
    with scene.repeat(commander(scene, crouch), 200.0):
        return scene.damped()


def second_commander_once(scene: Scene) -> str:
    """Another node commands one single time."""
    scene.walking()
    speak = commander(scene, crouch)
    time.sleep(0.2)
    speak()
    return scene.damped()


def second_commander_nan(scene: Scene) -> str:
    """Another node commands NaN."""
    scene.walking()
    with scene.repeat(commander(scene, lambda name: math.nan), 100.0):
        return scene.damped()


def second_commander_huge(scene: Scene) -> str:
    """Another node commands 1e30."""
    scene.walking()
    with scene.repeat(commander(scene, lambda name: 1e30), 100.0):
        return scene.damped()


def second_commander_sim_time(scene: Scene) -> str:
    """The same while ``use_sim_time`` is set and there is no clock."""
    _, policy = scene.walking(use_sim_time=True)
    wait_for(lambda: "/clock" in policy.output, "a word about /clock")
    with scene.repeat(commander(scene, crouch), 100.0):
        return scene.damped()


def robot_stops(scene: Scene) -> str:
    """The robot's process stands still for five seconds."""
    robot, _ = scene.walking()
    pause(robot, 5.0)
    return scene.damped("ms old")


def policy_stops(scene: Scene) -> str:
    """The policy's process stands still: the robot damps by itself."""
    _, policy = scene.walking()
    os.kill(policy._child.pid, signal.SIGSTOP)
    try:
        return scene.robot_damps()
    finally:
        os.kill(policy._child.pid, signal.SIGCONT)


def robot_dies(scene: Scene) -> str:
    """The robot's process is killed."""
    robot, _ = scene.walking()
    robot.kill()
    return scene.damped()


def policy_dies(scene: Scene) -> str:
    """The policy's process is killed: the robot damps by itself and says so."""
    _, policy = scene.walking()
    policy.kill()
    return scene.robot_damps()


def huge_command(scene: Scene) -> str:
    """``cmd_vel`` of 1e308, infinity and NaN."""
    scene.walking()
    for value in (1e308, math.inf, math.nan, -1e308):
        with scene.repeat(lambda value=value: scene.operator.drive(value, value, value), 50.0):
            time.sleep(0.5)
            limits(scene)
            if scene.mode == "DAMP" and not math.isfinite(value):
                return scene.damped()
            if scene.mode != "POLICY":
                raise WrongError(f"mode {scene.mode} after a command of {value}")
    return "held"


def limits(scene: Scene) -> None:
    """The newest command is finite."""
    message = scene.operator.commands[-1]
    if not np.isfinite(message.position).all():
        raise WrongError("a command that is not finite was sent")


def fast_command(scene: Scene) -> str:
    """``cmd_vel`` as fast as it goes."""
    scene.walking()
    with scene.repeat(lambda: scene.operator.drive(0.3), 10_000.0):
        time.sleep(3.0)
        if scene.mode != "POLICY":
            raise WrongError(f"mode {scene.mode}")
    return "held"


def stamped_command(scene: Scene) -> str:
    """``cmd_vel`` as TwistStamped: understood, or said."""
    from geometry_msgs.msg import TwistStamped

    _, policy = scene.walking()
    node = scene.node()
    stick = node.create_publisher(TwistStamped, "cmd_vel", 10)

    def speak() -> None:
        message = TwistStamped()
        message.header.stamp = node.get_clock().now().to_msg()
        message.twist.linear.x = 0.5
        stick.publish(message)

    with scene.repeat(speak, 20.0):
        wait_for(
            lambda: (
                "TwistStamped" in policy.output
                or scene.operator.values("policy_node").get("command", "").startswith("0.5")
            ),
            "a word about TwistStamped",
        )
    return "said"


def broken_states(scene: Scene) -> str:
    """The robot itself reports NaN, other names, another order, nothing."""
    scene.walking()
    fault = ("nan", "wrong_name", "wrong_order", "silent", "frozen", "no_imu")[int(scene.rng.integers(6))]
    if scene.operator.set_parameter("sim_robot_node", "fault", fault) != (True, ""):
        raise WrongError(f"fault {fault} is refused")
    return f"{fault}: {scene.damped()}"


def no_heartbeat(scene: Scene) -> str:
    """``auto_start`` and no heartbeat: the log says what it waits for."""
    scene.robot()
    policy = scene.policy(safety__require_heartbeat=True)
    wait_for(lambda: "heartbeat" in policy.output, "a word about the heartbeat", 60.0)
    if scene.mode in ("STAND", "POLICY"):
        raise WrongError(f"the robot is in mode {scene.mode}")
    return "said"


def bad_parameters(scene: Scene) -> str:
    """Parameters that would switch limits off: refused with exit code 2, the name, and no traceback."""
    bad = (
        ("safety__state_timeout_s", math.inf), ("safety__joint_vel_factor", 1e308), ("diagnostics_rate_hz", 1e-300),
        ("safety__heartbeat_timeout_s", math.nan), ("diagnostics_rate_hz", math.inf), ("connect_timeout_s", -1.0),
        ("safety__max_tilt_rad", 100.0), ("safety__stand_duration_s", 1e300),
    )  # fmt: skip
    name, value = bad[int(scene.rng.integers(len(bad)))]
    text = {math.inf: ".inf"}.get(value, ".nan" if math.isnan(value) else f"{value:e}")
    words = ["--ros-args", "-p", f"{name.replace('__', '.')}:={text}", "-p", "bundle:=pretrained:go2-walk"]
    found = subprocess.run(
        [sys.executable, "-m", "gantry_ros", "policy_node", *words], capture_output=True, text=True, timeout=200
    )
    output = found.stdout + found.stderr
    if found.returncode != 2 or "Traceback" in output or name.rpartition("__")[2] not in output:
        raise WrongError(f"{name} = {value}: exit code {found.returncode}: {output[-500:]}")
    return output.strip()[-150:]


def no_home(scene: Scene) -> str:
    """A node whose home cannot be written: works, or one message that names ROS_LOG_DIR."""
    node = scene.start("sim_robot_node", {"HOME": "/proc"}, robot="go2", backend="mock", rate_hz=100.0)
    wait_for(lambda: "on backend 'mock'" in node.output or "ROS_LOG_DIR" in node.output, "the node or a word", 60.0)
    return node.output[-150:]


def robot_comes_back(scene: Scene) -> str:
    """The robot's driver dies and another one starts: damped, and walking again after a reset."""
    robot, _ = scene.walking()
    robot.kill()
    scene.damped()
    scene.robot()

    def reset() -> bool:
        return scene.operator.ask("policy_node/reset")[0]

    wait_for(reset, "a reset after the driver came back", 60.0)
    wait_for(lambda: scene.operator.ask("policy_node/stand")[0] or scene.mode == "STAND", "standing up again", 60.0)
    return "stands again"


SCENARIOS = (
    second_publisher_same_pose, second_publisher_other_pose, second_publisher_tilted, second_publisher_before_standing,
    second_publisher_far_stamp, second_publisher_old_stamp, second_publisher_long_frame, second_commander_crouch,
    second_commander_once, second_commander_nan, second_commander_huge, second_commander_sim_time, robot_stops,
    policy_stops, robot_dies, policy_dies, huge_command, fast_command, stamped_command, broken_states, no_heartbeat,
    bad_parameters, no_home, robot_comes_back, broken_states,
)  # fmt: skip
"""25 of them; those that draw something differ from run to run."""

"""The robot behind topics, as a backend like any other."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from gantry_hardware.backends.registry import make_backend  # noqa: E402
from gantry_hardware.backends.state import JointCommand  # noqa: E402
from gantry_hardware.backends.testing import check_backend  # noqa: E402
from gantry_hardware.errors import RobotError, UnknownNameError  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.__main__ import EXECUTABLES  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

SPEC = robot_spec("go2")


@pytest.fixture(scope="module")
def robot_rig(rig):
    """A rig with a robot that never freezes the test by its watchdog."""
    with rig.robot(watchdog_s=0.5):
        yield rig


def test_it_keeps_every_promise_of_a_backend(robot_rig):
    # Ages are those of a busy machine; that a stale state is noticed is another test's affair.
    check_backend(make_backend("ros", SPEC), max_age_s=0.5)


def test_a_command_reaches_the_robot_and_its_state_comes_back(robot_rig):
    robot = make_backend("ros", SPEC)
    robot.connect()
    try:
        goal = SPEC.array("default_rad") + np.linspace(-0.2, 0.2, SPEC.num_joints)

        def there():
            robot.write(JointCommand.position(SPEC, goal))
            return np.array_equal(robot.read().joint_pos_rad, goal)

        wait_until(there, "the commanded pose")
        state = robot.read()
        assert state.stamp_s <= robot.now_s()
        np.testing.assert_array_equal(state.quat_base_to_world_wxyz, [1.0, 0.0, 0.0, 0.0])
        np.testing.assert_array_equal(state.pos_base_in_world_m, [0.0, 0.0, SPEC.base_height_m])
        assert state.foot_contact.tolist() == [True] * 4
    finally:
        robot.close()


def test_reset_brings_the_robot_back_to_its_start(robot_rig):
    assert robot_rig.operator.ask("reset") == (True, "Robot 'go2' is back at its start.")
    values = robot_rig.operator.fresh_values("sim_robot_node")
    assert values["activity"] == "waiting for joint commands"
    robot = make_backend("ros", SPEC)
    robot.connect()
    try:
        default = SPEC.array("default_rad")
        wait_until(lambda: np.array_equal(robot.read().joint_pos_rad, default), "the default pose")
    finally:
        robot.close()


def test_nothing_can_be_read_or_written_before_the_connection():
    robot = make_backend("ros", SPEC)
    with pytest.raises(RobotError, match="not connected"):
        robot.write(JointCommand.passive(SPEC))
    with pytest.raises(RobotError, match="Nothing has arrived yet on joint_states, imu/data"):
        robot.read()


def test_options_are_checked():
    with pytest.raises(UnknownNameError, match="Did you mean 'by_name'"):
        make_backend("ros", SPEC, joint_order="by-name")


def test_nothing_here_loads_torch_or_a_simulator():
    nodes = ", ".join(f"gantry_ros.nodes.{name}" for name in EXECUTABLES)
    script = (
        f"import sys, {nodes}, gantry_ros.testing, gantry_bringup.launch_command, gantry_bringup.processes; "
        "print(sorted({'torch', 'mujoco', 'mjlab', 'rsl_rl', 'gantry_sim', 'gantry_policies'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["policy_nod"], ["Did you mean 'policy_node'?"]),
        (["policy_node"], ["Parameter 'bundle' is empty"]),
        (["sim_robot_node", "--ros-args", "-p", "backend:=mok"], ["Did you mean 'mock'?"]),
        (
            ["sim_robot_node", "--ros-args", "-p", "backend:=mock", "-p", r'options:="{\"x\": 1}"'],
            ["option of backend"],
        ),
        (["sim_robot_node", "--ros-args", "-p", "rate_hz:=fast"], ["Parameter 'rate_hz' is 'fast'", "a number"]),
        (["sim_robot_node", "--ros-args", "-p", "robot:=bmw_320i"], ["'bmw_320i' is a car; start sim_car_node"]),
        (["sim_car_node", "--ros-args", "-p", "robot:=go2"], ["'go2' is a robot with legs; start sim_robot_node"]),
        (["sim_car_node", "--ros-args", "-p", "fault:=no_scam"], ["Did you mean 'no_scan'?"]),
        (["sim_car_node", "--ros-args", "-p", "fault_after_s:=6.0"], ["no fault is named that would begin then"]),
        (["operator_node", "--ros-args", "-p", "profile:='2:1,0'"], ["'2:1,0'", "seconds:vx,vy,yaw_rate"]),
        (["operator_node", "--ros-args", "-p", "rate_hz:=0"], ["'rate_hz' is 0, expected 0.01 to 10000"]),
    ],
)
def test_a_mistake_on_the_command_line_is_one_message_and_exit_code_2(arguments, texts):
    result = subprocess.run([sys.executable, "-m", "gantry_ros", *arguments], capture_output=True, text=True)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    for text in texts:
        assert text in result.stderr


def test_a_missing_ros_is_explained_and_so_is_a_leaked_guard(monkeypatch):
    from gantry_hardware.errors import GantryError
    from gantry_ros.runtime import availability

    monkeypatch.setitem(sys.modules, "rclpy", None)
    with pytest.raises(GantryError, match=r"constraints-ros\.txt"):
        availability.require_ros()
    monkeypatch.setenv(availability.WHEELS_GUARD, "1")
    error = ImportError("librcl.so: cannot open shared object file\nmore", name="_rclpy_pybind11")
    assert availability.WHEELS_GUARD in availability._advice(error)
    assert availability.WHEELS_GUARD not in availability.child_environment()


@pytest.mark.parametrize(("priority", "cpu"), [(0, 100_000), (100, -1)])
def test_a_schedule_that_the_machine_does_not_have_is_refused(priority, cpu):
    from gantry_deploy.process.realtime import prepare_thread
    from gantry_hardware.errors import GantryError

    with pytest.raises(GantryError, match=r"1 to 99|is not allowed here"):
        prepare_thread(priority, cpu)

"""What ROS 2's own launch returns; runs only where it is installed, which the Python index does not have.

It can be had as ``pip install --no-deps`` of the folders launch, launch_yaml, launch_xml (repository ros2/launch) and
launch_ros (ros2/launch_ros), with osrf-pycommon and a package composition_interfaces.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("launch_ros", reason="ROS 2's launch is not on the Python index")

LAUNCH_FILES = Path(__file__).parents[2] / "ros_ws" / "src" / "gantry_bringup" / "launch"
PRELUDE = "import sys\nfrom launch import LaunchDescription, LaunchService\n"
RUN = "service = LaunchService()\nservice.include_launch_description(described)\nsys.exit(service.run())\n"
NODES = (
    PRELUDE + "from gantry_bringup.parts import NodeSpec\nfrom gantry_bringup.ros_launch import actions_of\n"
    "specs = [NodeSpec('fake_nodes', name, name) for name in sys.argv[1].split(',')]\n"
    "described = LaunchDescription(actions_of(specs))\n" + RUN
)
FILE = (
    PRELUDE + "from launch.launch_description_sources import PythonLaunchDescriptionSource\n"
    "from launch.actions import IncludeLaunchDescription\n"
    "described = LaunchDescription([IncludeLaunchDescription(PythonLaunchDescriptionSource(sys.argv[1]),"
    " launch_arguments=[item.split(':=', 1) for item in sys.argv[2:]])])\n" + RUN
)


@pytest.fixture
def prefix(tmp_path):
    """An installation of ROS packages whose executables are the Python sources given to it."""
    (tmp_path / "share" / "ament_index" / "resource_index" / "packages").mkdir(parents=True)

    def add(package: str, name: str, source: str) -> None:
        (tmp_path / "share" / "ament_index" / "resource_index" / "packages" / package).write_text("")
        path = tmp_path / "lib" / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{source}\n")
        path.chmod(0o755)

    add.environment = {
        **os.environ,
        "AMENT_PREFIX_PATH": f"{tmp_path}:{os.environ.get('AMENT_PREFIX_PATH', '')}",
        "ROS_LOG_DIR": str(tmp_path / "log"),
    }
    return add


def launched(script, prefix, *arguments, **more):
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**prefix.environment, **more},
    )


PATIENT = "try:\n    print('up', flush=True)\n    time.sleep(100)\nexcept KeyboardInterrupt:\n    sys.exit({code})"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("sys.exit(0)", 0, 0),
        ("sys.exit(2)", 0, 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", 0, 1),
        # What ends because another has ended may fail as well, as a recording on a full disk does.
        ("time.sleep(2)", 1, 1),
    ],
)
def test_a_node_that_fails_makes_the_launch_fail_and_all_end(prefix, first, second, code):
    prefix("fake_nodes", "first", first)
    prefix("fake_nodes", "second", PATIENT.format(code=second))
    done = launched(NODES, prefix, "first,second")
    assert done.returncode == code, done.stdout + done.stderr
    assert ("ended with exit code" in done.stdout + done.stderr) == (code != 0)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_asked_to_end_it_ends_well(prefix, tmp_path):
    prefix("fake_nodes", "first", PATIENT.format(code=0))
    log = tmp_path / "output"
    with log.open("w") as stream:
        child = subprocess.Popen(
            [sys.executable, "-c", NODES, "first"],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=prefix.environment,
            start_new_session=True,
        )
    deadline_s = time.monotonic() + 60.0
    while "up" not in log.read_text():
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)  # As a terminal does with Ctrl-C; launch relies on that.
    assert child.wait(60.0) == 0, log.read_text()


@pytest.mark.slow
@pytest.mark.ros
def test_a_policy_without_a_robot_ends_the_launch_file_with_1(prefix, bundles, tmp_path):
    pytest.importorskip("rclpy")
    from gantry_ros.testing import isolated_environment

    node = "from gantry_ros.__main__ import start\nsys.exit(start('policy_node', sys.argv[1:]))"
    prefix("gantry_ros", "policy_node", node)
    config = tmp_path / "config.yaml"
    config.write_text("/**/policy_node:\n  ros__parameters: {connect_timeout_s: 0.5}\n")
    arguments = [str(LAUNCH_FILES / "robot.launch.py"), f"bundle:={bundles / 'good'}", f"config:={config}"]
    done = launched(FILE, prefix, *arguments, **isolated_environment())
    assert done.returncode == 1, done.stdout + done.stderr
    assert "does not answer" in done.stdout + done.stderr
    assert "ended with exit code 2." in done.stdout + done.stderr
    refused = launched(FILE, prefix, arguments[0], "bundle:=no/such", **isolated_environment())
    assert refused.returncode == 1

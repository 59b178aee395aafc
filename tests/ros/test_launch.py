"""Launch descriptions, the processes that `gantry launch` makes of them, and ROS 2's own launch files."""

from __future__ import annotations

import json
import math
import os
import py_compile
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from gantry_bringup.description import LAUNCHES, SPLITS, NodeSpec, find_launch
from gantry_bringup.processes import node_command
from gantry_deploy.cli.main import main
from gantry_fixtures.drive import drive_bundle, drive_contract_for
from gantry_fixtures.training import needs
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec

ROOT = Path(__file__).parents[2]
LAUNCH_FILES = ROOT / "ros_ws" / "src" / "gantry_bringup" / "launch"
CONFIGS = ROOT / "configs" / "ros"


def test_sim_walk_is_a_robot_and_a_policy_on_this_machine_alone(tmp_path):
    nodes = find_launch("sim_walk").nodes({"bundle": "b", "robot": "go2", "namespace": "one"})
    quiet = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    assert nodes == [
        NodeSpec("gantry_ros", "sim_robot_node", "sim_robot_node", "one", {"robot": "go2"}, environment=quiet),
        NodeSpec(
            "gantry_ros",
            "policy_node",
            "policy_node",
            "one",
            {"bundle": "b", "robot": "go2", "auto_start": True},
            environment=quiet,
        ),
    ]


def test_a_drive_adds_the_operator_and_given_arguments_reach_their_nodes(tmp_path):
    profile = tmp_path / "dds.xml"
    profile.write_text("<profiles/>")
    config = tmp_path / "config.yaml"
    config.write_text("/**:\n  ros__parameters: {}\n")
    given = {
        "bundle": "b",
        "robot": "go2",
        "backend": "mock",
        "drive": "true",
        "profile": "1:0,0,0",
        "auto_start": "false",
        "require_heartbeat": "yes",
        "record": "r.mcap",
        "config": str(config),
        "dds_profile": str(profile),
        "discovery_range": "",
    }
    robot, policy, drive = find_launch("sim_walk").nodes(given)
    assert robot.parameters == {"robot": "go2", "backend": "mock"}
    assert policy.parameters == {
        "bundle": "b",
        "robot": "go2",
        "record": "r.mcap",
        "auto_start": False,
        "safety.require_heartbeat": True,
    }
    assert (drive.executable, drive.parameters) == ("operator_node", {"profile": "1:0,0,0"})
    for node in (robot, policy, drive):
        assert node.configs == (str(config),)
        assert node.environment == {"FASTRTPS_DEFAULT_PROFILES_FILE": str(profile)}


@needs("mujoco")
def test_a_walk_over_a_map_is_a_seeing_robot_its_mapping_and_a_policy(bundles):
    bundle = str(bundles / "seeing")
    given = {"bundle": bundle, "terrain": "t3", "options": '{"camera_rate_hz": 30}', "drive": "true", "goal": "4,1,0"}
    robot, mapping, policy, drive = find_launch("sim_map_walk").nodes(given)
    assert [node.executable for node in (robot, mapping, policy, drive)] == [
        "sim_robot_node",
        "mapping_node",
        "policy_node",
        "operator_node",
    ]
    assert robot.parameters["robot"] == "go2"
    assert json.loads(robot.parameters["options"]) == {
        "camera": True,
        "camera_noise": 1.0,
        "terrain": "t3",
        "terrain_difficulty": 0.5,
        "camera_rate_hz": 30,
    }
    assert mapping.parameters == {"bundle": bundle}
    assert policy.parameters == {"bundle": bundle, "auto_start": True}
    assert drive.parameters == {"goal": "4,1,0"}
    assert all(node.environment == {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"} for node in (robot, mapping, drive))
    more = {"goal_timeout": "16", "goal_hold": "true", "mapping_statistics": "m.json", "robot_statistics": "r.json"}
    robot, mapping, _, drive = find_launch("sim_map_walk").nodes({**given, **more})
    assert (robot.parameters["statistics"], mapping.parameters["statistics"]) == ("r.json", "m.json")
    assert drive.parameters == {"goal": "4,1,0", "goal_timeout_s": 16.0, "goal_hold": True}
    flat = json.loads(find_launch("sim_map_walk").nodes({**given, "terrain": ""})[0].parameters["options"])
    assert "terrain" not in flat
    with pytest.raises(GantryError, match="JSON list, expected an object"):
        find_launch("sim_map_walk").nodes({**given, "options": "[1]"})
    with pytest.raises(GantryError, match="'terrain_difficulty' is 'hard', expected a number"):
        find_launch("sim_map_walk").nodes({**given, "terrain_difficulty": "hard"})
    with pytest.raises(GantryError, match=r"Unknown terrain 'flat'.*t1_stones"):
        find_launch("sim_map_walk").nodes({**given, "terrain": "flat"})


@needs("torch")
def test_a_drive_is_a_simulated_car_on_the_roads_of_the_policy(tmp_path, bundles):
    car = robot_spec("bmw_320i")
    drive_bundle(tmp_path / "bundle", drive_contract_for(car))
    given = {"bundle": str(tmp_path / "bundle"), "seed": "3", "traffic": "true", "robot_statistics": "t.json"}
    robot, policy = find_launch("sim_drive").nodes(given)
    assert (robot.executable, policy.executable) == ("sim_car_node", "policy_node")
    options = json.loads(robot.parameters.pop("options"))
    assert options["seed"] == 3
    assert options["traffic"] is True
    assert options["split"] == "test"
    # A scanner that covers what the policy sees: 18 beams ahead of four rays each, 10 m.
    assert [options[f"scan_{name}"] for name in ("beams", "min_rad", "max_rad", "range_m")] == [
        4 * 18,
        -0.5 * math.pi,
        0.5 * math.pi,
        10.0,
    ]
    assert robot.parameters == {
        "robot": "bmw_320i",
        "backend": "road",
        "scan_range_m": 10.0,
        "statistics": "t.json",
    }
    assert policy.parameters == {
        "bundle": given["bundle"],
        "route_end": "end",
        "route_message": "lanes",
        "steering": "joint_states",
        "auto_start": True,
    }
    stamped = find_launch("sim_drive").nodes({**given, "command_message": "twist_stamped", "route_end_m": "5"})
    assert stamped[0].parameters["drive_message"] == stamped[1].parameters["command_message"] == "twist_stamped"
    assert stamped[1].parameters["route_end_m"] == 5.0
    assert "fault" not in robot.parameters
    drill = find_launch("sim_drive").nodes({**given, "fault": "no_scan", "fault_after_s": "4"})[0].parameters
    assert (drill["fault"], drill["fault_after_s"]) == ("no_scan", 4.0)
    for changes, text in (
        ({"split": "tset"}, "Did you mean 'test'"),
        ({"fault": "no_scam"}, "Did you mean 'no_scan'"),
        ({"fault": "no_stop_line"}, "does without the stop line, so that nothing would happen; it sees route, obj"),
        ({"fault": "no_scan", "fault_after_s": "0"}, "'fault_after_s' is 0, expected more than 0"),
        ({"options": '{"sed": 1}'}, "option of backend 'road'"),
        ({"seed": "nan"}, "'seed' is 'nan', expected an integer"),
        ({"robot_statistics": "no/such.json"}, "'robot_statistics': folder 'no' does not exist"),
        ({"bundle": str(bundles / "good")}, "'go2' is a robot with legs; start sim_walk"),
    ):
        with pytest.raises(GantryError, match=text):
            find_launch("sim_drive").nodes({**given, **changes})
    for name, text in (("sim_walk", "a car"), ("sim_map_walk", "a car"), ("sim_arm", "a car")):
        with pytest.raises(GantryError, match=f"'bmw_320i'.* is {text}; start sim_drive"):
            find_launch(name).nodes({"bundle": given["bundle"]})


def test_a_real_car_finds_its_topics(bundles):
    given = {"bundle": "b", "drive": "mux/drive", "scan": "lidar", "route": "plan", "steering": "joint_states"}
    (policy,) = find_launch("robot").nodes(given)
    assert policy.parameters["steering"] == "joint_states"
    assert set(policy.remappings) == {
        ("scan", "lidar"),
        ("drive", "mux/drive"),
        ("drive_twist", "mux/drive"),
        ("route", "plan"),
        ("route_lanes", "plan"),
    }


@needs("mujoco")
def test_a_priority_reaches_both_loops_of_a_simulation(bundles):
    given = {"bundle": str(bundles / "seeing"), "realtime_priority": "70"}
    robot, _, policy = find_launch("sim_map_walk").nodes(given)
    assert robot.parameters["realtime_priority"] == policy.parameters["realtime_priority"] == 70


def test_mapping_beside_a_real_robot_needs_no_bundle_and_finds_its_topics():
    (node,) = find_launch("mapping").nodes({"depth": "front/depth/image", "odom": "lio/odom", "namespace": "rex"})
    assert (node.executable, node.namespace, node.parameters) == ("mapping_node", "rex", {})
    assert node.remappings == (("camera/depth/image_rect_raw", "front/depth/image"), ("odom", "lio/odom"))


def test_a_real_robot_never_starts_by_itself_and_its_topics_can_be_named():
    given = {"bundle": "b", "joint_states": "driver/joints", "realtime_priority": "80", "joint_order": "by_name"}
    (policy,) = find_launch("robot").nodes(given)
    assert policy.parameters == {
        "bundle": "b",
        "joint_order": "by_name",
        "realtime_priority": 80,
        "safety.require_heartbeat": True,
    }
    assert policy.remappings == (("joint_states", "driver/joints"),)
    assert policy.environment == {}
    with pytest.raises(UnknownNameError, match="argument of 'robot' 'auto_start'"):
        find_launch("robot").nodes({"bundle": "b", "auto_start": "true"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, True), ({"require_heartbeat": "false"}, False), ({"require_heartbeat": ""}, None)],
)
def test_a_real_robot_needs_a_living_operator_unless_that_is_switched_off(given, expected):
    (policy,) = find_launch("robot").nodes({"bundle": "b", **given})
    assert policy.parameters.get("safety.require_heartbeat") is expected


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("sim_walk", {}, "'bundle' is missing"),
        ("sim_walk", {"bundle": "b", "robot": "go2", "drive": "maybe"}, "'drive' is 'maybe', expected true or false"),
        ("robot", {"bundle": "b", "realtime_priority": "high"}, "'high', expected an integer"),
        ("robot", {"bundle": "b", "realtime_priority": "500"}, "'realtime_priority' is 500, expected 1 to 99"),
        ("robot", {"bundle": "b", "namespace": "2nd"}, "'namespace' is '2nd', expected parts of letters"),
        ("robot", {"bundle": "b", "namespace": "/left//arm"}, "'namespace' is '/left//arm', expected parts"),
        ("robot", {"bundle": "b", "config": "nowhere.yaml"}, "there is no file nowhere.yaml"),
        ("robot", {"bundel": "b"}, "Did you mean 'bundle'"),
        ("robot", {"bundle": "pretrained:go2-wlak"}, "Did you mean 'go2-walk'"),
        ("sim_walk", {"bundle": "b"}, "There is no bundle at b"),
        ("sim_walk", {"bundle": "b", "robot": "go2", "profile": "hello"}, "Profile segment 'hello' is not of the form"),
        pytest.param(
            "sim_walk",
            {"bundle": "b", "robot": "go2", "options": '{"friction": "abc"}'},
            "is 'abc', expected a number",
            marks=needs("mujoco"),
        ),
        ("sim_walk", {"bundle": "b", "robot": "go2", "options": "[1"}, "'options' is no JSON"),
        pytest.param(
            "sim_map_walk",
            {"bundle": "b", "robot": "go2", "drive": "true", "goal": "there"},
            "'there' is not of the form",
            marks=needs("mujoco"),
        ),
        ("sim_map_walk", {"bundle": "b", "robot": "go2", "mapping_statistics": "m.txt"}, "does not end in .json"),
        ("robot", {"bundle": "b", "record": "no/such.mcap"}, "'record': folder 'no' does not exist"),
        ("robot", {"bundle": "b", "record": "walk.bag"}, "'walk.bag' does not end in .mcap"),
        ("robot", {"bundle": "b", "statistics": "no/such.json"}, "'statistics': folder 'no' does not exist"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, given, text):
    with pytest.raises(GantryError, match=text):
        find_launch(name).nodes(given)


def test_splits_are_those_of_the_generated_maps():
    generate = pytest.importorskip("gantry_sim.driving.maps.generate")
    assert tuple(generate.SPLIT_SEEDS) == SPLITS


def test_a_bundle_that_comes_along_is_named(tmp_path):
    robot, policy = find_launch("sim_walk").nodes({"bundle": "pretrained:go2-walk"})
    assert robot.parameters["robot"] == "go2"
    assert (Path(str(policy.parameters["bundle"])) / "manifest.json").is_file()


def test_a_command_line_keeps_types_and_reaches_every_setting():
    spec = NodeSpec(
        package="gantry_ros",
        executable="policy_node",
        name="walker",
        namespace="a/b",
        parameters={"bundle": "7", "auto_start": True, "wait_s": 2.0},
        configs=("c.yaml",),
        remappings=(("odom", "other"),),
    )
    assert shlex.join(node_command(spec)[1:]) == (
        "-m gantry_ros policy_node --ros-args -r __node:=walker -r __ns:=/a/b -r odom:=other --params-file c.yaml "
        "-p 'bundle:=\"7\"' -p auto_start:=true -p wait_s:=2.0"
    )


def test_a_dry_run_starts_nothing_and_tells_all(tmp_path, capsys):
    report = tmp_path / "dry.json"
    arguments = ["launch", "sim_walk", "bundle:=b", "robot:=go2", "--dry-run", "--json", str(report)]
    assert main(arguments) == 0
    assert "ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST" in capsys.readouterr().out
    assert [node["name"] for node in json.loads(report.read_text())["nodes"]] == ["sim_robot_node", "policy_node"]


def test_a_misspelt_launch_is_answered_with_the_near_miss(capsys):
    assert main(["launch", "simwalk"]) == 2
    assert "Did you mean 'sim_walk'?" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(LAUNCH_FILES.glob("*.py")), ids=lambda path: path.name)
def test_a_launch_file_compiles_and_names_a_description(path, tmp_path):
    py_compile.compile(str(path), cfile=str(tmp_path / "compiled"), doraise=True)
    name = path.name.removesuffix(".launch.py")
    assert f'launch_description("{name}")' in path.read_text()
    assert name in LAUNCHES


def test_every_description_has_its_launch_file():
    assert {f"{name}.launch.py" for name in LAUNCHES} == {path.name for path in LAUNCH_FILES.iterdir()}


@pytest.mark.parametrize("name", sorted(LAUNCHES))
def test_ros_launch_gets_the_same_nodes(name):
    """Runs only where ROS 2's own ``launch`` is installed."""
    pytest.importorskip("launch_ros", reason="ROS 2's launch is not on the Python index")
    from gantry_bringup.ros_launch import launch_description

    described = launch_description(name)
    assert {argument.name for argument in described.get_launch_arguments()} == {
        argument.name for argument in LAUNCHES[name].arguments
    }


@pytest.mark.ros
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_configured_parameter_exists_with_that_type(path):
    pytest.importorskip("rclpy")
    from importlib import import_module

    for key, content in yaml.safe_load(path.read_text()).items():
        node = key.rpartition("/")[2]
        known = {item.name: item.default for item in import_module(f"gantry_ros.nodes.{node}").PARAMETERS}
        for name, value in content["ros__parameters"].items():
            assert name in known, f"{node}: {name}"
            assert type(value) is type(known[name]) or (isinstance(known[name], float) and type(value) is int)


@pytest.mark.ros
@pytest.mark.slow
def test_a_launched_walk_is_recorded_and_ends_by_itself(bundles, tmp_path):
    """Robot, policy and operator as `gantry launch` starts them, in a namespace, with configuration and DDS profile."""
    pytest.importorskip("rclpy")
    from gantry_deploy.recording.reader import read_recording
    from gantry_ros.testing import isolated_environment

    config = tmp_path / "config.yaml"
    config.write_text(
        "/**/policy_node:\n  ros__parameters:\n    safety.stand_duration_s: 0.2\n    safety.state_timeout_s: 0.5\n"
        "    safety.max_missed_deadlines: 1000\n"
    )
    record, statistics, report = (tmp_path / name for name in ("walk.mcap", "statistics.json", "report.json"))
    arguments = [
        f"bundle:={bundles / 'good'}",
        "backend:=mock",
        "namespace:=lab/left",
        "drive:=true",
        "profile:=0.5:0.5,0,0; 0.5:0,0,-0.25",
        f"config:={config}",
        f"record:={record}",
        f"statistics:={statistics}",
        f"dds_profile:={CONFIGS / 'fastdds-shm.xml'}",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "gantry_deploy.cli.main", "launch", "sim_walk", *arguments, "--json", str(report)],
        env={**os.environ, **isolated_environment()},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "since the one to damp: damping on" in result.stdout, result.stdout  # As was to be expected of the policy.
    assert result.stdout.endswith(f"Recording: {record}\nDone: every node ended well.\n")
    codes = json.loads(report.read_text())["nodes"]
    assert codes == {"sim_robot_node": 0, "policy_node": 0, "operator_node": 0}
    assert json.loads(statistics.read_text())["recording"]["dropped"] == 0
    recording = read_recording(record)
    assert recording.complete
    assert recording.robot == "go2"
    assert {"PASSIVE", "STAND", "POLICY"} <= set(recording["/gantry/status"]["mode"].tolist())
    commands = {tuple(row) for row in np.round(recording["/cmd_vel"]["command"], 3).tolist()}
    assert {(0.5, 0.0, 0.0), (0.0, 0.0, -0.25)} <= commands


@pytest.mark.ros
@pytest.mark.slow
def test_a_launched_walk_over_a_map_reaches_its_goal(tmp_path):
    """Robot, camera, mapping, policy and operator as `gantry launch` starts them; the policy is its gait alone."""
    pytest.importorskip("rclpy")
    pytest.importorskip("mujoco")
    from gantry_deploy.testing.legs import map_contract_for, tiny_bundle
    from gantry_ros.testing import isolated_environment
    from gantry_sim.tasks.locomotion.robots import legged_robot_cfg

    body = legged_robot_cfg("go2")
    gains = {"stiffness_nm_rad": body.stiffness_nm_rad, "damping_nm_s_rad": body.damping_nm_s_rad}
    contract = map_contract_for(body.spec, gait=body.gait, **gains)
    tiny_bundle(tmp_path / "bundle", contract, weight=np.zeros((contract.observation_size, 12)))
    config = tmp_path / "config.yaml"
    # A machine that also does other things must not end the walk; what that does to the gait is small.
    config.write_text(
        "/**/policy_node:\n  ros__parameters:\n    safety.state_timeout_s: 1.0\n    safety.max_missed_deadlines: 1000\n"
        "    map_stale_s: 2.0\n    map_lost_s: 4.0\n    connect_timeout_s: 60.0\n"
        "/**/operator_node:\n  ros__parameters:\n    wait_s: 90.0\n    goal_timeout_s: 60.0\n"
    )
    arguments = [
        f"bundle:={tmp_path / 'bundle'}",
        "terrain:=",
        "goal:=1.2,0,0",
        "drive:=true",
        f"config:={config}",
        'options:={"visuals": false}',
    ]
    done = subprocess.run(
        [sys.executable, "-m", "gantry_deploy.cli.main", "launch", "sim_map_walk", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **isolated_environment()},
    )
    assert "Goal reached." in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.ros
@pytest.mark.slow
def test_a_recording_on_a_full_disk_fails_the_launch_and_not_the_robot(bundles, tmp_path):
    pytest.importorskip("rclpy")
    from gantry_ros.testing import isolated_environment

    record, config = tmp_path / "walk.mcap", tmp_path / "config.yaml"
    record.symlink_to("/dev/full")
    config.write_text(
        "/**/policy_node:\n  ros__parameters:\n    safety.stand_duration_s: 0.2\n    safety.state_timeout_s: 0.5\n"
        "    safety.max_missed_deadlines: 1000\n"
    )
    arguments = [f"bundle:={bundles / 'good'}", "backend:=mock", "drive:=true", "profile:=1:0.5,0,0"]
    arguments += [f"config:={config}", f"record:={record}"]
    done = subprocess.run(
        [sys.executable, "-m", "gantry_deploy.cli.main", "launch", "sim_walk", *arguments],
        env={**os.environ, **isolated_environment()},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "Profile done." in done.stdout, done.stdout + done.stderr
    assert f"The recording {record} ended early after 0 ticks: No space left on device." in done.stdout
    assert done.returncode == 1
    assert "Done: every node ended well." not in done.stdout


def test_the_arguments_of_one_launch_are_listed(capsys):
    from gantry_deploy.cli.main import main

    assert main(["launch", "car", "--show-args"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("car: ")
    assert "options" in told
    assert "sim_walk:" not in told
    assert main(["launch", "cat", "-s"]) == 2
    assert "Did you mean 'car'?" in capsys.readouterr().err

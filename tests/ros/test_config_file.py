"""Parameter files are read before anything starts; what ROS would refuse, or ignore in silence, is told in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry_bringup.config_file import ConfigFileError, Section, check_config, check_parameters, read_sections
from gantry_bringup.description import find_launch
from gantry_deploy.cli.main import main
from gantry_ros.__main__ import EXECUTABLES

CONFIGS = Path(__file__).parents[2] / "configs" / "ros"
NAMES = ("policy_node", "/policy_node", "/left/policy_node", "left/policy_node", "/**/policy_node", "/*/policy_node")
NAMES += ("/**", "/*", "/left/**", "/left/*", "/left/**/policy_node", "/**/arm/policy_node", "/left/*/policy_node")
NESTED = (
    "/**:\n  policy_node:\n    ros__parameters:\n      robot: go2\nlab:\n  operator_node:\n    ros__parameters: {}\n"
)


def section(name, parameters="    robot: go2\n"):
    return f"{name}:\n  ros__parameters:\n{parameters}"


@pytest.fixture
def write(tmp_path):
    def write(text):
        (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
        return str(tmp_path / "c.yaml")

    return write


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "/**/policy_node:\n  ros__parameters:\n    robot: go2: 3\n",
            "line 3: no YAML: mapping values are not allowed",
        ),
        ("/**/policy_node:\n\tros__parameters: {}\n", "line 2: no YAML: .*cannot start any token"),
        ("**/policy_node: {}\n", "line 1: no YAML: while scanning an alias"),
        ("a: [1,\n", "line 2: no YAML: while parsing a flow node"),
        ("a: \x00\n", "c.yaml: no YAML: unacceptable character"),
        ("- 1\n", "line 1: the file is a list, expected sections 'NODE:'"),
        ("hello\n", "line 1: the file is 'hello', expected sections 'NODE:'"),
        ("---\n", "the file is empty, expected sections 'NODE:'"),
        ("", "the file is empty, expected sections 'NODE:'"),
        ("# all of it is commented out\n", "the file is empty, expected sections 'NODE:'"),
        (
            section("/**/policy_node") + section("/**/policy_node"),
            "line 4: '/../policy_node' is there twice, first in .*1",
        ),
        (
            section("policy_node") + section("/policy_node"),
            "line 4: section '/policy_node' begins again, first in line 1",
        ),
        (
            section("/**/policy_node", "    robot: go2\n    robot: go1\n"),
            "line 4: '.*robot' is there twice, first in line 3",
        ),
        (
            section("/**/policy_node", "    safety.max_tilt_rad: 1.0\n    safety: {max_tilt_rad: 2.0}\n"),
            "line 4: parameter 'safety.max_tilt_rad' of .* is there twice, first in line 3",
        ),
        (
            section("/**/policy_node", "    safety: {max_tilt_rad: .inf}\n"),
            "line 3: '.*max_tilt_rad' is .inf, expected a",
        ),
        (section("/**/policy_node", "    cpu: .nan\n"), "line 3: '.*cpu' is .nan, expected a finite number"),
        (section("/**/policy_node", "    cpu: -Infinity\n"), "line 3: '.*cpu' is -Infinity, expected a finite number"),
        (section("/**/policy_node", "    cpu: 1e999\n"), "line 3: '.*cpu' is 1e999, expected a finite number"),
        (section("/**/policy_node", f"    cpu: {'[' * 100000}\n"), "line 3: more than 32 lists and mappings inside"),
        (section("/**/policy_node", "    ? [1]\n    : 1\n"), "line 3: a key is a list or a mapping"),
        (section("/**/policy_node", "    cpu: " + "9" * 2**20), "it has more than 1048576 bytes"),
        ("ros__parameters:\n  robot: go2\n", "line 1: ros__parameters is in no section, expected 'NODE:' above it"),
        ("# limits\n/**/policy_node:\n", "line 2: section '/\\*\\*/policy_node' has no ros__parameters"),
        ("/**/policy_node: {}\n", "line 1: section '/\\*\\*/policy_node' has no ros__parameters"),
        (
            "/**/policy_node:\n  robot: go2\n",
            "line 2: 'robot' in section '/\\*\\*/policy_node' is not below ros__param",
        ),
        ("/**/policy_node:\n  ros_parameters:\n    robot: go2\n", "line 2: 'ros_parameters' in section .* not below"),
        (section("/**/policy_node") + "  wait_s: 2\n", "line 4: 'wait_s' in section .* is not below ros__parameters"),
        (section("/**/policy_node", ""), "line 2: ros__parameters of section '.*' is empty, expected 'NAME: VALUE'"),
        (section("/**/policy_node", "    - robot\n"), "is a list, expected 'NAME: VALUE'"),
        (
            section("/**/policy_node", "    safety:\n      max_tilt_rad:\n"),
            "line 4: parameter 'safety.max_tilt_rad' has no value",
        ),
        (
            section("/**/policy_node", "    robot: &dog go2\n    record: *dog\n"),
            "line 4: ROS knows no aliases such as .dog",
        ),
        (section("/left") + "  policy_node: {}\n", "line 4: 'policy_node' in section '/left' is not below ros__param"),
        (section("/**/policy_node", "    robot: [1, a]\n"), "line 3: parameter 'robot' is a list of values of several"),
        (section("/**") + section("/**/policy_nod"), "line 4: Unknown node 'policy_nod'. Did you mean 'policy_node'"),
        (section("/**/left"), "nothing in it is for what is started (.*/policy_node.*), but for /../left"),
        (
            section("/**/operator_node"),
            "nothing in it is for what is started (.*/policy_node.*), but for /../operator_node",
        ),
        (section("/right/policy_node") + section("/right/**"), "but for /right/policy_node, /right/..\\.$"),
    ],
)
def test_what_would_be_refused_or_ignored_is_told_with_its_line(write, text, told):
    path = write(text)
    with pytest.raises(ConfigFileError, match=told) as caught:
        check_config(path, ["/left/sim_car_node", "/left/policy_node"])
    assert str(caught.value).startswith(f"Argument 'config': {path}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "/**/policy_node:\n  ros__parameters: {}\n",
        section("/**/operator_node")
        + section("/**/policy_node", "    safety:\n      max_tilt_rad: 1.0\n    robot: ''\n"),
        section("/right/policy_node") + section("/left/policy_node"),
        section("/lidar_driver") + section("/left/policy_node"),
        section("/right/policy_node") + "---\n" + section("/left/policy_node"),
        NESTED,
        section("/**"),
    ],
)
def test_what_ros_understands_passes(write, text):
    check_config(write(text), ["/left/policy_node"])


def test_sections_are_named_in_full_with_their_lines(write):
    assert read_sections(write(NESTED)) == [Section("/**/policy_node", 2), Section("/lab/operator_node", 6)]


@pytest.mark.parametrize(
    ("launch", "config", "started"),
    [
        ("sim_walk", "sim_walk", ("sim_robot_node", "policy_node")),
        ("sim_map_walk", "mapping", ("sim_robot_node", "mapping_node", "policy_node")),
        ("sim_arm", "sim_arm", ("sim_robot_node", "policy_node")),
        ("sim_drive", "sim_drive", ("sim_car_node", "policy_node")),
        *(("robot", name, ("policy_node",)) for name in ("robot", "arm", "car")),
    ],
)
def test_the_shipped_files_pass_and_serve_several_launches(launch, config, started):
    assert launch in (CONFIGS / f"{config}.yaml").read_text(encoding="utf-8"), "the file says for which launch it is"
    for namespace in ("", "/left"):
        check_config(str(CONFIGS / f"{config}.yaml"), [f"{namespace}/{name}" for name in started])


def test_a_launch_refuses_before_any_node_starts(write, capsys):
    path = write(section("/**/policy_nod", "    route_end: stopp\n"))
    assert main(["launch", "robot", "bundle:=b", f"config:={path}", "--dry-run"]) == 2
    assert f"Argument 'config': {path}, line 1: Unknown node 'policy_nod'" in capsys.readouterr().err
    given = {"bundle": "b", "namespace": "/left/", "config": write(section("/right/policy_node"))}
    with pytest.raises(ConfigFileError, match=r"what is started \(/left/policy_node\), but for /right/policy_node\.$"):
        find_launch("robot").nodes(given)
    find_launch("robot").nodes({**given, "namespace": "right"})


@pytest.mark.ros
@pytest.mark.parametrize("text", [*(section(name) for name in NAMES), NESTED, "", "# nothing yet\n"])
def test_ros_gives_parameters_to_the_same_nodes(write, text):
    pytest.importorskip("rclpy")
    from gantry_ros.runtime.host import NodeHost

    path = write(text)
    for namespace in ("", "/left", "/left/arm"):
        arguments = ["--ros-args", "-r", f"__ns:={namespace or '/'}", "--params-file", path]
        with NodeHost("policy_node", arguments) as host:
            given = "robot" in host.node._parameter_overrides
        applied = any(section.applies(f"{namespace}/policy_node") for section in read_sections(path))
        assert applied == given, namespace


@pytest.mark.ros
@pytest.mark.parametrize(
    "text",
    [
        "---\n",
        "- 1\n",
        "/**/policy_node:\n",
        section("/**/policy_node", ""),
        section("/**/policy_node", "    robot:\n"),
        section("/**/policy_node", "    robot: &dog go2\n    record: *dog\n"),
        section("/**/policy_node", "    robot: [1, a]\n"),
        section("/**/policy_node") + "  wait_s: 2\n",
        section("/left") + "  policy_node:\n    ros__parameters:\n      robot: go1\n",
        "/**/policy_node:\n  robot: go2\n",
    ],
)
def test_ros_refuses_it_as_well(write, text):
    pytest.importorskip("rclpy")
    from gantry_hardware.errors import GantryError
    from gantry_ros.runtime.host import NodeHost

    path = write(text)
    with pytest.raises(GantryError, match="ROS refuses the arguments"):
        NodeHost("policy_node", ["--ros-args", "--params-file", path])
    with pytest.raises(ConfigFileError):
        read_sections(path)


@pytest.mark.ros
@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("    robot: 2\n", "line 3: parameter 'robot' is '2', expected a text"),
        ("    cpu: 1.5\n", "line 3: parameter 'cpu' is '1.5', expected a whole number"),
        ("    cpu: true\n", "parameter 'cpu' is 'true', expected a whole number"),
        ("    auto_start: 1\n", "parameter 'auto_start' is '1', expected true or false"),
        ("    auto_start: 'true'\n", "parameter 'auto_start' is 'true', expected true or false"),
        (
            "    safety:\n      max_tilt_rad: big\n",
            "line 4: parameter 'safety.max_tilt_rad' is 'big', expected a number",
        ),
        ("    safety.max_tilt_rad: [1.0]\n", "parameter 'safety.max_tilt_rad' is a list, expected a number"),
        ("    safety.max_tilt: 1.0\n", "line 3: Unknown parameter of policy_node 'safety.max_tilt'. Did you mean"),
    ],
)
def test_what_a_node_would_refuse_at_last_is_told_before_anything_starts(write, parameters, told):
    pytest.importorskip("rclpy")
    path = write(section("/**/policy_node", parameters))
    with pytest.raises(ConfigFileError, match=told) as caught:
        check_parameters(path, {"/left/policy_node": "policy_node"})
    assert str(caught.value).startswith(f"Argument 'config': {path}")


@pytest.mark.ros
def test_whole_numbers_and_powers_of_ten_are_numbers_and_others_sections_are_theirs(write):
    pytest.importorskip("rclpy")
    good = "    safety.max_tilt_rad: 1\n    map_stale_s: 5e-1\n    use_sim_time: false\n    bundle: '7'\n"
    path = write(section("/**/policy_node", good) + section("/**/somebody", "    cpu: none of ours\n"))
    check_parameters(path, {"/policy_node": "policy_node"})


@pytest.mark.ros
def test_the_command_refuses_them_as_well(write, capsys):
    pytest.importorskip("rclpy")
    path = write(section("/**/policy_node", "    cpu: fast\n"))
    assert main(["launch", "robot", "bundle:=b", f"config:={path}"]) == 2
    assert "parameter 'cpu' is 'fast', expected a whole number" in capsys.readouterr().err


@pytest.mark.ros
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_what_ships_is_what_the_nodes_take(path):
    pytest.importorskip("rclpy")
    names = {f"/{name}": name for name in EXECUTABLES}
    check_parameters(str(path), names)

"""Launch descriptions of robots that the policy's node drives: refusals, and one against a strict fake robot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from gantry_bringup.description import LAUNCHES, find_launch  # noqa: E402
from gantry_bringup.driven import BACKENDS  # noqa: E402
from gantry_bringup.parts import require_parameters  # noqa: E402
from gantry_deploy.bundle.locate import find_bundle  # noqa: E402
from gantry_hardware.errors import GantryError, UnknownNameError  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

ROOT = Path(__file__).parents[2]
FILES = ROOT / "configs" / "robots"
EXAMPLES = {
    "quadruped": ("pretrained:go2-walk", "go2.yaml"),
    "arm": ("pretrained:yam-pick-place", "yam.yaml"),
    "car": ("pretrained:drive-race", "f1tenth_vesc.yaml"),
}


@pytest.fixture(autouse=True)
def _root(monkeypatch):
    monkeypatch.chdir(ROOT)


def policy_of(name, **given):
    return find_launch(name).nodes(given)[0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_files_that_come_along_fit_their_launch(name):
    bundle, file = EXAMPLES[name]
    node = policy_of(name, bundle=bundle, config=str(FILES / file), robot="")
    require_parameters([node])
    assert node.parameters["backend"] == BACKENDS[name]
    assert node.configs == (str(FILES / file),)


def test_every_robot_file_holds_parameters_of_the_node():
    from gantry_bringup.config_file import check_parameters

    for file in sorted(FILES.glob("*.yaml")):
        check_parameters(str(file), {"/policy_node": "policy_node"})


def test_the_sites_file_wins_and_arguments_win_over_both(tmp_path):
    robot, site = tmp_path / "robot.yaml", tmp_path / "site.yaml"
    robot.write_text("/**/policy_node:\n  ros__parameters:\n    backend: unitree\n    backend_options: {domain: 4}\n")
    site.write_text("/**/policy_node:\n  ros__parameters:\n    backend_options: {interface: lo, domain: 5}\n")
    node = policy_of("quadruped", bundle="pretrained:go2-walk", config=str(robot), site=str(site))
    assert node.configs == (str(robot), str(site))
    assert not [name for name in node.parameters if name.startswith("backend_options")]
    node = policy_of("quadruped", bundle="pretrained:go2-walk", site=str(site), options='{"domain": 6}')
    assert node.parameters["backend_options.domain"] == 6
    assert node.parameters["safety.require_heartbeat"] is True
    site.write_text("/**/policy_node: {ros__parameters: {safety: {require_heartbeat: false}}}\n")
    node = policy_of("quadruped", bundle="pretrained:go2-walk", site=str(site))
    assert "safety.require_heartbeat" not in node.parameters, "what the file says holds"


def test_a_file_of_another_robot_is_refused():
    with pytest.raises(GantryError, match="are those of robot 'g1', and the bundle is for 'go2'"):
        policy_of("quadruped", bundle="pretrained:go2-walk", config=str(FILES / "g1.yaml"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"options": '{"interfase": "lo"}'}, "Did you mean 'interface'?"),
        ({"options": '{"domain": "lo"}'}, "Option 'domain' of backend 'unitree' is 'lo', expected a whole number"),
        ({"backend": "unitre"}, "Did you mean 'unitree'?"),
        ({"site": "nowhere.yaml"}, "Argument 'site': there is no file nowhere.yaml"),
        ({"managed": "perhaps"}, "Argument 'managed' is 'perhaps'"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(given, text):
    with pytest.raises(GantryError) as error:
        policy_of("quadruped", bundle="pretrained:go2-walk", **given)
    assert text in str(error.value)


def test_another_kind_of_robot_is_refused_with_the_launch_that_fits():
    with pytest.raises(GantryError, match="is a robot with legs; start quadruped or humanoid"):
        policy_of("arm", bundle="pretrained:go2-walk")
    with pytest.raises(UnknownNameError, match="joint_states"):
        policy_of("quadruped", bundle="pretrained:go2-walk", joint_states="x")  # The node is the driver.


def test_a_mapping_node_is_started_where_it_is_asked_for():
    nodes = find_launch("quadruped").nodes(
        {"bundle": "pretrained:go2-walk", "mapping_node": "true", "odom": "lio/odom", "managed": "true"}
    )
    assert [node.executable for node in nodes] == ["policy_node", "mapping_node"]
    assert all(node.parameters["managed"] is True for node in nodes)
    assert all(("odom", "lio/odom") in node.remappings for node in nodes)


def test_each_has_a_file_for_ros2_launch():
    for name in BACKENDS:
        assert name in LAUNCHES
        text = (ROOT / f"ros_ws/src/gantry_bringup/launch/{name}.launch.py").read_text()
        assert f'launch_description("{name}")' in text


@pytest.mark.slow
def test_a_fake_go2_is_launched_and_obeys(own_rig, tmp_path):
    """``gantry launch quadruped`` over the robot's own DDS topics, with a robot and a site file; the robot hangs."""
    pytest.importorskip("mujoco")
    pytest.importorskip("cyclonedds")
    from gantry_fixtures.unitree import patient_fake

    fake, operator = patient_fake(), own_rig.operator
    site, statistics = tmp_path / "site.yaml", tmp_path / "statistics.json"
    options = {"interface": "lo", "domain": fake.domain, "command_timeout_s": 1.0, "guard_timeout_s": 1.0}
    safety = {"state_timeout_s": 1.0, "max_missed_deadlines": 1000, "stand_tolerance_rad": 3.0}
    told = {"backend_options": options, "safety": safety}
    site.write_text(json.dumps({"/**/policy_node": {"ros__parameters": told}}))
    arguments = [f"bundle:={find_bundle('pretrained:go2-walk')}", f"config:={FILES / 'go2.yaml'}", f"site:={site}"]
    arguments += [f"statistics:={statistics}", "require_heartbeat:=false"]
    child = subprocess.Popen(
        [sys.executable, "-m", "gantry_deploy.cli.main", "launch", "quadruped", *arguments],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        own_rig.bring_to_policy()
        before = fake.report()["commands"]["accepted"]

        def obeyed():
            operator.drive(0.6)
            return fake.report()["commands"]["accepted"] > before + 500

        wait_until(obeyed, "a second of commands")
        assert operator.fresh_values("policy_node")["mode"] == "POLICY"
        child.send_signal(2)
        output = child.communicate(timeout=120)[0]
        report = fake.report()
    finally:
        child.kill()
        fake.close()
    assert child.returncode == 130, output
    assert report["commands"]["refused"] == {}, report["first_violations"]
    assert json.loads(statistics.read_text())["mode"] == "POLICY"

"""What a policy node refuses before anything moves: one message, exit code 2, and a robot that never hears of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from sensor_msgs.msg import Imu, JointState  # noqa: E402

from gantry_deploy.contract.policy_contract import CONTRACT_VERSION  # noqa: E402
from gantry_deploy.testing.legs import contract_for, tiny_bundle  # noqa: E402
from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.runtime.host import NodeHost  # noqa: E402


@pytest.fixture(scope="module")
def robot_rig(rig):
    """A rig with a robot that waits for commands."""
    with rig.robot() as robot:
        rig.operator.wait_for("sim_robot_node", activity="waiting for joint commands")
        yield rig
        assert robot.stop() == 0


def refused(rig, bundle, **parameters):
    """The single line with which a policy node ends, after making sure that nothing has moved."""
    with rig.policy(bundle, **parameters) as policy:
        assert policy.wait() == 2, policy.output
        assert policy.output.count("policy_node: ") == 1
        assert "Traceback" not in policy.output
        assert rig.operator.fresh_values("sim_robot_node")["activity"] == "waiting for joint commands"
        assert rig.operator.commands == []
        return policy.output


def changed_bundle(folder, kind):
    contract = contract_for(robot_spec("go2"))
    names = contract.joint_names
    changes = {
        "newer": {"version": CONTRACT_VERSION + 1},
        "names": {"joint_names": ("FR_hip_jiont", *names[1:])},
        "order": {"joint_names": names[::-1]},
    }
    if kind == "flipped":
        path = tiny_bundle(folder, contract).path / "policy.onnx"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        write(folder, replace(contract, **changes[kind]))
    return folder


def write(folder, contract):
    from gantry_deploy.bundle.bundle import write_bundle
    from gantry_deploy.testing.legs import golden_data, linear_model

    write_bundle(folder, contract=contract, model_bytes=linear_model(contract), golden=golden_data(contract))


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("flipped", ["'policy.onnx' was changed"]),
        ("newer", [f"version {CONTRACT_VERSION + 1}", f"understands version {CONTRACT_VERSION}"]),
        ("names", ["FR_hip_jiont", "Did you mean 'FR_hip_joint'?"]),
        ("order", ["Same joints, other order", "FR_hip_joint, FR_thigh_joint", "RL_thigh_joint, RL_hip_joint"]),
    ],
)
def test_a_bundle_that_does_not_fit_is_refused(robot_rig, tmp_path, kind, texts):
    output = refused(robot_rig, changed_bundle(tmp_path / "bundle", kind))
    for text in texts:
        assert text in output


def test_a_bundle_for_another_robot_is_refused(robot_rig, bundles):
    assert "trained for robot 'go2', this robot is 'go1'" in refused(robot_rig, bundles / "good", robot="go1")


def test_a_bundle_without_the_required_signature_is_refused(robot_rig, bundles):
    assert "sign" in refused(robot_rig, bundles / "good", public_key="00" * 32)


def test_a_missing_bundle_is_refused(robot_rig, tmp_path):
    assert "nowhere" in refused(robot_rig, tmp_path / "nowhere")


def test_a_misspelt_parameter_is_answered_with_the_near_miss(robot_rig, bundles):
    output = refused(robot_rig, bundles / "good", safety__state_timeot_s=1.0)
    assert "Did you mean 'safety.state_timeout_s'?" in output


def test_a_rate_of_zero_is_refused_and_an_older_recording_stays(robot_rig, bundles, tmp_path):
    older = tmp_path / "walk.mcap"
    older.write_bytes(b"an older walk")
    output = refused(robot_rig, bundles / "good", record=str(older), diagnostics_rate_hz=0.0)
    assert "'diagnostics_rate_hz' is 0.0, expected 0.01 to 10000" in output
    assert older.read_bytes() == b"an older walk"


@pytest.mark.parametrize(
    ("fault", "texts"),
    [
        ("wrong_name", ["FR_hip_joint_renamed", "robot 'go2': FR_hip_joint"]),
        ("wrong_order", ["Same joints, other order", "joint_order:=by_name"]),
        ("silent", ["/joint_states (1 publisher)", "/imu/data (1 publisher)", "within 8 s"]),
    ],
)
def test_a_robot_that_does_not_fit_is_refused(robot_rig, bundles, fault, texts):
    assert robot_rig.operator.set_parameter("sim_robot_node", "fault", fault)[0]
    try:
        # Announcements that get lost are repeated after 3 s.
        output = refused(robot_rig, bundles / "good", connect_timeout_s=8.0 if fault == "silent" else 30.0)
    finally:
        assert robot_rig.operator.set_parameter("sim_robot_node", "fault", "")[0]
    for text in texts:
        assert text in output


@pytest.mark.parametrize(("topic", "kind"), [("joint_states", JointState), ("imu/data", Imu)])
def test_a_robot_with_duplicate_publishers_is_refused_with_both_names(robot_rig, bundles, topic, kind):
    with NodeHost("second_node") as second:
        second.node.create_publisher(kind, topic, 1)
        # Announcements that get lost are repeated after 3 s.
        output = refused(robot_rig, bundles / "good", discovery_s=4.0)
    assert f"/{topic} has 2 publishers, expected one: /second_node, /sim_robot_node" in output


def test_another_joint_order_is_sorted_on_request(robot_rig, bundles):
    """Last in this module, because this policy does command the robot."""
    assert robot_rig.operator.set_parameter("sim_robot_node", "fault", "wrong_order")[0]
    with robot_rig.policy(bundles / "good", joint_order="by_name") as policy:
        robot_rig.operator.wait_for("policy_node", mode="PASSIVE", fault="")
        assert policy.stop() == 0

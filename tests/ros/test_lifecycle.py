"""Managed nodes: the transitions of ROS 2's lifecycle, as a lifecycle manager asks for them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from lifecycle_msgs.msg import State, Transition  # noqa: E402
from lifecycle_msgs.srv import (  # noqa: E402
    ChangeState,
    GetAvailableStates,
    GetAvailableTransitions,
    GetState,
)

from gantry_hardware.robots import robot_spec  # noqa: E402
from gantry_ros.convert import robot as convert  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

UNCONFIGURED, INACTIVE, ACTIVE = "unconfigured", "inactive", "active"


def state(operator, node="policy_node"):
    return operator.call(f"{node}/get_state", GetState, GetState.Request()).current_state.label


def change(operator, label, node="policy_node"):
    """Whether a transition succeeded, and the state after it."""
    request = ChangeState.Request(transition=Transition(label=label))
    return operator.call(f"{node}/change_state", ChangeState, request).success, state(operator, node)


def possible(operator, name="get_available_transitions"):
    answer = operator.call(f"policy_node/{name}", GetAvailableTransitions, GetAvailableTransitions.Request())
    return [item.transition.label for item in answer.available_transitions]


def test_a_managed_policy_goes_through_its_states_twice(own_rig, bundles, tmp_path):
    rig, operator = own_rig, own_rig.operator
    with rig.robot() as robot, rig.policy(bundles / "good", managed=True, record=str(tmp_path / "walk.mcap")) as policy:
        assert state(operator) == UNCONFIGURED
        assert possible(operator) == ["configure", "shutdown"]
        assert change(operator, "activate") == (False, UNCONFIGURED)
        policy.wait_for_output("Transition 'activate' is not possible in state 'unconfigured'")
        for _ in range(2):
            assert change(operator, "configure") == (True, INACTIVE)
            assert change(operator, "activate") == (True, ACTIVE)
            assert "is refused: the node is not active" not in operator.ask("policy_node/stop")[1]
            operator.wait_for("policy_node", mode="PASSIVE")
            rig.bring_to_policy()
            assert change(operator, "deactivate") == (True, INACTIVE)
            granted, reason = operator.ask("policy_node/stand")
            assert not granted
            assert reason == "'stand' is refused: the node is not active."
            # What was sent last holds no joint and brakes it.
            command = convert.CommandCodec(robot_spec("go2")).command(operator.commands[-1])
            assert not command.stiffness_nm_rad.any()
            assert command.damping_nm_s_rad.all()
            # It does not go on where it stopped.
            assert change(operator, "activate") == (True, ACTIVE)
            assert operator.fresh_values("policy_node")["mode"] == "PASSIVE"
            assert change(operator, "deactivate") == (True, INACTIVE)
            assert change(operator, "cleanup") == (True, UNCONFIGURED)
        assert operator.call(
            "policy_node/change_state", ChangeState, ChangeState.Request(transition=Transition(label="shutdown"))
        ).success
        assert policy.wait() == 0
        assert robot.stop() == 0
    assert sorted(path.name for path in tmp_path.glob("*.mcap")) == ["walk-2.mcap", "walk.mcap"], "none is replaced"


def test_a_configuration_that_fails_can_be_asked_for_again(own_rig, bundles):
    """The robot is not there yet; messages are taken while the node waits for it."""
    rig, operator = own_rig, own_rig.operator
    with rig.policy(bundles / "good", managed=True, connect_timeout_s=1.0) as policy:
        assert change(operator, "configure") == (False, UNCONFIGURED)
        policy.wait_for_output("'configure' failed: Robot 'go2' does not answer")
        with rig.robot() as robot:
            wait_until(lambda: change(operator, "configure") == (True, INACTIVE), "the configuration")
            assert change(operator, "activate") == (True, ACTIVE)
            assert policy.stop() == 0
            assert robot.stop() == 0


def test_numbers_and_lists_are_those_of_ros(own_rig, bundles):
    operator = own_rig.operator
    with own_rig.policy(bundles / "good", managed=True, backend="mock", backend_options__realtime=True) as policy:
        states = operator.call("policy_node/get_available_states", GetAvailableStates, GetAvailableStates.Request())
        found = {item.label: item.id for item in states.available_states}
        assert found[UNCONFIGURED] == State.PRIMARY_STATE_UNCONFIGURED
        assert found["configuring"] == State.TRANSITION_STATE_CONFIGURING
        assert possible(operator, "get_transition_graph").count("shutdown") == 3
        # By number instead of by name, as managers ask.
        request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE))
        assert operator.call("policy_node/change_state", ChangeState, request).success
        assert state(operator) == INACTIVE
        assert policy.stop() == 0


def test_a_node_that_is_not_managed_tells_its_state_and_can_be_deactivated(own_rig, bundles):
    operator = own_rig.operator
    with own_rig.policy(bundles / "good", backend="mock", backend_options__realtime=True) as policy:
        wait_until(lambda: state(operator) == ACTIVE, "the active state")
        own_rig.bring_to_policy()
        assert change(operator, "deactivate") == (True, INACTIVE)
        assert change(operator, "activate") == (True, ACTIVE)
        assert operator.fresh_values("policy_node")["mode"] == "PASSIVE"
        assert policy.stop() == 0


def test_a_mapping_node_listens_while_it_is_active(own_rig):
    rig, operator = own_rig, own_rig.operator
    with rig.process("mapping_node", managed=True) as mapping:
        assert change(operator, "configure", "mapping_node") == (True, INACTIVE)
        assert topics_of(operator, "mapping_node") == []
        for _ in range(2):
            assert change(operator, "activate", "mapping_node") == (True, ACTIVE)
            wait_until(lambda: "/elevation_map" in topics_of(operator, "mapping_node"), "the map's publisher")
            assert change(operator, "deactivate", "mapping_node") == (True, INACTIVE)
            wait_until(lambda: topics_of(operator, "mapping_node") == [], "the end of the map's publisher")
        assert change(operator, "cleanup", "mapping_node") == (True, UNCONFIGURED)
        assert mapping.stop() == 0


def topics_of(operator, node):
    """Topics of maps and diagnostics that a node publishes."""
    names = [name for name, _ in operator.node.get_publisher_names_and_types_by_node(node, "/")]
    return sorted(name for name in names if name in ("/elevation_map", "/diagnostics"))


def test_the_second_of_two_activations_is_refused_and_the_first_works_on(own_rig, bundles):
    operator = own_rig.operator
    with own_rig.robot(), own_rig.policy(bundles / "good", managed=True):
        assert change(operator, "configure") == (True, INACTIVE)
        client = operator.node.create_client(ChangeState, "policy_node/change_state")
        assert client.wait_for_service(60.0)
        request = ChangeState.Request(transition=Transition(label="activate"))
        answers = [client.call_async(request) for _ in range(2)]
        wait_until(lambda: all(answer.done() for answer in answers), "both answers")
        assert sorted(answer.result().success for answer in answers) == [False, True]
        operator.wait_for("policy_node", mode="PASSIVE")
        operator.fresh_values("policy_node")
        assert state(operator) == ACTIVE
        own_rig.bring_to_policy()


def test_a_wrong_bundle_is_no_end_of_a_managed_node(own_rig, tmp_path):
    operator = own_rig.operator
    with own_rig.policy(tmp_path / "nowhere", managed=True, backend="mock") as policy:
        assert change(operator, "configure") == (False, UNCONFIGURED)
        policy.wait_for_output("'configure' failed:")
        assert policy.stop() == 0

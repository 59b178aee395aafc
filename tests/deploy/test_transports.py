"""Environment variables that choose the transports of ROS 2 messages."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from gantry_deploy.process.transports import (
    LOCALHOST,
    OF_A_NETWORK,
    OF_THIS_MACHINE,
    PROFILE_VARIABLE,
    RANGE_VARIABLE,
    keeps_to_this_machine,
    udp_variables,
)

HERE = {PROFILE_VARIABLE: OF_THIS_MACHINE, RANGE_VARIABLE: "SYSTEM_DEFAULT"}
NETWORK = {PROFILE_VARIABLE: OF_A_NETWORK}


@pytest.mark.parametrize(
    ("environment", "changes"),
    [
        ({}, NETWORK),
        ({RANGE_VARIABLE: "SUBNET"}, NETWORK),
        ({RANGE_VARIABLE: LOCALHOST}, HERE),
        ({"ROS_LOCALHOST_ONLY": "1"}, {**HERE, "ROS_LOCALHOST_ONLY": None, "ROS_STATIC_PEERS": None}),
        ({"ROS_LOCALHOST_ONLY": "0"}, NETWORK),
        ({RANGE_VARIABLE: LOCALHOST, "ROS_STATIC_PEERS": "10.0.0.2"}, {}),
        ({RANGE_VARIABLE: "SUBNET", "ROS_STATIC_PEERS": "10.0.0.2"}, NETWORK),
        ({"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}, {}),
        ({"RMW_IMPLEMENTATION": "rmw_fastrtps_cpp"}, NETWORK),
        ({PROFILE_VARIABLE: "/etc/own.xml"}, {}),
        ({PROFILE_VARIABLE: "/etc/own.xml", RANGE_VARIABLE: LOCALHOST}, {}),
        ({"FASTDDS_BUILTIN_TRANSPORTS": "SHM"}, {}),
    ],
)
def test_udp_is_chosen_where_nothing_else_is(environment, changes):
    assert udp_variables(environment) == changes


@pytest.mark.parametrize("asked", [{}, {RANGE_VARIABLE: LOCALHOST}, {RANGE_VARIABLE: "SUBNET"}])
def test_a_child_chooses_again_where_it_is_given_another_range(asked):
    parent = {**asked, **udp_variables(asked)}
    assert udp_variables({**parent, RANGE_VARIABLE: LOCALHOST}) == HERE
    assert udp_variables({**parent, RANGE_VARIABLE: "SUBNET"}) == NETWORK
    child = {**parent, **udp_variables(parent)}
    assert child == parent
    assert keeps_to_this_machine(child) == keeps_to_this_machine(asked)
    peers = {**parent, RANGE_VARIABLE: LOCALHOST, "ROS_STATIC_PEERS": "10.0.0.2"}
    assert udp_variables(peers) == {PROFILE_VARIABLE: None}


@pytest.mark.parametrize("path", [OF_THIS_MACHINE, OF_A_NETWORK])
def test_profiles_hold_one_transport_over_udp(path):
    tree = ElementTree.parse(path)
    name = "{http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles}"
    assert [kind.text for kind in tree.iter(f"{name}type")] == ["UDPv4"]
    assert [builtin.text for builtin in tree.iter(f"{name}useBuiltinTransports")] == ["false"]
    addresses = [address.text for address in tree.iter(f"{name}address")]
    assert addresses == (["127.0.0.1"] * 2 if path == OF_THIS_MACHINE else [])

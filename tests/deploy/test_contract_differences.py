"""Contracts are compared in all that they say, and a message names what differs and no more."""

from dataclasses import fields, is_dataclass, replace

import pytest

from gantry_deploy.contract.differences import (
    MOST,
    NOT_MEANING,
    NOT_OF_A_TASK,
    Difference,
    contract_differences,
    differences,
    listed,
)
from gantry_deploy.contract.parts import GoalVelocitySpec
from gantry_deploy.contract.policy_contract import CommandSpec, PolicyContract
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.testing.legs import contract_for, linear_model, map_contract_for, tiny_robot
from gantry_hardware.robots import robot_spec

SMALL = contract_for(tiny_robot())
LARGE = map_contract_for(robot_spec("go2"))


def test_what_differs_is_named_field_by_field():
    mine = CommandSpec("command/body/pose", (), (), (), (), GoalVelocitySpec(near_m=0.4))
    theirs = replace(mine, kind="command/body/velocity", goal_velocity=GoalVelocitySpec())
    assert differences(theirs, mine, "command") == [
        Difference("command.kind", "command/body/velocity", "command/body/pose"),
        Difference("command.goal_velocity.near_m", 0.5, 0.4),
    ]
    assert differences(replace(mine, goal_velocity=None), mine) == [
        Difference("goal_velocity", None, mine.goal_velocity)
    ]
    assert differences(mine, mine) == []


def test_terms_are_named_by_name_and_lists_of_other_terms_by_their_names():
    first, *rest = SMALL.observations
    theirs = replace(SMALL, observations=(replace(first, scale=3.0), *rest))
    (found,) = contract_differences(theirs, SMALL)
    assert (found.name, found.theirs, found.mine) == (f"observations[{first.name}].scale", 3.0, first.scale)
    (found,) = contract_differences(replace(SMALL, observations=tuple(rest)), SMALL)
    assert found.text() == (
        f"observations is {', '.join(term.name for term in rest)} there, "
        f"{', '.join(term.name for term in SMALL.observations)} here"
    )


@pytest.mark.parametrize("name", [item.name for item in fields(PolicyContract)])
def test_no_field_is_forgotten(name):
    """By exchanging each field alone, past every check of what fits together."""
    theirs = PolicyContract.from_json(LARGE.to_json())
    object.__setattr__(theirs, name, "another")
    assert [item.name for item in contract_differences(theirs, LARGE, ignoring=())] == [name]
    for ignoring in (NOT_MEANING, NOT_OF_A_TASK):
        assert bool(contract_differences(theirs, LARGE, ignoring=ignoring)) == (name not in ignoring)


def test_a_part_of_a_field_can_be_ignored():
    window = replace(LARGE.map_window, mapper_sha256="0" * 64, rows=3)
    theirs = replace(LARGE, map_window=window, provenance=replace(LARGE.provenance, task="other"))
    names = [item.name for item in contract_differences(theirs, LARGE)]
    assert names == ["map_window.rows", "map_window.mapper_sha256"]
    left = contract_differences(theirs, LARGE, ignoring=("map_window.mapper_sha256", "provenance"))
    assert [item.name for item in left] == ["map_window.rows"]
    assert contract_differences(theirs, LARGE, ignoring=("map_window", "provenance")) == []


def leaves(value, name=""):
    if is_dataclass(value):
        for item in fields(value):
            yield from leaves(getattr(value, item.name), f"{name}.{item.name}")
    else:
        yield name


def test_a_message_is_short_however_much_differs():
    theirs = replace(
        LARGE,
        provenance=replace(LARGE.provenance, task="x" * 1000, preset="y", seed=9, env_steps=9, git_commit="\x1b[2J"),
        acceptance=replace(LARGE.acceptance, max_fall_rate=0.5, max_lin_vel_error_m_s=1.0),
        default_pos_rad=tuple(0.1 for _ in LARGE.default_pos_rad),
        rate_hz=25.0,
    )
    found = contract_differences(theirs, LARGE, ignoring=())
    text = listed(found)
    assert len(found) > MOST
    assert text.endswith(f"\n  and {len(found) - MOST} more")
    assert len(text) < 1500
    assert all(line.isprintable() for line in text.split("\n"))
    with pytest.raises(PolicyError, match=r"differ in 'rate_hz'\.\n  rate_hz is 50\.0 in policy\.onnx, 25") as refusal:
        OnnxPolicy(linear_model(SMALL), replace(SMALL, rate_hz=25.0))
    assert len(str(refusal.value)) < 200
    assert len(list(leaves(LARGE))) > 20

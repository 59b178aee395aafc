"""Descriptions of policies: over the wire and back, and every mismatch by name."""

from dataclasses import replace

import pytest

from gantry_deploy.errors import MalformedMessageError
from gantry_deploy.openpi.codec import decode, encode
from gantry_deploy.openpi.description import (
    CameraNeed,
    PolicyDescription,
    description_of,
    mismatches,
    unchecked,
)

FULL = PolicyDescription(
    cameras=(CameraNeed("wrist", 64, 96),),
    state_size=8,
    state_unit="rad",
    instruction=True,
    action_size=2,
    action_names=("x", "y"),
    action_space="target/body/pose, arm, step, -1 to 1",
    action_scale=(0.02, 0.02),
    action_offset=(0.0, 0.0),
    horizon=5,
    rate_hz=20.0,
    max_rows=4,
    has_statistics=True,
)


def test_a_description_returns_from_metadata_beside_what_else_is_told():
    metadata = decode(encode({"name": "pi0", **FULL.to_metadata()}))
    metadata["gantry"]["of_a_later_version"] = 1
    assert PolicyDescription.from_metadata(metadata) == FULL
    assert PolicyDescription.from_metadata({"name": "pi0"}) == PolicyDescription()
    partial = PolicyDescription(rate_hz=10.0, cameras=())
    assert PolicyDescription.from_metadata(decode(encode(partial.to_metadata()))) == partial


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("yes", "description is 'yes', expected a map"),
        ({"horizon": 0}, "horizon of a policy's description is 0"),
        ({"rate_hz": float("nan")}, "rate_hz of a policy's description is nan"),
        ({"state_size": 8.0}, "state_size is 8.0, expected a whole number"),
        ({"cameras": [{"name": "wrist", "height": 0, "width": 4}]}, "height of camera 'wrist' is 0"),
        ({"cameras": [{"name": "wrist"}]}, "height"),
        ({"action_size": 3, "action_names": ["x"]}, "action_names of a policy's description has 1 entries"),
    ],
)
def test_descriptions_that_make_no_sense(told, words):
    with pytest.raises(MalformedMessageError) as caught:
        PolicyDescription.from_metadata({"gantry": told})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cameras": ()}, ["The policy sees camera 'wrist', the student has: (none)."]),
        ({"cameras": (CameraNeed("wrist", 96, 64),)}, ["Camera 'wrist': the policy sees 64 x 96 pixels", "96 x 64"]),
        ({"state_size": 7}, ["8 numbers of state, the student 7"]),
        ({"state_unit": "deg"}, ["'rad' as the meaning of its state, the student 'deg'"]),
        ({"instruction": False}, ["follows an instruction"]),
        (
            {"action_size": 3, "action_names": ("x", "y", "z"), "action_scale": (), "action_offset": ()},
            ["2 numbers of an action, the student 3"],
        ),
        ({"action_names": ("y", "x")}, ["x, y as names", "the student y, x"]),
        ({"action_space": "target/joint/position"}, ["'target/body/pose, arm, step, -1 to 1' as its space of actions"]),
        ({"action_scale": (0.02, 0.05)}, ["0.02, 0.02 as units of its actions, the student 0.02, 0.05"]),
        ({"action_offset": (0.0, 0.1)}, ["as zeros of its actions"]),
        ({"rate_hz": 10.0}, ["20 Hz as its rate, the student 10"]),
    ],
)
def test_each_mismatch_is_one_sentence(changes, words):
    found = mismatches(FULL, replace(FULL, **changes))
    assert len(found) == 1, found
    assert all(word in found[0] for word in words)


def test_what_fits_is_no_mismatch():
    more = replace(FULL, cameras=(CameraNeed("front", 8, 8), *(FULL.cameras or ())), rate_hz=20.0 + 1e-9, horizon=1)
    assert mismatches(FULL, more) == []
    blind = replace(FULL, cameras=(), state_size=0, state_unit="", instruction=False)
    assert mismatches(blind, FULL) == []
    assert mismatches(FULL, FULL) == unchecked(FULL, FULL) == []


def test_missing_statistics_are_a_mismatch_whatever_the_student_says():
    assert "no statistics of its normaliser" in mismatches(replace(FULL, has_statistics=False), FULL)[0]


def test_what_is_not_told_is_unchecked_and_no_mismatch():
    assert mismatches(PolicyDescription(), FULL) == []
    found = unchecked(PolicyDescription(), FULL)
    assert found[0] == "cameras is unchecked: the policy does not tell it."
    assert [line.partition(" ")[0] for line in found] == [
        *("cameras", "state_size", "state_unit", "instruction", "action_size", "action_names", "action_space"),
        *("action_scale", "action_offset", "rate_hz", "has_statistics"),
    ]
    assert unchecked(FULL, replace(FULL, rate_hz=None, has_statistics=None)) == [
        "rate_hz is unchecked: the student does not tell it."
    ]


def test_a_contract_describes_itself(plan_bundle, step_bundle, residual_bundle):
    found = description_of(plan_bundle.contract)
    assert found.cameras == (CameraNeed("wrist", 6, 6), CameraNeed("front", 6, 6))
    assert (found.state_size, found.action_size, found.horizon, found.rate_hz) == (14, 4, 5, 20.0)
    assert found.action_names == ("x", "y", "z", "left_finger")
    assert found.action_space == "target/body/pose, arm, step, -1 to 1"
    assert found.action_scale == plan_bundle.contract.action.scale
    # Both answer one action in every step.
    assert [description_of(bundle.contract).horizon for bundle in (step_bundle, residual_bundle)] == [1, 1]
    assert mismatches(found, replace(found, cameras=None)) == []

"""Every number of a contract is finite and of a size that a machine can have."""

import json
import math
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from gantry_deploy.contract.bounds import COMMANDS, CONTRACT_RANGES, RANGES, check_ranges
from gantry_deploy.contract.policy_contract import CommandSpec, PolicyContract, check_numbers
from gantry_deploy.errors import ContractError
from gantry_deploy.testing.legs import contract_for, tiny_robot
from gantry_fixtures.drive import drive_contract_for
from gantry_hardware.errors import GantryError
from gantry_hardware.model.chain import Chain
from gantry_hardware.robots import robot_spec
from gantry_mapping.config import MappingCfg

SPEC = tiny_robot()
CONTRACT = contract_for(SPEC)
PRETRAINED = sorted(Path(__file__).parents[2].glob("sim/gantry_sim/pretrained/*/contract.json"))
HUGE = (math.nan, -1e308, 2**62)
CHECKED_ELSEWHERE = (Chain, MappingCfg)
"""An arm's geometry must be the robot's, and a mapping checks itself."""


def inner_types(hint):
    """The types that a hint is made of, without tuples and None."""
    parts = [part for part in get_args(hint) if part not in (Ellipsis, NoneType)]
    return {item for part in parts for item in inner_types(part)} if parts else {hint}


def parts_of(cls, seen=None):
    """A dataclass and all dataclasses inside it."""
    seen = {} if seen is None else seen
    if cls in seen or cls in CHECKED_ELSEWHERE:
        return seen
    seen[cls] = get_type_hints(cls)
    for hint in seen[cls].values():
        for item in inner_types(hint):
            if is_dataclass(item):
                parts_of(item, seen)
    return seen


def test_no_number_of_a_contract_is_without_a_range():
    for cls, hints in parts_of(PolicyContract).items():
        numbers = {item.name for item in fields(cls) if inner_types(hints[item.name]) & {int, float}}
        ranges = CONTRACT_RANGES if cls is PolicyContract else RANGES[cls]
        assert numbers == set(ranges), cls
        assert all(math.isfinite(low) and math.isfinite(high) and low < high for low, high in ranges.values())


def leaves(value, path=()):
    """Paths of numbers in plain data; of a list the first and the last, as one check goes through all of it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for i in sorted({0, len(value) - 1}) if value else ():
            yield from leaves(value[i], (*path, i))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def with_value(data: Any, path, value):
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = with_value(data[path[0]], path[1:], value)
    return copy


def accepted(contract_json, spec):
    """Whether a contract is read and its robot may be moved by it; anything but a refusal or that is an error here."""
    try:
        PolicyContract.from_json(json.dumps(contract_json)).check_robot(spec)
    except GantryError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("path", PRETRAINED, ids=lambda path: path.parent.name)
def test_no_number_of_a_shipped_contract_may_be_absurd(path):
    data = json.loads(path.read_text(encoding="utf-8"))
    spec = robot_spec(data["robot"])
    assert accepted(data, spec)
    numbers = list(leaves(data))
    assert len(numbers) > 30
    free = {("provenance", "seed")}  # which is any whole number
    wrong = [
        (where, value)
        for where in numbers
        if where not in free
        for value in HUGE
        if accepted(with_value(data, where, value), spec)
    ]
    assert wrong == []


@dataclass(frozen=True)
class Change:
    """One field of a tiny contract."""

    path: str
    value: Any
    text: str


@pytest.mark.parametrize(
    "change",
    [
        Change("rate_hz", 1e-9, "rate_hz is 1e-09, expected a number from 10 to 1000"),
        Change("rate_hz", 9.9, "rate_hz is 9.9"),
        Change("rate_hz", 1000.1, "rate_hz is 1000.1"),
        Change("rate_hz", 1e9, "rate_hz is 1000000000.0"),
        Change("action.scale", (2.0**63,) * 4, r"action.scale\[0\] is 9.2233"),
        Change("action.scale", (0.5, 0.5, 3.1, 0.5), "action.scale of 'right_hip_joint' is 3.1, expected at most 3"),
        Change("action.offset_rad", (0.0, 2.5, 0.0, 0.0), "action.offset_rad of 'left_knee_joint' is 2.5"),
        Change("gait.amplitude_rad", 2.0**63, "gait.amplitude_rad is 9.2233"),
        Change("gait.stand_below", 1e308, r"gait.stand_below is 1e\+308, expected a number from 0 to 100"),
        Change("gait.joint_gain", (0.0, 0.0, 0.0, 10.0**9), r"gait.joint_gain\[3\] is 1000000000.0"),
        Change("command.max_rate", (math.inf, 0.0, 0.0), r"command.max_rate\[0\] is inf"),
        Change("acceptance.max_fall_rate", math.nan, "acceptance.max_fall_rate is nan, expected a number from 0 to 1"),
        Change("acceptance.max_fall_rate", -0.1, "acceptance.max_fall_rate is -0.1"),
        Change("acceptance.min_success_rate", math.inf, "acceptance.min_success_rate is inf"),
        Change("acceptance.max_lin_vel_error_m_s", -1.0, "acceptance.max_lin_vel_error_m_s is -1.0"),
        Change("provenance.train_wall_s", math.nan, "provenance.train_wall_s is nan"),
        Change("command.kind", "command/body/velocty", "Did you mean 'command/body/velocity'"),
        Change("command.kind", "command/body/torque", "Available: '', command/body/pose, command/body/pos"),
    ],
    ids=lambda change: f"{change.path}={change.value}"[:40],
)  # fmt: skip
def test_refusals_name_field_value_and_what_is_accepted(change):
    contract = CONTRACT
    check_numbers(contract)
    head, _, rest = change.path.partition(".")
    value = replace(getattr(contract, head), **{rest: change.value}) if rest else change.value
    with pytest.raises(ContractError, match=change.text):
        replace(contract, **{head: value}).check_robot(SPEC)


def test_a_swing_moves_no_joint_through_more_than_its_range():
    contract = CONTRACT
    gait = replace(contract.gait, amplitude_rad=1.0, joint_gain=(0.0, 3.5, 0.0, 0.0))
    with pytest.raises(
        ContractError, match=r"amplitude_rad times joint_gain of 'left_knee_joint' is 3.5, expected at most 3"
    ):
        check_numbers(replace(contract, gait=gait))


def test_a_command_of_nothing_has_no_names():
    with pytest.raises(ContractError, match=r"command.names is \('x',\), expected \(\)"):
        check_numbers(replace(CONTRACT, command=CommandSpec("", ("x",), (0.0,), (0.0,), (0.0,))))
    assert COMMANDS[""] == ()


def test_parts_in_tuples_are_named_by_their_place():
    contract = CONTRACT
    term = replace(contract.observations[1], scale=1e300)
    with pytest.raises(ContractError, match=r"contract's observations\[1\]\.scale is 1e\+300"):
        check_ranges(replace(contract, observations=(contract.observations[0], term, *contract.observations[2:])))


@pytest.mark.parametrize(
    ("rate_hz", "fits"), [(4.9, False), (5.0, True), (1000.0, True), (1001.0, False), (math.inf, False)]
)
def test_cars_may_be_looked_at_five_times_a_second(rate_hz, fits):
    contract = replace(drive_contract_for(robot_spec("f1tenth")), rate_hz=rate_hz)
    if fits:
        contract.check_robot(robot_spec("f1tenth"))
        return
    with pytest.raises(ContractError, match=r"rate_hz is .*, expected a number from 5 to 1000"):
        contract.check_robot(robot_spec("f1tenth"))

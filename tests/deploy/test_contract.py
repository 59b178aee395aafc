"""The contract: exact round trip, strict reading, refusal of the wrong robot."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gantry_deploy.contract.policy_contract import CONTRACT_VERSION, ChunkSpec, MapWindow, PolicyContract, Provenance
from gantry_deploy.errors import ContractError
from gantry_deploy.testing.legs import contract_for, tiny_robot

SPEC = tiny_robot()
CONTRACT = contract_for(SPEC)


def changed(edit):
    data = json.loads(CONTRACT.to_json())
    edit(data)
    return json.dumps(data)


def test_json_round_trip_is_exact():
    odd = replace(
        CONTRACT,
        rate_hz=1 / 3,
        stiffness_nm_rad=(0.1 + 0.2, 1e-17, 123456.789012345, 30.0),
        map_window=MapWindow(36, 14, 0.08, 0.6, 0.0, ("elevation",)),
        recurrent=("hidden",),
        provenance=Provenance("velocity-flat-go2", "cpu", 3, 10**9, 151.5, "0123abc-dirty", "2026-01-02T03:04:05Z"),
    )
    for contract in (CONTRACT, odd, replace(CONTRACT, gait=None)):
        assert PolicyContract.from_json(contract.to_json()) == contract


def test_sizes():
    # 3 + 3 + 4 + 4 + 4 + 3 + 2
    assert CONTRACT.observation_size == 23
    assert CONTRACT.action_size == 4
    assert CONTRACT.dt_s == 0.02
    stacked = replace(CONTRACT, observations=tuple(replace(term, history=3) for term in CONTRACT.observations))
    assert stacked.observation_size == 69


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda d: d.update(rate_hzz=50.0), r"field in contract 'rate_hzz'\. Did you mean 'rate_hz'\?"),
        (lambda d: d["gait"].update(dutty=0.5), r"field in contract.gait 'dutty'\. Did you mean 'duty'\?"),
        (lambda d: d.pop("joint_names"), "contract lacks fields; absent: .*joint_names"),
        (lambda d: d["action"].pop("scale"), r"contract.action lacks fields; absent: .*scale"),
        (lambda d: d.update(rate_hz="50"), "contract.rate_hz is '50', expected a number"),
        (lambda d: d.update(rate_hz=True), "contract.rate_hz is True, expected a number"),
        (
            lambda d: d["observations"][1].update(size=3.5),
            r"contract.observations\[1\].size is 3.5, expected a whole number",
        ),
        (lambda d: d.update(joint_names="abcd"), "contract.joint_names is 'abcd', expected a list"),
        (lambda d: d.update(rate_hz=0), "rate_hz is 0.0, expected a positive rate"),
        (lambda d: d["stiffness_nm_rad"].append(1.0), "stiffness_nm_rad has 5 entries, expected 4"),
        (lambda d: d["command"]["lower"].pop(), "command.lower has 2 entries, expected 3"),
        (lambda d: d["gait"]["joint_gain"].pop(), "gait.joint_gain has 3 entries, expected 4"),
        (
            lambda d: d.update(version=CONTRACT_VERSION + 1),
            rf"version {CONTRACT_VERSION + 1}.*understands version {CONTRACT_VERSION}: update Gantry",
        ),
        (lambda d: d.update(version=0), "version is 0"),
        (lambda d: d.pop("version"), "version is None"),
    ],
)
def test_strict_reading(edit, text):
    with pytest.raises(ContractError, match=text):
        PolicyContract.from_json(changed(edit))


@pytest.mark.parametrize(
    ("chunk", "text"),
    [
        ({"steps": 8, "execute": 9}, "chunk.execute is 9, expected 1 to chunk.steps, which is 8"),
        ({"steps": 8, "execute": 0}, "chunk.execute is 0, expected 1"),
        ({"steps": 8, "execute": 4, "base_sha256": "ab"}, "chunk.residual is false"),
        ({"steps": 8, "execute": 4, "ensemble_decay": -0.1}, "chunk.ensemble_decay is -0.1, expected 0 or more"),
    ],
)
def test_a_plan_that_cannot_be_executed_is_refused(chunk, text):
    with pytest.raises(ContractError, match=text):
        PolicyContract.from_json(changed(lambda data: data.update(chunk=chunk)))


def test_a_contract_from_before_chunks_has_none_and_one_with_a_chunk_keeps_it():
    assert PolicyContract.from_json(changed(lambda data: data.pop("chunk"))).chunk is None
    contract = replace(CONTRACT, chunk=ChunkSpec(16, 8, residual=True, base_sha256="ab"))
    assert PolicyContract.from_json(contract.to_json()) == contract


def test_a_newer_version_is_refused_before_its_unknown_fields_are_looked_at():
    def edit(data):
        data["version"] = CONTRACT_VERSION + 1
        data["invention"] = 1

    with pytest.raises(ContractError, match="update Gantry"):
        PolicyContract.from_json(changed(edit))


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 100_000, '{"version": ' + "1" * 5000 + "}"])
def test_no_contract_at_all(text):
    with pytest.raises(ContractError):
        PolicyContract.from_json(text)


def test_the_right_robot_is_accepted():
    CONTRACT.check_robot(SPEC)


def test_another_robot_is_refused():
    with pytest.raises(ContractError, match="trained for robot 'other', this robot is 'tiny'"):
        replace(CONTRACT, robot="other").check_robot(SPEC)


def test_another_joint_order_is_refused_with_both_sides():
    names = CONTRACT.joint_names
    swapped = replace(CONTRACT, joint_names=(names[2], names[3], names[0], names[1]))
    with pytest.raises(ContractError) as refusal:
        swapped.check_robot(SPEC)
    assert str(refusal.value) == (
        "Same joints, other order."
        "\n  the contract: right_hip_joint, right_knee_joint, left_hip_joint, left_knee_joint"
        "\n  robot 'tiny': left_hip_joint, left_knee_joint, right_hip_joint, right_knee_joint"
    )


def test_a_misspelt_joint_is_refused_with_the_near_miss():
    names = ("left_hip_jiont", *CONTRACT.joint_names[1:])
    with pytest.raises(ContractError, match=r"'left_hip_jiont'\. Did you mean 'left_hip_joint'\?"):
        replace(CONTRACT, joint_names=names).check_robot(SPEC)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"joint_lower_rad": (-1.0, -1.1, -1.0, -1.0)}, "'left_knee_joint': the contract's joint_lower_rad is -1.1"),
        ({"joint_upper_rad": (2.0, 2.0, 2.5, 2.0)}, "'right_hip_joint': the contract's joint_upper_rad is 2.5"),
        ({"effort_limit_nm": (20.0, 20.0, 20.0, 40.0)}, "'right_knee_joint': the contract's effort_limit_nm is 40.0"),
        (
            {"stiffness_nm_rad": (30.0, 30.0, 30_000.0, 30.0)},
            "'right_hip_joint': the contract's stiffness_nm_rad is 30000, allowed is 150, 5 times the robot's 30",
        ),
        (
            {"damping_nm_s_rad": (1.0, 5.1, 1.0, 1.0)},
            "'left_knee_joint': the contract's damping_nm_s_rad is 5.1, allowed is 5, 5 times the robot's 1",
        ),
        (
            {"damping_nm_s_rad": (1.0, 1.0, 1.0, 0.0)},
            "'right_knee_joint': the contract's damping_nm_s_rad is 0, expected 0.02 or more; the robot's is 1",
        ),
        (
            {"stiffness_nm_rad": (30.0, 0.0, 30.0, 30.0)},
            "'left_knee_joint': the contract's stiffness_nm_rad is 0, expected 0.6 or more; the robot's is 30",
        ),
    ],
)
def test_more_than_the_robot_can_is_refused(change, text):
    with pytest.raises(ContractError, match=text):
        replace(CONTRACT, **change).check_robot(SPEC)


def test_gains_up_to_five_times_the_larger_of_the_robots_own_and_its_holding_gains_are_accepted():
    stiff = replace(CONTRACT, stiffness_nm_rad=(150.0,) * 4, damping_nm_s_rad=(5.0,) * 4)
    stiff.check_robot(SPEC)
    stiffer = replace(CONTRACT, stiffness_nm_rad=(600.0,) * 4, damping_nm_s_rad=(10.0,) * 4)
    stiffer.check_robot(replace(SPEC, hold_gains=((120.0, 2.0),) * 4))
    with pytest.raises(ContractError, match="stiffness_nm_rad is 600, allowed is 150"):
        stiffer.check_robot(replace(SPEC, hold_gains=((20.0, 0.5),) * 4))

"""Mechanisms: efforts by hand, contracts that are refused, and the commands that a runtime sends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle, write_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.commission.gentle import GentleRobot
from gantry_deploy.contract.mechanism_spec import JOINT_EFFORT, MechanismSpec
from gantry_deploy.contract.policy_contract import ActionSpec, PolicyContract, check_numbers
from gantry_deploy.embodiments.registry import embodiment_of, embodiment_of_robot
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.gate import check_static
from gantry_deploy.observations.builder import make_term
from gantry_deploy.openpi.served import ServedPolicy
from gantry_deploy.policy.golden import observation_labels
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import signals_for
from gantry_fixtures.mechanism import cartpole_bundle, cartpole_contract
from gantry_fixtures.training import torch
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.errors import GantryError
from gantry_hardware.model.mechanism import Mechanism
from gantry_hardware.robots import robot_spec

CARTPOLE = robot_spec("cartpole")
NOTHING = ActionSpec(JOINT_EFFORT, (), (), 1.0)


def test_efforts_by_hand():
    """A quarter of 400 N per unit of action, within 400 N; nothing pushes the pole."""
    contract = cartpole_contract()
    decoder = embodiment_of(contract).make_decoder(contract, np.zeros((1, 1), np.float32))
    signals = signals_for(contract, np.zeros((3, 1), np.float32), 3)
    targets = decoder(np.float32([[0.5], [-1.0], [7.0]]), signals)
    np.testing.assert_allclose(targets.effort_nm, [[50.0, 0.0], [-100.0, 0.0], [400.0, 0.0]])
    np.testing.assert_array_equal(targets.pos_rad, np.zeros((3, 2)))
    small = embodiment_of(contract).make_decoder(
        replace(contract, action=replace(contract.action, clip=2.0)), np.zeros((1, 1), np.float32)
    )
    np.testing.assert_allclose(small(np.float32([[7.0]]), signals).effort_nm, [[200.0, 0.0]] * 3)
    found = embodiment_of(contract).make_decoder(contract, torch.zeros(1, 1))(
        torch.tensor([[0.5]]), signals_for(contract, torch.zeros(1, 1), 1)
    )
    np.testing.assert_allclose(found.effort_nm, [[50.0, 0.0]])


def test_a_joint_at_its_end_is_pushed_back_only():
    """The cart's range of 8 m ends at 4 m, and 5 % of it before that begins the edge."""
    contract = cartpole_contract()
    decoder = embodiment_of(contract).make_decoder(contract, np.zeros((1, 1), np.float32))
    signals = signals_for(contract, np.zeros((4, 1), np.float32), 4)
    signals.joint_pos_rad = np.float32([[3.5, 0.0], [3.7, 0.0], [4.5, 0.0], [-3.7, 0.0]])
    pushed = decoder(np.float32([[1.0]] * 4), signals).effort_nm[:, 0]
    np.testing.assert_allclose(pushed, [100.0, 0.0, 0.0, 100.0])
    np.testing.assert_allclose(
        decoder(np.float32([[-1.0]] * 4), signals).effort_nm[:, 0], [-100.0, -100.0, -100.0, 0.0]
    )


def test_the_robot_is_sent_efforts_and_the_motors_damping(tmp_path):
    runner = PolicyRunner(cartpole_bundle(tmp_path / "bundle"), CARTPOLE)
    state = replace(runner.embodiment.rest_state(runner.contract), joint_pos_rad=np.array([0.1, -0.2]))
    target = runner.step(state, np.zeros(0)).target
    np.testing.assert_allclose(target.effort_nm, [0.1 * 10.0 - 0.2 * 125.0, 0.0], rtol=1e-5)
    assert (target.stiffness_nm_rad == 0.0).all()
    np.testing.assert_array_equal(target.damping_nm_s_rad, [10.0, 0.0])


def test_numbers_of_the_same_terms_of_several_joints_have_their_own_names(tmp_path, capsys):
    slider, pole = CARTPOLE.joint_names
    terms = (
        replace(make_term("joint_cos_sin", 2), joints=(pole,)),
        replace(make_term("joint_vel", 1), joints=(slider,)),
        replace(make_term("joint_vel", 1), joints=(pole,)),
    )
    contract = cartpole_contract(observations=terms)
    assert observation_labels(contract) == [
        f"joint_cos_sin[cos {pole}]",
        f"joint_cos_sin[sin {pole}]",
        f"joint_vel[{slider}]",
        f"joint_vel[{pole}]",
    ]
    cartpole_bundle(tmp_path / "bundle", contract=contract)
    assert main(["inspect", str(tmp_path / "bundle")]) == 0
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith("joint_vel 2:3") and line.endswith(slider) for line in told)
    assert any(line.startswith("joint_vel 3:4") and line.endswith(pole) for line in told)


def test_a_contract_survives_json():
    contract = cartpole_contract()
    assert PolicyContract.from_json(contract.to_json()) == contract


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"action": ActionSpec(JOINT_EFFORT, (1.5,), (0.0,), 1.0)},
            "scale of 'slider_to_cart' is 1.5, expected other than 0 and at",
        ),
        ({"action": ActionSpec(JOINT_EFFORT, (0.0,), (0.0,), 1.0)}, "scale of 'slider_to_cart' is 0.0, expected other"),
        ({"stiffness_nm_rad": (50.0, 0.0)}, "stiffness_nm_rad of 'slider_to_cart' is 50.0, expected 0 beside efforts"),
        (
            {"body": MechanismSpec((), (0.0,) * 2, (0.0,) * 2), "action": NOTHING},
            "driven_joints is .., expected joints",
        ),
        ({"action": ActionSpec(JOINT_EFFORT, (0.2,), (0.1,), 1.0)}, "offset_rad is .0.1,., expected zeros"),
        ({"action": ActionSpec(JOINT_EFFORT, (0.2,) * 2, (0.0,) * 2, 1.0)}, "action.scale has 2 entries, expected 1"),
        ({"action": ActionSpec("target/joint/effor", (0.2,), (0.0,), 1.0)}, "Did you mean 'target/joint/effort'"),
        ({"body": MechanismSpec(("cart",), (0.0,) * 2, (0.0,) * 2)}, "is 'cart', expected joints among slider_to_cart"),
        ({"body": MechanismSpec(("slider_to_cart",), (0.0,), (0.0,) * 2)}, "body.start_lower_rad has 1 entries"),
        (
            {"body": MechanismSpec(("slider_to_cart",), (0.1, 0.0), (0.0,) * 2)},
            "start of 'slider_to_cart' is 0.1 to 0, expected",
        ),
        ({"body": MechanismSpec(("slider_to_cart",), (0.0,) * 2, (9.0, 0.0))}, "is 0 to 9, expected -4 <= start_lower"),
        ({"body": None}, "body is a NoneType, expected a MechanismSpec for a mechanism"),
    ],
)
def test_contracts_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ContractError, match=message):
        check_numbers(cartpole_contract(**changes))


def test_a_joint_without_a_motor_is_not_pushed():
    body = MechanismSpec(("cart_to_pole",), (0.0,) * 2, (0.0,) * 2)
    with pytest.raises(
        ContractError, match="'cart_to_pole', which has no motor in 'cartpole'; passive are cart_to_pole"
    ):
        cartpole_contract(body=body).check_robot(CARTPOLE)
    with pytest.raises(GantryError, match="the passive joint 'pole' is none of its joints: slider_to_cart"):
        replace(CARTPOLE, body=Mechanism(("pole",)))
    with pytest.raises(ContractError, match="body is NoneType, expected a Mechanism"):
        embodiment_of_robot(replace(CARTPOLE, body=None))


@pytest.mark.parametrize("command", ["commission", "identify", "excite", "serve", "session", "data from-mcap"])
def test_commands_that_would_lose_efforts_are_refused(command):
    with pytest.raises(GantryError, match=f"'gantry {command}' does not take a mechanism: "):
        embodiment_of_robot(CARTPOLE).require(command)
    embodiment_of_robot(robot_spec("go2")).require(command)


def test_a_policy_is_not_served_without_its_efforts(tmp_path):
    with pytest.raises(GantryError, match="'gantry serve' does not take a mechanism: answers are actions and joint"):
        ServedPolicy(cartpole_bundle(tmp_path / "bundle"))


def test_efforts_that_a_robot_adds_leave_the_action_as_it_was(tmp_path):
    """Gravity compensation of an arm's driver is no action of the policy."""
    runner = PolicyRunner(cartpole_bundle(tmp_path / "bundle"), CARTPOLE)
    state = replace(runner.embodiment.rest_state(runner.contract), joint_pos_rad=np.array([0.1, -0.2]))
    target = runner.step(state, np.zeros(0)).target
    np.testing.assert_allclose(runner.executed_action(target), [(0.1 * 10.0 - 0.2 * 125.0) / 100.0], rtol=1e-5)
    compensated = replace(target, effort_nm=target.effort_nm + 1.0)
    np.testing.assert_array_equal(runner.executed_action(compensated), runner.executed_action(target))


def test_first_motions_have_part_of_the_efforts():
    robot = make_backend("mock", CARTPOLE)
    robot.connect()
    command = JointCommand(*(np.zeros(2),) * 2, np.array([100.0, 0.0]), np.zeros(2), np.array([10.0, 0.0]))
    sent = GentleRobot(robot, 0.1).write(command)
    robot.close()
    np.testing.assert_allclose(sent.effort_nm, [10.0, 0.0])
    np.testing.assert_allclose(sent.damping_nm_s_rad, [1.0, 0.0])


def test_recorded_efforts_are_compared(tmp_path):
    bundle = cartpole_bundle(tmp_path / "bundle")
    stages = []
    check_static(lambda: load_bundle(tmp_path / "bundle"), stages.append)
    assert [stage.passed for stage in stages] == [True] * len(stages)
    assert any("joint targets to within" in stage.text and stage.text.endswith(" N m") for stage in stages)
    golden = {name: values.copy() for name, values in bundle.golden.items()}
    golden["joint_target_effort_nm"][4, 0] += 0.5
    write_bundle(tmp_path / "other", contract=bundle.contract, model_bytes=bundle.model_bytes, golden=golden)
    with pytest.raises(GantryError, match=r"joint target differ by 0\.5.*worst in row 4, slider_to_cart"):
        check_static(lambda: load_bundle(tmp_path / "other"), lambda stage: None)
    del golden["joint_target_effort_nm"]
    write_bundle(tmp_path / "third", contract=bundle.contract, model_bytes=bundle.model_bytes, golden=golden)
    with pytest.raises(GantryError, match="lacks joint_target_effort_nm"):
        check_static(lambda: load_bundle(tmp_path / "third"), lambda stage: None)

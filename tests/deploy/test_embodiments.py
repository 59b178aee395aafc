"""Embodiments and action kinds: the built-in ones behind one call, and new ones by entry points of a package alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gantry_deploy.actions.decoder import ActionDecoder
from gantry_deploy.bundle.bundle import load_bundle, write_bundle
from gantry_deploy.contract.policy_contract import ActionSpec, CommandSpec, PolicyContract
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.embodiments.registry import embodiment_of, embodiment_of_robot, find_embodiment
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.gate import check_static
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, golden_data, linear_model, signals_for, tiny_bundle, with_actions
from gantry_fixtures.arm import arm_bundle, arm_contract_for
from gantry_fixtures.drive import drive_bundle, drive_contract_for
from gantry_fixtures.mechanism import cartpole_bundle
from gantry_fixtures.training import torch
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.robots import robot_spec

PACKAGE = '''
import numpy as np
from gantry_deploy.actions.decoder import ActionKind, JointTargets, joint_labels
from gantry_deploy.embodiments.embodiment import Embodiment
from gantry_hardware.model.spec import JointSpec, RobotSpec

class WheelDecoder:
    """Wheel speeds in proportion to actions."""
    targets = None
    def __init__(self, contract, like, spec=None):
        self._scale, self._clip = np.array([contract.action.scale]), contract.action.clip
    def reset(self, joint_pos_rad, rows=None): ...
    def clip(self, action):
        return np.clip(action, -self._clip, self._clip)
    def __call__(self, action, signals):
        return JointTargets(signals.joint_pos_rad, (self._scale * self.clip(action)).astype(np.float32))

class Wheels(Embodiment):
    name, noun = "wheels", "a robot on two wheels"
    action_kinds = (ActionKind("target/wheel/velocity", "two_wheels:WheelDecoder", joint_labels, gives_velocity=True),)

class Halved(WheelDecoder):
    def __call__(self, action, signals):
        targets = super().__call__(action, signals)
        return targets._replace(vel_rad_s=0.5 * targets.vel_rad_s)

WHEELS = Wheels()
HALF = ActionKind("target/wheel/half", "two_wheels:Halved", joint_labels, "wheels", gives_velocity=True)
JOINTS = tuple(JointSpec(f"{side}_wheel", -1e6, 1e6, 20.0, 5.0, 0.0, 0.0, 0.5, 0.01) for side in ("left", "right"))
ROLLER = RobotSpec("roller", "wheels", JOINTS, (), 0.1, -1.0, 2.0, "made up for tests")
'''
ENTRY_POINTS = """
[gantry.embodiments]
wheels = two_wheels:WHEELS
[gantry.action_kinds]
half = two_wheels:HALF
[gantry.robots]
roller = two_wheels:ROLLER
"""


@pytest.fixture
def roller(tmp_path, monkeypatch):
    """The robot of a package that is found by its entry points alone."""
    folder = tmp_path / "site"
    info = folder / "two_wheels-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "two_wheels.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: two-wheels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(folder)
    return robot_spec("roller")


def rolling_contract(spec, kind="target/wheel/velocity", **changes):
    action = ActionSpec(kind, (4.0, 4.0), (0.0, 0.0), clip=1.0)
    seen = tuple(
        term for term in contract_for(spec, gait=None, action=action).observations if term.name != "gait_clock"
    )
    return contract_for(spec, **{"gait": None, "action": action, "observations": seen, **changes})


@pytest.mark.parametrize(("kind", "gain"), [("target/wheel/velocity", 4.0), ("target/wheel/half", 2.0)])
def test_a_package_brings_an_embodiment_and_an_action_kind(roller, tmp_path, kind, gain):
    contract = rolling_contract(roller, kind)
    assert PolicyContract.from_json(contract.to_json()) == contract
    assert embodiment_of(contract).noun == "a robot on two wheels"
    model = linear_model(contract, bias=np.array([0.5, -9.0]), weight=np.zeros((contract.observation_size, 2)))
    golden = with_actions(contract, model, golden_data(contract))
    golden["joint_target_vel_rad_s"] = np.tile(np.float32([0.5 * gain, -gain]), (len(golden["action"]), 1))
    write_bundle(tmp_path / "bundle", contract=contract, model_bytes=model, golden=golden)
    stages = []
    _, runner = check_static(lambda: load_bundle(tmp_path / "bundle"), stages.append)
    assert [stage.passed for stage in stages] == [True] * len(stages)
    target = runner.step(runner.embodiment.rest_state(contract), np.zeros(3)).target
    np.testing.assert_allclose(target.vel_rad_s, [0.5 * gain, -gain])
    golden["joint_target_vel_rad_s"][3, 1] += 0.1
    write_bundle(tmp_path / "other", contract=contract, model_bytes=model, golden=golden)
    with pytest.raises(Exception, match=r"joint target differ by 0\.1.*worst in row 3, right_wheel"):
        check_static(lambda: load_bundle(tmp_path / "other"), lambda stage: None)
    assert SafetyMachine(roller).mode == "PASSIVE"


def test_near_misses_are_told(roller):
    with pytest.raises(ContractError, match=r"Unknown embodiment 'wheel'\. Did you mean 'wheels'"):
        rolling_contract(roller, embodiment="wheel")
    with pytest.raises(ContractError, match=r"kind of a robot on two wheels 'target/wheel/halve'. Did you mean"):
        rolling_contract(roller, "target/wheel/halve")
    with pytest.raises(UnknownNameError, match="Available: arm, car, legs, mechanism"):
        find_embodiment("tank")
    with pytest.raises(ContractError, match="robot 'go2', an arm: body is NoneType, expected a Chain"):
        embodiment_of_robot(replace(robot_spec("go2"), embodiment="arm"))


@pytest.mark.parametrize("version", [1, 3])
def test_contracts_of_another_version_are_refused_with_the_way_out(version):
    text = contract_for(robot_spec("go2")).to_json().replace('"version": 2', f'"version": {version}')
    way = "export the policy again" if version == 1 else "update Gantry"
    with pytest.raises(ContractError, match=f"version {version}, this runtime understands version 2: {way}"):
        PolicyContract.from_json(text)


BUNDLES = {
    "legs": lambda folder: tiny_bundle(folder, contract_for(robot_spec("go2"))),
    "arm": lambda folder: arm_bundle(folder, arm_contract_for(robot_spec("yam"))),
    "car": lambda folder: drive_bundle(folder, drive_contract_for(robot_spec("bmw_320i"))),
    "mechanism": cartpole_bundle,
}


@pytest.mark.parametrize("name", BUNDLES)
def test_simulation_and_robot_get_equal_targets_of_one_call(name, tmp_path):
    """The call of training with torch rows against the runner's on the robot, for the same state and action."""
    bundle = BUNDLES[name](tmp_path / "bundle")
    contract, spec = bundle.contract, robot_spec(bundle.contract.robot)
    runner = PolicyRunner(bundle, spec)
    kind = runner.embodiment
    state, around = kind.rest_state(contract), kind.rest_surroundings(contract)
    step = runner.step(state, np.zeros(len(contract.command.names)), surroundings=around)
    like = torch.zeros(3, 1)
    decoder: ActionDecoder = kind.make_decoder(contract, like)
    signals = signals_for(contract, like, 3, lin_vel_base_in_base_m_s=torch.zeros(3, 3))
    decoder.reset(signals.joint_pos_rad)
    found = decoder(torch.from_numpy(step.action).repeat(3, 1), signals)
    for row in range(3):
        np.testing.assert_allclose(found.pos_rad[row], step.target.pos_rad, atol=1e-5)
        if found.effort_nm is not None:
            np.testing.assert_allclose(found.effort_nm[row], step.target.effort_nm, atol=1e-5)
        if found.vel_rad_s is not None:
            np.testing.assert_allclose(found.vel_rad_s[row], step.target.vel_rad_s, atol=1e-5)
    beyond = decoder.clip(torch.full((3, contract.action_size), 999.0))
    np.testing.assert_allclose(beyond, contract.action.clip)


def test_only_targets_that_continue_are_remembered():
    arm, legs = arm_contract_for(robot_spec("yam")), contract_for(robot_spec("go2"))
    remembered = SimpleNamespace(arm=embodiment_of(arm).make_decoder(arm, np.zeros((1, 1))))
    joints = np.array([arm.default_pos_rad, arm.default_pos_rad])
    remembered.arm.reset(joints)
    remembered.arm.reset(joints + 0.01, np.array([False, True]))
    np.testing.assert_allclose(remembered.arm.targets[0], joints[0])
    assert (remembered.arm.targets[1, :6] > joints[1, :6]).all()
    assert embodiment_of(legs).make_decoder(legs, np.zeros((1, 1))).targets is None
    still = CommandSpec("", (), (), (), ())
    assert len(embodiment_of(arm).rehearsal(replace(arm, command=still))) == 1

"""Physical values and a policy's numbers, and demonstrations compared with what a task expects."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.policy_contract import ActionSpec
from gantry_deploy.dataset import Dataset, DatasetWriter, vector
from gantry_deploy.dataset.checks.agreement import Expected, require_agreement
from gantry_deploy.dataset.features import ACTION, IMAGES, STATE, camera
from gantry_deploy.dataset.notes import NOTES, make_notes
from gantry_deploy.dataset.physical import (
    action_numbers,
    demo_features,
    observation_numbers,
    out_of_range,
    physical_action,
    physical_features,
    policy_action,
    policy_observation,
)
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import DatasetError
from gantry_deploy.observations.builder import ObservationBuilder, Signals, make_term
from gantry_fixtures.arm import arm_contract_for, with_cameras
from gantry_hardware.robots import robot_spec

SPEC = robot_spec("yam")
N = SPEC.num_joints
TERMS = (
    make_term("joint_pos", N),
    make_term("joint_vel", N, scale=0.2, clip=3.0),
    make_term("joint_lead", N, scale=5.0),
    make_term("ee_pos", 3, scale=5.0),
    make_term("object_pos", 3, scale=5.0),
)
CONTRACT = arm_contract_for(SPEC, observations=TERMS)
TASK = "yam-test"


def test_physical_values_become_what_the_policy_observes_to_the_bit():
    seed = 11
    rng = np.random.default_rng(seed)
    rows = 4000
    joints = (rng.normal(size=(rows, N)) + SPEC.array("default_rad")).astype(np.float32)
    signals = Signals(
        joint_pos_rad=joints,
        joint_vel_rad_s=rng.normal(size=(rows, N), scale=3.0).astype(np.float32),
        quat_base_to_world_wxyz=np.tile(np.float32([1, 0, 0, 0]), (rows, 1)),
        ang_vel_base_in_base_rad_s=np.zeros((rows, 3), np.float32),
        command=np.zeros((rows, 0), np.float32),
        last_action=np.zeros((rows, 4), np.float32),
        time_s=np.zeros(rows, np.float32),
        joint_target_rad=joints + rng.normal(size=(rows, N), scale=0.01).astype(np.float32),
        object_pose_in_base=np.tile(np.float32([0.3, 0.1, 0.02, 1, 0, 0, 0]), (rows, 1)),
    )
    observed = ObservationBuilder(CONTRACT, np.zeros((1, 1), np.float32))(signals)
    parts = observation_numbers(CONTRACT)
    columns = physical_features(parts, observed)
    np.testing.assert_allclose(columns[STATE], joints, atol=1e-6, err_msg="rad, and not relative to a pose")
    velocity = np.clip(np.asarray(signals.joint_vel_rad_s), -3.0, 3.0)
    np.testing.assert_allclose(columns["observation.velocity"], velocity, rtol=1e-6, err_msg=f"seed {seed}")
    start: dict[str, int] = {}
    again = []
    for part in parts:
        begin = start.get(part.feature, 0)
        again.append(policy_observation(part, columns[part.feature][:, begin : begin + part.size]))
        start[part.feature] = begin + part.size
    np.testing.assert_array_equal(np.concatenate(again, axis=1), observed)


def test_joints_in_an_order_of_their_own_keep_their_names_units_and_offsets():
    shown = (*SPEC.joint_names[::-1][:2], SPEC.joint_names[1])
    terms = tuple(replace(make_term(name, 3), joints=shown) for name in ("joint_pos", "joint_vel"))
    pos, vel = observation_numbers(replace(CONTRACT, observations=terms))
    default = dict(zip(SPEC.joint_names, CONTRACT.default_pos_rad, strict=True))
    assert pos.offset == tuple(default[name] for name in shown)
    assert len(set(pos.offset)) > 1
    gripper = embodiment_of(CONTRACT).gripper_joint(CONTRACT)
    assert pos.names == tuple(f"{'gripper' if name == gripper else name}.pos" for name in shown)
    assert vel.units == tuple("m/s" if name == gripper else "rad/s" for name in shown)


def test_physical_actions_are_steps_in_metres_and_come_back_to_the_bit():
    part = action_numbers(CONTRACT)
    assert part.names == ("delta_x", "delta_y", "delta_z", "gripper.pos")
    assert part.units == ("m",) * 4
    action = np.random.default_rng(12).uniform(-1.0, 1.0, (5000, 4)).astype(np.float32)
    action[:3] = [[1, -1, 0, 1], [0, 0, 0, -1], [2, -3, 0, 9]]
    physical = physical_action(part, action)
    opened, closed = SPEC.joints[-1].upper_rad, SPEC.joints[-1].lower_rad
    np.testing.assert_allclose(physical[:3], [[0.02, -0.02, 0, opened], [0, 0, 0, closed], [0.02, -0.02, 0, opened]])
    assert out_of_range(part, physical) is None
    np.testing.assert_array_equal(policy_action(part, physical), np.clip(action, -1, 1))
    single = policy_action(part, physical.astype(np.float32))
    np.testing.assert_allclose(single, np.clip(action, -1, 1), atol=3e-7)
    physical[7, 1], physical[9, 0] = 0.0201, np.nan
    assert out_of_range(part, physical) == (7, 1)
    assert out_of_range(part, physical[8:]) == (1, 0)


def test_joint_actions_have_the_joints_names_and_units():
    scale, offset = (0.1,) * (N - 1) + (0.02,), (0.0,) * (N - 1) + (0.02,)
    joint = replace(CONTRACT, action=ActionSpec("target/joint/position", scale, offset, clip=1.0))
    assert joint.body is not None
    assert action_numbers(joint).names == (*(f"joint{i}.delta" for i in range(1, N)), "gripper.pos")
    absolute = replace(joint, body=replace(joint.body, relative=False))
    assert action_numbers(absolute).names == (*(f"joint{i}.pos" for i in range(1, N)), "gripper.pos")
    assert action_numbers(absolute).units == ("rad",) * (N - 1) + ("m",)


def written(folder, contract=CONTRACT, *, fps=20, robot="yam", features=None, notes=True, task=TASK):
    """Two episodes of zeros as collected by Gantry, or by another program."""
    features = demo_features(contract) if features is None else features
    beside = {NOTES: json.dumps(make_notes(task, {}, contract)).encode()} if notes else None
    with DatasetWriter(folder, fps, features, robot, beside=beside) as writer:
        for length in (3, 2):
            for _ in range(length):
                writer.add_frame({name: np.zeros(item.shape, dtype_of(item)) for name, item in features.items()})
            writer.end_episode("wave")
    return Dataset(folder)


def dtype_of(item):
    return np.uint8 if item.is_image else item.dtype


def test_what_gantry_collected_fits_its_task_and_everything_is_compared(tmp_path):
    agreement = require_agreement(written(tmp_path / "d"), Expected.of(TASK, CONTRACT))
    assert agreement.not_compared == ()
    assert [name for name, _ in agreement.observation][:2] == [STATE, "observation.velocity"]


def other_names(**renamed):
    def change(features):
        item = features[ACTION]
        return {**features, ACTION: replace(item, names=tuple(renamed.get(name, name) for name in item.names))}

    return change


OTHER = {
    "task": ({"task": "yam-push"}, "task is 'yam-push' there, 'yam-test' here"),
    "rate": ({"fps": 60}, "rate is 60 Hz there, 20 Hz here"),
    "robot": ({"robot": "so100_follower"}, "robot is 'so100_follower' there, 'yam' here"),
    "step": (
        {"contract": replace(CONTRACT, action=replace(CONTRACT.action, scale=(0.05, 0.02, 0.02, 0.01)))},
        r"action.scale\[0\] is 0.05 there, 0.02 here",
    ),
    "kind": (
        {"contract": replace(CONTRACT, action=replace(CONTRACT.action, clip=0.5))},
        "action.clip is 0.5 there, 1.0 here",
    ),
    "workspace": (
        {"contract": replace(CONTRACT, body=replace(CONTRACT.body, max_lead_m=0.1))},
        "body.max_lead_m is 0.1 there, 0.05 here",
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_what_gantry_collected_elsewhere_is_refused_with_both_sides(tmp_path, name):
    changes, message = OTHER[name]
    with pytest.raises(DatasetError, match=message):
        require_agreement(written(tmp_path / "d", **changes), Expected.of(TASK, CONTRACT))


def test_several_differences_stand_on_lines_and_the_rest_is_counted(tmp_path):
    action = replace(CONTRACT.action, clip=0.5)
    changes = {"task": "yam-push", "robot": "so100_follower", "fps": 60, "contract": replace(CONTRACT, action=action)}
    with pytest.raises(DatasetError) as refused:
        require_agreement(written(tmp_path / "d", **changes), Expected.of(TASK, CONTRACT))
    lines = str(refused.value).splitlines()
    assert len(lines) == 4
    assert lines[1] == "  task is 'yam-push' there, 'yam-test' here"
    assert lines[3].endswith("; and 1 more.")


def named(name, **changes):
    return lambda features: {**features, name: replace(features[name], raw={}, **changes)}


LABELS = (*(f"joint{i}.pos" for i in range(1, N)), "gripper.pos")
FOREIGN = {
    "names of actions": (named(ACTION, names=("gripper", "z", "y", "x")), "'action' lacks delta_x, delta_y, delta_z"),
    "names of states": (named(STATE, names=tuple("abcdefg")), "'observation.state' lacks joint1.pos"),
    "units": (
        named(STATE, units=(), unit="deg"),
        "'joint1.pos' of 'observation.state' is in 'deg' there, in 'rad' here",
    ),
    "one unit": (named(ACTION, unit="", units=("m", "m", "mm", "m")), "'delta_z' of 'action' is in 'mm' there"),
    "more actions": (
        lambda features: {**features, ACTION: vector((*features[ACTION].names, "more"))},
        "'action' has delta_x, delta_y, delta_z, gripper.pos, more there",
    ),
    "twice": (named(STATE, names=(*LABELS[:-1], LABELS[0])), "lacks gripper.pos"),
    "missing": (lambda features: {k: v for k, v in features.items() if k != STATE}, "'observation.state' is missing"),
    "sizes": (lambda features: {**features, STATE: vector(6)}, "'observation.state' has 6 numbers there, 7 here"),
    "two sizes": (lambda features: {**features, ACTION: vector(5)}, "'action' has 5 numbers there, 4 here"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_another_program_recorded_is_compared_by_names_and_units(tmp_path, name):
    change, message = FOREIGN[name]
    dataset = written(tmp_path / "d", features=change(demo_features(CONTRACT)), notes=False)
    with pytest.raises(DatasetError, match=message):
        require_agreement(dataset, Expected.of(TASK, CONTRACT))


def test_cameras_are_compared_by_name_and_size(tmp_path):
    contract = with_cameras(CONTRACT, "front", size_px=16)
    features = {**demo_features(CONTRACT), f"{IMAGES}wrist": camera(16, 16)}
    with pytest.raises(DatasetError, match=r"camera 'front' is missing there \(cameras: wrist\)"):
        require_agreement(written(tmp_path / "a", features=features, notes=False), Expected.of(TASK, contract))
    features = {**demo_features(CONTRACT), f"{IMAGES}front": camera(16, 24)}
    with pytest.raises(DatasetError, match="camera 'front' has 16 x 24 pixels there, 16 x 16 here"):
        require_agreement(written(tmp_path / "b", features=features, notes=False), Expected.of(TASK, contract))


def test_a_permutation_by_names_is_sorted_and_other_programs_may_keep_all_in_one_feature(tmp_path, caplog):
    features = demo_features(CONTRACT)
    inside = [name for name in features if name.startswith("observation.")]
    names = [label for name in inside for label in features[name].names][::-1]
    units = [unit for name in inside for unit in features[name].unit_of_each][::-1]
    foreign = {STATE: vector(names, unit=units), ACTION: vector(features[ACTION].names[::-1])}
    agreement = require_agreement(
        written(tmp_path / "d", features=foreign, notes=False, robot=None), Expected.of(TASK, CONTRACT)
    )
    assert agreement.action[1].tolist() == [3, 2, 1, 0]
    found = [names[column] for _, columns in agreement.observation for column in columns]
    assert found == names[::-1]
    said = " ".join(agreement.not_compared)
    for word in ("the task", "step sizes", "the robot", "units of 'action'"):
        assert word in said
        assert word in caplog.text


def test_without_names_places_count_and_the_log_says_so(tmp_path, caplog):
    features = {name: vector(item.shape[0]) if item.names else item for name, item in demo_features(CONTRACT).items()}
    agreement = require_agreement(written(tmp_path / "d", features=features, notes=False), Expected.of(TASK, CONTRACT))
    assert agreement.observation[0][1].tolist() == list(range(N))
    assert "names and order of 'observation.state'" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"task": "yam-test", "env": {}}', "an older version of Gantry, which stored the policy's numbers"),
        ("[" * 100_000, "is nested deeper than 64"),
        ('{"version": 2, "version": 2}', "has the key 'version' twice"),
        ('{"version": 9}', "version is 9, expected 2"),
        ('{"version": 2, "task": 7, "env": {}, "contract": {}}', "task is a int, expected a str"),
        ('{"version": 2, "task": "yam-test", "env": {}, "contract": {"a": 1}}', "gantry.json: "),
    ],
)
def test_damaged_and_old_notes_are_refused(tmp_path, text, message):
    dataset = written(tmp_path / "d")
    shutil.copytree(tmp_path / "d", tmp_path / "e")
    (tmp_path / "e" / NOTES).write_text(text)
    with pytest.raises(DatasetError, match=message):
        require_agreement(Dataset(tmp_path / "e"), Expected.of(TASK, CONTRACT))
    require_agreement(dataset, Expected.of(TASK, CONTRACT))

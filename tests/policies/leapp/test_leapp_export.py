"""Bundles as LEAPP folders: the graph against the runtime, and back through the import."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
import torch
import yaml

from gantry_deploy.contract.parts import ActionSpec, BalanceSpec
from gantry_deploy.errors import LeappError
from gantry_deploy.leapp.folder import read_leapp
from gantry_deploy.leapp.importing import import_leapp
from gantry_deploy.leapp.settings import LeappSettings
from gantry_deploy.observations.builder import make_term
from gantry_deploy.policy.policy import open_policy
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, map_contract_for, tiny_bundle
from gantry_hardware.backends.state import RobotState
from gantry_hardware.robots import robot_spec
from gantry_mapping.onnx.network import Network
from gantry_policies.leapp.export import export_leapp
from gantry_policies.leapp.graph import layout_of

SPEC = robot_spec("go2")
STEPS = 100


def state_of(rng, step):
    quat = np.array([1.0, *rng.uniform(-0.4, 0.4, 3)])
    return RobotState(
        stamp_s=0.02 * step,
        joint_pos_rad=SPEC.array("default_rad") + rng.uniform(-0.4, 0.4, 12),
        joint_vel_rad_s=rng.uniform(-3.0, 3.0, 12),
        joint_effort_nm=np.zeros(12),
        quat_base_to_world_wxyz=quat / np.linalg.norm(quat),
        ang_vel_base_in_base_rad_s=rng.uniform(-1.0, 1.0, 3),
        lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, 9.81]),
        lin_vel_base_in_base_m_s=rng.uniform(-1.0, 1.0, 3),
    )


def inputs_of(state, command):
    """A step as the folder's inputs have it, by their names."""
    return {
        "joint_pos": state.joint_pos_rad,
        "joint_vel": state.joint_vel_rad_s,
        "base_rotation": state.quat_base_to_world_wxyz[[1, 2, 3, 0]],
        "base_ang_vel": state.ang_vel_base_in_base_rad_s,
        "base_lin_vel": state.lin_vel_base_in_base_m_s,
        "velocity_command": command,
    }


def drawn(seed, commands=3):
    """100 states, and commands beyond the trained range."""
    rng = np.random.default_rng(seed)
    return [(state_of(rng, i), rng.uniform(-2.0, 2.0, commands)) for i in range(STEPS)]


def folder_targets(folder, steps):
    """Targets (100, 12) of the folder's graph, fed by its own names."""
    read = read_leapp(folder)
    network = Network(read.model_bytes, "graph", LeappError)
    kept = {item.name: read.initial[item.name] for item in read.inputs if item.name in read.feedback}
    names, rows = [item.name for item in read.outputs], []
    for state, command in steps:
        given = {key: value[None].astype(np.float32) for key, value in inputs_of(state, command).items()}
        asked = {item.name: given[item.name] for item in read.inputs if item.name not in read.feedback}
        answer = dict(zip(names, network.run(names, {**asked, **kept}), strict=True))
        kept = {name: answer[output] for name, output in read.feedback.items()}
        rows.append(answer["joint_pos_target"][0])
    return np.array(rows)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """A bundle of the usual contract, and its LEAPP folder, which no test changes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("usual")
    try:
        bundle = tiny_bundle(place / "bundle", contract_for(SPEC))
        assert export_leapp(bundle, place / "leapp") < 1e-5
    finally:
        torch.set_num_threads(before)
    return bundle, place / "leapp"


def runtime_targets(bundle, steps):
    runner = PolicyRunner(bundle, SPEC)
    return np.array([runner.step(state, command).target.pos_rad for state, command in steps])


def balanced():
    n = 12
    return BalanceSpec((0, 1, 1) * 4, (0.1,) * n, (0.02,) * n, (-0.1,) * n, (0.01,) * n)


def contracts():
    """Contracts that differ in what has to be inside the graph."""
    usual = contract_for(SPEC)
    gait = replace(usual.gait, balance=balanced(), sway_rad=(0.02,) * 12, lead_s=0.03)
    plain = tuple(term for term in usual.observations if term.name != "gait_clock")
    history = (
        make_term("base_ang_vel", 3, scale=0.25, history=3),
        make_term("base_lin_vel", 3, clip=0.4),
        make_term("projected_gravity", 3, history=5),
        make_term("joint_pos", 12, history=2),
        make_term("last_action", 12, clip=1.0),
        make_term("velocity_command", 3),
    )
    slow = replace(usual.command, max_rate=(0.5, 0.5, 1.0))
    still = replace(usual.command, kind="", names=(), lower=(), upper=(), max_rate=())
    return {
        "gait clock, strides of the command": usual,
        "balance and sway": replace(usual, gait=gait),
        "no gait": replace(usual, gait=None, observations=plain),
        "history, clips, velocity": replace(usual, gait=None, observations=history),
        "rate of the command": replace(usual, command=slow),
        "no command": replace(usual, gait=None, observations=plain[:-1], command=still),
        "tight clip": replace(
            usual, action=ActionSpec("target/joint/position", (0.5,) * 12, usual.action.offset_rad, 0.1)
        ),
    }


IN_SOAK = ("no command", "tight clip", "rate of the command")
"""Contracts that `make test` leaves out."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name in IN_SOAK else name for name in contracts()]
)
def test_the_graph_gives_the_runtimes_targets(tmp_path, name, one_thread):
    contract = contracts()[name]
    bundle = tiny_bundle(tmp_path / "bundle", contract)
    assert export_leapp(bundle, tmp_path / "leapp") < 1e-5
    steps = drawn(11, len(contract.command.names))
    expected = runtime_targets(bundle, steps)
    found = folder_targets(tmp_path / "leapp", steps)
    assert np.abs(found - expected).max() < 1e-5
    assert np.ptp(expected, axis=0).max() > 0.05  # the targets move, so equal ones say something


def test_the_way_out_and_back_gives_the_same_policy(usual, tmp_path, one_thread):
    bundle, folder = usual
    found = import_leapp(folder, LeappSettings()).bundle
    contract = found.contract
    steps = drawn(12)
    assert np.abs(runtime_targets(found, steps) - runtime_targets(bundle, steps)).max() < 1e-5
    for name in ("robot", "rate_hz", "default_pos_rad", "effort_limit_nm", "joint_lower_rad"):
        assert getattr(contract, name) == getattr(bundle.contract, name)
    assert contract.stiffness_nm_rad == pytest.approx(bundle.contract.stiffness_nm_rad)
    assert contract.command.upper == bundle.contract.command.upper
    with pytest.raises(LeappError, match="its contract has 'graph'"):
        export_leapp(found, tmp_path / "again")


def test_the_clock_goes_on_past_its_end(usual, one_thread):
    """The step that flows back starts again after 1024 periods, as the runtime's time does."""
    bundle, folder = usual
    read = read_leapp(folder)
    network = Network(read.model_bytes, "graph", LeappError)
    last = 1024 * bundle.contract.rate_hz / bundle.contract.gait.frequency_hz - 1.0
    state, command = drawn(1)[0]
    given = {key: value[None].astype(np.float32) for key, value in inputs_of(state, command).items()}
    asked = {item.name: given[item.name] for item in read.inputs if item.name in given}
    steps = []
    for step in (0.0, last):
        kept = {"last_action_in": np.zeros((1, 12), np.float32), "step_in": np.full((1, 1), step, np.float32)}
        steps.append(float(network.run(["step_out"], {**asked, **kept})[0][0, 0]))
    assert steps == [1.0, 0.0]


def test_the_description_says_what_the_graph_has(usual, one_thread):
    _, folder = usual
    (path,) = folder.glob("*.yaml")
    told = yaml.safe_load(path.read_text())
    ((name, model),) = told["models"].items()
    graph = onnx.load(folder / model["parameters"]["model_path"]).graph
    for key, tensors in (("inputs", graph.input), ("outputs", graph.output)):
        shapes = {item.name: [side.dim_value for side in item.type.tensor_type.shape.dim] for item in tensors}
        assert {item["name"]: item["shape"] for item in model[key]} == shapes
        assert [item["name"] for item in model[key]] == [item.name for item in tensors]
    # Every output goes somewhere, which leapp insists on.
    routed = {f"{name}/{item}" for item in told["pipeline"]["outputs"][name]} | set(told["pipeline"]["feedback_flow"])
    assert routed == {f"{name}/{item.name}" for item in graph.output}
    rotation = next(item for item in model["inputs"] if item["kind"] == "state/body/rotation")
    assert rotation["element_names"] == [["qx", "qy", "qz", "qw"]]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda: map_contract_for(SPEC), "'map_window', and LEAPP has no signal for an elevation map"),
        (lambda: replace(contract_for(SPEC), recurrent=("h",)), "'recurrent'"),
    ],
)
def test_what_leapp_has_no_place_for_is_refused_with_its_name(change, text):
    with pytest.raises(LeappError, match=text):
        layout_of(change())


@pytest.mark.parametrize("name", ["yam-pick-place", "drive-traffic", "ame2-go2-student"])
def test_bundles_that_come_along_are_refused_by_what_they_hold(name):
    from gantry_deploy.bundle.bundle import load_bundle
    from gantry_deploy.bundle.locate import named_path

    contract = load_bundle(named_path(f"pretrained:{name}")).contract
    expected = {"yam-pick-place": "chunk", "drive-traffic": "body", "ame2-go2-student": "map_window"}[name]
    with pytest.raises(LeappError, match=f"'{expected}'"):
        layout_of(contract)


def test_a_folder_with_files_is_left_alone(tmp_path, one_thread):
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(SPEC))
    (tmp_path / "leapp").mkdir()
    (tmp_path / "leapp" / "mine.txt").write_text("mine")
    with pytest.raises(LeappError, match="is there already and not empty"):
        export_leapp(bundle, tmp_path / "leapp")
    assert [path.name for path in (tmp_path / "leapp").iterdir()] == ["mine.txt"]


def test_an_imported_policy_plans_nothing_between_steps(usual, one_thread):
    """Every step of an imported policy follows from the one before, so that two equal inputs give two answers."""
    _, folder = usual
    found = import_leapp(folder, LeappSettings()).bundle
    policy, observation = open_policy(found), found.golden["observation"][:1]
    answers = [policy(observation).action for _ in range(4)]
    assert all(not np.array_equal(one, other) for one, other in pairwise(answers))

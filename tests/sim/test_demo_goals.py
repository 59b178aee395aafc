"""The demo of a policy that walks to goals: what is refused, how a walk is judged, its page, and the whole of it."""

import json
import math
import re
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from gantry_deploy.cli.command import jsonable
from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import GoalVelocitySpec
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.loop import TickReport
from gantry_deploy.control.safety import Fault, FaultCode, Mode
from gantry_deploy.perception.maps import MapLimits, WindowCutter
from gantry_deploy.policy.runner import PolicyStep
from gantry_deploy.recording.recorder import Recorder
from gantry_deploy.testing.legs import contract_for, map_contract_for, tiny_bundle
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.snapshot import MapSnapshot, cfg_of, load_snapshot
from gantry_mapping.pipeline import MappingPipeline
from gantry_sim.demo.measured import measure_goal_walk, rerun_difference
from gantry_sim.demo.page import build_page
from gantry_sim.demo.rollout import Rollout, in_process
from gantry_sim.demo.scenario import DemoConfig, Gate, Outcome, Policy, Recorded
from gantry_sim.demo.scenarios.goal_attention import attention_of
from gantry_sim.demo.scenarios.goal_page import crossed, in_words
from gantry_sim.demo.scenarios.goals import FLAT, HELD_OUT, Goals, resolve_terrain
from gantry_sim.robots.actuated_scene import ground_height_m, height_over_ground_m, robot_with_motors
from gantry_sim.tasks.locomotion.robots import legged_robot_cfg
from gantry_sim.viewing.attention import map_columns

GO2 = robot_spec("go2")
CONTRACT = map_contract_for(GO2)
DT_S = 0.02
GOAL = Goal(2.0, 0.0, 0.0)
FLOOR = '<geom type="box" size="4 4 0.05" pos="1 2 -0.05"/>'
RIDGE_M = 0.2
"""Height of the map where x is more than a metre."""


@pytest.fixture(scope="module")
def scene():
    """The robot on a flat floor."""
    return robot_with_motors(GO2, visuals=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A policy whose every action is zero, and whose network shows no attention."""
    weight = np.zeros((CONTRACT.observation_size, CONTRACT.action_size))
    return tiny_bundle(tmp_path_factory.mktemp("goals") / "bundle", CONTRACT, weight=weight)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "arguments", "message"),
    [
        ("velocity", ["--terrain", "t1"], "this is one of policies that follow velocities"),
        ("velocity", ["--difficulty", "0.1"], "--difficulty belongs to demos of policies that walk to goals"),
        (None, ["--goal", "1,0,0"], "the --bundle of such a policy"),
        ("goals", ["--terrain", "t1,t2_corse"], "Did you mean 't2_course'?"),
        ("goals", ["--terrain", "climb"], "climb_up"),
        ("goals", ["--terrain", "flt"], "Did you mean 'flat'?"),
        ("goals", ["--goal", "1,2"], "--goal has 2 numbers, expected 3"),
        ("goals", ["--difficulty", "1.5"], "difficulty is 1.5, expected 0 to 1"),
        ("goals", ["--check-episodes", "3"], "gantry check"),
        ("goals", ["--episodes", "7"], "gantry eval --suite ame2"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(bundle, tmp_path, capsys, policy, arguments, message):
    tiny_bundle(tmp_path / "velocity", contract_for(GO2))
    given = {None: [], "velocity": ["--bundle", str(tmp_path / "velocity")], "goals": ["--bundle", str(bundle.path)]}
    assert main(["demo", *given[policy], *arguments, "--output", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""
    assert not (tmp_path / "out").exists()


def test_terrains_are_called_by_the_beginning_of_their_names():
    assert [resolve_terrain(name) for name in ("t1", "t4_debris", "stones", "flat")] == [
        "t1_stones",
        "t4_debris",
        "stones",
        FLAT,
    ]
    assert HELD_OUT == ("t1_stones", "t2_course", "t3_parkour", "t4_debris")
    with pytest.raises(UnknownNameError, match="Did you mean 'stones'"):
        resolve_terrain("stonez")


# -- how a walk is judged ----------------------------------------------------------------------------------------------


class Ridge:
    """A map source whose map never changes."""

    x = np.arange(-3.95, 4.0, 0.1)
    map = MapSnapshot(
        np.where(x[:, None] > 1.0, RIDGE_M, 0.0) + 0.0 * x[None, :], np.full((80, 80), 0.04), (-4.0, -4.0), 0.1
    )

    def newest(self):
        return self.map


def tick(index, x, yaw, height_m=GO2.base_height_m, mode=Mode.POLICY, fault=None):
    """A tick of a robot at (x, 0) that looks along ``yaw``, with what its policy saw of the ridge."""
    quat = np.array([math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])
    state = RobotState(
        stamp_s=5.0 + index * DT_S,
        joint_pos_rad=GO2.array("default_rad"),
        joint_vel_rad_s=np.zeros(12),
        joint_effort_nm=np.zeros(12),
        quat_base_to_world_wxyz=quat,
        ang_vel_base_in_base_rad_s=np.zeros(3),
        lin_acc_base_in_base_m_s2=np.zeros(3),
        pos_base_in_world_m=np.array([x, 0.0, height_m]),
        lin_vel_base_in_base_m_s=np.zeros(3),
    )
    sent, step = JointCommand.position(GO2, GO2.array("default_rad")), None
    if mode is Mode.POLICY:
        observation = np.zeros(CONTRACT.observation_size, np.float32)
        observation[map_columns(CONTRACT)[0]] = window(state).ravel()
        step = PolicyStep(observation, np.zeros(12, np.float32), np.zeros(4, np.float32), sent, 1e-4, 2e-4)
    return TickReport(state.stamp_s, mode, fault, state, GOAL.command(state), step, sent, DT_S, 0.001)


def window(state):
    """What the policy is given of the ridge."""
    pipeline = MappingPipeline(cfg_of(MappingCfg(cameras=()), Ridge.map), None, np.zeros((1, 1)))
    load_snapshot(pipeline.map, Ridge.map)
    return WindowCutter(CONTRACT, MapLimits()).cut(pipeline, state, 0.0)


def record(folder, ticks):
    path = folder / "walk.mcap"
    with Recorder(path, CONTRACT, GO2, lossless=True, map_source=Ridge()) as recorder:
        for report in ticks:
            recorder.record(report)
    return path


def walking(*places):
    """Ticks at (x, yaw), after some of standing up."""
    stood = [tick(index, 9.0, 3.0, mode=Mode.STAND) for index in range(3)]
    return stood + [tick(index, *place) for index, place in enumerate(places, start=3)]


@pytest.mark.parametrize(
    ("places", "crossed", "arrived_s"),
    [
        ([(0.0, 0.0), (1.0, 0.0), (1.6, 0.3)], True, 2 * DT_S),  # 0.4 m away, 0.3 rad off
        ([(0.0, 0.0), (1.6, 0.3), (1.7, 0.3)], True, DT_S),
        ([(0.0, 0.0), (1.6, 0.3), (1.4, 0.3)], False, None),  # it was there, and left
        ([(0.0, 0.0), (1.6, 0.3), (1.6, -0.6)], False, None),  # it looks away
        ([(1.6, 0.0), (2.0, 0.0)], True, 0.0),
    ],
)
def test_a_goal_counts_if_the_robot_is_there_at_the_end(scene, tmp_path, places, crossed, arrived_s):
    found = measure_goal_walk(record(tmp_path, walking(*places)), GOAL, scene)
    assert len(found.time_s) == len(places)
    assert found.crossed is crossed
    assert found.arrived_s == (None if arrived_s is None else pytest.approx(arrived_s))
    x, yaw = places[-1]
    assert found.distance_m == pytest.approx(abs(2.0 - x))
    assert found.heading_error_rad == pytest.approx(abs(yaw))


def test_a_fall_and_a_fault_are_no_success_wherever_the_robot_lies(scene, tmp_path):
    there = [(0.0, 0.0), (1.9, 0.0), (2.0, 0.0)]
    fell = measure_goal_walk(record(tmp_path, [*walking(*there), tick(6, 2.0, 0.0, 0.05)]), GOAL, scene)
    assert fell.fell
    assert not fell.crossed
    fault = Fault(FaultCode.TILT, "The base is tilted.", 6.0)
    damped = tick(6, 2.0, 0.0, mode=Mode.DAMP, fault=fault)
    found = measure_goal_walk(record(tmp_path, [*walking(*there), damped]), GOAL, scene)
    assert found.fault == "The base is tilted."
    assert not found.fell
    assert not found.crossed
    stopped = measure_goal_walk(record(tmp_path, [*walking(*there), tick(6, 9.0, 0.0, mode=Mode.STAND)]), GOAL, scene)
    assert stopped.crossed


def test_a_fall_is_judged_over_the_ground_below_and_not_over_the_start(tmp_path):
    scene = robot_with_motors(GO2, visuals=False, terrain="climb_down", terrain_difficulty=1.0)
    data = mujoco.MjData(scene)
    mujoco.mj_kinematics(scene, data)
    ground_m = ground_height_m(scene, data, np.array([6.0, 0.0]), 3.0)
    assert ground_m < -GO2.base_height_m
    for height_m, fell in ((GO2.base_height_m, False), (0.05, True)):
        ticks = [tick(3, 0.0, 0.0), tick(4, 6.0, 0.0, ground_m + height_m)]
        found = measure_goal_walk(record(tmp_path, ticks), Goal(6.0, 0.0, 0.0), scene)
        assert found.fell is fell
        assert found.crossed is not fell


@pytest.mark.parametrize(
    ("half_m", "yaw_rad", "height_m"),
    [
        ((0.1, 0.1), 0.0, 0.3),  # astride a block
        ((0.3, 0.05), 0.0, 0.3),  # along a plank, and across one
        ((0.3, 0.05), math.pi / 2, 0.3),
        ((0.3, 0.3), 0.0, 0.1),  # on it with all feet
        ((0.25, 0.15), math.pi / 4, 0.1),  # with two of them
    ],
)
def test_a_base_is_as_high_as_over_what_its_feet_are_on(half_m, yaw_rad, height_m):
    block = f'<geom type="box" size="{half_m[0]} {half_m[1]} 0.1" pos="1 2 0.1"/>'
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{block}{FLOOR}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    quat = np.array([math.cos(yaw_rad / 2), 0.0, 0.0, math.sin(yaw_rad / 2)])
    assert height_over_ground_m(model, data, np.array([1.0, 2.0, 0.3]), quat) == pytest.approx(height_m)
    assert height_over_ground_m(model, data, np.array([9.0, 2.0, 0.3]), quat) == -math.inf


def test_an_operator_who_was_not_through_is_no_success(scene, bundle, tmp_path):
    crossing = crossing_of(scene, bundle, tmp_path)
    assert crossed(crossing)
    assert [score.passed for score in Goals().judge(crossing, bundle)] == [True] * 4
    cut = replace(crossing.rollout, completed=False, trouble="the nodes ended early")
    ended = replace(crossing, rollout=cut)
    assert not crossed(ended)
    assert [score.passed for score in Goals().judge(ended, bundle)] == [True, True, True, False]
    assert "NOT crossed" in in_words(ended)
    assert "the nodes ended early" in in_words(ended)


def test_a_recording_without_a_policy_is_refused(scene, tmp_path):
    with pytest.raises(GantryError, match="never ran"):
        measure_goal_walk(record(tmp_path, walking()), GOAL, scene)


# -- what is drawn -----------------------------------------------------------------------------------------------------


def crossing_of(scene, bundle, folder, terrain="flat"):
    """A walk that ends 0.1 m from the goal."""
    recording = record(folder, walking(*((0.1 * k, 0.02 * k) for k in range(20))))
    found = measure_goal_walk(recording, GOAL, scene)
    times = {"map": [0.002, 0.004], "publish": [0.001, 0.001], "age": [0.03, 0.05]}
    return Recorded(
        name=terrain,
        folder=folder,
        rollout=Rollout(over_ros=True, recording=recording, completed=True, domain="7"),
        episodes=(found,),
        statistics={
            "mapping": {"frames": {"fused": 2, "no pose of its time": 1}, "samples_s": times},
            "robot": {"wall_s": 10.0, "simulated_s": 9.5},
            "loop": {"map": {"blind steps": 3}},
        },
        rerun=rerun_difference([found], bundle),
        film_note="it was left out as asked.",
        detail=attention_of(found, bundle, scene, "Go2 on flat", 10.0),
    )


def test_moments_are_the_recordings_and_end_with_its_end(scene, bundle, tmp_path):
    attention = crossing_of(scene, bundle, tmp_path).detail
    assert [round(moment.time_s / DT_S) for moment in attention.moments] == [4, 9, 14, 19]  # 50 Hz to 10 Hz
    last = attention.moments[-1]
    assert last.pos_base_in_world_m[0] == pytest.approx(1.9)
    assert last.yaw_rad == pytest.approx(0.38)
    assert last.attention is None
    assert attention.reached
    # The robot stands at its nominal height over ground at 0, beyond the edge of the ridge.
    ahead = attention.window.cell_centers(np.zeros(1))
    x = last.pos_base_in_world_m[0] + math.cos(0.38) * ahead[..., 0] - math.sin(0.38) * ahead[..., 1]
    sure = np.abs(x - 1.0) > 0.1
    np.testing.assert_allclose(last.seen[..., 0][sure], np.where(x > 1.0, RIDGE_M, 0.0)[sure], atol=1e-6)
    row, col, _ = attention.around.index_of(ahead)
    known = sure & (last.variance_m2[row, col] < 1.0)
    drawn = last.elevation_in_world_m[row, col]
    np.testing.assert_allclose(drawn[known], np.where(x > 1.0, RIDGE_M, 0.0)[known], atol=1e-6)
    assert known.sum() > 50


def test_the_page_stands_alone_and_the_numbers_are_those_of_the_walks(scene, bundle, tmp_path):
    good = crossing_of(scene, bundle, tmp_path)
    silent = Recorded("t2_course", tmp_path, Rollout(True, tmp_path / "no.mcap", False, "nobody answered"))
    scenario, config = Goals(("flat", "t2_course")), DemoConfig(tmp_path, bundle.path)
    policy = Policy(bundle.path, evaluation_note="")
    outcome = Outcome(scenario, config, policy, bundle, Gate(()), (good, silent), {"flat": 1.0})
    assert not outcome.passed
    assert replace(outcome, recorded=(good,)).passed
    page = build_page(outcome).html()
    assert "1 of 2" in page
    assert "Not crossed: t2_course." in page
    assert "nobody answered" in page
    assert "The network shows no attention." in page
    assert page.count("<svg") == 1
    assert page.count("data:image/png") == 3
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", page), "it asks nothing of the network"
    result = json.loads(json.dumps(jsonable(outcome.result())))
    first, second = result["rollouts"]
    assert (result["passed"], [row["crossed"] for row in result["rollouts"]]) == (False, [True, False])
    assert (first["crossed"], second["crossed"]) == (True, False)
    assert first["distance_m"] == pytest.approx(0.1)
    assert first["timing"]["mapping"] == {"count": 2, "p50_s": 0.003, "p99_s": 0.00398, "max_s": 0.004}
    assert first["timing"]["tick"]["p50_s"] == pytest.approx(0.001)
    assert first["real_time"] == pytest.approx(0.95)
    assert first["blind_ticks"] == 3
    assert first["rerun_difference"] == 0.0
    assert second["distance_m"] is None
    assert second["reason"] == "nobody answered"


@pytest.mark.slow
def test_the_same_walk_without_the_clock_is_recorded_and_judged_as_one_over_ros(tmp_path):
    """The policy is its gait alone, which walks where the ground is flat."""
    body = legged_robot_cfg("go2")
    gains = {"stiffness_nm_rad": body.stiffness_nm_rad, "damping_nm_s_rad": body.damping_nm_s_rad}
    command = replace(map_contract_for(GO2).command, goal_velocity=GoalVelocitySpec(speed_gain_s=4.0, stop_m=0.1))
    contract = map_contract_for(GO2, gait=body.gait, command=command, **gains)
    weight = np.zeros((contract.observation_size, contract.action_size))
    given = tiny_bundle(tmp_path / "given", contract, weight=weight)
    goal, said = Goal(1.2, 0.0, 0.0), []
    scenario = Goals((FLAT,), goal=(1.2, 0.0, 0.0), seconds=13.0)
    plan = scenario.plan(FLAT, given, tmp_path, print)
    plan.folder.mkdir()
    walk = in_process(plan, said.append)
    assert (walk.over_ros, walk.paced, walk.completed, walk.trouble) == (False, False, True, "")
    found = measure_goal_walk(walk.recording, goal, robot_with_motors(GO2))
    assert found.crossed
    assert found.map_rate_hz > 1.0
    assert json.loads((tmp_path / FLAT / "loop.json").read_text())["missed_deadlines"] == 0

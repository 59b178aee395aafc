"""Maps in the control loop: who has one, what the policy sees of it, what happens when it gets old, and goals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle, write_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import BODY_POSE, BODY_POSE_NAMES, CommandSpec, GoalVelocitySpec, MapWindow
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyMachine
from gantry_deploy.errors import ContractError, SafetyError
from gantry_deploy.observations.builder import make_term
from gantry_deploy.perception.maps import (
    UNSEEN_UNCERTAINTY,
    DepthFrame,
    MapLimits,
    OwnMap,
    ReceivedMap,
    default_cfg,
    make_map_source,
)
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, tiny_bundle, tiny_robot
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.snapshot import MapSnapshot
from gantry_mapping.errors import MappingError
from gantry_mapping.sensing.camera import DepthCamera

SPEC = tiny_robot()
NOMINAL_M, HEIGHT_M = 0.3, 0.25
WINDOW = MapWindow(6, 4, 0.1, 0.9, 0.0, ("elevation", "uncertainty"), NOMINAL_M)
POSE = CommandSpec(
    BODY_POSE, BODY_POSE_NAMES, (-99.0, -99.0, -1.0, -1.0), (99.0, 99.0, 1.0, 1.0), (0.0,) * 4, GoalVelocitySpec()
)
TERMS = (make_term("joint_pos", 4), make_term("goal_command", 4), make_term("elevation_map", 48))
CONTRACT = contract_for(SPEC, command=POSE, map_window=WINDOW, observations=TERMS, gait=None)
BLIND = contract_for(SPEC)
CAMERA = DepthCamera.from_fov(64, 48, math.radians(90), pos_camera_in_base_m=(0.3, 0.0, 0.1), pitch_down_rad=0.7)
LEVEL = np.array([1.0, 0.0, 0.0, 0.0])


class Placed(MockRobot):
    """A mock robot that knows where it is: at the origin, a little lower than nominal, looking along +y."""

    place = np.array([1.0, 2.0, HEIGHT_M])
    turn = np.array([math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)])

    def read(self):
        return replace(super().read(), pos_base_in_world_m=self.place, quat_base_to_odom_wxyz=self.turn)


class Seeing(Placed):
    """Has a camera that sees a floor at height 0 at every control step, until its eyes are closed."""

    depth_cameras = (CAMERA,)
    eyes_open = True

    def read_depth(self):
        if not self.eyes_open:
            return []
        rays, origin = CAMERA.rays_in_base(np.zeros(1))
        with np.errstate(divide="ignore"):
            depth = -(HEIGHT_M + origin[2]) / rays[:, 2]
        image = np.where(depth > 0, depth, 0.0).reshape(CAMERA.height, CAMERA.width)
        return [DepthFrame(self.now_s(), image, self.place, self.turn)]


class Mapped(Placed):
    """Gets a map from somebody, a step of 0.2 m at y = 2.9, which is 0.9 m ahead of it."""

    newest = None
    asked = False

    def follow_map(self):
        self.asked = True

    def read_map(self):
        return self.newest


def step_map(stamp_s=0.0):
    """A map of 4 x 4 m around (1, 2)."""
    y = (np.arange(40) + 0.5) * 0.1
    heights = np.where(y > 2.9, 0.2, 0.0)
    return MapSnapshot(np.tile(heights, (40, 1)), np.full((40, 40), 0.01), (-1.0, 0.0), 0.1, stamp_s)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return tiny_bundle(tmp_path_factory.mktemp("bundle"), CONTRACT)


def loop_on(robot, bundle, **limits):
    runner = PolicyRunner(bundle, SPEC)
    source = make_map_source(runner.contract, robot, runner.mapper_model, limits=MapLimits(**limits))
    robot.connect()
    return Controller(robot, runner, SafetyMachine(SPEC), map_source=source)


def walking(robot, bundle, **limits):
    loop = loop_on(robot, bundle, **limits)
    loop.request("stand")
    loop.run(2.1)
    loop.request("start")
    loop.run(0.1)
    assert loop.safety.mode is Mode.POLICY
    return loop


# -- who has a map -----------------------------------------------------------------------------------------------------


def test_a_policy_with_a_map_is_refused_where_there_is_none(bundle):
    with pytest.raises(
        ContractError, match=r"elevation map \(6 x 4 cells of 0.1 m, elevation and uncertainty\)"
    ) as why:
        make_map_source(CONTRACT, MockRobot(SPEC))
    assert "MockRobot" in str(why.value)
    assert "camera=true" in str(why.value)
    robot = Seeing(SPEC)
    robot.depth_cameras = ()
    with pytest.raises(ContractError, match="neither a depth camera nor a map"):
        make_map_source(CONTRACT, robot)
    with pytest.raises(ContractError, match="no source of one"):
        Controller(MockRobot(SPEC), PolicyRunner(bundle, SPEC), SafetyMachine(SPEC))


def test_a_policy_without_a_map_needs_none():
    assert make_map_source(BLIND, MockRobot(SPEC)) is None


def test_the_command_line_refuses_with_one_message_and_exit_code_2(tmp_path, capsys):
    from gantry_hardware.robots import robot_spec

    go2 = robot_spec("go2")
    terms = (make_term("joint_pos", 12), make_term("goal_command", 4), make_term("elevation_map", 48))
    tiny_bundle(tmp_path / "b", contract_for(go2, command=POSE, map_window=WINDOW, observations=terms, gait=None))
    assert main(["run", str(tmp_path / "b"), "--backend", "mock", "--goal", "1,0,0"]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("Error:") == 1
    assert "neither a depth camera nor a map" in printed.err
    assert main(["run", str(tmp_path / "b"), "--goal", "1,0"]) == 2
    assert "three numbers" in capsys.readouterr().err


def test_a_layer_that_nobody_makes_is_refused_with_the_near_miss():
    contract = replace(CONTRACT, map_window=replace(WINDOW, channels=("elevation", "uncertanty")))
    with pytest.raises(UnknownNameError, match="Did you mean 'uncertainty'"):
        make_map_source(contract, Seeing(SPEC))


# -- what the policy sees ----------------------------------------------------------------------------------------------


def test_depth_becomes_a_window_with_the_contracts_nominal_height():
    source = make_map_source(CONTRACT, Seeing(SPEC))
    robot = source._robot
    robot.connect()
    for _ in range(5):
        source.update(robot.now_s())
        robot.sleep_until(robot.now_s() + 0.02)
    window = source.window(robot.read(), robot.now_s())
    assert isinstance(source, OwnMap)
    assert window.shape == (6, 4, 2)
    # The floor is 0.25 m below the base, which stands 0.05 m lower than nominal.
    np.testing.assert_allclose(window[..., 0], NOMINAL_M - HEIGHT_M, atol=1e-6)
    assert (window[..., 1] < -1.0).all()


def test_a_received_map_is_cut_at_the_pose_of_the_tick():
    robot = Mapped(SPEC)
    source = make_map_source(CONTRACT, robot)
    assert isinstance(source, ReceivedMap)
    assert robot.asked
    robot.connect()
    robot.newest = (step_map(), robot.now_s())
    source.update(robot.now_s())
    window = source.window(robot.read(), robot.now_s())
    # Rows are at 0.65 to 1.15 m ahead, along the world's y; the step is between the third and the fourth.
    expected = np.array([0.0, 0.0, 0.0, 0.2, 0.2, 0.2]) + NOMINAL_M - HEIGHT_M
    np.testing.assert_allclose(window[..., 0], np.tile(expected[:, None], (1, 4)), atol=1e-9)
    robot.place = np.array([1.0, 2.2, HEIGHT_M])  # two rows further; the map is the same
    window = source.window(robot.read(), robot.now_s())
    np.testing.assert_allclose(window[:, 0, 0] - (NOMINAL_M - HEIGHT_M), [0.0, 0.2, 0.2, 0.2, 0.2, 0.2], atol=1e-9)


def test_both_sources_hand_out_the_newest_map_for_recordings():
    source, mapped = make_map_source(CONTRACT, Seeing(SPEC)), Mapped(SPEC)
    assert source.newest() is None
    source._robot.connect()
    source._robot.sleep_until(0.02)
    source.update(source._robot.now_s())
    found = source.newest()
    assert found.stamp_s == source.live.newest_frame_s
    assert found.seen_share(10.0) > 0.05
    assert source.newest() is found  # Until there is news.
    received = make_map_source(CONTRACT, mapped)
    mapped.newest = (step_map(), mapped.now_s())
    received.update(mapped.now_s())
    assert received.newest() is mapped.newest[0]


def test_a_received_map_is_looked_at_as_the_policy_learned_to():
    """A setup that fills a window's gaps travels in the contract; here, one cell of the map is a hole."""
    trained = MappingCfg(infill=True)
    for mapping, expected in ((None, False), (trained, True)):
        robot = Mapped(SPEC)
        source = make_map_source(replace(CONTRACT, map_window=replace(WINDOW, mapping=mapping)), robot)
        robot.connect()
        level = MapSnapshot(np.zeros((40, 40)), np.full((40, 40), 0.01), (-1.0, 0.0), 0.1)
        level.elevation_m[20, 29], level.variance_m2[20, 29] = -3.0, 10.0
        robot.newest = (level, robot.now_s())
        source.update(robot.now_s())
        window = source.window(robot.read(), robot.now_s())
        holes = window[..., 0] < -1.0
        assert bool(holes.any()) is not expected


def test_a_teachers_window_is_the_elevation_alone():
    contract = replace(CONTRACT, map_window=replace(WINDOW, channels=("elevation",)))
    robot = Mapped(SPEC)
    source = make_map_source(contract, robot)
    robot.connect()
    robot.newest = (step_map(), robot.now_s())
    source.update(robot.now_s())
    assert source.window(robot.read(), robot.now_s()).shape == (6, 4, 1)


@pytest.mark.parametrize("kind", [Seeing, Mapped])
def test_an_old_map_is_unseen_ground_and_a_lost_one_is_known(kind):
    robot = kind(SPEC)
    source = make_map_source(CONTRACT, robot, limits=MapLimits(stale_s=0.5, lost_s=2.0))
    robot.connect()
    assert source.lost(robot.now_s())
    assert (source.window(robot.read(), robot.now_s())[..., 1] == UNSEEN_UNCERTAINTY).all()
    robot.newest = (step_map(), robot.now_s())
    source.update(robot.now_s())
    robot.eyes_open = False
    for age_s, stale, lost in ((0.4, False, False), (0.6, True, False), (2.1, True, True)):
        robot.sleep_until(age_s)
        source.update(robot.now_s())
        window = source.window(robot.read(), robot.now_s())
        unseen = (window[..., 0] == 0.0).all() and (window[..., 1] == pytest.approx(0.5 * math.log(2.0) + 0.5))
        assert (unseen, source.lost(robot.now_s())) == (stale, lost), age_s


def test_without_odometry_the_ground_is_unseen():
    robot = Mapped(SPEC)
    source = make_map_source(CONTRACT, robot)
    robot.connect()
    robot.newest = (step_map(), robot.now_s())
    source.update(robot.now_s())
    lost = replace(robot.read(), pos_base_in_world_m=None)
    assert (source.window(lost, robot.now_s())[..., 1] == UNSEEN_UNCERTAINTY).all()


def test_a_broken_camera_is_counted_and_the_loop_goes_on(bundle):
    class Broken(Seeing):
        def read_depth(self):
            raise ValueError("no such device")

    loop = loop_on(Broken(SPEC), bundle)
    report = loop.tick()
    assert report.mode is Mode.PASSIVE
    assert loop.map_source.statistics()["map failures"] == 1


# -- the loop ----------------------------------------------------------------------------------------------------------


def test_the_policy_sees_the_map_in_the_loop_and_walks_to_the_goal(bundle):
    loop = walking(Seeing(SPEC), bundle)
    loop.set_goal(Goal(1.0, 5.0, math.pi))  # 3 m ahead; to look along -x is a quarter turn to the left
    report = loop.tick()
    np.testing.assert_allclose(report.requested, [3.0, 0.0, 1.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(report.step.observation[4:8], [2.0, 0.0, 1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(report.step.observation[8::2], NOMINAL_M - HEIGHT_M, atol=1e-5)


def test_a_blind_robot_is_asked_to_stay(bundle):
    robot = Seeing(SPEC)
    loop = walking(robot, bundle, stale_s=0.2, lost_s=0.5)
    loop.set_goal(Goal(1.0, 5.0, 0.0))
    robot.eyes_open = False
    loop.run(0.4)
    report = loop.tick()
    assert report.requested[0] == pytest.approx(3.0)
    np.testing.assert_allclose(report.step.observation[9::2], UNSEEN_UNCERTAINTY, atol=1e-6)
    loop.run(0.4)
    report = loop.tick()
    assert report.mode is Mode.POLICY
    np.testing.assert_array_equal(report.requested, np.zeros(4))
    robot.eyes_open = True
    loop.run(0.1)
    assert loop.tick().requested[0] == pytest.approx(3.0)


def test_a_policy_does_not_start_without_eyes(bundle):
    robot = Seeing(SPEC)
    robot.eyes_open = False
    loop = loop_on(robot, bundle)
    loop.request("stand")
    loop.run(2.1)
    with pytest.raises(SafetyError, match="none has come"):
        loop.request("start")


def test_a_goal_ends_with_the_policy_and_with_a_command(bundle):
    loop = walking(Seeing(SPEC), bundle)
    loop.set_goal(Goal(1.0, 5.0, 0.0))
    loop.request("stop")
    loop.run(0.1)
    assert loop.safety.mode is Mode.STAND
    assert loop.goal is None
    loop.set_goal(Goal(1.0, 5.0, 0.0))
    loop.set_command((0.5, 0.0, 0.0, 1.0), loop.robot.now_s())
    assert loop.goal is None
    np.testing.assert_array_equal(loop.tick().requested, [0.5, 0.0, 0.0, 1.0])


def test_only_a_policy_that_walks_to_goals_takes_one(tmp_path):
    robot = MockRobot(SPEC)
    robot.connect()
    loop = Controller(robot, PolicyRunner(tiny_bundle(tmp_path), SPEC), SafetyMachine(SPEC))
    with pytest.raises(SafetyError, match="takes no goals"):
        loop.set_goal(Goal(1.0, 0.0, 0.0))


def test_a_goal_without_odometry_asks_for_nothing(bundle):
    robot = Seeing(SPEC)
    loop = walking(robot, bundle)
    loop.set_goal(Goal(1.0, 5.0, 0.0))
    robot.place = np.array([np.nan, 0.0, 0.0])
    np.testing.assert_array_equal(loop.tick().requested, np.zeros(4))


# -- the bundle --------------------------------------------------------------------------------------------------------


def test_a_bundle_carries_its_mapper_under_the_same_seal(bundle, tmp_path):
    parts = {"contract": CONTRACT, "model_bytes": bundle.model_bytes, "golden": bundle.golden}
    write_bundle(tmp_path / "b", **parts, mapper_bytes=b"network")
    assert load_bundle(tmp_path / "b").mapper_bytes == b"network"
    assert "mapper.onnx" in load_bundle(tmp_path / "b").manifest["files"]
    write_bundle(tmp_path / "b", **parts)
    assert load_bundle(tmp_path / "b").mapper_bytes is None


def test_without_a_network_mapping_is_classical():
    assert default_cfg(None).fusion == "kalman"


def flat_mapper(height_m):
    """A mapping network that is sure of level ground at a height relative to the base, whatever it is shown."""
    from onnx import TensorProto, helper, numpy_helper

    from gantry_mapping.elevation.grid import LOCAL_GRID_SMALL
    from gantry_mapping.mapper import METADATA_KEY, MapperInfo

    nodes, constants = [helper.make_node("Mul", ["z", "zero"], ["nothing"])], []
    for name, value in (("zero", 0.0), ("height", height_m), ("sureness", -6.0)):
        constants.append(numpy_helper.from_array(np.array(value, np.float32), name))
    for name, value in (("mean", "height"), ("log_variance", "sureness")):
        nodes.append(helper.make_node("Add", ["nothing", value], [name]))
    shape = ["batch", 1, *LOCAL_GRID_SMALL.shape]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("mean", "log_variance")]
    graph = helper.make_graph(
        nodes, "mapper", [helper.make_tensor_value_info("z", TensorProto.FLOAT, shape)], outputs, constants
    )
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(built, {METADATA_KEY: MapperInfo(LOCAL_GRID_SMALL).to_json()})
    return built.SerializeToString()


def test_a_bundles_network_makes_the_map(bundle, tmp_path):
    parts = {"contract": CONTRACT, "model_bytes": bundle.model_bytes, "golden": bundle.golden}
    write_bundle(tmp_path / "b", **parts, mapper_bytes=flat_mapper(-0.1))
    loop = walking(Seeing(SPEC), load_bundle(tmp_path / "b"))
    # The camera sees a floor 0.25 m below the base; the network says 0.1 m, and is asked.
    np.testing.assert_allclose(loop.tick().step.observation[8::2], NOMINAL_M - 0.1, atol=1e-5)
    assert loop.map_source.live.cfg.fusion == "wta"


def test_a_network_that_is_none_is_refused_before_anything_moves(bundle, tmp_path):
    parts = {"contract": CONTRACT, "model_bytes": bundle.model_bytes, "golden": bundle.golden}
    write_bundle(tmp_path / "b", **parts, mapper_bytes=b"network")
    with pytest.raises(MappingError, match=r"Cannot load the mapper 'mapper\.onnx'"):
        loop_on(Seeing(SPEC), load_bundle(tmp_path / "b"))


@pytest.mark.parametrize("error", [ValueError("a lens cap"), RobotError("no picture")])
def test_a_camera_that_fails_in_every_tick_is_said_once(error, caplog):
    class Broken(Seeing):
        def read_depth(self):
            raise error

    source = make_map_source(CONTRACT, Broken(SPEC))
    for tick in range(50):
        source.update(0.02 * tick)
    assert len(caplog.records) == 1
    assert str(error) in caplog.text
    assert source.statistics()["map failures"] == 50

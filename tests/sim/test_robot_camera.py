"""The simulated robot's eyes and the ground under it: depth by hand, terrain, when pictures come, goals."""

import math

import mujoco
import numpy as np
import pytest

from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import RolloutConfig
from gantry_deploy.evaluation.walking import draw_goal
from gantry_deploy.perception.maps import MapLimits, OwnMap, default_cfg
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import map_contract_for, tiny_bundle
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_mapping.sensing.camera import FORWARD_QUAT_WXYZ, REALSENSE_LIKE, DepthCamera
from gantry_mapping.sensing.frames import base_to_base_yaw
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.robots.actuated_scene import ground_height_m
from gantry_sim.robots.depth_camera import SEEN_GROUPS, DepthNoise, DepthRays, DepthSensor

GO2 = robot_spec("go2")
LEVEL = np.array([1.0, 0.0, 0.0, 0.0])


def robot(**options):
    made = MujocoRobot(GO2, visuals=False, **options)
    made.connect()
    return made


def wall_scene():
    """A floor, a wall across x = 2 m, a virtual floor, and a robot's leg in front of the camera."""
    text = """<mujoco><worldbody>
      <geom type="plane" size="0 0 0.1"/>
      <geom type="box" pos="2.5 0 1" size="0.5 5 1"/>
      <geom type="box" pos="0 3 0.5" size="1 0.5 0.1" group="4" contype="0" conaffinity="0"/>
      <geom type="box" pos="0.5 0 0.5" size="0.1 0.1 0.1" group="3"/>
      <geom type="box" pos="0.7 0 0.5" size="0.1 0.1 0.1" group="2"/>
    </worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


# -- depth -------------------------------------------------------------------------------------------------------------


def test_depth_is_along_the_optical_axis():
    model, data = wall_scene()
    camera = DepthCamera(5, 3, 2.0, 2.0, 2.0, 1.0, (0.1, 0.0, 0.0), FORWARD_QUAT_WXYZ, 0.1, 4.0)
    depth = DepthRays(model, camera).render(data, np.array([0.0, 0.0, 0.5]), LEVEL)
    # The wall is 1.9 m ahead wherever it is seen, also at the edges; the lowest row looks 0.5 down per metre and meets
    # the floor, half a metre below, at 1 m. The robot's own shapes, nearer, are not seen.
    np.testing.assert_allclose(depth, [[1.9] * 5, [1.9] * 5, [1.0] * 5], atol=1e-9)


def test_out_of_range_and_the_sky_are_no_measurement_and_virtual_floors_are_seen():
    model, data = wall_scene()
    camera = DepthCamera(1, 1, 1.0, 1.0, 0.0, 0.0, (0.0, 0.0, 0.0), FORWARD_QUAT_WXYZ, 0.5, 1.5)
    rays = DepthRays(model, camera)
    away = np.array([0.0, 0.0, 0.0, 1.0])  # looks along -x
    left = np.array([math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)])  # looks along +y
    assert rays.render(data, np.array([0.0, 0.0, 0.5]), LEVEL) == 0.0  # 2 m, too far
    assert rays.render(data, np.array([1.8, 0.0, 0.5]), LEVEL) == 0.0  # 0.2 m, too near
    assert rays.render(data, np.array([0.0, 0.0, 0.5]), away) == 0.0
    np.testing.assert_allclose(rays.render(data, np.array([0.0, 1.5, 0.5]), left), 1.0)


def test_what_is_seen_is_what_a_map_is_to_show():
    from gantry_sim.terrains import MAP_GROUPS

    assert SEEN_GROUPS == MAP_GROUPS


def test_every_pixel_lies_on_the_ground():
    """Depth through the mapping's own camera model gives points; a vertical ray at each of them gives their height."""
    seen = robot(terrain="stairs_up", terrain_difficulty=0.7, camera=True, camera_delay_s=0.0)
    quat = np.array([math.cos(0.1), 0.0, math.sin(0.1), 0.0])  # 0.2 rad nose down
    pos = np.array([1.2, 0.1, 0.6])
    depth = DepthRays(seen.model, REALSENSE_LIKE).render(seen.data, pos, quat)
    points, valid = REALSENSE_LIKE.points_in_base_yaw(depth[None], quat[None])
    assert np.allclose(base_to_base_yaw(quat[None])[0] @ base_to_base_yaw(quat[None])[0].T, np.eye(3))
    world = points[0][valid[0]] + pos
    assert len(world) > 500
    heights = np.array([ground_height_m(seen.model, seen.data, point[:2], 5.0) for point in world])
    # On a riser, the height just before the edge and just behind it differ; everywhere else they are the point's own.
    error = np.abs(world[:, 2] - heights)
    assert np.mean(error < 1e-6) > 0.6
    ahead = np.array([1e-3, 0.0])
    behind = np.array([ground_height_m(seen.model, seen.data, point[:2] + ahead, 5.0) for point in world])
    assert ((world[:, 2] <= np.maximum(heights, behind) + 1e-6) & (world[:, 2] > -1e-6)).all()


def test_noise_is_drawn_from_a_seed_and_grows_with_depth():
    depth = np.tile([1.0, 2.0], (20000, 1))
    noisy = DepthNoise(std_per_m=0.01, missing_share=0.1).apply(depth, np.random.default_rng(0))
    assert np.mean(noisy == 0.0) == pytest.approx(0.1, abs=0.01)
    spread = [np.std(noisy[noisy[:, i] > 0, i]) for i in (0, 1)]
    assert spread == pytest.approx([0.01, 0.04], rel=0.05)
    assert DepthNoise.usual(0.0).apply(depth, np.random.default_rng(0)) is depth


# -- when pictures come ------------------------------------------------------------------------------------------------


def test_pictures_come_at_their_rate_and_late():
    seen = robot(camera=True, camera_rate_hz=10.0, camera_delay_s=0.04)
    stamps, arrivals = [], []
    for k in range(51):
        seen.sleep_until(0.02 * k)
        for frame in seen.read_depth():
            stamps.append(frame.stamp_s)
            arrivals.append(seen.now_s())
    np.testing.assert_allclose(stamps, 0.1 * np.arange(10), atol=1e-9)
    np.testing.assert_allclose(np.array(arrivals) - stamps, 0.04, atol=1e-9)


def test_a_rate_that_is_no_multiple_of_the_loops_does_not_drift():
    seen = robot(camera=True, camera_rate_hz=15.0, camera_delay_s=0.0)
    count = 0
    for k in range(101):
        seen.sleep_until(0.02 * k)
        count += len(seen.read_depth())
    assert count == 31  # 2 s at 15 Hz, and the one at the start


def test_without_the_option_there_is_no_camera():
    assert robot().depth_cameras == ()
    assert robot().read_depth() == []


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(GantryError, match=r"camera_rate_hz' is 0\.0, expected a number from"):
        robot(camera=True, camera_rate_hz=0.0)
    model, _ = wall_scene()
    with pytest.raises(GantryError, match="delay"):
        DepthSensor(model, REALSENSE_LIKE, 15.0, -1.0, DepthNoise())


# -- terrain -----------------------------------------------------------------------------------------------------------


def test_a_robot_stands_where_its_terrain_starts_and_goals_lie_ahead():
    stands = robot(terrain="climb_down", terrain_difficulty=1.0)
    assert stands.base_height_m == pytest.approx(stands.pos_base_in_world_m[2], abs=1e-9)  # the start is at height 0
    stands.sleep_until(1.0)
    assert not stands.has_fallen
    assert np.linalg.norm(stands.pos_base_in_world_m[:2]) < 0.05
    goals = stands.goals_in_world_m
    assert (goals[:, 0] > 4.0).all()
    assert (goals[:, 2] < -0.3).all()  # down there


def test_height_is_above_the_ground_below_and_a_hole_without_a_bottom_is_a_fall():
    stands = robot(terrain="climb_up", terrain_difficulty=1.0)
    goal = stands.goals_in_world_m[0]
    stands.reset(pos_xy_m=(goal[0], goal[1]))
    assert stands.pos_base_in_world_m[2] == pytest.approx(goal[2] + stands.base_height_m, abs=1e-6)
    assert stands.base_height_m == pytest.approx(GO2.base_height_m, abs=0.1)
    assert robot(terrain="climb_up", terrain_difficulty=1.0).goals_in_world_m[0] == pytest.approx(goal)
    stands.data.qpos[0] = 100.0  # beyond everything
    assert stands.base_height_m == -math.inf
    assert stands.has_fallen


@pytest.mark.parametrize("name", ["t1", "t1_stones"])
def test_a_terrain_can_be_called_by_the_beginning_of_its_name(name):
    assert len(robot(terrain=name).goals_in_world_m) == 8


@pytest.mark.parametrize(("name", "hint"), [("stonez", "Did you mean 'stones'"), ("climb", "climb_up")])
def test_an_unknown_or_ambiguous_terrain_is_refused(name, hint):
    with pytest.raises(UnknownNameError, match=hint):
        robot(terrain=name)


# -- the map of it -----------------------------------------------------------------------------------------------------


def test_the_map_shows_the_step_where_it_is():
    """A climb of known place and height, seen from in front of it, cell by cell against vertical rays."""
    seen = robot(terrain="climb_up", terrain_difficulty=0.3, camera=True, camera_delay_s=0.0)
    along = np.arange(0.0, 6.0, 0.01)
    edge = along[[ground_height_m(seen.model, seen.data, np.array([x, 0.0]), 3.0) > 0.05 for x in along]][0]
    seen.reset(pos_xy_m=(edge - 0.9, 0.0))
    source = OwnMap(map_contract_for(GO2), seen, default_cfg(None), None, MapLimits())
    for k in range(20):
        seen.sleep_until(0.02 * k)
        source.update(seen.now_s())
    window = source.window(seen.read(), seen.now_s())
    pos = seen.pos_base_in_world_m
    x = (np.arange(14) - 6.5) * 0.14 + 0.6 + pos[0]
    y = (np.arange(8) - 3.5) * 0.14 + pos[1]
    truth = np.array([[ground_height_m(seen.model, seen.data, np.array([a, b]), 3.0) for b in y] for a in x])
    known = window[..., 1] < -0.5
    assert known.sum() > 30
    error = np.abs(window[..., 0] - (truth - pos[2] + GO2.base_height_m))
    near_the_edge = (np.abs(x - edge) < 0.08)[:, None]  # a cell of the map, in which both heights are right
    assert error[known & ~near_the_edge].max() < 1e-4
    assert truth.max() > 0.1  # there is something to see


def test_episodes_towards_goals_are_judged_by_where_the_robot_is(tmp_path):
    """A policy that only stands reaches nothing, and falls nowhere."""
    contract = map_contract_for(GO2)
    bundle = tiny_bundle(tmp_path / "b", contract, weight=np.zeros((contract.observation_size, 12)))
    runner = PolicyRunner(bundle, GO2)
    result = run_episodes(runner, RolloutConfig(episodes=2, seconds=1.0, options={"terrain": "gap"}))
    assert result.scores.success_rate.mean == 0.0
    assert result.scores.early_end_rate.mean == 0.0
    for episode in result.episodes:
        assert episode.seconds == pytest.approx(1.0)
        goal, found = episode.conditions["goal"], episode.scores
        expected = math.hypot(goal.x_in_world_m, goal.y_in_world_m)
        assert found["distance_m"] == pytest.approx(expected, abs=0.2)
        assert found["heading_error_rad"] == pytest.approx(abs(goal.yaw_in_world_rad), abs=0.1)


@pytest.mark.slow
def test_a_gait_alone_walks_to_its_goals_with_a_map_in_the_loop(tmp_path):
    """No learning: the feed-forward gait follows the goal velocity, in all that a trained policy runs in."""
    from gantry_sim.tasks.locomotion.robots import legged_robot_cfg

    body = legged_robot_cfg("go2")
    gains = {"stiffness_nm_rad": body.stiffness_nm_rad, "damping_nm_s_rad": body.damping_nm_s_rad}
    contract = map_contract_for(GO2, gait=body.gait, **gains)
    bundle = tiny_bundle(tmp_path / "b", contract, weight=np.zeros((contract.observation_size, 12)))
    options = {"camera_noise": 1.0}
    result = run_episodes(PolicyRunner(bundle, GO2), RolloutConfig(episodes=3, seconds=12.0, options=options))
    assert result.scores.success_rate.mean > 0.5
    assert result.scores.early_end_rate.mean == 0.0


def test_goals_on_a_plane_lie_in_the_cone_ahead():
    rng = np.random.default_rng(0)
    goals = [draw_goal(np.zeros((0, 3)), rng) for _ in range(200)]
    distance = np.array([math.hypot(goal.x_in_world_m, goal.y_in_world_m) for goal in goals])
    bearing = np.array([math.atan2(goal.y_in_world_m, goal.x_in_world_m) for goal in goals])
    assert (distance.min() > 1.5) & (distance.max() < 4.0)
    assert np.abs(bearing).max() < math.radians(60.0)
    assert bearing.min() < 0.0 < bearing.max()

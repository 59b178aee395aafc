"""Pictures of the workbench, where this machine can draw."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.workbench_robot import BenchRobot
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.presets import LIFT
from gantry_sim.viewing import offscreen_cameras

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def env():
    try:
        made = ArmStepEnv(replace(LIFT.usual_env(), num_envs=2, observer="camera", episode_s=0.15), seed=2)
    except GantryError as error:
        pytest.skip(str(error))
    yield made
    made.close()


def red(picture):
    """(rows, columns) bool: the cube's pixels."""
    red, green, blue = picture.numpy().astype(int)
    return (red > 110) & (red > 2 * green) & (red > 2 * blue)


def test_pictures_show_the_scene_and_the_end_of_an_episode_is_the_old_one(env):
    first = env.reset()
    assert env.obs_shapes["image/wrist"] == env.obs_shapes["image/front"] == (3, 84, 84)
    for name, shape in env.obs_shapes.items():
        assert first[name].shape == (2, *shape)
    assert first["image/front"].dtype == torch.uint8
    fronts = [red(picture) for picture in first["image/front"]]
    assert all(10 < shown.sum() < 400 for shown in fronts)  # the cube, 4 cm of a picture 65 cm wide
    # The camera looks at the robot: what is to its left, y > 0, is right in the picture, and each cube is elsewhere.
    columns = [np.argwhere(shown)[:, 1].mean() for shown in fronts]
    y = env.state.object_pos[:, 1]
    assert (columns[0] > columns[1]) == bool(y[0] > y[1])
    for _ in range(3):
        step = env.step(torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(2, 1))
    assert step.truncated.all()
    last, new = step.next_obs["image/front"], step.obs["image/front"]
    shift = np.abs(red(last[0]).astype(int) - fronts[0].astype(int)).sum()
    assert shift <= 4  # in the last picture of the episode the cube still lies where it lay in the first
    assert np.abs(red(new[0]).astype(int) - fronts[0].astype(int)).sum() > 10  # and elsewhere in the next episode
    assert not torch.equal(step.next_obs["image/wrist"][0], first["image/wrist"][0])  # the hand has moved


def test_a_single_environment_that_ends_is_drawn_anew_alone(env):
    env.reset()
    env.env.episode_length_buf[1] = 2
    step = env.step(torch.zeros(2, 4))
    assert step.truncated.tolist() == [False, True]
    for name in ("image/wrist", "image/front"):
        assert torch.equal(step.obs[name][0], step.next_obs[name][0])
        assert not torch.equal(step.obs[name][1], step.next_obs[name][1])


def test_the_simulated_robot_of_the_runtime_takes_the_pictures_that_training_sees(env):
    robot = BenchRobot(robot_spec("yam"), pictures_px=84)
    robot.connect()
    pictures, qpos = robot.read_pictures(), robot.data.qpos.copy()
    robot.close()
    env.reset()
    assert env.env.sim.data.qpos.shape[1] == qpos.size
    env.env.sim.data.qpos[0] = torch.from_numpy(qpos)
    seen = env._eyes.see(torch.tensor([0]))
    assert set(pictures) == {"wrist", "front"}
    for name, picture in pictures.items():
        difference = np.abs(picture.pixels.astype(int) - seen[name][0].numpy().astype(int))
        assert (difference > 2).mean() < 0.01, name
        assert picture.pixels.std() > 10.0


def test_small_pictures_of_an_endless_table_look_as_it_does(env, monkeypatch):
    make = offscreen_cameras._for_small_pictures

    def endless(model, size_px):
        made = make(model, size_px)
        made.geom_size[:] = model.geom_size
        return made

    model, data, names = env.env.sim.mj_model, env._eyes._data, ("wrist", "front", "side")
    fast = offscreen_cameras.SceneCameras(model, names, 84)
    monkeypatch.setattr(offscreen_cameras, "_for_small_pictures", endless)
    exact = offscreen_cameras.SceneCameras(model, names, 84)
    rng, start = np.random.default_rng(3), data.qpos.copy()
    for _ in range(10):
        data.qpos[:6] = start[:6] + rng.uniform(-0.5, 0.5, 6)
        mujoco.mj_kinematics(model, data)
        mujoco.mj_camlight(model, data)
        pictures, expected = fast.see(data), exact.see(data)
        for name in names:
            difference = np.abs(pictures[name].astype(int) - expected[name].astype(int))
            assert difference.mean() < 5.0, (name, "seed 3")  # of 255; another light differs by 14
    fast.close()
    exact.close()
    assert (model.geom_size[model.geom("table").id, :2] == 0.0).all()  # the scene itself keeps its table

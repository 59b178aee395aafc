"""Watching where a policy looks: true maps, the global feature in an exported network, walks, and the command."""

import json
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.control.goals import Goal
from gantry_deploy.errors import ContractError, PolicyError
from gantry_deploy.report import maps
from gantry_deploy.report.attention import AttentionFilm
from gantry_deploy.testing.legs import contract_for, golden_data, map_contract_for, tiny_bundle
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_mapping.pipeline import VARIANCE_RANGE_M2
from gantry_policies.common.export import export_bundle
from gantry_policies.common.overview import overview_of
from gantry_policies.networks import AmeCfg, ObservationLayout
from gantry_policies.networks.model import PerceptiveModel
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.robots.actuated_scene import ground_height_m
from gantry_sim.viewing.attention import AttentionRolloutCfg, TrueMap, around_of, attention_rollout, grid_of, ground_of

GO2 = robot_spec("go2")
CONTRACT = map_contract_for(GO2)


pytestmark = pytest.mark.usefixtures("one_thread")


def network(encoder="ame2", contract=CONTRACT):
    """A random network whose actions are too small to make a robot fall."""
    torch.manual_seed(3)
    layout = ObservationLayout.from_contract(contract)
    obs = TensorDict({"actor": torch.zeros(2, layout.size)}, batch_size=[2])
    model = PerceptiveModel(
        obs,
        {"actor": ["actor"]},
        "actor",
        contract.action_size,
        encoder=encoder,
        sizes=AmeCfg.small(),
        layout=layout,
        hidden_dims=[16],
    )
    with torch.no_grad():
        model.mlp[-1].weight *= 0.01
        model.mlp[-1].bias.zero_()
    return model


def export(folder, encoder="ame2", attention=True):
    golden = golden_data(CONTRACT, steps=1000)
    golden["joint_target_rad"] = golden["joint_pos_rad"]
    export_bundle(network(encoder).as_onnx(), CONTRACT, golden, folder, attention=attention)
    return load_bundle(folder)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return export(tmp_path_factory.mktemp("attention") / "bundle")


@pytest.fixture(scope="module")
def true_walk(bundle):
    return attention_rollout(bundle, AttentionRolloutCfg("t1", seconds=0.5, fps=10.0, map_source="truth"))


# -- true maps ---------------------------------------------------------------------------------------------------------


def test_a_true_map_is_what_rays_find_below_the_cells():
    robot = MujocoRobot(GO2, visuals=False, terrain="t3")
    robot.connect()
    robot.reset(pos_xy_m=(0.9, 0.3), yaw_rad=0.7)
    ground, heights = ground_of(robot.model, Goal(4.0, 0.0, 0.0))
    source = TrueMap(CONTRACT, ground, heights)
    state = robot.read()
    window = source.window(state, 0.0)
    grid, pos = grid_of(CONTRACT.map_window), robot.pos_base_in_world_m
    turn = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
    places = grid.cell_centers(np.zeros(1)).reshape(-1, 2) @ turn.T + pos[:2]
    # The robot is out of the way of the rays: it stands in another group than the ground.
    found = np.array([ground_height_m(robot.model, robot.data, place, 5.0) for place in places])
    expected = found - pos[2] + CONTRACT.map_window.nominal_base_height_m
    close = np.abs(window[..., 0].ravel() - expected) < 1e-3
    assert found.max() - found.min() > 0.1  # There is something to see.
    assert close.mean() > 0.95  # At edges, the ground's cells of 2 cm are what is shown.
    np.testing.assert_allclose(window[..., 1], 0.5 * np.log(VARIANCE_RANGE_M2[0]) + 0.5)
    robot.close()


def test_beyond_the_ground_a_true_map_knows_nothing():
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom type='plane' size='0 0 1'/></worldbody></mujoco>")
    ground, heights = ground_of(model, Goal(1.0, 0.0, 0.0))
    robot = MujocoRobot(GO2, visuals=False)
    robot.connect()
    robot.reset(pos_xy_m=(30.0, 0.0))
    elevation, variance = TrueMap(CONTRACT, ground, heights).around(robot.read())
    assert elevation.shape == around_of(grid_of(CONTRACT.map_window)).shape
    assert (variance == 10.0).all()
    robot.close()


# -- the global feature ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_exported_network_tells_which_cells_its_global_feature_took(bundle):
    overview = overview_of(bundle.model_bytes, CONTRACT.map_window)
    assert overview is not None
    observations = torch.from_numpy(golden_data(CONTRACT, steps=20, seed=5)["observation"])
    with torch.inference_mode():
        expected = network().encoder.overview_cells(observations).numpy()
    for observation, shares in zip(observations.numpy(), expected, strict=True):
        np.testing.assert_allclose(overview(observation[None]), shares, atol=1e-6)
    assert (expected > 0).sum(axis=(1, 2)).min() > 1


@pytest.mark.slow
def test_a_network_without_a_global_feature_tells_nothing(tmp_path):
    found = overview_of(export(tmp_path / "b", "ame1").model_bytes, CONTRACT.map_window)
    assert found is None


# -- walks -------------------------------------------------------------------------------------------------------------


def test_moments_hold_what_the_policy_saw(true_walk):
    walk = true_walk
    assert [moment.time_s for moment in walk.moments] == pytest.approx([0.1 * i for i in range(len(walk.moments))])
    assert len(walk.moments) in (5, 6)
    assert walk.fps == 10.0
    assert not walk.reached
    assert walk.title == "Go2 on t1_stones"
    for moment in walk.moments:
        assert moment.attention.sum() == pytest.approx(1.0, abs=1e-5)
        assert moment.overview.sum() == pytest.approx(1.0)
        row, col, inside = walk.around.index_of(walk.window.cell_centers(np.zeros(1)))
        assert inside.all()
        zero = moment.pos_base_in_world_m[2] - walk.nominal_base_height_m
        shown = np.clip(moment.elevation_in_world_m[row, col] - zero, -2.0, 2.0)
        # Two lookups of the same ground, half a cell of the drawing apart at most.
        assert (np.abs(shown - moment.seen[..., 0]) < 0.05).mean() > 0.7


def test_on_the_start_the_map_is_level_under_the_robot_and_is_drawn_so(true_walk):
    film = AttentionFilm(true_walk)
    first = true_walk.moments[0]
    beside = true_walk.window.cell_centers(np.zeros(1))[2, 1]
    assert abs(first.seen[2, 1, 0]) < 0.05
    row, col = np.round(film.side.pixel(beside)).astype(int)
    drawn = film.around_robot(first)["seen"][row, col]
    np.testing.assert_allclose(drawn, maps.height_colours(first.seen[2, 1, 0]), atol=1e-6)


@pytest.mark.slow
def test_through_the_camera_the_map_grows_and_is_unsure_of_what_it_has_not_seen(bundle):
    walk = attention_rollout(bundle, AttentionRolloutCfg("t1", seconds=0.6, fps=5.0))
    assert walk.map_source == "depth camera, classical"
    first, last = walk.moments[0], walk.moments[-1]
    known = last.variance_m2 < 0.5 * walk.prior_variance_m2
    assert 0.05 < known.mean() < 0.95
    assert first.seen[..., 1].max() > first.seen[..., 1].min()


@pytest.mark.slow
def test_what_cannot_be_shown_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="shows no attention"):
        attention_rollout(export(tmp_path / "silent", attention=False), AttentionRolloutCfg())
    walking = tiny_bundle(tmp_path / "walking", contract_for(GO2))
    with pytest.raises(ContractError, match="'command/body/velocity'"):
        attention_rollout(walking, AttentionRolloutCfg())
    with pytest.raises(UnknownNameError, match="camera"):
        AttentionRolloutCfg(map_source="camra")
    with pytest.raises(GantryError, match="'fps'"):
        AttentionRolloutCfg(fps=0.0)


def test_an_unknown_terrain_is_answered_with_those_that_there_are(bundle):
    with pytest.raises(GantryError, match="t1_stones"):
        attention_rollout(bundle, replace(AttentionRolloutCfg(), terrain="t1_stonse", map_source="truth"))


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_play_writes_a_film_and_a_report(bundle, tmp_path):
    video, report, result = tmp_path / "t2.mp4", tmp_path / "t2.html", tmp_path / "t2.json"
    arguments = ["--video", str(video), "--report", str(report), "--json", str(result), "--seconds", "0.4"]
    assert main(["play", str(bundle.path), "--attention", "--terrain", "t2", "--map", "truth", *arguments]) == 0
    assert video.read_bytes()[4:8] == b"ftyp"
    assert "Go2 on t2_course" in report.read_text(encoding="utf-8")
    (walk,) = json.loads(result.read_text())["walks"]
    assert walk["map"] == "the truth"
    assert walk["reached"] is False
    assert 5.0 < walk["distance_m"] < 8.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attention"], "--video FILE.mp4, --report FILE.html"),
        (["--attention", "--video", "a.mp4", "--command", "1,0,0"], "--goal X,Y,YAW"),
        (["--attention", "--video", "a.mp4", "--terrain", "t1", "--terrain", "t2"], "one terrain"),
        (["--attention", "--video", "a.mp4", "--goal", "1,2"], "expected 3"),
        (["--attention", "--video", "a.mp4", "--map", "camra", "--seconds", "1"], "camera"),
        (["--attention", "--report", "no/such/a.html"], "does not exist"),
        (["--attention", "--video", "a.mp4", "--scores", "a.json"], "shown in a report"),
        (["--attention", "--report", "a.html", "--scores", "missing.json"], "Cannot read the scores"),
        (["--video", "a.mp4", "--terrain", "t1"], "belongs to --attention"),
        (["--video", "a.mp4"], "can be watched with --attention"),
    ],
)
def test_mistakes_are_named(bundle, tmp_path, capsys, arguments, message):
    assert main(["play", str(bundle.path), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a.mp4").exists()

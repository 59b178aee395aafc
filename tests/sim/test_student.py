"""Students: training maps as the robot does, teachers must fit, and a training under one goes on and exports."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli import main as cli
from gantry_deploy.evaluation.gate import check_static
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_mapping.elevation.grid import WINDOW_FULL, WINDOW_STEPS
from gantry_mapping.learn.march import march_depth
from gantry_mapping.learn.noise import CLEAN
from gantry_mapping.mapper import OnnxMapper
from gantry_mapping.pipeline import MappingPipeline, uncertainty_of
from gantry_policies.common.checkpoint import list_checkpoints, load_newest
from gantry_policies.on_policy.teacher_guided import TeacherGuidedPPO
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.goal.cfg import GroundCfg
from gantry_sim.tasks.goal.mapping import NO_DRIFT, StudentMap, StudentMapCfg, mapper_path, mapping_cfg
from gantry_sim.tasks.goal.observations import CLEAN_VARIANCE_M2
from gantry_sim.tasks.goal.state import GoalState
from gantry_sim.tasks.registry import find_task
from gantry_sim.terrains.rasters import TerrainRasters
from gantry_sim.training.policies import open_source
from gantry_sim.training.run_folder import RunCfg, RunError, check_run, create_run, read_run
from gantry_sim.training.teachers import copy_teacher, load_teacher
from gantry_sim.training.train import build_trainer, export_run, open_trained, train

SMALL = GroundCfg(kinds=("boxes", "gap"), levels=2, columns=3, tile_m=(8.0, 8.0), start_levels=1)
HEIGHT_M = 0.3


pytestmark = pytest.mark.usefixtures("one_thread")


def steps_raster():
    """Steps of 10 cm every metre along x, 12 m x 6 m around the origin."""
    x = -6.0 + 0.04 * (np.arange(300) + 0.5)
    heights = np.repeat((0.1 * np.floor(x))[:, None], 150, axis=1).astype(np.float32)
    return TerrainRasters(heights, heights, 0.04, (-6.0, -3.0))


def make_map(num_envs=3, cfg=None, **options):
    cfg = cfg or StudentMapCfg(source="pipeline")
    return StudentMap(cfg, mapping_cfg(cfg, "go2", HEIGHT_M), steps_raster(), num_envs, 0.02, **options)


def poses(step, num_envs=3):
    """Robots that walk up the steps, each another way."""
    x = -1.0 + 0.02 * step + 0.3 * torch.arange(num_envs)
    pos = torch.stack((x, 0.1 * torch.arange(num_envs), 0.1 * torch.floor(x) + HEIGHT_M), dim=-1)
    yaw = 0.3 * torch.arange(num_envs) + 0.005 * step
    zero = torch.zeros(num_envs)
    return pos, torch.stack((torch.cos(yaw / 2), zero + 0.02, zero - 0.03, torch.sin(yaw / 2)), dim=-1)


# -- the map -------------------------------------------------------------------------------------------------------


def test_the_loop_maps_as_the_robot_does():
    """The robot's pipeline in numpy, one environment, fed with the same images at the poses that odometry told."""
    torch.manual_seed(3)
    made = make_map(num_envs=2)
    made.reset(slice(None))
    robot = MappingPipeline(made.pipeline.cfg, OnnxMapper(mapper_path(made.cfg)), np.zeros((1, 1), np.float32))
    frames = 0
    for step in range(30):
        made.observe(*poses(step, 2), step)
        robot.advance(0.02)
        if 0 in made.fresh_rows:
            frames += 1
            depth = made.depth_m[made.fresh_rows.tolist().index(0)]
            robot.update(depth[None].numpy(), made.pos[:1].numpy(), made.quat[:1].numpy())
        expected = robot.window(WINDOW_STEPS, made.pos[:1].numpy(), made.quat[:1].numpy())
        assert np.abs(made.window(WINDOW_STEPS)[:1].numpy() - expected).max() < 1e-4
    assert frames in (6, 7)
    assert (made.window(WINDOW_STEPS)[0, ..., 1] < 0.0).float().mean() > 0.3


def test_depth_is_that_of_the_ground():
    made = make_map(flaws=False)
    made.observe(*poses(0), 0)
    first = made.depth_m
    for step in range(1, 60):  # a cell's variance no more than halves with each frame
        made.observe(*poses(0), step)
    camera = made.pipeline.cfg.cameras[0]
    raster = steps_raster()
    exact = march_depth(torch.from_numpy(raster.mapped_m), 0.04, raster.corner_m, camera, *poses(0))
    assert (first - exact).abs().median() < 0.01
    seen = made.window(WINDOW_STEPS)
    sure = seen[..., 1] < -1.0
    x = WINDOW_STEPS.cell_centers(torch.zeros(1))[..., 0] + poses(0)[0][0, 0]
    truth = 0.1 * torch.floor(x) - (poses(0)[0][0, 2] - HEIGHT_M)
    assert sure[0].any()
    assert (seen[0, ..., 0] - truth)[sure[0]].abs().median() < 0.05


def test_frames_come_at_the_cameras_rate_and_in_another_phase_each():
    torch.manual_seed(0)
    made = make_map(num_envs=50, cfg=StudentMapCfg(source="pipeline", mapper="", camera_hz=10.0))
    counts, sizes = torch.zeros(50), []
    for step in range(26):
        made.observe(*poses(0, 50), step)
        counts[made.fresh_rows] += 1
        sizes.append(len(made.fresh_rows))
    assert sizes[0] == 50  # everybody's episode begins with a frame
    assert set((counts - 1).tolist()) <= {4.0, 5.0, 6.0}
    assert max(sizes[1:]) < 25
    made.observe(*poses(0, 50), 25)  # a second look in the same step
    assert len(made.fresh_rows) == 0
    made.reset(torch.tensor([7]))
    made.observe(*poses(0, 50), 25)
    assert made.fresh_rows.tolist() == [7]


def test_a_reset_forgets_one_map_and_one_drift():
    made = make_map(query_drift_m=0.03)
    for step in range(40):
        made.observe(*poses(step), step)
    drifted = made.pos - poses(39)[0]
    assert (drifted.norm(dim=-1) > 1e-4).all()
    made.reset(torch.tensor([1]))
    made.skipped[1] = True
    made.observe(*poses(40), 40)
    assert torch.equal(made.pos[1], poses(40)[0][1])
    assert (made.pos - poses(40)[0])[[0, 2]].norm(dim=-1).min() > 1e-4
    window = made.window(WINDOW_STEPS)
    assert (window[1, ..., 1] > 0.84).all()  # no frame, for it is skipped: nothing is known
    assert (window[0, ..., 1] < 0.0).any()


def test_without_flaws_odometry_is_right_and_images_are_clean():
    cfg = StudentMapCfg(source="pipeline")
    made, other = (
        make_map(flaws=False, query_drift_m=0.03),
        make_map(cfg=replace(cfg, depth_noise=CLEAN, drift=NO_DRIFT)),
    )
    for step in range(12):
        made.observe(*poses(step), step)
        assert torch.equal(made.pos, poses(step)[0])
    made.reset(slice(None)), other.reset(slice(None))
    for one in (made, other):
        one.observe(*poses(20), 20)
    assert torch.equal(made.depth_m, other.depth_m)
    assert (made.depth_m > 0).float().mean() > 0.5


def test_the_displacement_of_an_episode_moves_the_window():
    """Looking 3 cm too low and to the side shows the ground 3 cm too high and shifted."""
    made = make_map(flaws=False)
    made.observe(*poses(0), 0)
    before = made.window(WINDOW_STEPS)
    made._displaced[:, 2] = 0.03
    after = made.window(WINDOW_STEPS)
    assert torch.allclose(after[..., 0], (before[..., 0] + 0.03).clamp(-2.0, 2.0), atol=1e-5)
    assert torch.equal(after[..., 1], before[..., 1])


def test_mistakes_in_the_map_are_named():
    with pytest.raises(UnknownNameError, match="Did you mean 'pipeline'"):
        StudentMapCfg(source="pipelin")
    with pytest.raises(UnknownNameError, match="Did you mean 'mapper-go2'"):
        mapper_path(StudentMapCfg(mapper="mapper-go"))
    with pytest.raises(GantryError, match="camera_hz is 0"):
        StudentMapCfg(camera_hz=0.0)
    g1 = find_task("ame2-g1").preset("cpu").env
    with pytest.raises(GantryError, match="expected 'mapper-g1'"):
        replace(g1, observer="student", student_map=StudentMapCfg(source="pipeline"))
    classical = replace(g1, observer="student", student_map=StudentMapCfg(source="pipeline", mapper=""))
    assert find_task("ame2-g1").contract(classical).map_window.mapping.fusion == "kalman"


# -- the environment -----------------------------------------------------------------------------------------------


def student_preset(num_envs=4, **changes):
    preset = find_task("ame2-go2-student").preset("cpu")
    return replace(preset, env=replace(preset.env, num_envs=num_envs, ground=SMALL, **changes))


def test_the_environment_shows_the_pipelines_map_and_some_the_truth():
    preset = student_preset(num_envs=12)
    env_cfg = replace(preset.env, noise=replace(preset.env.noise, clean_share=0.5, outlier_share=0.0))
    torch.manual_seed(1)
    with quietly():
        env = find_task("ame2-go2-student").make_env(env_cfg, "cpu", 1).env
        env.reset()
    student_map = env.task_state.sensors.student_map
    with torch.inference_mode():
        for _ in range(60):
            obs = env.step(torch.zeros(12, 12))[0]
    contract = find_task("ame2-go2-student").contract(env_cfg)
    window = obs["actor"][:, -contract.observations[-1].size :].unflatten(1, (18, 10, 2))
    clean = student_map.skipped
    assert 0 < int(clean.sum()) < 12
    truth = GoalState.of(env).window("true_map")
    assert torch.equal(window[clean][..., 0], truth[clean])
    assert torch.allclose(window[clean][..., 1], uncertainty_of(torch.tensor(CLEAN_VARIANCE_M2)))
    assert torch.equal(window[~clean], student_map.window(env_cfg.window)[~clean])
    sure = window[~clean][..., 1] < -1.0
    assert sure.any()
    assert (window[~clean][..., 0] - truth[~clean])[sure].abs().median() < 0.08
    # The gait answers what the student reads, not what its teacher does.
    seen = GoalState.of(env).measured
    assert torch.equal(seen.elevation_map, window)
    assert (
        obs["teacher"].shape[1] == find_task("ame2-go2").contract(replace(env_cfg, observer="teacher")).observation_size
    )


def test_a_contract_says_how_its_map_was_made():
    task = find_task("ame2-go2-student")
    contract = task.contract(task.preset("cpu").env)
    assert type(contract).from_json(contract.to_json()) == contract
    window = contract.map_window
    assert window.mapping.local_grid == OnnxMapper(task.mapper(task.preset("cpu").env)).info.local_grid
    assert len(window.mapper_sha256) == 64
    truth = replace(task.preset("cpu").env, student_map=StudentMapCfg())
    assert task.contract(truth).map_window.mapping is None
    assert task.mapper(truth) is None


def test_nobody_is_given_a_clean_map_in_an_evaluation():
    task = find_task("ame2-go2-student")
    assert task.evaluation(task.preset("cpu").env, num_envs=4).noise.clean_share == 0.0


# -- the teacher ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def teacher_run(tmp_path_factory):
    """A teacher of one iteration: it knows nothing, which is enough to be imitated."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    task = find_task("ame2-go2")
    preset = task.preset("cpu")
    learner = replace(preset.learner, total_steps=96, epochs=1)
    cfg = RunCfg(
        task, "cpu", replace(preset, env=replace(preset.env, num_envs=4, ground=SMALL), learner=learner), "cpu", 1
    )
    create_run(cfg, folder)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    train(cfg, folder)
    torch.set_num_threads(before)
    return folder


def student_run(folder, teacher, iterations):
    preset = student_preset()
    guide = replace(preset.learner.guide, imitation_iterations=2)
    learner = replace(preset.learner, total_steps=96 * iterations, epochs=1, guide=guide)
    cfg = RunCfg(find_task("ame2-go2-student"), "cpu", replace(preset, learner=learner), "cpu", 1, 1, teacher)
    create_run(cfg, folder)
    copy_teacher(teacher, folder)
    return read_run(folder)


@pytest.mark.slow
def test_a_student_trains_under_its_teacher_resumes_and_exports(teacher_run, tmp_path):
    cfg = student_run(tmp_path / "student", teacher_run, iterations=4)
    folder = tmp_path / "student"
    assert cfg.teacher == folder / "teacher"
    assert cfg.preset.env.student_map.mapper == str(folder / "mapper.onnx")
    phases, losses = [], []

    runner = build_trainer(cfg, folder)

    def watch(progress):
        phases.append(runner.alg.imitating)
        losses.append(progress.metrics["loss_imitation"])
        if progress.done == 3:
            runner.stop()

    assert isinstance(runner.alg, TeacherGuidedPPO)
    runner.train(watch)
    assert phases == [True, True, False]
    assert losses[1] < losses[0]
    state = load_newest(folder / "checkpoints")[1]
    again, complete = train(cfg, folder, resume=True)
    assert complete
    assert again.iteration == 4
    assert not again.alg.imitating
    assert any(
        not torch.equal(value, state["actor_state_dict"][name]) for name, value in again.alg.actor.state_dict().items()
    )
    # Without its teacher's folder and the package's mapper, which may both be gone.
    opened, trained = open_trained(folder)
    bundle = load_bundle(export_run(opened, folder, trained))
    assert bundle.mapper_bytes == (folder / "mapper.onnx").read_bytes()
    assert str(tmp_path) not in json.dumps(bundle.card)
    check_static(lambda: bundle, lambda *stage: None)
    source = open_source(folder / "bundle")
    assert Path(source.env_cfg.student_map.mapper).read_bytes() == bundle.mapper_bytes


@pytest.mark.soak
def test_two_resumes_of_one_run_come_out_alike(teacher_run, tmp_path):
    cfg = student_run(tmp_path / "student", teacher_run, iterations=3)
    folder = tmp_path / "student"
    runner = build_trainer(cfg, folder)
    runner.train(lambda progress: runner.stop() if progress.done == 1 else None)
    ends = []
    for _ in range(2):
        for extra in list_checkpoints(folder / "checkpoints")[1:]:
            extra.unlink()
        again = build_trainer(cfg, folder)
        again.resume()
        assert again.iteration == 1
        again.run_dir = None
        again.train()
        ends.append(torch.cat([values.flatten() for values in again.alg.actor.parameters()]))
    assert torch.equal(*ends)


def test_a_teacher_that_does_not_fit_is_refused(teacher_run, tmp_path):
    student = find_task("ame2-go2-student")
    preset = student_preset()
    with pytest.raises(RunError, match="--teacher RUN"):
        check_run(RunCfg(student, "cpu", preset, "cpu", 1))
    with pytest.raises(RunError, match="leave out --teacher"):
        check_run(RunCfg(find_task("ame2-go2"), "cpu", find_task("ame2-go2").preset("cpu"), "cpu", 1, 1, teacher_run))
    other = replace(preset, env=replace(preset.env, scaled=False))
    with pytest.raises(RunError, match="another observations"):
        load_teacher(RunCfg(student, "cpu", other, "cpu", 1, 1, teacher_run))
    with pytest.raises(RunError, match="is no run folder"):
        load_teacher(RunCfg(student, "cpu", preset, "cpu", 1, 1, tmp_path))


def test_a_student_takes_over_what_it_must_share_with_its_teacher(teacher_run):
    """Gait and window of the teacher's run, nothing of its terrain, and nothing of another robot's."""
    student, run = find_task("ame2-go2-student"), read_run(teacher_run)
    taught = replace(run.preset.env, gait="strides", window=WINDOW_FULL)
    env = student_preset().env
    found = student.follow(env, taught)
    assert found == replace(env, gait="strides", window=WINDOW_FULL)
    assert student.contract(found).gait == find_task("ame2-go2").contract(taught).gait
    assert student.follow(env, find_task("ame2-g1").preset("gpu").env) == env
    assert student.follow(env, find_task("drive-lane").preset("cpu").env) == env


def test_the_command_writes_nothing_for_a_wrong_teacher(tmp_path, capsys):
    (tmp_path / "no-run").mkdir()
    words = ["train", "ame2-go2-student", "--run-dir", "student"]
    assert cli.main([*words, "--teacher", "no-run"]) != 0
    assert "is no run folder" in capsys.readouterr().err
    assert cli.main(words) != 0
    assert "--teacher RUN" in capsys.readouterr().err
    assert not (tmp_path / "student").exists()


def test_a_run_says_whose_student_it_is(teacher_run, tmp_path):
    student_run(tmp_path / "student", teacher_run, iterations=2)
    assert json.loads((tmp_path / "student" / "config.json").read_text())["teacher"] == str(teacher_run)

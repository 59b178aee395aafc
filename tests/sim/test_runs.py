"""Run folders and the training commands: what is written, what is refused, and in which words."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from gantry_deploy.bundle.bundle import load_bundle, update_card, write_bundle
from gantry_deploy.cli import main as cli
from gantry_deploy.errors import BundleError
from gantry_hardware.errors import GantryError
from gantry_hardware.training.log import read_metrics
from gantry_policies.common.checkpoint import CheckpointError
from gantry_sim.cli.common import steps
from gantry_sim.tasks.registry import find_task
from gantry_sim.training.policies import open_source
from gantry_sim.training.run_folder import RunCfg, RunError, check_run, create_run, hold_run, read_run
from gantry_sim.training.train import build_trainer, open_trained

GO2 = "velocity-flat-go2"
SMALL = (
    "env.num_envs=16",
    "env.episode_s=2.0",
    "learner.total_steps=768",
    "learner.hidden=[16]",
    "learner.critic_hidden=[16]",
)


pytestmark = pytest.mark.usefixtures("one_thread")
"""Everything is written below the temporary folder, by one thread."""


def configured(**env):
    preset = find_task(GO2).preset("cpu")
    return RunCfg(find_task(GO2), "cpu", replace(preset, env=replace(preset.env, **env)), "cpu", 1)


def gantry(capsys, *words):
    code = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def small_training(*words):
    return ["train", GO2, *words, *(word for change in SMALL for word in ("--set", change))]


# -- mistakes on the command line ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["velocity-flat-go3"], "Unknown task 'velocity-flat-go3'. Did you mean 'velocity-flat-go2'?"),
        (
            [GO2, "--preset", "cpuu"],
            "Unknown preset of velocity-flat-go2 'cpuu'. Did you mean 'cpu'? Available: cpu, cpu-wide, gpu, gpu-wide.",
        ),
        ([GO2, "--set", "env.num_env=4"], "Unknown field 'num_env'. Did you mean 'num_envs'?"),
        ([GO2, "--set", "num_envs=4"], "Did you mean 'env.num_envs'?"),
        ([GO2, "--set", "env.num_envs=4", "env.episode_s=4"], "Say --set before each change: --set env.episode_s=4."),
        ([GO2, "--set", "env.num_envs"], "--set env.num_envs: expected FIELD=VALUE"),
        ([GO2, "--set", "env.num_envs=many"], "env.num_envs is 'many', expected a whole number."),
        ([GO2, "--set", "env.num_envs=0"], "env.num_envs is 0, expected at least 1."),
        ([GO2, "--set", "env.robot=go1"], "Task 'velocity-flat-go2' is for robot 'go2', env.robot is 'go1'."),
        ([GO2, "--set", "env.robot=go3"], "Unknown robot 'go3'. Did you mean"),
        ([GO2, "--set", "learner.activation=relo"], "Did you mean 'relu'?"),
        ([GO2, "--set", "env.num_envs=1", "--set", "learner.minibatches=16"], "too few samples for 16 minibatches"),
        ([GO2, "--device", "cdua:0"], "Unknown device 'cdua:0'. Expected cpu, or a CUDA device such as cuda:0."),
        ([GO2, "--device", "cuda:77"], "Device 'cuda:77' was asked for, but torch sees no such device. Available: cpu"),
        ([GO2, "--seed", "10007"], "Seed 10007 is held out for evaluation; take another."),
        ([GO2, "--seed", "-1"], "Seed -1 is out of range"),
        ([GO2, "--episodes", "-1"], "'-1' is no whole number from 0"),
        ([GO2, "--run-dir", "file/run"], "Cannot write in 'file/run': Not a directory."),
        ([GO2, "--json", "missing/result.json"], "folder 'missing' does not exist"),
        ([GO2, "--sed", "3"], "Did you mean '--seed'?"),
        ([], "Name a task (see `gantry tasks`), or a run to continue with --resume FOLDER."),
        (["--resume", "missing"], "'missing' is no run folder: there is no config.json in it."),
        (["--resume", "file"], "'file' is no run folder: there is no config.json in it."),
        (["--resume", "file", "--seed", "2"], "leave out everything but --steps, and --set of fields that"),
        ([GO2, "--resume", "file"], "leave out everything but --steps, and --set of fields that"),
        (["--resume", "file", "--steps", "2k"], "'file' is no run folder"),
        (["--resume", "file", "--steps", "1k", "--set", "learner.total_steps=5"], "'file' is no run folder"),
        ([GO2, "--steps", "few"], "'few' is no number of steps; expected for example 200000, 200k or 1.5M"),
        ([GO2, "--steps", "0"], "'0' is no number of steps"),
        ([GO2, "--steps", "1k", "--set", "learner.total_steps=5"], "mean the same; give one of them."),
        ([GO2, "--set", "total_steps=5"], "Did you mean 'learner.total_steps'?"),
        ([GO2, "--run-dir", "."], "'.' is in use already; name another folder."),
    ],
)
def test_a_mistake_is_one_message_and_nothing_is_written(capsys, tmp_path, words, message):
    (tmp_path / "file").write_text("no folder")
    code, out, err = gantry(capsys, "train", *words)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert message in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eval", "missing"], "There is no run folder and no bundle at missing."),
        (["eval", "shrot.key"], "Did you mean 'short.key'?"),
        (["eval", "missing", "--episodes", "0"], "--episodes is 0, expected at least 1."),
        (["eval", "ame2-go3", "--scripted"], "Did you mean 'ame2-go2'?"),
        (["eval", "velocity-flat-go2", "--scripted"], "Task 'velocity-flat-go2' has no scripted policy"),
        (["eval", "drive-race", "--scripted"], "Task 'drive-race' has no scripted policy"),
        (["export", "missing"], "'missing' is no run folder"),
        (["export", "missing", "--zip", "no/such.zip"], "folder 'no' does not exist"),
        (["export", "missing", "--zip", "walk.tar"], "'walk.tar' does not end in .zip"),
        (["export", "pretrained:go2-walk"], "is a bundle already, expected the folder of a training run."),
        (["export", "missing", "--private-key", "no.key"], "Cannot read the key 'no.key': No such file or directory."),
        (["export", "missing", "--private-key", "short.key"], "The key 'short.key' has 3 bytes, expected 32"),
        (["tasks", "velocity-flat-go3"], "Did you mean 'velocity-flat-go2'?"),
    ],
)
def test_mistakes_with_other_commands(capsys, tmp_path, words, message):
    (tmp_path / "short.key").write_bytes(b"abc")
    code, _, err = gantry(capsys, *words)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_physics_step_that_does_not_divide_the_control_step_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"A control step lasts 0\.021 s here, the policy's contract says 50 Hz"):
        build_trainer(configured(num_envs=2, physics_dt_s=0.007), None)


def test_a_failed_start_does_not_bar_the_folder(capsys, tmp_path):
    broken = ["--set", "env.physics_dt_s=0.007", "--run-dir", "run", "--episodes", 0, "--no-export"]
    assert gantry(capsys, *small_training(*broken))[0] == 2
    assert gantry(capsys, *small_training("--run-dir", "run", "--episodes", 0, "--no-export"))[0] == 0
    code, _, err = gantry(capsys, *small_training("--run-dir", "run"))
    assert (code, err.strip()) == (
        2,
        "Error: 'run' already holds a run. Continue it with --resume run, or name another folder.",
    )


@pytest.mark.parametrize("left", ["notes.txt", "config.json", "checkpoints", "teacher"])
def test_a_folder_that_somebody_uses_is_left_as_it_is(capsys, tmp_path, left):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / left).write_text("{}")
    code, out, err = gantry(capsys, *small_training("--run-dir", "mine"))
    assert (code, out, err) == (2, "", "Error: 'mine' is in use already; name another folder.\n")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [left]
    with pytest.raises(RunError, match="in use already"):
        create_run(configured(), tmp_path / "mine")


def test_typos_are_answered_without_the_learning_libraries(tmp_path):
    """Loading torch and the simulator takes seconds, which nobody should wait to be told of a typo."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    typos = (
        ["train", "velocity-flat-go3"],
        ["train", GO2, "--run-dir", "used"],
        ["train", "--resume", "used"],
        ["tasks", "velocity-flat-go3"],
        ["demo", "--output", "used"],
        ["demo", "--bundle", "nothing"],
        ["demo", "--task", "velocity-flat-go3"],
        ["export", "used"],
        ["eval", "nothing"],
        ["play", "nothing", "--video", "a.mp4"],
    )
    code = (
        "import sys\nfrom gantry_deploy.cli.main import main\n"
        f"codes = [main(words) for words in {typos!r}]\n"
        "print(codes, [name for name in ('torch', 'mjlab', 'mujoco') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout == f"{[2] * len(typos)} []\n", done.stderr
    assert len(done.stderr.splitlines()) == len(typos)


@pytest.mark.parametrize(
    ("text", "number"), [("200000", 200_000), ("200k", 200_000), ("1.5M", 1_500_000), ("3e6", 3_000_000)]
)
def test_steps_in_words(text, number):
    assert steps(text) == number


# -- a whole small run ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_train_evaluate_export_and_what_is_left_behind(capsys, tmp_path):
    code, out, err = gantry(
        capsys, *small_training("--run-dir", "run", "--episodes", 2, "--seed", 4, "--json", "r.json")
    )
    assert code == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["env_steps"], result["seed"], result["run"]) == (768, 4, "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names >= {
        "config.json",
        "contract.json",
        "metrics.jsonl",
        "checkpoints",
        "tensorboard",
        "evaluation.json",
        "bundle",
    }
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["env"]["num_envs"] == 16
    assert record["learner"]["hidden"] == [16]
    assert {"git_commit", "machine", "packages", "created_utc", "learn_threads"} <= record.keys()
    assert [session["done"] for session in record["sessions"]] == [0]
    for row in read_metrics(tmp_path / "run" / "metrics.jsonl", "train"):
        assert row["reward_per_s"] == pytest.approx(50.0 * row["reward"], rel=1e-4)
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation == json.loads(json.dumps(result["evaluation"]))
    assert evaluation["full_model"]["episodes"] == 2
    assert {"drift_m_s", "fall_rate"} <= evaluation["full_model"]["standing"].keys()
    assert "2 held-out episodes, full model, seed 10007: mean, and its 95 % interval in brackets" in out
    assert re.search(
        r"^FAIL  mean planar velocity error +\d\.\d+ m/s, 95 % interval .*, allowed 0\.15 m/s(; more .*)?$",
        out,
        re.M,
    )
    assert result["passed"] is False
    assert re.search(r"standing, drift \(m/s\) +0\.\d+ +\[", out)
    bundle = load_bundle(tmp_path / "run" / "bundle")
    provenance = bundle.contract.provenance
    assert (provenance.task, provenance.seed, provenance.env_steps) == (GO2, 4, 768)
    assert len(bundle.golden["observation"]) >= 1000
    assert "Next:   gantry check run/bundle" in out
    assert "Warp" not in err

    what_was_recorded_and_what_is_read_back_agree(capsys, record, evaluation)


def what_was_recorded_and_what_is_read_back_agree(capsys, record, evaluation):
    # What was recorded passes every comparison of the gate, and the gate leaves the configuration in the card.
    assert gantry(capsys, "check", "run/bundle", "--episodes", 1, "--seconds", 1, "--perturbations", "none")[0] in (
        0,
        1,
    )
    card = load_bundle("run/bundle").card
    assert card["training"]["env"] == record["env"]
    assert "verdict" in card["check"]

    # The bundle, the run, and the checkpoint say the same thing about the same policy.
    shown = [
        gantry(capsys, "eval", source, "--episodes", 2, "--model", "training", "--json", "-")
        for source in ("run", "run/bundle")
    ]
    assert [code for code, _, _ in shown] == [1, 1]  # It has hardly learned, and the answer is no.
    scores = [json.loads(out)["training_model"] for _, out, _ in shown]
    assert scores[0]["fall_rate"] == scores[1]["fall_rate"]
    assert scores[0]["lin_vel_error_m_s"]["mean"] == pytest.approx(scores[1]["lin_vel_error_m_s"]["mean"], abs=1e-3)
    assert scores[0] == evaluation["training_model"]
    code, _, _ = gantry(capsys, "export", "run", "--output", "again", "--zip", "again.zip")
    assert code == 0
    bundle = load_bundle("run/bundle")
    assert load_bundle("again.zip").golden.keys() == bundle.golden.keys()
    for name, values in load_bundle("again").golden.items():
        torch.testing.assert_close(torch.tensor(values), torch.tensor(bundle.golden[name]), atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """The bundle of a run that learned slow commands, next to its run."""
    folder = tmp_path_factory.mktemp("narrow") / "run"
    change = ["--set", "env.lin_vel_x_m_s=[-0.2,0.3]", "--set", "env.episode_s=1.0"]
    words = small_training("--run-dir", folder, "--episodes", 0, "--seed", 5, *change)
    assert cli.main([str(word) for word in words]) == 0
    return folder


@pytest.mark.slow
def test_a_bundle_is_scored_as_it_was_trained(narrow, tmp_path):
    """Changes to the preset are part of the task, so they travel with the bundle."""
    sources = [open_source(narrow), open_source(narrow / "bundle")]
    assert sources[0].env_cfg == sources[1].env_cfg
    assert sources[1].env_cfg.lin_vel_x_m_s == (-0.2, 0.3)
    bundle = load_bundle(narrow / "bundle")
    silent = write_bundle(
        tmp_path / "silent", contract=bundle.contract, model_bytes=bundle.model_bytes, golden=bundle.golden
    )
    with pytest.raises(GantryError, match=r"today:\n  command\.lower is .*-0\.2.* in the bundle, .* today"):
        open_source(silent)
    update_card(silent, {"training": {"env": {"num_envz": 3}}})
    with pytest.raises(BundleError, match="Did you mean 'num_envs'"):
        open_source(silent)
    update_card(silent, {"training": 3})
    with pytest.raises(BundleError, match=r"card\.json: training is 3, expected an object"):
        open_source(silent)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["run", "bundle"])
def test_episodes_with_the_seed_of_the_training_are_not_held_out(narrow, capsys, source):
    path = narrow if source == "run" else narrow / "bundle"
    code, _, err = gantry(capsys, "eval", path, "--seed", 5, "--episodes", 1)
    assert code == 2
    assert "Seed 5 is the one that" in err
    code, out, _ = gantry(capsys, "eval", path, "--seed", 6, "--episodes", 1, "--model", "training")
    assert code == (1 if "FAIL" in out else 0)
    assert "mean planar velocity error" in out


def test_a_result_on_standard_output_is_json_and_nothing_else(capsys):
    for words in (["tasks"], ["tasks", GO2], small_training("--episodes", 0, "--no-export")):
        code, out, _ = gantry(capsys, *words, "--json", "-")
        assert code == 0
        assert isinstance(json.loads(out), dict)


def test_tasks_lists_every_task_with_the_fields_of_its_presets(capsys):
    _, out, _ = gantry(capsys, "tasks")
    for name, presets in (
        ("velocity-flat-go1", "4 presets"),
        ("velocity-flat-go2", "4 presets"),
        ("velocity-flat-g1", "cpu/gpu"),
        ("velocity-rough-go2", "cpu/gpu"),
    ):
        assert any(line.startswith(name) and presets in line for line in out.splitlines())
    _, out, _ = gantry(capsys, "tasks", GO2)
    for field in ("env.num_envs", "learner.learning_rate"):
        assert sum(line.split()[:1] == [field] for line in out.splitlines()) == 1
    assert "fields of preset cpu" in out
    _, out, _ = gantry(capsys, "tasks", GO2, "--preset", "gpu")
    assert "fields of preset gpu" in out


@pytest.mark.slow
def test_no_warning_about_a_gpu_that_nobody_asked_for():
    """Warp writes it from C, so that only a process of its own shows it."""
    code = (
        "from dataclasses import replace\n"
        "from gantry_sim.tasks.registry import find_task\n"
        f"task = find_task('{GO2}')\n"
        "task.make_env(replace(task.preset('cpu').env, num_envs=2), 'cpu', 1)\n"
        "import sys; print('still here', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0
    assert "CUDA driver. GPU execution" not in done.stderr
    assert done.stderr.splitlines()[-1] == "still here"


# -- run folders ---------------------------------------------------------------------------------------------------


def test_a_configuration_comes_back_as_it_was_written(tmp_path):
    cfg = configured(num_envs=77, friction=(0.3, 0.9), noise=None, reward_weights={"tilt": -0.25})
    create_run(cfg, tmp_path / "run")
    found = read_run(tmp_path / "run")
    assert (found.preset, found.device, found.seed, found.task.name) == (cfg.preset, "cpu", 1, GO2)


def damage_json(path):
    path.write_text(path.read_text()[:-20])


def damage_bytes(path):
    path.write_bytes(b"\xff\xfe\x00")


def drop_seed(path):
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "seed"}))


def other_field(path):
    path.write_text(path.read_text().replace('"num_envs"', '"num_env"'))


def other_task(path):
    path.write_text(path.read_text().replace(GO2, "velocity-flat-go9"))


def a_list(path):
    path.write_text("[]")


def deep_lists(path):
    path.write_text("[" * 100_000)


def drop_algorithm(path):
    values = json.loads(path.read_text())
    del values["algorithm"]
    path.write_text(json.dumps(values))


def seed_twice(path):
    path.write_text(path.read_text().replace('"seed":', '"seed": 7, "seed":', 1))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_json, r"config\.json' is no JSON"),
        (damage_bytes, r"config\.json' is no UTF-8 text"),
        (deep_lists, r"config\.json' is nested deeper"),
        (seed_twice, r"config\.json' has the key 'seed' twice"),
        (drop_seed, "is damaged: KeyError 'seed'"),
        (drop_algorithm, r"is a run of a version before 0\.2\.0: its config\.json names no algorithm"),
        (a_list, "is a JSON list, expected an object"),
        (other_field, r"Unknown field in .*config\.json: env 'num_env'\. Did you mean 'num_envs'"),
        (other_task, "Unknown task 'velocity-flat-go9'. Did you mean 'velocity-flat-go"),
    ],
)
def test_a_damaged_configuration_is_one_message(capsys, tmp_path, damage, message):
    create_run(configured(), tmp_path / "run")
    damage(tmp_path / "run" / "config.json")
    code, _, err = gantry(capsys, "train", "--resume", "run")
    assert code == 2
    assert re.search(message, err)
    assert len(err.splitlines()) == 1


def test_a_run_is_held_by_one_at_a_time(tmp_path):
    with hold_run(tmp_path):
        with pytest.raises(RunError, match="is being trained by another process"), hold_run(tmp_path):
            pass
        with pytest.raises(RunError, match="is being trained by another process"):
            create_run(configured(), tmp_path)
    with hold_run(tmp_path):
        pass
    create_run(configured(), tmp_path)


def test_what_works_is_not_refused():
    check_run(configured(num_envs=1))


def test_a_run_without_a_checkpoint_cannot_be_opened(tmp_path):
    create_run(configured(), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"No usable checkpoint in .*There are no model_\*\.pt files"):
        open_trained(tmp_path / "run")

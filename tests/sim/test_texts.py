"""Short texts of the training commands: amounts, labels, notices, and the fields of a preset with their meanings."""

import pytest
import torch

from gantry_deploy.cli.main import main
from gantry_deploy.cli.parser import GantryParser
from gantry_hardware.training.trainer import Progress
from gantry_sim.cli.common import ProgressBar, amount_text, cpu_notice, score_label, steps, steps_text
from gantry_sim.cli.way_back import cost_text

TASK = "velocity-flat-go2"


@pytest.mark.parametrize(
    ("count", "amount", "option"),
    [
        (768, "768", "768"),
        (20_000, "20.0 k", "20k"),
        (204_800, "204.8 k", "204.8k"),
        (999_999, "1.00 M", "999999"),
        (1_500_000, "1.50 M", "1.5M"),
    ],
)
def test_amounts_have_the_unit_that_suits_them(count, amount, option):
    assert (amount_text(count), steps_text(count), steps(option)) == (amount, option, count)


def test_progress_is_never_more_than_the_whole(capsys):
    ProgressBar("train").update(Progress("learn", unit="step", done=204, total=200, env_steps=204, wall_s=1.0))
    said = capsys.readouterr().err
    assert "100 %" in said
    assert "204 steps" in said


def test_a_score_is_labelled_with_its_unit():
    labels = [score_label(name) for name in ("mean_speed_m_s", "drift_rad", "success_rate", "time_to_success_s")]
    assert labels == ["mean speed (m/s)", "drift (rad)", "success rate", "time to success (s)"]


def test_a_stop_says_what_it_costs():
    assert [cost_text(redone) for redone in ("", "iteration 3")] == [
        "nothing is lost",
        "iteration 3, which had begun, is done again",
    ]


def test_a_preset_for_a_gpu_on_the_cpu_is_told_of(monkeypatch):
    assert not cpu_notice("cpu", "cpu", ["cpu", "gpu"])
    assert not cpu_notice("gpu", "cuda:0", ["cpu", "gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = cpu_notice("gpu-bev", "cpu", ["cpu", "gpu-bev"])
    assert said.startswith("No CUDA device was found: preset gpu-bev runs on the CPU")
    assert "--preset cpu" in said
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "--device cuda:0" in cpu_notice("gpu", "cpu", ["gpu"])


def test_fields_are_shown_with_their_meaning_where_that_is_asked_for(capsys):
    assert main(["tasks", TASK, "--fields", "env.noise"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  env.noise.joint_pos_rad = 0.01  (Encoders)" in lines
    assert all(line.startswith("  env.noise.") for line in lines[1:])
    assert main(["tasks", TASK, "--fields", "env.nose"]) == 2
    assert "Did you mean 'env.noise'?" in capsys.readouterr().err
    assert main(["tasks", "--fields", "env"]) == 2


def test_sentences_of_a_help_are_wrapped_and_examples_are_not(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    example = "  gantry " + "word " * 20
    parser = GantryParser(prog="gantry x", description="sentence " * 20, epilog=f"examples:\n{example}")
    lines = parser.format_help().splitlines()
    assert example.rstrip() in [line.rstrip() for line in lines]
    assert max(len(line) for line in lines if "sentence" in line) <= 58

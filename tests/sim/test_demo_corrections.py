"""The demo of corrections: what is refused at once, and a short one on real processes."""

import json

import pytest

from gantry_deploy.cli.main import main
from gantry_hardware.files.json_file import read_json


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--corrections", "--trials", "3"), "--trials does not go with --corrections"),
        (("--corrections", "--pretrained"), "does not go with --corrections"),
        (("--corrections", "--minutes", "0"), "--minutes is 0"),
        (("--corrections", "--episodes", "0"), "--episodes is 0, expected 1 or more"),
        (("--corrections", "--task", "yam-lifd"), "Did you mean 'yam-lift'?"),
        (("--minutes", "3"), "belong to --corrections"),
    ],
)
def test_options_that_do_not_fit_are_refused(words, said, capsys):
    assert main(["demo", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.slow
def test_a_short_demo_scores_and_checks_the_same_weights(tmp_path, capsys):
    words = ("--corrections", "--minutes", "1.5", "--demos", "4", "--episodes", "4", "--output", str(tmp_path / "out"))
    code = main(["demo", *words])
    found = read_json(tmp_path / "out" / "demo.json")
    assert code in (0, 1), "four episodes decide nothing"
    hashes = found["weights_sha256"]
    assert len(hashes["evaluated"]) == 64
    assert hashes["evaluated"] == hashes["checked"]
    assert found["steps"] > 0
    assert found["learner"]["acknowledged"] == found["steps"] - found["learner"]["waiting"]
    assert (tmp_path / "out" / "report.html").is_file()
    assert json.loads((tmp_path / "out" / "dataset" / "meta" / "info.json").read_text())["total_frames"] > 0
    assert "held-out success:" in capsys.readouterr().out

"""``gantry data merge``, ``split``, ``select`` and ``relabel`` on the command line."""

import json

import numpy as np
import pytest

from gantry_deploy.cli.main import main
from gantry_deploy.dataset import Dataset, DatasetWriter, scalar, vector
from gantry_deploy.dataset.features import IS_INTERVENTION


@pytest.fixture
def demos(tmp_path):
    """A dataset of ten episodes of three frames; every second one succeeds, a person acts in the first."""
    features = {"action": vector(["x"]), "next.success": scalar("bool"), IS_INTERVENTION: scalar("bool")}
    with DatasetWriter(tmp_path / "demos", 10, features, "arm") as writer:
        for number in range(10):
            for index in range(3):
                writer.add_frame(
                    {
                        "action": np.float32([number]),
                        "next.success": number % 2 == 0 and index == 2,
                        IS_INTERVENTION: number == 0,
                    }
                )
            writer.end_episode("push")
    return tmp_path / "demos"


def test_the_four_commands(demos, tmp_path, capsys):
    train, val = tmp_path / "d-train", tmp_path / "d-val"
    prefix = str(tmp_path / "d")
    assert (
        main(["data", "split", str(demos), "--output-prefix", prefix, "--share", "train=0.8", "--share", "val=0.2"])
        == 0
    )
    assert f"{train}: 8 episodes, 24 frames\n{val}: 2 episodes, 6 frames\n" in capsys.readouterr().out
    assert (
        main(
            [
                "data",
                "merge",
                str(train),
                str(val),
                "--output",
                str(tmp_path / "all"),
                "--json",
                str(tmp_path / "r.json"),
            ]
        )
        == 0
    )
    assert json.loads((tmp_path / "r.json").read_text())["written"][0]["episodes"] == 10
    words = ["data", "select", str(demos), "--success", "yes", "--actor", "alone", "--output", str(tmp_path / "good")]
    assert main(words) == 0
    assert Dataset(tmp_path / "good").num_episodes == 4
    words = ["data", "relabel", str(demos), "--output", str(tmp_path / "new"), "--task", "lift", "--reward", "sparse"]
    assert main([*words, "--failure", "0", "--delete", "5-9", "--person", "1", "--recompute-ends"]) == 0
    new = Dataset(tmp_path / "new")
    assert new.tasks == ["lift"]
    assert new.successes().tolist() == [False, False, True, False, True]
    assert new.columns([IS_INTERVENTION])[IS_INTERVENTION].sum() == 6
    for name in ("d-train", "d-val", "all", "good", "new"):
        assert main(["data", "check", str(tmp_path / name), "--decode"]) == 0, name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["split", "{}", "--output-prefix", "{}-x", "--share", "train=much"], "'much' is no number"),
        (["split", "{}", "--output-prefix", "{}-x", "--share", "train"], "not of the form NAME=VALUE"),
        (["split", "{}", "--output-prefix", "{}-x", "--episodes", "a/b=0"], "expected one without '/'"),
        (["split", "{}", "--output-prefix", "{}-x", "--episodes", "a=0", "--episodes", "a=1"], "given twice"),
        (["select", "{}", "--output", "{}-x", "--actor", "alon"], "Did you mean 'alone'"),
        (["relabel", "{}", "--output", "{}-x", "--reward", "spars"], "Did you mean 'sparse'"),
        (["relabel", "{}", "--output", "{}-x", "--trim-end-s=-1"], "0 s or more"),
        (["merge", "{}", "{}s", "--output", "{}-x"], "Did you mean"),
    ],
)
def test_mistakes_are_named(demos, words, said, capsys):
    assert main(["data", *(word.replace("{}", str(demos)) for word in words)]) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in demos.parent.iterdir()] == ["demos"]

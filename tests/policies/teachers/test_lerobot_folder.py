"""Folders of LeRobot policies that are complete, and those whose statistics are missing, without LeRobot."""

import json
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from gantry_deploy.openpi.description import CameraNeed, PolicyDescription
from gantry_hardware.errors import UnknownNameError
from gantry_policies.teachers.lerobot_folder import read_folder
from gantry_policies.teachers.registry import make_teacher
from gantry_policies.teachers.teacher import TeacherError

CONFIG = {
    "type": "act",
    "chunk_size": 4,
    "input_features": {
        "observation.state": {"type": "STATE", "shape": [6]},
        "observation.images.wrist": {"type": "VISUAL", "shape": [3, 32, 48]},
    },
    "output_features": {"action": {"type": "ACTION", "shape": [2]}},
    "normalization_mapping": {"STATE": "MEAN_STD", "VISUAL": "IDENTITY", "ACTION": "MIN_MAX"},
}
BEFORE, AFTER = "policy_preprocessor", "policy_postprocessor"
STATISTICS = {
    BEFORE: {"observation.state.mean": np.zeros(6), "observation.state.std": np.ones(6)},
    AFTER: {"action.min": np.zeros(2), "action.max": np.ones(2)},
}


def steps(normaliser, state_file):
    step = {"registry_name": normaliser, "config": {}}
    return {"steps": [{"registry_name": "device_processor"}, step | ({"state_file": state_file} if state_file else {})]}


@pytest.fixture
def folder(tmp_path):
    """A folder as LeRobot 0.4 saves it, but for the network."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    save_file({"model.weight": np.zeros(3)}, tmp_path / "model.safetensors")
    for name, step in ((BEFORE, "normalizer_processor"), (AFTER, "unnormalizer_processor")):
        save_file(STATISTICS[name], tmp_path / f"{name}.safetensors")
        (tmp_path / f"{name}.json").write_text(json.dumps(steps(step, f"{name}.safetensors")))
    return tmp_path


def refusal(folder, error=TeacherError):
    with pytest.raises(error) as caught:
        read_folder(folder)
    return str(caught.value)


def test_a_complete_folder_describes_itself(folder):
    found = read_folder(folder)
    assert found.kind == "act"
    assert found.cameras == {"wrist": "observation.images.wrist"}
    assert found.devices == {f"{BEFORE}.json": True, f"{AFTER}.json": True}
    assert found.description == PolicyDescription(
        cameras=(CameraNeed("wrist", 32, 48),),
        state_size=6,
        instruction=False,
        action_size=2,
        horizon=4,
        has_statistics=True,
    )


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_missing_files_are_named(folder, name):
    (folder / name).unlink()
    assert f"lacks {name}; it holds: " in refusal(folder)


@pytest.mark.parametrize("name", [BEFORE, AFTER])
def test_a_policy_without_its_processors_has_no_statistics(folder, name):
    (folder / f"{name}.json").unlink()
    assert f"lacks {name}.json, and with it the statistics of its normaliser" in refusal(folder)


def test_statistics_in_the_weights_are_those_of_an_older_version(folder):
    (folder / f"{BEFORE}.json").unlink()
    save_file({"normalize_inputs.buffer_observation_state.mean": np.zeros(6)}, folder / "model.safetensors")
    assert "as LeRobot did before 0.4" in refusal(folder)
    assert "migrate_policy_normalization" in refusal(folder)


@pytest.mark.parametrize("name", [BEFORE, AFTER])
@pytest.mark.parametrize("state_file", [None, "gone.safetensors", "../statistics.safetensors"])
def test_a_normaliser_without_its_file_would_do_nothing_in_silence(folder, name, state_file):
    normaliser = "normalizer_processor" if name == BEFORE else "unnormalizer_processor"
    (folder / f"{name}.json").write_text(json.dumps(steps(normaliser, state_file)))
    said = refusal(folder)
    assert f"{name}.json comes without the statistics of its normaliser" in said
    assert "in silence" in said


def test_a_pipeline_without_a_normaliser(folder):
    (folder / f"{AFTER}.json").write_text(json.dumps({"steps": []}))
    assert "has no step 'unnormalizer_processor', which action need" in refusal(folder)


@pytest.mark.parametrize("name", ["observation.state.std", "observation.state.mean"])
def test_single_statistics_that_are_missing_or_not_finite(folder, name):
    left = {key: value for key, value in STATISTICS[BEFORE].items() if key != name}
    save_file(left, folder / f"{BEFORE}.safetensors")
    assert f"lack '{name}'; there are: {next(iter(left))}" in refusal(folder)
    save_file({**left, name: np.full(6, np.inf)}, folder / f"{BEFORE}.safetensors")
    assert f"are not finite: '{name}'" in refusal(folder)


def test_what_is_not_normalised_needs_no_statistics(folder):
    config = {**CONFIG, "normalization_mapping": dict.fromkeys(("STATE", "VISUAL", "ACTION"), "IDENTITY")}
    (folder / "config.json").write_text(json.dumps(config))
    for name in (BEFORE, AFTER):
        (folder / f"{name}.json").write_text(json.dumps({"steps": []}))
    assert read_folder(folder).devices == {f"{BEFORE}.json": False, f"{AFTER}.json": False}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"type": "atc"}, UnknownNameError, "Unknown type of LeRobot policy 'atc'. Did you mean 'act'?"),
        ({"type": None}, UnknownNameError, "Available: act, diffusion, pi0, smolvla"),
        ({"output_features": {}}, TeacherError, "output_features of"),
        ({"output_features": {"act": {"type": "ACTION", "shape": [2]}}}, TeacherError, "has no output 'action'"),
        ({"normalization_mapping": None}, TeacherError, "normalization_mapping of"),
        ({"chunk_size": 0}, TeacherError, "chunk_size of"),
        ({"input_features": {"observation.state": {"type": "STATE", "shape": [6, 2]}}}, TeacherError, "[6, 2]"),
        ({"input_features": {"a": {"type": "ENV", "shape": [6]}}}, TeacherError, "sees a; a question holds pictures"),
    ],
)
def test_configurations_that_are_refused(folder, changes, error, words):
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    assert words in refusal(folder, error)


def test_steps_that_would_import_a_class_are_not_run(folder):
    evil = {"steps": [{"class": "os.system", "config": {}}]}
    (folder / f"{BEFORE}.json").write_text(json.dumps(evil))
    assert "names a step by a class to import ('os.system'); only registered steps" in refusal(folder)


def test_damaged_files_are_refused_in_words(folder):
    (folder / f"{AFTER}.safetensors").write_bytes(b"\x00" * 40)
    assert "cannot be read" in refusal(folder)
    (folder / "config.json").write_text("{")
    assert "config.json" in refusal(folder)


def test_a_complete_folder_without_lerobot_names_the_extra(folder, monkeypatch):
    """Where it is installed, it is hidden."""
    for name in ("lerobot", "lerobot.policies.factory"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TeacherError, match=r"needs the package lerobot .* pip install 'gantry-rl\[lerobot\]'"):
        make_teacher(f"lerobot:{folder}")


def test_no_folder_at_all(tmp_path):
    assert "There is no folder" in refusal(tmp_path / "nothing")

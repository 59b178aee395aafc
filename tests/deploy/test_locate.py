"""Finding bundles and runs: by path, by name, and by what somebody may have meant."""

from __future__ import annotations

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle, find_run, find_source, pretrained_names
from gantry_deploy.cli.main import main
from gantry_deploy.errors import BundleError
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a run that has a bundle, and one that has none yet."""
    monkeypatch.chdir(tmp_path)
    for name in ("short", "young"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text("{}")
    contract = contract_for(robot_spec("go2"))
    tiny_bundle(tmp_path / "runs" / "short" / "bundle", contract, weight=np.zeros((contract.observation_size, 12)))
    return tmp_path


def test_every_bundle_that_comes_along_is_found_by_name_and_whole():
    assert "go2-walk" in pretrained_names()
    for name in pretrained_names():
        assert load_bundle(find_bundle(f"pretrained:{name}")).contract.joint_names
    with pytest.raises(UnknownNameError, match=r"Unknown pretrained bundle 'go2-wlak'\. Did you mean 'go2-walk'\?"):
        find_bundle("pretrained:go2-wlak")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runs/short/bundle/policy.onnx", r"policy.onnx' is a file of a bundle; give its folder, runs/short/bundle$"),
        ("runs/short", r"'runs/short' is a run folder; its bundle is runs/short/bundle$"),
        ("runs/young", r"'runs/young' is a run folder without a bundle yet; make one with: gantry export runs/young$"),
        ("runs/short/bundel", r"There is no bundle at runs/short/bundel; .*\. Did you mean 'runs/short/bundle'\?"),
        ("rnus/short/bundle", r"Did you mean 'runs/short/bundle'\?"),
        ("runs/shrot/x.zip", r"Did you mean 'runs/short'\?"),
        ("go2-walk", r"Did you mean 'pretrained:go2-walk'\?"),
        ("runs/short/config.json/x", r"expected a folder or a \.zip file\.$"),
        ("elsewhere", r"expected a folder or a \.zip file\.$"),
        ("cartwheel", r"expected a folder or a \.zip file\.$"),
    ],
)
def test_what_is_no_bundle_is_answered_with_the_way_out(here, text, message):
    with pytest.raises(BundleError, match=message):
        find_bundle(text)


def test_a_source_is_a_run_or_a_bundle(here):
    for text in ("runs/short", "runs/young", "runs/short/bundle", "pretrained:go2-walk"):
        assert find_source(text).is_dir()
    with pytest.raises(BundleError, match=r"no run folder and no bundle at runs/yuong\. Did you mean 'runs/young'\?"):
        find_source("runs/yuong")


def test_a_run_is_no_bundle(here):
    assert find_run(here / "runs" / "short", GantryError) == here / "runs" / "short"
    with pytest.raises(GantryError, match=r"is a bundle already, .*\. Did you mean '.*runs/short'\?"):
        find_run(here / "runs" / "short" / "bundle", GantryError)
    with pytest.raises(GantryError, match=r"is no run folder: .*\. Did you mean '.*runs/young'\?"):
        find_run(here / "runs" / "yung", GantryError)


@pytest.mark.parametrize("command", ["inspect", "check", "run"])
def test_commands_answer_a_run_folder_with_its_bundle(here, capsys, command):
    assert main([command, "runs/short"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Error: 'runs/short' is a run folder; its bundle is runs/short/bundle\n")


def test_the_gate_leaves_what_was_installed_as_it_is(capsys):
    pytest.importorskip("mujoco")
    before = load_bundle(find_bundle("pretrained:go2-walk")).manifest
    assert main(["check", "pretrained:go2-walk", "--episodes", "1", "--seconds", "0.5", "--perturbations", "none"]) in (
        0,
        1,
    )
    assert "card not written: pretrained:go2-walk belongs to the installation" in capsys.readouterr().out
    assert load_bundle(find_bundle("pretrained:go2-walk")).manifest == before

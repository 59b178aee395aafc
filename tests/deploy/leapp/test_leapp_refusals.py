"""LEAPP folders that are refused: code, changed files, paths that leave the folder, tensors without a signal."""

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("safetensors")

from gantry_deploy.errors import ContractError, LeappError
from gantry_deploy.leapp.importing import import_leapp
from gantry_deploy.leapp.settings import LeappSettings
from gantry_fixtures.leapp import JOINTS, NODE, write_leapp
from gantry_hardware.errors import GantryError

GO2 = LeappSettings("go2")


@dataclass
class Change:
    """A place in the description, what stands there, and what the refusal says."""

    where: tuple[Any, ...]
    value: Any
    text: str
    error: type[Exception] = LeappError


IN, OUT, PARAMETERS = ("models", NODE, "inputs"), ("models", NODE, "outputs"), ("models", NODE, "parameters")
CHANGES = [
    Change((*PARAMETERS, "backend"), "jit", "backend is 'jit', expected 'onnx': the others are programs"),
    Change((*PARAMETERS, "backend"), "pt2", "backend is 'pt2'"),
    Change((*PARAMETERS, "backend"), "python", "backend is 'python'"),
    Change((*PARAMETERS, "warp_segments"), 2, "kernels of Warp, which are code"),
    Change((*PARAMETERS, "sha256sum"), "0" * 64, "was changed after the bundle was written"),
    Change((*PARAMETERS, "sha256sum"), None, "was changed after the bundle was written"),
    Change((*PARAMETERS, "model_path"), f"../{NODE}.onnx", "expected a file in the bundle's folder"),
    Change((*PARAMETERS, "model_path"), f"/tmp/{NODE}.onnx", "expected a file in the bundle's folder"),
    Change((*PARAMETERS, "model_path"), "leaving.onnx", "expected a file in the bundle's folder"),
    Change((*PARAMETERS, "model_path"), f"{NODE}.pt", "expected a file that ends in .onnx; others may hold code"),
    Change((*PARAMETERS, "model_path"), "missing.onnx", "'missing.onnx' cannot be read: No such file"),
    Change(("pipeline", "initial_values"), "values.pkl", "ends in .safetensors; others may hold code"),
    Change(("pipeline", "initial_values"), "../x.safetensors", "expected a file in the bundle's folder"),
    Change(("pipeline", "initial_values"), "pickled.safetensors", "is not readable"),
    Change(("pipeline", "initial_values"), "missing.safetensors", "cannot be read: No such file"),
    Change(("pipeline", "configs"), {}, "frequency is None, expected the rate in Hz"),
    Change(("pipeline", "configs", "frequency"), 2.0, "rate_hz", ContractError),
    Change(("pipeline", "data_flow"), {f"{NODE}/a": [f"{NODE}/b"]}, "expected a single one"),
    Change(("models", "second"), {}, "joins 2 networks"),
    Change(("pipeline", "feedback_flow"), {f"{NODE}/last": [f"{NODE}/last_action_in"]}, "names the output '.*last'"),
    Change((*IN, 0, "kind"), "state/body/pose", "'ang' of kind 'state/body/pose' is no signal of this runtime"),
    Change((*IN, 0, "kind"), "state/camera/image", "no sensor or estimator for it"),
    Change((*IN, 0, "kind"), None, "'ang' of kind '' is no signal"),
    Change((*IN, 0, "kind"), "state/vector3d", "is 'root_ang_vel_b' in Isaac Lab"),
    Change((*IN, 0, "isaaclab_connection"), "state:robot:root_ang_vel_w", "in another frame"),
    Change((*IN, 0, "element_names"), None, "has no element_names, and their order is not guessed"),
    Change((*IN, 0, "element_names"), [["x", "x", "z"]], "expected each of x, y, z once"),
    Change((*IN, 0, "shape"), [1, 4], r"shape \(1, 4\), expected float32 of shape \(1, 3\)"),
    Change((*IN, 0, "shape"), [1, -3], "expected whole numbers from 1"),
    Change((*IN, 0, "dtype"), "int64", "'ang' is int64"),
    Change((*IN, 3, "element_names"), [["FR_hip_join", *JOINTS[1:]]], "Did you mean 'FR_hip_joint'?"),
    Change((*OUT, 0, "kind"), "target/joint/torques", "expected a single one, 'target/joint/position'"),
    Change((*OUT, 2, "kind"), "target/joint/velocity", "outputs to follow are joint_pos .*, kp_gains"),
    Change(("pipeline", "feedback_flow"), {}, "'last_action_in' of kind '' is no signal"),
    Change(("system information",), None, "lacks system information"),
]


@pytest.mark.parametrize(
    "change", CHANGES, ids=lambda change: f"{'.'.join(map(str, change.where))}={change.value}"[:80]
)
def test_refusals_say_what_stands_in_the_way(tmp_path, change):
    def apply(told):
        *path, last = change.where
        for key in path:
            told = told[key]
        if change.where == ("system information",):
            del told[last]
        else:
            told[last] = change.value

    folder = write_leapp(tmp_path / NODE, change=apply)
    # Whole and unchanged files, which only stand in the wrong place.
    for name in (f"{NODE}.onnx", "x.safetensors"):
        (tmp_path / name).write_bytes((folder / f"{NODE}.onnx").read_bytes())
    (folder / "leaving.onnx").symlink_to(tmp_path / f"{NODE}.onnx")
    (folder / "values.pkl").write_bytes(pickle.dumps({}))
    (folder / "pickled.safetensors").write_bytes(pickle.dumps({}))
    with pytest.raises(change.error, match=change.text):
        import_leapp(folder, GO2)


def test_a_changed_network_is_refused(tmp_path):
    folder = write_leapp(tmp_path / NODE)
    path = folder / f"{NODE}.onnx"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(LeappError, match="was changed after the bundle was written"):
        import_leapp(folder, GO2)


def test_a_description_that_builds_objects_is_no_yaml(tmp_path):
    folder = write_leapp(tmp_path / NODE)
    ran = tmp_path / "ran"
    (folder / f"{NODE}.yaml").write_text(
        f"models: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{ran}']]\n"
    )
    with pytest.raises(GantryError, match="no YAML"):
        import_leapp(folder, GO2)
    assert not ran.exists()


def test_another_folder_is_none(tmp_path):
    with pytest.raises(LeappError, match="is no LEAPP bundle"):
        import_leapp(tmp_path, GO2)
    (tmp_path / "a.yaml").write_text("rate: 3\n")
    with pytest.raises(LeappError, match="lacks models, pipeline, system information"):
        import_leapp(tmp_path, GO2)


def test_another_robots_joints_are_named(tmp_path):
    folder = write_leapp(tmp_path / NODE)
    with pytest.raises(LeappError, match=r"'pos' is float32 of shape \(1, 12\), expected float32 of shape \(1, 29\)"):
        import_leapp(folder, LeappSettings("g1"))


def test_gains_beyond_the_robots_are_refused(tmp_path):
    folder = write_leapp(tmp_path / NODE, kp=1000.0)
    with pytest.raises(ContractError, match="stiffness_nm_rad is 1000, allowed is 200"):
        import_leapp(folder, GO2)

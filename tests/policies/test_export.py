"""Export: what onnxruntime computes is what torch computes, or nothing is written."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict
from torch import nn

from gantry_deploy.actions.joints import JointDecoder
from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.contract.parts import CameraInput
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import BundleError, PolicyError
from gantry_deploy.policy.golden import network_tolerance
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.testing.legs import contract_for, golden_data, signals_for, tiny_robot
from gantry_policies.common.export import export_bundle
from gantry_policies.common.recorded_rows import difference, recorded_inputs, require_same

CONTRACT = contract_for(tiny_robot())
OBS, ACTIONS = CONTRACT.observation_size, CONTRACT.action_size


def golden(rows=1000):
    data = golden_data(CONTRACT, rows)
    action = np.zeros((rows, ACTIONS), dtype=np.float32)
    signals = signals_for(CONTRACT, action, len(action), time_s=data["time_s"], command=data["command"])
    target = JointDecoder(CONTRACT, action)(action, signals).pos_rad
    return data | {"joint_target_rad": target, "episode_start": np.arange(rows) % 50 == 0}


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(OBS, 32), nn.ELU(), nn.Linear(32, ACTIONS))


def normalised_actor():
    """rsl_rl's actor with statistics as a long training leaves them: offsets, and scales far from one."""
    torch.manual_seed(0)
    obs = TensorDict({"actor": torch.zeros(4, OBS)}, batch_size=[4])
    noise = {"class_name": "GaussianDistribution", "init_std": 0.5, "std_type": "scalar"}
    actor = MLPModel(
        obs, {"actor": ["actor"]}, "actor", ACTIONS, (64, 32), "elu", obs_normalization=True, distribution_cfg=noise
    )
    actor.train()
    spread = torch.logspace(-3, 2, OBS)
    with torch.inference_mode():  # as the training loop does
        for _ in range(50):
            values = torch.linspace(-5, 5, OBS) + spread * torch.randn(256, OBS)
            actor.update_normalization(TensorDict({"actor": values}, batch_size=[256]))
    return actor


def test_the_exported_network_computes_what_torch_computes(tmp_path):
    model = network()
    folder = export_bundle(model, CONTRACT, golden(), tmp_path / "bundle")
    bundle = load_bundle(folder)
    assert bundle.contract == CONTRACT
    (entry,) = [item for item in onnx.load_from_string(bundle.model_bytes).metadata_props if "contract" in item.key]
    assert PolicyContract.from_json(entry.value) == CONTRACT
    assert sorted(bundle.golden) == sorted([*golden(), "action"])
    policy = OnnxPolicy(bundle.model_bytes, bundle.contract)
    fresh = np.random.default_rng(8).normal(0, 2, (200, OBS)).astype(np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(fresh)).numpy()
    found = np.concatenate([policy(row[None]) for row in fresh])
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    np.testing.assert_allclose(
        bundle.golden["action"], model(torch.from_numpy(golden()["observation"])).detach().numpy(), atol=1e-5, rtol=0
    )


def test_a_trained_normaliser_travels_inside_the_graph(tmp_path):
    actor = normalised_actor()
    mean, std = actor.obs_normalizer.mean, actor.obs_normalizer.std
    assert mean.abs().max() > 2
    assert std.max() / std.min() > 100
    observations = (mean + std * torch.randn(1000, OBS, generator=torch.Generator().manual_seed(1))).numpy()
    data = golden() | {"observation": observations}
    bundle = load_bundle(export_bundle(actor.as_onnx(verbose=False), CONTRACT, data, tmp_path / "bundle"))
    with torch.no_grad():
        expected = actor.eval()(TensorDict({"actor": torch.from_numpy(observations)}, batch_size=[1000])).numpy()
        raw = actor.mlp(torch.from_numpy(observations)).numpy()
    assert np.abs(raw - expected).max() > 0.1  # without normalisation it would be another policy
    require_same(OnnxPolicy(bundle.model_bytes, CONTRACT), recorded_inputs(CONTRACT, data), expected)


def test_too_few_observations_are_refused(tmp_path):
    with pytest.raises(PolicyError, match="999 observations recorded, an export compares at least 1000"):
        export_bundle(network(), CONTRACT, golden(999), tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


class Noisy(nn.Module):
    """A network whose output is drawn anew at every call."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        return self.net(x) + 1e-3 * torch.randn_like(x[:, :ACTIONS])


class AlwaysDropout(nn.Module):
    """Dropout that ignores ``eval()``."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        return self.net(nn.functional.dropout(x, 0.1, training=True))


class LooksAtItsNeighbours(nn.Module):
    """Subtracts the mean of the batch, which on a robot is the observation itself."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        return self.net(x - x.mean(dim=0, keepdim=True))


def test_a_network_that_draws_its_answer_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(PolicyError, match="has a node RandomNormalLike, expected the same output for the same input"):
        export_bundle(Noisy(), CONTRACT, golden(), tmp_path / "bundle")
    assert not list(tmp_path.rglob("*.onnx"))


def test_networks_that_see_pictures_may_differ_by_more():
    assert network_tolerance(CONTRACT) == 1e-5
    assert network_tolerance(replace(CONTRACT, cameras=(CameraInput("front", 8, 8),))) == 1e-4


@pytest.mark.parametrize("make", [AlwaysDropout, LooksAtItsNeighbours])
def test_a_network_that_differs_on_the_robot_is_refused_and_nothing_is_written(tmp_path, make):
    with pytest.raises(PolicyError, match=r"differ by .* of policy.onnx, allowed is 1e-05; nothing was written"):
        export_bundle(make(), CONTRACT, golden(), tmp_path / "bundle")
    assert not list(tmp_path.rglob("*.onnx"))
    assert not (tmp_path / "bundle").exists()


def test_dropout_that_was_left_in_training_mode_is_switched_off(tmp_path):
    model = nn.Sequential(nn.Dropout(0.5), network()).train()
    bundle = load_bundle(export_bundle(model, CONTRACT, golden(), tmp_path / "bundle"))
    with torch.no_grad():
        expected = model[1](torch.from_numpy(bundle.golden["observation"])).numpy()
    np.testing.assert_allclose(bundle.golden["action"], expected, atol=1e-5, rtol=0)


def test_the_comparison_sees_a_single_changed_weight(tmp_path):
    model = network()
    bundle = load_bundle(export_bundle(model, CONTRACT, golden(), tmp_path / "bundle"))
    observations = bundle.golden["observation"]
    with torch.no_grad():
        model[2].weight[0, 0] += 1e-3
        changed = model(torch.from_numpy(observations)).numpy()
    policy, rows = OnnxPolicy(bundle.model_bytes, CONTRACT), recorded_inputs(CONTRACT, bundle.golden)
    require_same(policy, rows, bundle.golden["action"])
    assert difference(policy, rows, changed) == pytest.approx(np.abs(changed - bundle.golden["action"]).max(), abs=1e-5)
    with pytest.raises(PolicyError, match=r"differ by .* on 1000 observations"):
        require_same(policy, rows, changed)


def test_a_network_of_nan_is_refused_with_its_joints(tmp_path):
    model = network()
    with torch.no_grad():
        model[2].bias[1] = torch.nan
    with pytest.raises(PolicyError, match=rf"not finite: {CONTRACT.joint_names[1]}"):
        export_bundle(model, CONTRACT, golden(), tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


class Branches(nn.Module):
    """Control flow that depends on numbers, which a graph cannot hold."""

    def forward(self, x):
        return x[:, :ACTIONS] if float(x.sum()) > 0 else -x[:, :ACTIONS]


def test_a_network_that_is_no_graph_is_refused_in_one_message(tmp_path):
    with pytest.raises(PolicyError, match="torch cannot express this network in ONNX") as caught:
        export_bundle(Branches(), CONTRACT, golden(), tmp_path / "bundle")
    assert "\n" not in str(caught.value)


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(PolicyError, match=r"holds other files than a bundle's \(thesis\.tex\)"):
        export_bundle(network(), CONTRACT, golden(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_that_is_only_called_like_a_bundles_is_left_alone(tmp_path):
    folder = tmp_path / "law"
    folder.mkdir()
    export_bundle(network(), CONTRACT, golden(), folder)  # an empty one is as good as none
    export_bundle(network(), CONTRACT, golden(), folder)
    (folder / "manifest.json").unlink()
    for path in folder.iterdir():
        path.unlink() if path.name != "contract.json" else path.write_text("of employment")
    with pytest.raises(PolicyError, match=r"law' holds contract\.json and is no bundle, having no manifest\.json;"):
        export_bundle(network(), CONTRACT, golden(), folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"contract.json": "of employment"}


@pytest.mark.slow
def test_an_older_bundle_is_replaced_and_survives_a_refusal(tmp_path):
    folder = export_bundle(network(seed=1), CONTRACT, golden(), tmp_path / "bundle")
    first = load_bundle(folder).model_bytes
    with pytest.raises(PolicyError):
        export_bundle(Noisy(), CONTRACT, golden(), folder)
    assert load_bundle(folder).model_bytes == first
    export_bundle(network(seed=2), CONTRACT, golden(), folder)
    assert load_bundle(folder).model_bytes != first


def test_a_disk_that_does_not_take_it_is_one_message(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(BundleError, match=r"Cannot write the bundle '.*': Not a directory"):
        export_bundle(network(), CONTRACT, golden(), tmp_path / "file" / "bundle")


def test_a_bundle_names_no_file_of_the_machine_that_made_it(tmp_path):
    folder = export_bundle(network(), CONTRACT, golden(), tmp_path / "bundle")
    assert b".py" not in (folder / "policy.onnx").read_bytes()

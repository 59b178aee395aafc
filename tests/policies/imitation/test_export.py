"""Bundles of plans, and of residuals on top of them: the runtime computes what torch does, or nothing is written."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.contract.policy_contract import ChunkSpec, PolicyContract
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.policy import open_policy
from gantry_fixtures.arm import arm_contract_for, arm_golden, arm_model, with_cameras
from gantry_hardware.robots import robot_spec
from gantry_policies.imitation.config import BcCfg, ImageEncoderCfg, NetworkCfg
from gantry_policies.imitation.export import export_chunks
from gantry_policies.imitation.policy import BcPolicy, make_base

CHUNK = ChunkSpec(steps=4, execute=3)
CONTRACT = with_cameras(replace(arm_contract_for(robot_spec("yam")), chunk=CHUNK), "wrist", "front", size_px=20)
SIZES = {"hidden": (16,), "width": 8, "heads": 2, "feedforward": 8, "encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def golden():
    """Two recorded episodes of 25 steps, what a simpler policy did in them."""
    return arm_golden(CONTRACT, arm_model(CONTRACT))


def trained_like(kind, golden, make=BcPolicy):
    """A policy with statistics that are not those of a fresh one."""
    torch.manual_seed(0)
    shapes = {"state": (CONTRACT.observation_size,), "image/front": (3, 20, 20), "image/wrist": (3, 20, 20)}
    network = NetworkCfg(kind=kind, image_encoder=ImageEncoderCfg(stem_width=2, width=4), **SIZES)
    cfg = BcCfg(network=network, chunk_steps=CHUNK.steps, execute_steps=CHUNK.execute)
    policy = make(cfg, shapes, CONTRACT.action_size)
    policy.state_scaler.fit(torch.from_numpy(golden["observation"]))
    policy.action_scaler.fit(torch.tensor([[0.9, -0.8, 0.1, -1.0], [1.0, 0.5, 0.3, 1.0]]))
    return policy


def observed(golden, row):
    images = {name: torch.from_numpy(golden[name][row : row + 1]) for name in ("image/front", "image/wrist")}
    return {"state": torch.from_numpy(golden["observation"][row : row + 1]), **images}


def played(bundle, golden):
    """What the runtime does in the recorded steps, and what its base wanted."""
    runtime, pairs = open_policy(bundle), []
    for row, begins in enumerate(golden["episode_start"]):
        if begins:
            runtime.reset()
        images = {name: golden[f"image/{name}"][row] for name in ("front", "wrist")}
        pairs.append(runtime(golden["observation"][row : row + 1], images))
    return np.concatenate([action for action, _ in pairs]), [base for _, base in pairs]


def expected(policy, golden):
    """The same by the learning side's own queue, (M, n)."""
    base, rows = make_base(policy, 1, execute=CHUNK.execute), []
    for row, begins in enumerate(golden["episode_start"]):
        if begins:
            base.reset()
        rows.append(base.act(observed(golden, row)))
    return torch.cat(rows)


class Residual(nn.Module):
    """Corrects by what it sees, and clamps the sum."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(CONTRACT.observation_size, CONTRACT.action_size)

    def forward(self, obs, base_action):
        return (base_action + self.layer(obs["state"]) + obs["image/wrist"].float().mean() / 255).clamp(-1, 1)


class Drifts(BcPolicy):
    """Is exported as something else than it is."""

    def forward(self, obs):
        return super().forward(obs) + (1e-3 if torch.compiler.is_exporting() else 0.0)


@pytest.mark.slow
def test_plans_run_by_the_runtime_are_those_of_torch(tmp_path, golden):
    policy = trained_like("transformer", golden)
    bundle = load_bundle(export_chunks(policy, CONTRACT, golden, tmp_path / "bundle", card={"who": "a test"}))
    assert bundle.contract == CONTRACT
    assert bundle.card == {"who": "a test"}
    actions, bases = played(bundle, golden)
    wanted = expected(policy, golden)
    assert wanted.std() > 0.1
    np.testing.assert_allclose(actions, wanted, atol=1e-5)
    np.testing.assert_allclose(bundle.golden["action"], wanted, atol=1e-5)
    assert set(bases) == {None}


@pytest.mark.slow
def test_a_residual_on_its_base(tmp_path, golden):
    policy, residual = trained_like("mlp", golden), Residual()
    contract = replace(CONTRACT, chunk=replace(CHUNK, residual=True))
    bundle = load_bundle(export_chunks(policy, contract, golden, tmp_path / "bundle", residual=residual))
    actions, bases = played(bundle, golden)
    base_actions = expected(policy, golden)
    with torch.no_grad():
        rows = [residual(observed(golden, row), base_actions[row : row + 1]) for row in range(len(base_actions))]
    np.testing.assert_allclose(np.concatenate(bases), base_actions, atol=1e-5)
    np.testing.assert_allclose(actions, torch.cat(rows), atol=1e-5)
    assert np.abs(actions - base_actions.numpy()).max() > 0.1
    for name, values in (("base_action", base_actions), ("action", actions)):
        np.testing.assert_allclose(bundle.golden[name], values, atol=1e-5)


def test_each_network_says_what_it_is_and_what_goes_in(tmp_path, golden):
    policy, residual = trained_like("mlp", golden), Residual()
    contract = replace(CONTRACT, chunk=replace(CHUNK, residual=True))
    bundle = load_bundle(export_chunks(policy, contract, golden, tmp_path / "bundle", residual=residual))
    for role, data, held in (("policy", bundle.model_bytes, bundle.contract), ("base", bundle.base_bytes, contract)):
        model = onnx.load_from_string(data)
        said = {item.key: item.value for item in model.metadata_props}
        assert said["gantry_role"] == role
        assert PolicyContract.from_json(said["gantry_contract"]) == held
        assert role in model.doc_string
        texts = {item.name: item.doc_string for item in (*model.graph.input, *model.graph.output)}
        assert "scale * clip(value" in texts["observation"]
        assert "channels first" in texts["image/front"]
        assert ("base_action" in texts) == (role == "policy")
        assert ("plan" in texts["action"]) == (role == "base")
    assert bundle.contract.chunk.base_sha256
    assert not contract.chunk.base_sha256


def test_a_difference_is_refused_and_nothing_is_written(tmp_path, golden):
    policy = trained_like("mlp", golden, Drifts)
    with pytest.raises(PolicyError, match=r"differ by 1\.0.e-03 on 50 observations of policy\.onnx"):
        export_chunks(policy, CONTRACT, golden, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, golden):
    policy = trained_like("mlp", golden)
    for contract, text in (
        (replace(CONTRACT, chunk=None), "chunk is None, expected 4 steps and no residual"),
        (replace(CONTRACT, chunk=ChunkSpec(5, 3)), "expected 4 steps"),
        (replace(CONTRACT, chunk=replace(CHUNK, residual=True)), "no residual"),
        (with_cameras(CONTRACT, "wrist", size_px=20), "the policy was trained on"),
    ):
        with pytest.raises(PolicyError, match=text):
            export_chunks(policy, contract, golden, tmp_path / "bundle")
    with pytest.raises(PolicyError, match="49 observations recorded, an export compares at least 50"):
        export_chunks(policy, CONTRACT, {name: rows[:49] for name, rows in golden.items()}, tmp_path / "bundle")
    with pytest.raises(PolicyError, match="lacks image/front"):
        export_chunks(policy, CONTRACT, {n: v for n, v in golden.items() if n != "image/front"}, tmp_path / "bundle")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PolicyError, match=r"holds other files than a bundle's \(notes\.txt\)"):
        export_chunks(policy, CONTRACT, golden, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

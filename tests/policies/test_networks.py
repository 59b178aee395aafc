"""Networks that look at a map: sizes against the paper, laws of their parts, what each part sees, and their export."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import nn

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.contract.policy_contract import ActionSpec, MapWindow, ObservationTerm
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_deploy.testing.legs import contract_for, golden_data, tiny_robot
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.common.export import export_bundle
from gantry_policies.networks import AmeCfg, MixtureModel, MixtureOfExperts, ObservationLayout, attention_map
from gantry_policies.networks.ame2 import CellConvolutions, CellTokens, GlobalFeature
from gantry_policies.networks.attention import QueryAttention
from gantry_policies.networks.cost import network_cost
from gantry_policies.networks.lsio import HistoryEncoder
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.teachers import make_actor

SMALL = MapWindow(5, 4, 0.1, 0.3, 0.0, ("elevation",))
SEES_MAP = ("ame2", "ame1", "scan_mlp")
TINY = replace(AmeCfg.small(), hidden=(16,), proprio_width=8)


def terms(joints, window, history=1):
    """The paper's proprioception: a teacher's, or with history a student's."""
    names = [("base_ang_vel", 3), ("projected_gravity", 3)]
    names += [(name, joints) for name in ("joint_pos", "joint_vel", "last_action")]
    stacked = [ObservationTerm(name, size, history=history) for name, size in names]
    first = [] if history > 1 else [ObservationTerm("base_lin_vel", 3)]
    cells = window.rows * window.cols * len(window.channels)
    return (*first, *stacked, ObservationTerm("goal_command", 4), ObservationTerm("elevation_map", cells))


def contract(window=SMALL, history=1, joints=4):
    plain = contract_for(tiny_robot())
    return replace(plain, observations=terms(joints, window, history), map_window=window, gait=None)


def layout(window=SMALL, history=1, joints=4):
    return ObservationLayout.from_contract(contract(window, history, joints))


def actor(network="ame2", history=1, window=SMALL, **learner):
    torch.manual_seed(0)
    options = {"total_steps": 1, "network": network, "ame": TINY, "hidden": (16,)} | learner
    return make_actor(PpoCfg(**options), layout(window, history), 4)


def both(window):
    """The student's window: elevation and uncertainty."""
    return replace(window, channels=("elevation", "uncertainty"))


ANYMAL, G1 = MapWindow(36, 14, 0.08, 0.6, 0.0, ("elevation",)), MapWindow(26, 15, 0.08, 0.5, 0.0, ("elevation",))


@pytest.mark.parametrize(
    ("joints", "window", "history", "millions"),
    [(12, ANYMAL, 1, 1.25), (23, G1, 1, 1.27), (23, both(G1), 20, 1.33)],
)
def test_parameters_are_those_of_the_paper(joints, window, history, millions):
    """arXiv 2601.08485 by the sizes of its authors' code; the keys' bias, which does nothing, is left out."""
    learner = PpoCfg(total_steps=1, network="ame2", ame=AmeCfg.paper(), hidden=(512, 512))
    model = make_actor(learner, layout(window, history, joints), joints)
    cost = network_cost(model.as_onnx(), model.obs_dim)
    assert cost.parameters / 1e6 == pytest.approx(millions, abs=0.005)


def test_parameters_of_the_mixture_of_the_paper():
    obs = TensorDict({"critic": torch.zeros(1, 499)}, batch_size=[1])
    critic = MixtureModel(obs, {"critic": ["critic"]}, "critic", 23, hidden_dims=(512, 512), experts=16)
    assert sum(values.numel() for values in critic.parameters()) / 1e6 == pytest.approx(9.0, abs=0.05)


def test_operations_are_counted_by_hand():
    """A 3-5-2 network: 2 * (3 * 5 + 5 * 2) operations, 20 + 12 parameters."""
    cost = network_cost(nn.Sequential(nn.Linear(3, 5), nn.ELU(), nn.Linear(5, 2)), 3)
    assert (cost.parameters, cost.flops) == (32, 50)


def test_a_layout_takes_an_observation_apart():
    found = ObservationLayout.from_contract(
        replace(
            contract(both(MapWindow(2, 2, 0.5, 1.0, 0.0, ()))),
            observations=(
                ObservationTerm("joint_pos", 2, history=3),
                ObservationTerm("elevation_map", 8),
                ObservationTerm("joint_vel", 1, history=3),
                ObservationTerm("goal_command", 1),
            ),
        )
    )
    flat = torch.arange(18.0)[None]
    assert (found.size, found.history, found.frame_size, found.current_size) == (18, 3, 3, 1)
    # Oldest first: positions 0 1 | 2 3 | 4 5, velocities 14 | 15 | 16.
    assert found.frames_of(flat).tolist() == [[[0, 1, 14], [2, 3, 15], [4, 5, 16]]]
    assert found.grid(flat).tolist() == [[[[6, 7], [8, 9]], [[10, 11], [12, 13]]]]
    assert found.current_of(flat).tolist() == [[17]]
    # Rows lead forward, columns to the left, around (1, 0).
    assert found.cell_centers().tolist() == [[0.75, -0.25], [0.75, 0.25], [1.25, -0.25], [1.25, 0.25]]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"map_window": None}, "needs a map window in the contract"),
        ({"map_window": MapWindow(5, 5, 0.1, 0.3, 0.0, ("elevation",))}, r"20 numbers.*5 x 5 cells x 1 channels = 25"),
        ({"observations": (ObservationTerm("elevation_map", 20, history=2),)}, "history of 2 frames, expected 1"),
    ],
)
def test_layouts_that_make_no_sense_are_refused(change, text):
    with pytest.raises(GantryError, match=text):
        ObservationLayout.from_contract(replace(contract(), **change))


def test_histories_of_two_lengths_are_refused():
    two = (ObservationTerm("joint_pos", 4, history=3), ObservationTerm("joint_vel", 4, history=2))
    with pytest.raises(GantryError, match=r"'joint_pos' 3, 'joint_vel' 2"):
        _ = ObservationLayout.from_contract(replace(contract(), observations=two)).history


@pytest.mark.parametrize(
    ("width", "heads"),
    [(8, 2), (96, 32)],
)
def test_attention_is_multi_head_attention(width, heads):
    """torch's own with the same weights is the oracle; it has a bias on its keys, which may be anything."""
    torch.manual_seed(0)
    mine, oracle = QueryAttention(width, heads), nn.MultiheadAttention(width, heads, batch_first=True)
    layers = (mine.query, mine.key, mine.value)
    with torch.no_grad():
        for layer in layers:
            layer.weight.normal_(std=0.3)
        mine.query.bias.normal_()
        mine.value.bias.normal_()
        oracle.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        oracle.in_proj_bias.copy_(torch.cat((mine.query.bias, torch.randn(width), mine.value.bias)))
        oracle.out_proj.load_state_dict(mine.out.state_dict())
    query, tokens = torch.randn(3, width), torch.randn(3, 7, width)
    expected, weights = oracle(query[:, None], tokens, tokens, average_attn_weights=False)
    found, found_weights = mine(query, tokens)
    torch.testing.assert_close(found, expected[:, 0], atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(found_weights, weights[:, :, 0], atol=2e-5, rtol=1e-5)


def test_attention_begins_as_torchs_own():
    mine, oracle = QueryAttention(96, 32), nn.MultiheadAttention(96, 32)
    bound = float(oracle.in_proj_weight.detach().abs().max())
    for layer in (mine.query, mine.key, mine.value):
        assert float(layer.weight.detach().abs().max()) == pytest.approx(bound, rel=0.02)


def test_the_order_of_cells_means_nothing_beside_their_coordinates():
    """With convolutions of one cell, cells that change places together with their coordinates change nothing."""
    cfg = replace(TINY, kernel=1)
    plain = actor(ame=cfg)
    moved = actor(ame=cfg)
    moved.load_state_dict(plain.state_dict())
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    moved.encoder.tokens.centers.copy_(plain.encoder.tokens.centers[order])
    start = layout().term("elevation_map").start
    seen = torch.randn(3, plain.obs_dim)
    shuffled = torch.cat((seen[:, :start], seen[:, start:][:, order]), dim=-1)
    one, other = plain.encode_flat(seen), moved.encode_flat(shuffled)
    torch.testing.assert_close(other.latent, one.latent, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(other.weights, one.weights[:, :, order], atol=1e-5, rtol=1e-5)
    # Without their coordinates they are other cells.
    assert (plain.encode_flat(shuffled).latent - one.latent).abs().max() > 1e-3


@pytest.mark.parametrize("network", SEES_MAP)
@pytest.mark.parametrize("history", [1, 8])
def test_every_number_of_the_observation_counts(network, history):
    model = actor(network, history)
    seen = torch.randn(16, model.obs_dim, requires_grad=True)
    model.mlp(model.encode_flat(seen).latent).square().sum().backward()
    assert (seen.grad.abs().amax(0) > 0).all()


def test_what_the_query_of_ame1_does_not_see():
    """Its weights follow from tokens and proprioception; far cells move a near cell's weight only through the sum.

    AME-2's query sees the global feature, so that there the ratio of two cells' weights depends on a third cell.
    """

    def ratio(network, value):
        # Fresh queries are small; in double precision their share in a weight is still far above rounding.
        model = actor(network, ame=replace(TINY, kernel=1)).double()
        seen = torch.linspace(-0.5, 0.5, model.obs_dim, dtype=torch.float64)[None].clone()
        seen[0, -1] = value
        weights = model.encode_flat(seen).weights
        return weights[:, :, 0] / weights[:, :, 1]

    torch.testing.assert_close(ratio("ame1", 3.0), ratio("ame1", -3.0), rtol=1e-12, atol=0.0)
    assert (ratio("ame2", 3.0) / ratio("ame2", -3.0) - 1.0).abs().max() > 1e-6


def test_a_cell_that_is_masked_out_gets_no_gradient():
    """Tokens are a function of their cell alone under convolutions of one cell."""
    tokens = CellTokens(layout(), replace(TINY, kernel=1))
    grid = torch.randn(2, 5, 4, 1, requires_grad=True)
    tokens(grid)[:, 7].square().sum().backward()
    touched = grid.grad.reshape(2, 20).abs() > 0
    assert touched[:, 7].all()
    assert int(touched.sum()) == 2


def test_the_global_feature_is_the_maximum_and_knows_where_from():
    torch.manual_seed(0)
    feature, tokens = GlobalFeature(6, 4), torch.randn(3, 9, 6)
    each = feature.channel(nn.functional.elu(feature.token(tokens)))
    torch.testing.assert_close(feature(tokens), each.amax(dim=1))
    shares = feature.chosen(tokens)
    assert torch.allclose(shares.sum(-1), torch.ones(3))
    for sample in range(3):
        winners = each[sample].argmax(dim=0).tolist()
        assert shares[sample].tolist() == [winners.count(cell) / 4 for cell in range(9)]


def test_uncertainty_is_part_of_what_a_student_sees():
    window = both(SMALL)
    model = actor(history=8, window=window)
    seen = torch.randn(1, model.obs_dim)
    start = layout(window, 8).term("elevation_map").start
    other = seen.clone()
    other[:, start + 1 :: 2] += 1.0
    assert (model.encode_flat(other).latent - model.encode_flat(seen).latent).abs().max() > 1e-3


def test_the_history_encoder_by_frames():
    """The short path sees the newest frames in full; a shift of the whole history by one frame is another history."""
    cfg = replace(TINY, short_frames=3, long_kernel=5)
    encoder = HistoryEncoder(layout(history=8), cfg)
    with torch.no_grad():
        encoder.long.weight.zero_()
    seen = torch.randn(1, layout(history=8).size, requires_grad=True)
    encoder(seen).sum().backward()
    frames = layout(history=8).frames_of(seen.grad)[0].abs().sum(-1)
    assert (frames[:5] == 0).all()
    assert (frames[5:] > 0).all()
    with pytest.raises(GantryError, match="holds 4 frames, this network spans 5"):
        HistoryEncoder(layout(history=4), cfg)


def test_a_mixture_is_the_weighted_sum_of_its_experts():
    torch.manual_seed(0)
    mixture, values = MixtureOfExperts(3, 2, (5, 4), 3, "elu"), torch.randn(6, 3)
    shares = torch.softmax(mixture.router(values), dim=-1)
    expected = torch.zeros(6, 2)
    for expert in range(3):
        rows = slice(5 * expert, 5 * expert + 5)
        hidden = values @ mixture.first.weight[rows].T + mixture.first.bias[rows]
        for weight, bias in zip(mixture.weights, mixture.biases, strict=True):
            hidden = nn.functional.elu(hidden) @ weight[expert] + bias[expert]
        expected += shares[:, expert, None] * hidden
    torch.testing.assert_close(mixture(values), expected)


def test_normalisation_leaves_the_map_alone():
    model = actor(normalize=True)
    model.train()
    model.update_normalization(TensorDict({"actor": 5 + 3 * torch.randn(64, model.obs_dim)}, batch_size=[64]))
    start = layout().term("elevation_map").start
    bare = actor()
    bare.load_state_dict({k: v for k, v in model.state_dict().items() if "normalizer" not in k})
    seen = torch.randn(2, model.obs_dim)
    normalised = torch.cat((model.obs_normalizer(seen)[:, :start], seen[:, start:]), dim=-1)
    torch.testing.assert_close(model.encode_flat(seen).latent, bare.encode_flat(normalised).latent)
    assert (normalised - seen).abs().max() > 0.5


def random_golden(model, agreed, rows=1000):
    """Observations as wide as a robot's, and what else a bundle wants."""
    data = golden_data(contract_for(tiny_robot()), rows)
    rng = np.random.default_rng(0)
    data["observation"] = rng.normal(0, 1.0, (rows, model.obs_dim)).astype(np.float32)
    return data | {"joint_target_rad": np.zeros((rows, 4), np.float32), "episode_start": np.zeros(rows, bool)}


@pytest.mark.slow
@pytest.mark.parametrize("network", SEES_MAP)
@pytest.mark.parametrize("history", [1, 8])
def test_onnxruntime_computes_what_torch_computes(tmp_path, network, history):
    window = both(SMALL) if history > 1 else SMALL
    model, agreed = actor(network, history, window), contract(window, history)
    shows = network != "scan_mlp"
    # Trap: what a stochastic forward pass leaves in the model must not travel, nor stand in the way.
    model(TensorDict({"actor": torch.randn(2, model.obs_dim)}, batch_size=[2]), stochastic_output=True)
    golden = random_golden(model, agreed)
    folder = export_bundle(model.as_onnx(), agreed, golden, tmp_path / "bundle", attention=shows)
    bundle = load_bundle(folder)
    policy = OnnxPolicy(bundle.model_bytes, bundle.contract)
    assert policy.has_attention == shows
    seen = torch.from_numpy(golden["observation"])
    with torch.no_grad():
        encoding = model.encode_flat(seen)
        expected = model.mlp(encoding.latent).numpy()
    assert np.abs(expected).max() > 0.1
    rows = range(0, 1000, 10)
    found = np.concatenate([policy(seen[row : row + 1].numpy()) for row in rows])
    np.testing.assert_allclose(found, expected[::10], atol=1e-5, rtol=0)
    if shows:
        action, attention = policy.with_attention(seen[:1].numpy())
        np.testing.assert_allclose(action, expected[:1], atol=1e-5, rtol=0)
        assert attention.shape == (1, 5, 4)
        np.testing.assert_allclose(attention, attention_map(encoding, layout(window, history))[:1], atol=1e-5, rtol=0)
        assert float(attention.sum()) == pytest.approx(1.0, abs=1e-5)
    else:
        with pytest.raises(PolicyError, match="shows no attention"):
            policy.with_attention(seen[:1].numpy())


def test_attention_that_is_not_there_is_not_exported(tmp_path):
    model = actor("scan_mlp")
    with pytest.raises(PolicyError, match="no attention to export"):
        export_bundle(model.as_onnx(), contract(), random_golden(model, contract()), tmp_path / "b", attention=True)
    assert not (tmp_path / "b").exists()


def test_wrong_names_and_missing_maps_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'ame2'"):
        PpoCfg(total_steps=1, network="ame3")
    blind = ObservationLayout.from_contract(contract_for(tiny_robot()))
    with pytest.raises(GantryError, match="expected an observation 'elevation_map' among base_ang_vel"):
        make_actor(PpoCfg(total_steps=1, network="ame2"), blind, 4)
    with pytest.raises(GantryError, match="needs to know the observation's layout"):
        PpoCfg(total_steps=1, network="ame2").as_rsl_rl(None)


@pytest.mark.parametrize(
    ("change", "text"),
    [({"kernel": 4}, "ame.kernel is 4, expected an odd"), ({"heads": 5}, "ame.heads is 5, expected a divisor")],
)
def test_sizes_that_make_no_sense_are_refused(change, text):
    with pytest.raises(GantryError, match=text):
        AmeCfg(**change)


def test_small_is_small():
    """What a CPU can learn with: under 1.2 million operations for 112 cells, thirty times fewer than the paper's."""
    window = MapWindow(14, 8, 0.14, 0.6, 0.0, ("elevation",))
    learner = PpoCfg(total_steps=1, network="ame2")
    model = make_actor(learner, layout(window, joints=12), 12)
    assert network_cost(model.as_onnx(), model.obs_dim).flops < 1.2e6
    assert model.encode_flat(torch.zeros(1, model.obs_dim)).latent.isfinite().all()


def test_the_contract_that_these_tests_make_up_is_one():
    assert isinstance(contract().action, ActionSpec)
    assert contract().observation_size == layout().size == 3 + 3 + 3 + 12 + 4 + 20


def test_level_ground_looks_alike_up_to_the_border():
    """Any height and uncertainty that all cells have is no edge anywhere, the border of the window included."""
    torch.manual_seed(0)
    grid = torch.tensor([0.3, -2.0]).expand(1, 6, 5, 2)
    features = CellConvolutions(2, (4, 3), 3)(grid)[0]
    torch.testing.assert_close(features, features[:1].expand_as(features))

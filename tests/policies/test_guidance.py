"""Distances between a student's and a teacher's actions against torch's own, and the fading of their weight by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict
from torch.distributions import Beta, Normal, TransformedDistribution, kl_divergence
from torch.distributions.transforms import AffineTransform

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.networks.layout import ObservationLayout, TermSlice
from gantry_policies.networks.model import PerceptiveModel
from gantry_policies.networks.sizes import WordsNetCfg
from gantry_policies.on_policy.guidance import ImitationCfg, action_loss, reverse_kl


def test_the_divergence_of_normal_students_is_torch_s():
    torch.manual_seed(0)
    student = Normal(torch.randn(5, 3), torch.rand(5, 3) + 0.1)
    theirs = torch.randn(5, 3)
    actor = SimpleNamespace(
        output_mean=student.mean, output_std=student.stddev, output_entropy=student.entropy().sum(-1)
    )
    expected = kl_divergence(student, Normal(theirs, 0.4)).sum(-1)
    torch.testing.assert_close(reverse_kl(actor, theirs, 0.4), expected)


def test_the_divergence_of_bounded_students_is_what_samples_say():
    torch.manual_seed(0)
    base = Beta(torch.tensor([[2.0, 5.0]]), torch.tensor([[3.0, 1.5]]))
    student, theirs = TransformedDistribution(base, AffineTransform(-1.0, 2.0)), torch.tensor([[0.3, -0.2]])
    actor = SimpleNamespace(
        output_mean=2.0 * base.mean - 1.0,
        output_std=2.0 * base.stddev,
        output_entropy=(base.entropy() + torch.log(torch.tensor(2.0))).sum(-1),
    )
    samples = student.sample((200_000,))
    drawn = (student.log_prob(samples) - Normal(theirs, 0.5).log_prob(samples)).sum(-1).mean(0)
    torch.testing.assert_close(reverse_kl(actor, theirs, 0.5), drawn, atol=0.02, rtol=0.0)


@pytest.mark.parametrize(("name", "expected"), [("mean", 0.5**2 + 1.0), ("l1", 1.5)])
def test_distances_of_the_mean_by_hand(name, expected):
    actor = SimpleNamespace(output_mean=torch.tensor([[0.5, 1.0]]))
    loss = action_loss(actor, torch.tensor([[0.0, 0.0]]), ImitationCfg(action_loss=name))
    assert loss.item() == pytest.approx(expected)


def test_a_cosine_fades_slowly_at_both_ends():
    cfg = ImitationCfg(imitation_iterations=10, fade_iterations=100, fade="cosine")
    shares = [cfg.share_at(iteration) for iteration in (0, 10, 35, 60, 85, 110, 200)]
    assert shares == pytest.approx([1.0, 1.0, 0.853553, 0.5, 0.146447, 0.0, 0.0], abs=1e-5)


def test_a_guide_that_makes_no_sense_is_refused():
    with pytest.raises(UnknownNameError, match="'cosine'"):
        ImitationCfg(fade="cosin")
    with pytest.raises(UnknownNameError, match="reverse-kl"):
        ImitationCfg(action_loss="reverse_kl")
    with pytest.raises(GantryError, match="teacher_std is 0"):
        ImitationCfg(teacher_std=0.0)


def test_words_choose_among_the_numbers():
    """The instruction says which of two numbers to answer."""
    torch.manual_seed(0)
    layout = ObservationLayout((TermSlice("numbers", 0, 2), TermSlice("instruction", 2, MAX_WORDS)), vocabulary=3)
    observation = torch.zeros(256, layout.size)
    observation[:, :2] = torch.randn(256, 2)
    which = torch.randint(0, 2, (256,))
    observation[:, 2], observation[:, 3] = 2.0, 3.0 + which
    answer = observation[:, :2].gather(1, which[:, None])
    groups = TensorDict({"actor": observation}, batch_size=[256])
    model = PerceptiveModel(
        groups,
        {"actor": ["actor"]},
        "actor",
        1,
        hidden_dims=(32,),
        activation="elu",
        obs_normalization=True,
        encoder="words",
        sizes=WordsNetCfg(width=8, hidden=(32,)),
        layout=layout,
    )
    model.update_normalization(groups)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(150):
        loss = (model(groups) - answer).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05 * answer.square().mean()
    exported = model.as_onnx().eval()
    with torch.no_grad():
        torch.testing.assert_close(exported(observation), model.eval()(groups))


def test_a_network_that_reads_needs_an_instruction():
    layout = ObservationLayout((TermSlice("numbers", 0, 2),))
    with pytest.raises(GantryError, match="expected an observation 'instruction' among numbers"):
        layout.require_instruction()

"""The losses of the mapping network against numbers worked out by hand."""

import math

import pytest
import torch

from gantry_mapping.learn.losses import beta_nll, mapping_loss, sample_weights, total_variation


def test_beta_nll_of_one_cell():
    """sigma^2 = 0.25, an error of 1: 0.5 * (ln(0.25) / 2 + 1 / 0.5)."""
    loss = beta_nll(torch.zeros(1, 1), torch.tensor([[math.log(0.25)]]), torch.ones(1, 1))
    assert loss.item() == pytest.approx(0.5 * (0.5 * math.log(0.25) + 2.0), rel=1e-6)


def test_beta_nll_with_beta_0_is_the_likelihood_without_its_constant():
    mean, log_variance, target = torch.randn(3, 3, 4, 5).unbind(0)
    expected = -torch.distributions.Normal(mean, torch.exp(0.5 * log_variance)).log_prob(target)
    expected = expected.flatten(1).mean(dim=1) - 0.5 * math.log(2 * math.pi)
    assert torch.allclose(beta_nll(mean, log_variance, target, beta=0.0), expected, atol=1e-5)


def test_no_gradient_passes_through_the_weight():
    """By hand: d/d(log variance) of sg[sigma] * (l / 2 + e^2 exp(-l) / 2) = sigma / 2 * (1 - e^2 / sigma^2)."""
    log_variance = torch.tensor([[math.log(0.25)]], requires_grad=True)
    mean = torch.zeros(1, 1, requires_grad=True)
    beta_nll(mean, log_variance, torch.ones(1, 1)).sum().backward()
    assert log_variance.grad.item() == pytest.approx(0.5 * 0.5 * (1 - 4.0), rel=1e-6)
    assert mean.grad.item() == pytest.approx(0.5 * -1.0 / 0.25, rel=1e-6)


def test_total_variation_of_a_step():
    """2 rows x 3 columns with a step of 0.3 between the last columns: two neighbours differ, over six cells."""
    height = torch.tensor([[[[0.0, 0.0, 0.3], [0.0, 0.0, 0.3]]]])
    assert total_variation(height).item() == pytest.approx(2 * 0.3 / 6)
    assert total_variation(height.transpose(2, 3)).item() == pytest.approx(2 * 0.3 / 6)


def test_samples_count_by_their_variation():
    target = torch.zeros(3, 1, 2, 2)
    target[1, 0, 0, 0], target[2, 0, 0, 0] = 1.0, 3.0
    assert sample_weights(target).tolist() == pytest.approx([0.0, 0.25, 0.75], abs=1e-5)
    assert sample_weights(target, floor=0.3).tolist() == pytest.approx([0.1, 0.275, 0.625], abs=1e-5)


def test_flat_batches_have_a_loss_and_no_division_by_zero():
    zeros = torch.zeros(4, 1, 3, 3)
    assert mapping_loss(zeros, zeros, zeros).item() == 0.0


def test_the_loss_of_a_batch_is_the_weighted_sum():
    mean, log_variance, target = torch.randn(3, 5, 1, 4, 3).unbind(0)
    expected = (sample_weights(target) * beta_nll(mean, log_variance, target)).sum()
    assert torch.equal(mapping_loss(mean, log_variance, target), expected)


def test_the_absolute_error_teaches_the_estimate_alone_and_the_likelihood_the_variance():
    mean = torch.zeros(1, 1, 1, 1, requires_grad=True)
    log_variance = torch.full((1, 1, 1, 1), math.log(0.25), requires_grad=True)
    target = torch.full((1, 1, 1, 1), 0.4)
    loss = mapping_loss(mean, log_variance, target, floor=1.0, absolute=3.0)
    assert loss.item() == pytest.approx(0.5 * (0.5 * math.log(0.25) + 0.16 / 0.5) + 3.0 * 0.4, rel=1e-5)
    loss.backward()
    assert mean.grad.item() == pytest.approx(-3.0)
    assert log_variance.grad.item() == pytest.approx(0.25 * (1 - 0.64), rel=1e-5)


def test_of_an_edge_the_absolute_error_finds_the_likelier_side_and_the_likelihood_the_middle():
    """Two cells in three are up by 1 m; one number for all of them."""
    target = torch.tensor([1.0, 1.0, 0.0]).view(3, 1, 1, 1)
    found = {}
    for absolute in (0.0, 1.0):
        mean = torch.full((1, 1, 1, 1), 0.4, requires_grad=True)
        optimizer = torch.optim.SGD([mean], lr=0.02)
        for _ in range(400):
            optimizer.zero_grad()
            mapping_loss(
                mean.expand(3, 1, 1, 1), torch.zeros(3, 1, 1, 1), target, floor=1.0, absolute=absolute
            ).backward()
            optimizer.step()
        found[absolute] = mean.item()
    assert found[0.0] == pytest.approx(2 / 3, abs=0.02)
    assert found[1.0] == pytest.approx(1.0, abs=0.02)

"""Scatter and draws: the same in every order and in both backends."""

import numpy as np
import pytest

from gantry_fixtures.training import torch
from gantry_mapping.elevation import ops
from gantry_mapping.errors import MappingError


def test_scatter_max_against_a_loop(array):
    rng = np.random.default_rng(1)
    index, values = rng.integers(0, 20, 200), rng.normal(size=200).astype(np.float32)
    expected = np.full(25, -0.5, np.float32)
    for i, value in zip(index, values, strict=True):
        expected[i] = max(expected[i], value)
    for order in (np.arange(200), rng.permutation(200)):
        target = array(np.full(25, -0.5))
        where = index[order] if isinstance(target, np.ndarray) else torch.as_tensor(index[order])
        np.testing.assert_array_equal(np.asarray(ops.scatter_max(target, where, array(values[order]))), expected)


def test_scatter_max_refuses_other_arrays():
    with pytest.raises(MappingError, match="list"):
        ops.scatter_max([0.0], [0], [1.0])


def draws(make, streams=3, count=0, rows=60, cols=50, seed=0, low=-20):
    return ops.hash_uniform(
        seed,
        make(np.arange(streams)),
        make(np.full(streams, count)),
        make(np.tile(np.arange(low, low + rows), (streams, 1))),
        make(np.tile(np.arange(cols), (streams, 1))),
    )


def test_draws_are_the_same_in_both_backends():
    numpy_draws = draws(np.asarray, count=7)
    assert numpy_draws.dtype == np.float32
    np.testing.assert_array_equal(numpy_draws, draws(torch.as_tensor, count=7).numpy())


def test_draws_look_uniform_and_independent():
    sample = draws(np.asarray, streams=8).astype(np.float64)
    assert sample.min() >= 0.0
    assert sample.max() < 1.0
    count = sample.size  # 24,000
    assert abs(sample.mean() - 0.5) < 4 * (1 / 12 / count) ** 0.5
    histogram = np.histogram(sample, bins=20, range=(0, 1))[0]
    assert ((histogram - count / 20) ** 2 / (count / 20)).sum() < 43.8  # chi squared, 19 degrees, 0.1 %
    others = {
        "next row": (sample[:, 1:], sample[:, :-1]),
        "next column": (sample[:, :, 1:], sample[:, :, :-1]),
        "diagonal": (sample[:, 1:, 1:], sample[:, :-1, :-1]),
        "antidiagonal": (sample[:, 1:, :-1], sample[:, :-1, 1:]),
        "next environment": (sample[1:], sample[:-1]),
        "next frame": (sample, draws(np.asarray, streams=8, count=1)),
        "next seed": (sample, draws(np.asarray, streams=8, seed=1)),
    }
    for name, (a, b) in others.items():
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4 / a.size**0.5, name


def test_a_cells_draw_does_not_depend_on_what_else_is_drawn():
    whole, part = draws(np.asarray), draws(np.asarray, streams=2, rows=10, cols=5, low=-15)
    np.testing.assert_array_equal(whole[:2, 5:15, :5], part)

"""The watch over the device ``meta`` itself: what it has to find, and what it must leave alone."""

import numpy as np
import pytest
import torch

from gantry_fixtures import one_device
from gantry_fixtures.one_device import META, Allowed, Numbers, device_in_place, on_device, watched


def meta(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype, device=META)


FOUND = {
    "item": (lambda: meta(3).sum().item(), one_device.NUMBER),
    "a condition": (lambda: bool((meta(3) > 0).any()), one_device.NUMBER),
    "float": (lambda: float(meta(1)), one_device.NUMBER),
    "allclose": (lambda: torch.allclose(meta(3), meta(3)), one_device.NUMBER),
    "cpu": (lambda: meta(3).cpu(), one_device.TO_CPU),
    "numpy": (lambda: meta(3).numpy(), one_device.TO_CPU),
    "tolist": (lambda: meta(3).tolist(), one_device.TO_CPU),
    "nonzero": (lambda: (meta(3) > 0).nonzero(), one_device.ROWS),
    "where": (lambda: torch.where(meta(3) > 0), one_device.ROWS),
    "rows of a mask": (lambda: meta(3)[meta(3) > 0], one_device.ROWS),
    "unique": (lambda: torch.unique(meta(3)), one_device.ROWS),
    "repeat": (lambda: torch.repeat_interleave(meta(3), meta(3, dtype=torch.long)), one_device.ROWS),
    "a list as index": (lambda: meta(3)[[0, 1]], one_device.MADE),
    "an array as index": (lambda: meta(3)[np.array([0, 1])], one_device.MADE),
    "a tensor of numbers": (lambda: torch.tensor([1.0], device=META), one_device.MADE),
    "a new tensor of numbers": (lambda: meta(3).new_tensor([1.0]), one_device.MADE),
    "to the device": (lambda: torch.ones(3).to(META), one_device.TO_DEVICE),
    "copied in": (lambda: meta(3).copy_(torch.ones(3)), one_device.TO_DEVICE),
    "added": (lambda: meta(3) + torch.ones(3), one_device.MIXED),
    "multiplied": (lambda: torch.ones(2, 3) @ meta(3), one_device.MIXED),
    "index of the CPU": (lambda: meta(3)[torch.tensor([0, 1])], one_device.MIXED),
    "inverse": (lambda: torch.linalg.inv(meta(3, 3)), one_device.CHECKED),
    "multinomial": (lambda: torch.multinomial(meta(3), 1), one_device.CHECKED),
}


@pytest.mark.parametrize("name", FOUND)
def test_it_finds_what_waits(name):
    act, kind = FOUND[name]
    with watched() as watch:
        act()
    assert kind in [wait.kind for wait in watch.found]
    assert "test_watch.py" in watch.refused[0]


def filled(values, mask, value):
    values[mask] = value
    return values


LEFT = {
    "a number": lambda: meta(3) * 2.0 + 1,
    "a number of the CPU": lambda: meta(3) * torch.tensor(2.0),
    "a filled mask": lambda: filled(meta(3), meta(3) > 0, 0.0),
    "rows": lambda: meta(3)[meta(2, dtype=torch.long)],
    "full": lambda: torch.full((2,), 1.0, device=META),
    "where": lambda: torch.where(meta(3) > 0, 1.0, meta(3)),
    "a draw": lambda: torch.rand(3, generator=torch.Generator(META), device=META),
    "the CPU alone": lambda: torch.ones(3).sum().item(),
}


@pytest.mark.parametrize("name", LEFT)
def test_it_leaves_alone_what_does_not_wait(name):
    with device_in_place(), watched() as watch:
        LEFT[name]()
    assert watch.found == []


def test_the_backward_pass_is_watched():
    weight = torch.nn.Parameter(meta(3))
    with watched() as watch:
        (weight * torch.tensor([1.0, 2.0, 3.0]).sum()).sum().backward()
    assert watch.found == []
    with watched() as watch:
        weight[weight > 0].sum().backward()
    assert len(watch.found) == 2
    assert on_device(weight.grad)


def looked(values):
    return bool(values.any())


def caller(values):
    return looked(values)


def test_a_place_may_be_allowed_alone_or_with_all_that_it_calls_and_says_what_is_answered():
    alone, within = Allowed("test_watch.py:looked", "a test"), Allowed("test_watch.py:caller", "a test", True, False)
    with watched([alone]) as watch:
        assert caller(meta(3))
    assert (watch.refused, watch.used) == ([], {alone})
    with watched([within]) as watch:
        assert not caller(meta(3))
    assert (watch.refused, watch.used) == ([], {within})
    with watched([Allowed("test_watch.py:caller", "a test")]) as watch:
        caller(meta(3))
    assert len(watch.refused) == 1


def added(values):
    return values + torch.ones(3)


def test_what_a_gpu_refuses_is_allowed_nowhere_unless_it_is_said():
    for kinds in ({}, {"within": True}):
        with watched([Allowed("test_watch.py:added", "a test", **kinds)]) as watch:
            added(meta(3))
        assert [wait.kind for wait in watch.found if wait.allowed is None] == [one_device.MIXED]
    with watched([Allowed("test_watch.py:added", "a test", kinds=frozenset((one_device.MIXED,)))]) as watch:
        added(meta(3))
        looked(meta(3))
    assert [wait.kind for wait in watch.found if wait.allowed is None] == [one_device.NUMBER]
    with watched([Allowed("test_watch.py:looked", "a test", kinds=frozenset((one_device.ROWS,)))]) as watch:
        looked(meta(3))
    assert len(watch.refused) == 1


def test_what_is_built_reads_its_own_constants():
    numbers = Numbers()
    with watched(numbers=numbers):
        table = torch.tensor([3, 1, 2], device=META)
        assert [row.item() for row in table] == [3, 1, 2]
        assert (table > 1).nonzero().flatten().tolist() == [0, 2]
        table[0] = 7
        assert table.max().item() == 7
        assert on_device(table[table > 1])
        assert len(table[table > 1]) == 2

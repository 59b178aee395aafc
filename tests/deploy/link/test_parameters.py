"""Parameters: versions rise for ever, and nothing is used that was not announced."""

import hashlib
import struct
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save

from gantry_deploy.errors import LinkError
from gantry_deploy.link.parameters import Parameters, ParametersStore, check_data, pack_parameters

CONTRACT = "c0" * 32


def store(folder, max_bytes=10**6):
    return ParametersStore(folder, CONTRACT, max_bytes)


def tensors(value):
    return {"actor.0.weight": np.full((3, 4), value, np.float32), "count": np.array(3, np.int64)}


def forged(version, data):
    return Parameters(version, hashlib.sha256(data).hexdigest(), data)


def test_tensors_come_back(tmp_path):
    parameters = store(tmp_path).publish(tensors(0.5))
    found = parameters.tensors()
    assert parameters.version == 1
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        "actor.0.weight": (np.float32, (3, 4)),
        "count": (np.int64, ()),
    }
    np.testing.assert_array_equal(found["actor.0.weight"], 0.5)


def test_versions_rise_over_restarts_and_old_ones_go(tmp_path):
    first = store(tmp_path)
    for value in range(6):
        first.publish(tensors(value))
    assert len(list(tmp_path.iterdir())) <= 4
    again = store(tmp_path)
    assert again.newest == first.newest
    assert again.publish(tensors(9)).version == 7
    sorted(tmp_path.iterdir())[-1].write_bytes(b"torn")
    third = store(tmp_path)
    assert third.newest.version == 6
    assert third.publish(tensors(1)).version == 8


def test_the_version_before_can_still_be_fetched(tmp_path):
    found = store(tmp_path)
    old, new = found.publish(tensors(1)), found.publish(tensors(2))
    assert (found.find(old.sha256), found.find(new.sha256)) == (old.data, new.data)
    found.publish(tensors(3))
    assert found.find(old.sha256) is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "no parameters"),
        ({"w": np.array([1.0, np.nan])}, "not finite: w"),
        ({"w": np.array([object()])}, "hold no numbers cannot be published: w"),
        ({"w": np.zeros(10**6)}, "at most 1000000 are sent"),
    ],
)
def test_what_is_no_policy_is_not_published(tmp_path, given, text):
    found = store(tmp_path)
    found.publish(tensors(1))
    with pytest.raises(LinkError, match=text):
        found.publish(given)
    assert found.newest.version == 1
    assert found.publish(tensors(1)).version == 2


def test_a_full_disk_leaves_the_version_before(tmp_path):
    found = store(tmp_path)
    found.publish(tensors(1))
    (tmp_path / "0000000002.safetensors").mkdir()  # Nothing can be moved to its place.
    with pytest.raises((LinkError, OSError)):
        found.publish(tensors(2))
    assert found.newest.version == 1


def test_what_was_not_announced_is_not_used():
    good = pack_parameters(3, tensors(1), CONTRACT)
    check_data(good, CONTRACT)
    huge = struct.pack("<Q", 2**62) + good.data[8:]
    kinds = save({"w": np.zeros(2, np.uint64)}, {"version": "3"})
    nan = save({"w": np.array([np.nan])}, {"version": "3"})
    for wrong, text in (
        (replace(good, sha256="00" * 32), f"have the SHA-256 {good.sha256}, expected 0000"),
        (replace(good, data=good.data[:-1]), "have the SHA-256"),
        (replace(good, version=4), "Parameters 4 say that they are version '3'"),
        (forged(3, huge), f"header has {2**62} bytes"),
        (forged(3, b""), "header has 0 bytes, of 0 in all"),
        (forged(3, b"\x80\x04\x95" + bytes(200)), "are no safetensors|header"),
        (forged(3, kinds), "numbers of kind U64"),
        (forged(3, nan), "not finite"),
        (forged(3, good.data[:-4]), "are no safetensors"),
    ):
        with pytest.raises(LinkError, match=text):
            wrong.tensors()
    with pytest.raises(LinkError, match=f"belong to the contract '{CONTRACT}', expected 'd0d0"):
        check_data(good, "d0" * 32)

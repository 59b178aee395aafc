"""Steps as bytes: nothing is lost, and whatever is no step is refused in words."""

import pickle
import random
from dataclasses import fields, replace

import numpy as np
import pytest

from gantry_deploy.errors import LinkError
from gantry_deploy.link.codec import DTYPES, decode_step, encode_step
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.session.steps import Actor, SessionStep
from gantry_deploy.testing.link import made_step

MOST = 2**20


def full_step():
    rng = np.random.default_rng(3)
    obs = {
        "state": rng.normal(size=9).astype(np.float32),
        "image/front": rng.integers(0, 256, (3, 5, 7), dtype=np.uint8),
        "touched": np.array([[True, False]]),
        "ticks": np.array(-5, dtype=np.int64),
        "far": np.zeros((2, 0, 3), np.float64),
    }
    actions = [rng.normal(size=4).astype(np.float32) for _ in range(4)]
    return SessionStep(
        *(3, 41, 12.5, obs, actions[0], actions[1], Actor.PERSON),
        reward=0.1,
        penalty=-0.02,
        terminated=True,
        success=True,
        base_action=actions[2],
        last_obs={**obs, "state": -obs["state"]},
        last_base_action=actions[3],
        parameters_version=7,
    )


def assert_same(one, other):
    for item in fields(one):
        left, right = getattr(one, item.name), getattr(other, item.name)
        if isinstance(left, dict):
            assert list(left) == list(right)
            for name, array in left.items():
                assert array.dtype == right[name].dtype
                assert array.shape == right[name].shape
                np.testing.assert_array_equal(array, right[name])
        else:
            np.testing.assert_array_equal(left, right, err_msg=item.name)


@pytest.mark.parametrize("step", [full_step(), made_step(5), replace(full_step(), last_obs=None, base_action=None)])
def test_a_step_comes_back_as_it_was(step):
    found = decode_step(encode_step(step, MOST), MOST)
    assert_same(step, found)
    assert found.obs["state"].flags.writeable
    assert isinstance(found.actor, Actor)


def test_other_byte_orders_and_layouts_come_back_as_the_same_numbers():
    step = made_step(1)
    image = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(4, 5, 3).transpose(2, 0, 1)
    odd = replace(step, obs={"state": step.obs["state"].astype(">f4"), "image/front": image})
    found = decode_step(encode_step(odd, MOST), MOST)
    np.testing.assert_array_equal(found.obs["image/front"], image)
    np.testing.assert_array_equal(found.obs["state"], step.obs["state"])
    assert found.obs["state"].dtype == np.float32


def test_arrays_may_change_after_a_step_was_encoded():
    step = full_step()
    data = encode_step(step, MOST)
    step.action[:] = 0.0
    assert encode_step(step, MOST) != data
    assert (decode_step(data, MOST).action != 0.0).all()


def test_a_step_with_two_images_has_the_size_of_its_images():
    data = encode_step(made_step(0), MOST)
    assert 2 * 3 * 84 * 84 < len(data) < 2 * 3 * 84 * 84 + 300


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"reward": float("nan")}, "reward of a step is nan"),
        ({"stamp_s": float("inf")}, "stamp_s of a step is inf"),
        ({"action": np.array([0.0, np.nan], np.float32)}, "action holds a number that is not finite"),
        ({"action": np.zeros(3, np.float64)}, "action is float64"),
        ({"action": np.zeros((1, 3), np.float32)}, "action is float32 of shape"),
        ({"action": np.zeros(3, np.float32)}, "differ in size: action 3, policy_action 7"),
        ({"action": np.zeros(0, np.float32)}, "with a from 1"),
        ({"action": [0.0] * 7}, "action is 'list'"),
        ({"action": np.array([object()] * 7)}, "action is 'object', expected a numpy array of bool, uint8"),
        ({"obs": {}}, "no observation"),
        ({"obs": {"state": np.full(3, np.nan, np.float32)}}, r"obs\['state'\] holds a number that is not finite"),
        ({"obs": {"state": np.zeros(3, np.complex64)}}, r"obs\['state'\] is 'complex64'"),
        ({"obs": {"image/front": np.zeros((84, 84, 3), np.uint8)}}, r"expected uint8 of shape \(3, height, width\)"),
        ({"obs": {"image/front": np.zeros((3, 84, 84), np.float32)}}, "is float32"),
        ({"obs": {"a b": np.zeros(3, np.float32)}}, "'a b', which is no name"),
        ({"obs": {str(i): np.zeros(1, np.float32) for i in range(65)}}, "more than 64 entries"),
        ({"obs": {"state": np.zeros(2**19, np.float32)}}, "at most 1048576 are sent"),
        ({"last_obs": {"state": np.zeros(3, np.float32)}}, "neither terminated nor truncated"),
        ({"episode": -1}, "episode of a step is -1"),
        ({"actor": "nobody"}, "actor of a step is 'nobody', expected one of policy, person"),
    ],
)
def test_what_is_no_step_is_not_sent(changes, text):
    with pytest.raises(LinkError, match=text):
        encode_step(replace(made_step(0), **changes), MOST)


def wire(**changes):
    message = pb.Step.FromString(encode_step(made_step(0, image_px=4), MOST))
    for name, value in changes.items():
        setattr(message.action, name, value) if name != "shape" else message.action.shape.__setitem__(0, value)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (pickle.dumps({"action": np.zeros(3)}), "are not a step of Gantry's correction protocol"),
        (b"\x80\x04\x95" + bytes(100), "are not a step"),
        (b"", "actor of a step is ''"),
        (bytes(MOST + 1), "at most 1048576 are taken"),
        (wire(dtype="object"), "dtype 'object', expected one of bool, uint8"),
        (wire(dtype="O"), "dtype 'O'"),
        (wire(dtype="float32\x1b[2J"), r"float32\\x1b\[2J"),
        (wire(shape=2**31), "has 28 bytes, expected 8589934592"),
        (wire(data=b"123"), "has 3 bytes, expected 28"),
    ],
)
def test_what_is_no_step_is_not_taken(data, text):
    with pytest.raises(LinkError, match=text):
        decode_step(data, MOST)


def test_damaged_bytes_are_a_step_or_refused():
    """Whatever the damage, the only error is the one that the server answers with."""
    draw = random.Random(4)
    good = encode_step(made_step(99, image_px=2), MOST)
    refused = 0
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        data = data[: draw.randrange(len(data))] if draw.random() < 0.2 else data
        try:
            step = decode_step(bytes(data), MOST)
        except LinkError:
            refused += 1
        else:
            assert np.isfinite(step.action).all()
            assert all(array.dtype in DTYPES.values() for array in step.obs.values())
    assert refused > 300

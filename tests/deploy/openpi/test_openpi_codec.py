"""Messages of openpi's protocol: the same bytes as openpi-client's, and refusals of whatever makes no sense."""

import datetime
import struct
import tracemalloc

import msgpack
import numpy as np
import pytest

from gantry_deploy.errors import MalformedMessageError
from gantry_deploy.openpi.codec import MessageLimits, decode, encode

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(2.5),
    np.zeros((0, 3), np.uint8),
    np.array([True, False]),
    np.arange(4, dtype=">i2"),
    np.arange(12, dtype=np.float64).reshape(3, 4).T,
    np.array(["pick", "place it"]),
    np.array([b"ab"]),
]


def wire(**fields):
    """A message with one map that stands for an array, as any program may write it."""
    return msgpack.packb({"a": {name.encode(): value for name, value in fields.items()}})


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_return_as_they_were(array):
    found = decode(encode({"a": array}))["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_the_bytes_are_those_of_the_protocol():
    array = np.array([[1, 2], [3, 4]], np.uint8)
    same = {b"__ndarray__": True, b"data": b"\x01\x02\x03\x04", b"dtype": "|u1", b"shape": (2, 2)}
    assert encode({"observation/image": array}) == msgpack.packb({"observation/image": same})
    assert encode({"x": np.float32(0.5)}) == msgpack.packb(
        {"x": {b"__npgeneric__": True, b"data": 0.5, b"dtype": "<f4"}}
    )


def test_plain_values_and_scalars_return():
    message = {"text": "ö", "n": -5, "f": 1.5, "none": None, "list": [1, [2]], "raw": b"\x00", "map": {b"k": True}}
    assert decode(encode(message)) == message
    scalars = {"a": np.float32(0.1), "b": np.int8(-3), "c": np.bool_(True)}
    found = decode(encode(scalars))
    assert found == scalars
    assert [type(value) for value in found.values()] == [type(value) for value in scalars.values()]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([{}], dtype=object), "array of object"),
        (np.zeros(2, np.complex64), "array of complex64"),
        (np.zeros(2, [("a", "f4")]), "array of"),
        (np.array(["2026-01-01"], "M8[D]"), "array of datetime64"),
        (datetime.date(2026, 1, 1), "(date)"),
        ({"a", "b"}, "(set)"),
        (2**70, "1180591620717411303424 (int)"),
    ],
)
def test_what_the_protocol_has_no_place_for_is_not_sent(value, words):
    with pytest.raises(MalformedMessageError) as caught:
        encode({"value": value})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (wire(__ndarray__=True, data=b"\x00" * 8, dtype="|O", shape=[1]), "dtype is '|O'"),
        (wire(__ndarray__=True, data=b"\x00" * 8, dtype="<c8", shape=[1]), "dtype is '<c8'"),
        (wire(__ndarray__=True, data=b"\x00" * 8, dtype="f4,f4", shape=[1]), "dtype is 'f4,f4'"),
        (wire(__ndarray__=True, data=b"\x00" * 8, dtype="|V8", shape=[1]), "dtype is '|V8'"),
        (wire(__ndarray__=True, data=b"\x00" * 8, dtype=7, shape=[1]), "dtype is 7"),
        (wire(__ndarray__=True, data=b"\x00" * 8, dtype="<f4", shape=[3]), "has 8 bytes, expected 12"),
        (
            wire(__ndarray__=True, data=b"", dtype="<f8", shape=[2**31, 2**31]),
            "has 0 bytes, expected 36893488147419103232",
        ),
        (wire(__ndarray__=True, data=b"", dtype="<f8", shape=[-1, 0]), "shape is"),
        (wire(__ndarray__=True, data=b"\x00" * 4, dtype="<f4", shape=[1] * 9), "shape is"),
        (wire(__ndarray__=True, data=b"\x00" * 4, dtype="<f4", shape=[1.0]), "shape is"),
        (wire(__ndarray__=True, data="text", dtype="<f4", shape=[1]), "has a str, expected 4"),
        (wire(__ndarray__=True, data=b"\x02", dtype="|b1", shape=[1]), "byte other than 0 and 1"),
        (wire(__npgeneric__=True, data=300, dtype="|u1"), "a number of uint8 is 300"),
        (wire(__npgeneric__=True, data="1", dtype="<f4"), "a number of float32 is '1'"),
        (msgpack.packb([1, 2]), "it is a list, expected a map"),
        (msgpack.packb({"a": msgpack.ExtType(1, b"code")}), "type 0x"),
        (msgpack.packb({1: 2}), "int is not allowed"),
        (msgpack.packb({"a": 1}) + b"\x00", "1 bytes follow it"),
        (msgpack.packb({"a": "abcdef"})[:-2], "claims 2 bytes more"),
        (b"", "ends after 0 bytes"),
        (b"\x81\xa1a", "ends after 3 bytes"),
        (b"\x80\x04\x95\x10\x00", "follow it"),
        (msgpack.packb({b"a": b"\xff", "t": "x"}).replace(b"\xa1x", b"\xa1\xff"), "utf-8"),
    ],
)
def test_messages_that_make_no_sense_are_refused_in_words(data, words):
    with pytest.raises(MalformedMessageError) as caught:
        decode(data)
    assert words in str(caught.value)
    assert caught.value.reason == "malformed"


def nested(depth):
    value = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_bounds_of_size_depth_and_number_hold_on_both_sides():
    limits = MessageLimits(message_bytes=250, items=20, depth=4)
    fits = [{"a": np.zeros(20)}, nested(4), {"a": list(range(17))}]
    too_much = [{"a": np.zeros(32)}, nested(5), {"a": list(range(18))}]
    for message in fits:
        assert decode(encode(message, limits), limits).keys() == message.keys()
    for message, words in zip(too_much, ("250", "deeper than 4", "at most 20"), strict=True):
        with pytest.raises(MalformedMessageError, match=words):
            encode(message, limits)
        with pytest.raises(MalformedMessageError, match=words):
            decode(encode(message), limits)


@pytest.mark.parametrize("head", [b"\xdd", b"\xdf"])
def test_claimed_lists_inside_of_lists_take_no_memory(head):
    bomb = b"\x81\xa1a" + (head + struct.pack(">I", 40_000)) * 1000 + bytes(100_000)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessageError):
            decode(bomb, MessageLimits(items=10**9, depth=10))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_random_bytes_are_a_message_or_a_refusal():
    rng = np.random.default_rng(0)
    whole = encode({"state": np.arange(5.0), "list": [1, "two", None], "map": {"x": np.float32(1)}})
    refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), rng.integers(1, 4)):
            data[place] = rng.integers(0, 256)
        try:
            decode(bytes(data[: rng.integers(1, len(data) + 1)]))
        except MalformedMessageError:
            refused += 1
    assert 1000 < refused <= 3000

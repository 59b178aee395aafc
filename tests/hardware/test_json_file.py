"""JSON of unknown origin: what two readers could take for two things, or none could take, is refused."""

import json
import os

import pytest

from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import (
    MAX_BYTES,
    MAX_DEPTH,
    JsonError,
    JsonSyntaxError,
    as_plain,
    parse_json,
    parse_json_object,
    read_json,
    read_json_object,
)
from gantry_hardware.files.structured import ConfigError, set_field


@pytest.mark.parametrize(
    "value", [None, True, 0, -(2**63), 2**64 - 1, 0.1, 1e308, "ü ラ 🤖", [], {}, {"a": [{"b": [1]}]}]
)
def test_what_is_plain_comes_back(value, tmp_path):
    assert parse_json(json.dumps(value), "it") == value
    path = tmp_path / "x.json"
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    assert read_json(path) == value


REFUSED = {
    "a key twice": (b'{"a": 1, "a": 2}', "the key 'a' twice"),
    "a key twice inside": (b'[{"b": {"a": 1, "\\u0061": 2}}]', "the key 'a' twice"),
    "a key with an escape, twice": (b'{"\\u001b": 1, "\\u001b": 2}', r"the key '\\x1b' twice"),
    "nan": (b"[NaN]", "NaN in it"),
    "infinity": (b'{"a": -Infinity}', "-Infinity in it"),
    "a float beyond floats": (b"[1e999]", "the number 1e999, which no float holds"),
    "a negative one": (b"-1e999", "which no float holds"),
    "a long integer": (b"1" * 5000, "does not fit 64 bits"),
    "a larger integer": (str(2**64).encode(), "does not fit 64 bits"),
    "a smaller integer": (str(-(2**63) - 1).encode(), "does not fit 64 bits"),
    "lists in lists": (b"[" * 100_000, "nested deeper"),
    "lists, closed": (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested deeper"),
    "objects in objects": (b'{"a":' * 70 + b"1" + b"}" * 70, "nested deeper"),
    "half a pair": (b'["\\ud800"]', r"'\\ud800', which holds half"),
    "half a pair in a key": (b'{"\\udc00": 1}', "half of a surrogate pair"),
    "half a pair raw": (b'"\xed\xa0\x80"', "no UTF-8 text"),
    "latin-1": (b'"\xff"', "no UTF-8 text"),
    "utf-16": ("[1]".encode("utf-16"), "no UTF-8 text"),
    "utf-16 without a mark": ("[1]".encode("utf-16-le"), "no JSON"),
    "a byte order mark": ("[1]".encode("utf-8-sig"), "no JSON"),
    "nothing": (b"", "no JSON"),
    "half": (b'{"a": 1', "no JSON"),
    "two": (b"{} {}", "no JSON"),
    "a comma": (b"[1,]", "no JSON"),
    "a raw control character": (b'"\x1b[2J"', "no JSON"),
    "too much": (b" " * (MAX_BYTES + 1), "larger than 1048576 bytes"),
}


@pytest.mark.parametrize(("data", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_strict_json_is_refused_and_named(data, text, tmp_path):
    with pytest.raises(JsonError, match=f"^card.json .*{text}"):
        parse_json(data, "card.json")
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(GantryError, match=rf"^'{tmp_path}/x\.json' .*{text}") as caught:
        read_json(path)
    assert str(caught.value).isprintable()


def test_what_is_no_json_is_told_from_what_is_refused():
    with pytest.raises(JsonSyntaxError):
        parse_json("walk", "it")
    with pytest.raises(JsonError) as caught:
        parse_json('{"a": 1, "a": 1}', "it")
    assert not isinstance(caught.value, JsonSyntaxError)
    with pytest.raises(ConfigError, match="it is no JSON"):
        parse_json("walk", "it", error=ConfigError)


def test_numbers_that_are_none_where_they_are_asked_for():
    nan, infinity, large = parse_json("[NaN, -Infinity, 1e999]", "it", allow_nan=True)
    assert nan != nan
    assert (infinity, large) == (-float("inf"), float("inf"))


def test_texts_may_have_to_be_printable_and_short():
    assert parse_json('{"näme": ["ラ", ""]}', "it", max_text=4) == {"näme": ["ラ", ""]}
    for data in ('["\\u001b[2J"]', '{"a\\nb": 1}', '["\\u202egnp"]', '["\\u0000"]'):
        with pytest.raises(JsonError, match="expected printable characters"):
            parse_json(data, "it", max_text=9)
    with pytest.raises(JsonError, match=r"a text of 10 characters, 'xxxxxxxxxx'\.\.\., allowed are 9"):
        parse_json('{"a": {"b": "xxxxxxxxxx"}}', "it", max_text=9)


def test_only_objects_where_one_is_expected(tmp_path):
    for data, kind in (("[]", "list"), ("1", "int"), ('"a"', "str"), ("null", "NoneType")):
        with pytest.raises(JsonError, match=f"^it is a JSON {kind}, expected an object"):
            parse_json_object(data, "it")
        (tmp_path / "x").write_text(data)
        with pytest.raises(ConfigError, match=f"x' is a JSON {kind}, expected an object"):
            read_json_object(tmp_path / "x", error=ConfigError)


def test_a_file_is_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(JsonError, match="is no plain file"):
            read_json(path)
    for path in (tmp_path, tmp_path / "none", tmp_path / ("x" * 300)):
        with pytest.raises(OSError, match=r"directory|No such file|too long"):
            read_json(path)


def test_a_thousand_keys_twice_are_found_at_once():
    """Looking each key up in a list of them would take minutes."""
    many = ",".join(f'"{i}": 1' for i in range(60_000))
    with pytest.raises(JsonError, match="the key '59999' twice"):
        parse_json(f'{{{many}, "59999": 2}}', "it")


def test_plain_data_is_what_a_file_would_give_back():
    assert as_plain({"a": (1, 2), 3: [float("inf")]}) == {"a": [1, 2], "3": [float("inf")]}


def test_values_on_a_command_line_are_read_alike():
    from dataclasses import dataclass, field

    @dataclass(frozen=True)
    class Cfg:
        options: dict[str, float] = field(default_factory=dict)
        name: str = ""

    assert set_field(Cfg(), "name", "walk").name == "walk"
    for text in ('{"a": 1, "a": 2}', "[" * 5000, "1" * 5000):
        with pytest.raises(ConfigError):
            set_field(Cfg(), "options", text)

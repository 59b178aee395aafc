"""Texts that others wrote, made fit for a terminal and a log line."""

import pytest

from gantry_hardware.errors import near_name, unknown_name_text
from gantry_hardware.files.text import NAME_LIMIT, names_text, plain_text, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("FL_hip_joint", "FL_hip_joint"),
        ("prüfung ラン 1", "prüfung ラン 1"),
        ("", ""),
        ("\x1b[2J\x1b]0;pwn\x07", "\\x1b[2J\\x1b]0;pwn\\x07"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\ud800", "\\ud800"),
        ("\x9b2J\x00\x7f", "\\x9b2J\\x00\\x7f"),
        ("abc\u202egnp.exe", "abc\\u202egnp.exe"),
        ("a\u2028b\u200bc\ufeff", "a\\u2028b\\u200bc\\ufeff"),
    ],
)
def test_what_is_no_plain_character_is_escaped(text, shown):
    assert printable(text) == shown
    assert plain_text(text) == f"'{shown}'"
    assert printable(text).encode("utf-8").decode("utf-8").isprintable()


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "\x1b" * 1_000_000, "\ud800" * 61, "ラ" * 61], ids=["x", "esc", "half", "ra"]
)
def test_a_long_text_is_cut_and_its_length_is_told(text):
    shown = printable(text)
    assert len(shown) <= NAME_LIMIT + len("… (1000000 characters)")
    assert shown.endswith(f"… ({len(text)} characters)")


def test_a_text_of_just_the_limit_is_whole():
    assert printable("x" * NAME_LIMIT) == "x" * NAME_LIMIT
    assert printable("abcdef", 5) == "abcde… (6 characters)"
    assert printable("abcd\n", 5) == "abcd… (5 characters)"  # Half an escape would be another text.


class Odd:
    """A value whose repr raises."""

    def __repr__(self) -> str:
        raise RecursionError


@pytest.mark.parametrize(
    "value",
    [10**5000, list(range(10_000)), Odd(), {"key": "\ud800\x1b"}, b"\x1b" * 1000],
    ids=["huge", "list", "odd", "surrogate", "bytes"],
)
def test_a_value_of_any_type_is_shown_shortly(value):
    shown = plain_text(value)
    assert shown.isprintable()
    assert len(shown) < 2 * NAME_LIMIT


def test_names_are_cut_and_counted():
    assert names_text(["a", "b\n"]) == "a, b\\n"
    assert names_text(["a"] * 5, most=2) == "a, a and 3 more"


def test_an_unknown_name_is_escaped_and_cut():
    text = unknown_name_text("joint", "\x1b[2J" * 250_000, ("FL_hip\n", "x" * 500))
    assert text.isprintable()
    assert len(text) < 300
    assert unknown_name_text("mode", "\ud800fast", ("fast",)).isprintable()


def test_a_megabyte_is_near_no_name():
    assert near_name("g" * 1_000_000, ("go2",)) == ""

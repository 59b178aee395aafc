"""Docstrings below the fields of dataclasses, found in their source."""

from dataclasses import dataclass, field, make_dataclass

from gantry_hardware.files.field_docs import field_meanings, meanings_by_path

KINDS = ("door", "gate")
"""Names that a field may have."""


@dataclass(frozen=True)
class Inner:
    width_m: float = 0.5
    """Width, e.g. of a door, in
    m. Of no effect outside."""
    height_m: float = 2.0
    kind: str = "door"
    """A name of :data:`KINDS`, not ``None``."""


@dataclass(frozen=True)
class Outer(Inner):
    """No field."""

    count: int = 3
    """How many"""
    inner: Inner = field(default_factory=Inner)
    """A part."""


def test_the_first_sentence_below_a_field_is_its_meaning():
    kind = "A name of KINDS: door, gate, not None"
    assert field_meanings(Inner) == {"width_m": "Width, e.g. of a door, in m", "kind": kind}
    assert meanings_by_path(Outer(), "env.") == {
        "env.width_m": "Width, e.g. of a door, in m",
        "env.kind": kind,
        "env.count": "How many",
        "env.inner.width_m": "Width, e.g. of a door, in m",
        "env.inner.kind": kind,
    }


def test_a_class_without_source_has_no_meanings():
    assert field_meanings(make_dataclass("Made", [("size", int, 1)])) == {}

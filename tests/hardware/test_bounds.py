from dataclasses import dataclass

import numpy as np
import pytest

from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.files.bounds import Range, check_fields, finite, is_finite_number, value_text, whole

NO_NUMBERS = [
    float("nan"), float("inf"), -float("inf"), 1e308, 1e-300, 10**400, 10**5000, True, "3", None, [1.0], 1j,
    np.float32("inf"), np.array([1.0, 2.0]),
]  # fmt: skip


@pytest.mark.parametrize("value", [1, 1.0, 2, 0.5, 10, np.float32(3.0), np.int64(4)])
def test_numbers_in_the_range_come_back_as_floats(value):
    found = finite("rate_hz", value, 0.5, 10.0)
    assert found == float(value)
    assert type(found) is float


@pytest.mark.parametrize("value", NO_NUMBERS, ids=range(len(NO_NUMBERS)))
def test_everything_else_is_refused_with_name_value_and_range(value):
    with pytest.raises(RobotError, match=r"^rate_hz is .+, expected a number from 0\.5 to 10\.$") as caught:
        finite("rate_hz", value, 0.5, 10.0, RobotError)
    assert len(str(caught.value)) < 200


def test_ends_belong_to_the_range_and_what_lies_beyond_does_not():
    for value in (0.5, 10.0):
        assert finite("x", value, 0.5, 10.0) == value
    for value in (np.nextafter(0.5, 0.0), np.nextafter(10.0, 11.0)):
        with pytest.raises(GantryError):
            finite("x", value, 0.5, 10.0)


@pytest.mark.parametrize("value", [1.0, 0, 8, True, "2", float("nan"), None])
def test_whole_numbers_are_no_floats_and_no_booleans(value):
    with pytest.raises(GantryError, match="expected a whole number from 1 to 7"):
        whole("count", value, 1, 7)
    assert whole("count", np.int32(7), 1, 7) == 7


@dataclass(frozen=True)
class Numbers:
    plain: float = 1.0
    many: tuple[float, ...] = (1.0, 2.0)
    nested: tuple[tuple[float, float], ...] = ((0.1, 0.2),)
    optional: float | None = None


def test_every_number_of_a_field_is_looked_at():
    ranges = dict.fromkeys(("plain", "many", "nested", "optional"), Range(0.0, 5.0))
    check_fields(Numbers(), ranges, "part.")
    for broken, name in (
        (Numbers(plain=float("inf")), "part.plain"),
        (Numbers(many=(1.0, float("nan"))), r"part.many\[1\]"),
        (Numbers(nested=((0.1, 1e308),)), r"part.nested\[0\]\[1\]"),
        (Numbers(optional=-1.0), "part.optional"),
        (Numbers(plain=None), "part.plain"),
        (Numbers(many=(None,)), r"part.many\[0\]"),
    ):
        with pytest.raises(GantryError, match=f"^{name} is .*, expected a number from 0 to 5"):
            check_fields(broken, ranges, "part.")


def test_values_in_messages_are_short_and_hold_no_control_characters():
    assert value_text("\x1b[2J") == "'\\x1b[2J'"
    assert len(value_text("a" * 10**6)) < 100
    assert "thousands of digits" in value_text(10**5000)


def test_finite_numbers():
    assert all(is_finite_number(value) for value in (0, 1.5, np.float32(2.0)))
    assert not any(is_finite_number(value) for value in (float("nan"), float("inf"), 10**400, True, "1", None))

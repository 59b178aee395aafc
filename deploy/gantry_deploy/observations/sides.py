"""Left and right told from the names of a robot's parts, and refused where names do not tell."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from gantry_hardware.errors import GantryError

_SIDES = (
    ("left", "right"),
    ("fl", "fr"),
    ("rl", "rr"),
    ("hl", "hr"),
    ("bl", "br"),
    ("ml", "mr"),
    ("lf", "rf"),
    ("lh", "rh"),
    ("lr", "rr"),
    ("lb", "rb"),
    ("lm", "rm"),
    ("l", "r"),
)
"""Words that tell sides, in small letters: whole words, single letters, and the legs of four and six."""
_LEGS = {word for pair in _SIDES if len(pair[0]) == 2 for word in pair}
_PLACES = {"front", "rear", "hind", "back", "fore"}
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[^A-Za-z]+")
"""Words of a name: parted by anything but letters, or by a capital as in ``LeftHipYaw``."""
_TURNS_ACROSS = {"pitch", "hfe", "kfe", "afe", "thigh", "calf", "knee", "kn", "hy", "elbow", "shank", "shin", "wheel"}
"""Words of joints about the lateral axis y, whose angles are the same in the mirror image."""
_TURNS_ALONG = {"roll", "yaw", "haa", "abad", "abduct", "abduction", "abductor", "hx", "hz"}
"""Words of joints about the axes x and z, whose angles change sign."""
_OFF = "learner.mirror=none turns mirroring off"


def partners(names: Sequence[str], central: Collection[str] = ()) -> list[str]:
    """The part on the other side of each of some parts; central ones are their own.

    Args:
        names: Of all parts: with ``left`` and ``right``, ``L`` and ``R``, or legs such as ``FL`` or ``RH``, as words
            anywhere in the name, in small or capital letters.
        central: Parts that lie in the plane of symmetry.

    Raises:
        GantryError: With the parts that have no counterpart, or several, and are not declared central.
    """
    unknown = [name for name in central if name not in names]
    if unknown:
        raise GantryError(f"'{unknown[0]}' is declared central, but is none of {', '.join(names)}.")
    known, found, lonely = set(names), [], []
    for name in names:
        others = [name] if name in central else sorted((_images(name) & known) - {name})
        if len(others) != 1:
            lonely.append(f"'{name}'" + (f" (either {' or '.join(others)})" if others else ""))
        found.append(others[0] if others else name)
    if lonely:
        raise GantryError(
            f"No mirrored part is known for {_listed(lonely)} among {_listed(list(names))}. Parts in the plane of "
            f"symmetry must be declared, joints as RobotSpec.central_joints; {_OFF}."
        )
    wrong = [name for name, other in zip(names, found, strict=True) if found[names.index(other)] != name]
    if wrong:
        raise GantryError(f"'{wrong[0]}' is not the mirrored part of its own mirrored part; {_OFF}.")
    return found


def sign_of_joint(name: str) -> float:
    """Factor on a joint's angle in the mirror image: -1 about x and z, 1 about y.

    Raises:
        GantryError: If the name does not tell the axis.
    """
    words = {word.lower() for word in _WORD.findall(name)}
    if words & _TURNS_ALONG:
        return -1.0
    if words & _TURNS_ACROSS:
        return 1.0
    if "hip" in words and (words & _LEGS or words & _PLACES):  # a leg of four spreads at the hip
        return -1.0
    raise GantryError(
        f"Whether the joint '{name}' changes its sign in a mirror is not known: its name has none of "
        f"{', '.join(sorted(_TURNS_ALONG | _TURNS_ACROSS))}; {_OFF}."
    )


def _images(name: str) -> set[str]:
    """Names that a part on the other side may have."""
    words = _WORD.findall(name)
    swaps = [(place, other) for place, word in enumerate(words) for other in _others(word)]
    single = {"".join([*words[:place], other, *words[place + 1 :]]) for place, other in swaps}
    # A name may tell its side twice: left_leg_hip_l.
    twice = {
        "".join(other if at == place else second if at == place_2 else word for at, word in enumerate(words))
        for place, other in swaps
        for place_2, second in swaps
        if place < place_2
    }
    return single | twice


def _others(word: str) -> list[str]:
    """A word with its side exchanged, in the same letters."""
    found = []
    for one, other in (*_SIDES, *((b, a) for a, b in _SIDES)):
        if word.lower() == one:
            found.append(_in_case(word, other))
        elif len(one) > 2 and word.lower().startswith(one):
            found.append(_in_case(word[: len(one)], other) + word[len(one) :])
        elif len(one) > 2 and word.lower().endswith(one):
            found.append(word[: -len(one)] + _in_case(word[-len(one) :], other))
    return found


def _in_case(like: str, word: str) -> str:
    if like.isupper():
        return word.upper()
    return word.capitalize() if like[:1].isupper() else word


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more

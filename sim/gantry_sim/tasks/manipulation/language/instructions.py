"""Instructions: sentences that ask for one thing of a scene, and for one zone, in words that mean nothing else there.

A sentence is a template of a verb with a phrase for the thing and, to push and to place, one for the zone. A phrase
names by colour, by shape or by place in the scene as it lies at the start. Phrases and templates come in two sets:
those of training, and paraphrases that no training reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.parts import InstructionSpec
from gantry_deploy.language.instructions import vocabulary_of, words_of
from gantry_hardware.errors import UnknownNameError
from gantry_sim.tasks.manipulation.language.scene import Scene, draw_scene
from gantry_sim.tasks.manipulation.workbench import WORKBENCHES, Workbench

FloatArray = NDArray[np.float64]

PICK, PUSH, PLACE = VERBS = ("pick", "push", "place")
"""Requests: to lift a thing, to push it to a zone, and to put it on one."""
COLOUR, SHAPE, LEFT, RIGHT, MIDDLE, NEAREST, FARTHEST = WAYS = (
    *("colour", "shape", "left", "right", "middle", "nearest", "farthest"),
)
"""Ways to refer to a thing; a zone by colour, left or right. Left is to the left of the arm, and near is near it."""
SURE_M = 0.03
"""A thing that is nearest, or leftmost, and so on, is so by at least this distance, or it is not named so."""


class Phrasing(StrEnum):
    """Set of sentences."""

    TRAINED = "trained"
    """Sentences of training and of demonstrations."""
    HELD_OUT = "held-out"
    """Paraphrases that are kept for tests: other verbs, another order, and phrases with some words never read."""


_TEMPLATES: dict[Phrasing, dict[str, tuple[str, ...]]] = {
    Phrasing.TRAINED: {
        PICK: ("pick up {thing}", "pick {thing} up", "lift {thing}", "take {thing}", "grasp {thing} and lift it"),
        PUSH: ("push {thing} to {zone}", "slide {thing} to {zone}", "shove {thing} onto {zone}"),
        PLACE: (
            *("put {thing} on {zone}", "place {thing} on {zone}", "set {thing} down on {zone}"),
            "pick up {thing} and put it on {zone}",
        ),
    },
    Phrasing.HELD_OUT: {
        PICK: ("lift {thing} up", "take {thing} and pick it up", "raise {thing}", "grab {thing}"),
        PUSH: ("to {zone} push {thing}", "push {thing} onto {zone}", "nudge {thing} over to {zone}"),
        PLACE: ("on {zone} put {thing}", "take {thing} and place it on {zone}", "lay {thing} down on {zone}"),
    },
}
_THINGS: dict[Phrasing, dict[str, tuple[str, ...]]] = {
    Phrasing.TRAINED: {
        COLOUR: ("the {colour} one", "the {colour} thing", "the {colour} {shape}"),
        SHAPE: ("the {shape}",),
        LEFT: ("the left thing", "the thing on the left"),
        RIGHT: ("the right thing", "the thing on the right"),
        MIDDLE: ("the middle thing", "the one in the middle"),
        NEAREST: ("the nearest thing", "the thing nearest to you"),
        FARTHEST: ("the farthest thing", "the thing farthest from you"),
    },
    Phrasing.HELD_OUT: {
        COLOUR: ("the {colour} object", "the {shape} in {colour}"),
        SHAPE: ("the thing shaped like a {shape}",),
        LEFT: ("the one on the left", "the leftmost thing"),
        RIGHT: ("the one on the right", "the rightmost thing"),
        MIDDLE: ("the thing in the middle", "the central thing"),
        NEAREST: ("the one nearest to you", "the closest thing"),
        FARTHEST: ("the one farthest from you", "the most distant thing"),
    },
}
_ZONES: dict[Phrasing, dict[str, tuple[str, ...]]] = {
    Phrasing.TRAINED: {
        COLOUR: ("the {colour} disc", "the {colour} zone"),
        LEFT: ("the left disc", "the zone on the left"),
        RIGHT: ("the right disc", "the zone on the right"),
    },
    Phrasing.HELD_OUT: {
        COLOUR: ("the {colour} circle", "the disc in {colour}"),
        LEFT: ("the left zone", "the disc on the left"),
        RIGHT: ("the right zone", "the disc on the right"),
    },
}


@dataclass(frozen=True)
class Phrase:
    """Words for one thing, or one zone, of a bench."""

    words: str
    """For example ``the red cube``."""
    way: str
    """A name of :data:`WAYS`."""
    named: tuple[int, ...] = ()
    """Places in the bench of those that the words name in any scene; empty if that depends on where they lie."""

    def meant(self, places_m: FloatArray) -> tuple[int, ...]:
        """Rows that the phrase may mean, of places (k, 2), m, in the arm's base frame; it is unambiguous if it is
        one.
        """
        if self.named:
            return self.named
        if self.way == MIDDLE:
            order = np.argsort(places_m[:, 1])
            return (int(order[len(order) // 2]),) if len(order) % 2 else ()
        far = np.linalg.norm(places_m, axis=1)
        much = {LEFT: places_m[:, 1], RIGHT: -places_m[:, 1], NEAREST: -far, FARTHEST: far}[self.way]
        return tuple(int(row) for row in np.flatnonzero(much > much.max() - SURE_M))


@dataclass(frozen=True)
class Sentence:
    """An instruction, and what it says."""

    text: str
    """In plain words."""
    verb: str
    """A name of :data:`VERBS`."""
    thing: Phrase
    """Words for the thing."""
    zone: Phrase | None
    """Words for the zone; None where none is said."""


@dataclass(frozen=True)
class Asked:
    """An episode: its scene, and what is asked for in it."""

    scene: Scene
    """Places of things and zones at the start."""
    text: str
    """The instruction."""
    verb: str
    """A name of :data:`VERBS`."""
    thing: int
    """Place in the bench of the thing that is asked for."""
    zone: int | None
    """Place in the bench of the zone where it belongs; None where none is said."""


def draw_episode(bench: Workbench, verbs: Sequence[str], phrasing: Phrasing, rng: np.random.Generator) -> Asked:
    """Lay a scene and ask for something in it that can be done.

    Verb, thing, zone, the way to refer to each and the words are drawn one after the other, each with equal chances.

    Args:
        bench: Things and zones.
        verbs: Names of :data:`VERBS`.
        phrasing: Set of sentences.
        rng: Source of chance.
    """
    while True:
        scene = draw_scene(bench, rng)
        verb = verbs[int(rng.integers(len(verbs)))]
        pairs = [
            (thing, zone)
            for thing in range(len(bench.things))
            for zone in range(len(bench.zones))
            if verb != PUSH or scene.can_be_pushed(thing, zone)
        ]
        if pairs:
            break
    thing, zone = pairs[int(rng.integers(len(pairs)))]
    words = {"thing": _drawn(_phrases(bench, phrasing, True), scene.things_m, thing, rng).words}
    if verb != PICK:
        words["zone"] = _drawn(_phrases(bench, phrasing, False), scene.zones_m, zone, rng).words
    templates = _TEMPLATES[phrasing][verb]
    text = templates[int(rng.integers(len(templates)))].format(**words)
    return Asked(scene, text, verb, thing, None if verb == PICK else zone)


def asked_in(scene: Scene, text: str, bench: Workbench = WORKBENCHES["tell"]) -> Asked | None:
    """Reading of an instruction in a scene; None if it is no known sentence, or means more than one thing there.

    Args:
        scene: Where things lie.
        text: Instruction; case and punctuation are of no matter.
        bench: Things and zones that can be named.
    """
    sentence = _sentences(bench).get(" ".join(words_of(text)))
    if sentence is None:
        return None
    things = sentence.thing.meant(scene.things_m)
    zones = (None,) if sentence.zone is None else sentence.zone.meant(scene.zones_m)
    if len(things) != 1 or len(zones) != 1:
        return None
    return Asked(scene, text, sentence.verb, things[0], zones[0])


@cache
def _sentences(bench: Workbench) -> dict[str, Sentence]:
    """Every sentence of both sets by its words."""
    return {
        sentence.text: sentence
        for phrasing in Phrasing
        for verb in VERBS
        for sentence in sentences_of(verb, phrasing, bench)
    }


def sentences_of(
    verb: str, phrasing: Phrasing = Phrasing.TRAINED, bench: Workbench = WORKBENCHES["tell"]
) -> list[Sentence]:
    """Every sentence that may be drawn for a verb, in a fixed order.

    Args:
        verb: A name of :data:`VERBS`.
        phrasing: Set of sentences.
        bench: Things and zones that can be named.

    Raises:
        UnknownNameError: If there is no such verb.
    """
    if verb not in VERBS:
        raise UnknownNameError("verb", verb, VERBS)
    things, zones = _phrases(bench, phrasing, True), _phrases(bench, phrasing, False)
    return [
        Sentence(
            template.format(thing=thing.words, **({} if zone is None else {"zone": zone.words})), verb, thing, zone
        )
        for template in _TEMPLATES[phrasing][verb]
        for thing in things
        for zone in ([None] if verb == PICK else zones)
    ]


def instructions_of(verb: str, phrasing: Phrasing = Phrasing.TRAINED) -> list[str]:
    """Texts of :func:`sentences_of` at the usual bench.

    Raises:
        UnknownNameError: If there is no such verb.
    """
    return [sentence.text for sentence in sentences_of(verb, phrasing)]


@cache
def instruction_spec(verbs: tuple[str, ...] = VERBS) -> InstructionSpec:
    """Vocabulary of all verbs, so that policies of one verb and of all read the same tokens, with examples of some.

    Args:
        verbs: Names of :data:`VERBS` that the examples are of.

    Raises:
        UnknownNameError: If there is no such verb.
    """
    texts = [text for verb in VERBS for text in instructions_of(verb)]
    examples = [instructions_of(verb)[place] for place in (2, -1) for verb in verbs]
    return InstructionSpec(vocabulary_of(texts), tuple(examples))


def _drawn(phrases: Sequence[Phrase], places_m: FloatArray, wanted: int, rng: np.random.Generator) -> Phrase:
    """A phrase that means one of some places (k, 2), m, and no other."""
    fitting = [phrase for phrase in phrases if phrase.meant(places_m) == (wanted,)]
    kinds = sorted({_kind(phrase.way) for phrase in fitting})
    kind = kinds[int(rng.integers(len(kinds)))]
    fitting = [phrase for phrase in fitting if _kind(phrase.way) == kind]
    return fitting[int(rng.integers(len(fitting)))]


def _kind(way: str) -> str:
    return way if way in (COLOUR, SHAPE) else "place"


@cache
def _phrases(bench: Workbench, phrasing: Phrasing, for_things: bool) -> tuple[Phrase, ...]:
    """Phrases for the things, or the zones, of a bench; held-out sentences use those of training as well."""
    sets = [Phrasing.TRAINED] if phrasing == Phrasing.TRAINED else [Phrasing.TRAINED, Phrasing.HELD_OUT]
    table = _THINGS if for_things else _ZONES
    colours = [item.colour for item in (bench.things if for_things else bench.zones)]
    shapes = [thing.shape for thing in bench.things] if for_things else [""] * len(colours)
    found: list[Phrase] = []
    for way, patterns in ((way, patterns) for one in sets for way, patterns in table[one].items()):
        for pattern in patterns:
            if way not in (COLOUR, SHAPE):
                found.append(Phrase(pattern, way))
                continue
            for colour, shape in dict.fromkeys(zip(colours, shapes, strict=True)):
                named = [
                    place
                    for place, item in enumerate(zip(colours, shapes, strict=True))
                    if ("{colour}" not in pattern or item[0] == colour)
                    and ("{shape}" not in pattern or item[1] == shape)
                ]
                words = pattern.format(colour=colour, shape=shape)
                if len(named) == 1 and all(phrase.words != words for phrase in found):
                    found.append(Phrase(words, way, tuple(named)))
    return tuple(found)

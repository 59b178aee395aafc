"""Scenes and sentences: what lies where, what each sentence means there, and which words it is made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.language.instructions import words_of
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.language.instructions import (
    PICK,
    PLACE,
    PUSH,
    VERBS,
    Phrasing,
    draw_episode,
    instruction_spec,
    instructions_of,
    sentences_of,
)
from gantry_sim.tasks.manipulation.language.scene import CORRIDOR_M, Scene, draw_scene
from gantry_sim.tasks.manipulation.workbench import WORKBENCHES, Thing, Workbench

BENCH = WORKBENCHES["tell"]
SEEDS = range(400)
CLEAR = {"left": (1, 1.0), "leftmost": (1, 1.0), "right": (1, -1.0), "rightmost": (1, -1.0)}
NEAR, FAR, MIDDLE = {"nearest", "closest"}, {"farthest", "distant"}, {"middle", "central"}


def meant(words, names, places):
    """Rows that a phrase may mean, found anew from its words: nothing here is the grammar's."""
    told, rows = set(words.split()), set(range(len(names)))
    for row, name in enumerate(names):
        if told & {part for other in names for part in other} and not told & set(name):
            rows.discard(row)
        wrong = [
            part for place in range(2) for part in {other[place] for other in names} - {name[place]} if part in told
        ]
        if wrong:
            rows.discard(row)
    away = np.linalg.norm(places, axis=1)
    for word, (axis, sign) in CLEAR.items():
        if word in told:
            rows &= {int(np.argmax(sign * places[:, axis]))}
    if told & NEAR:
        rows &= {int(np.argmin(away))}
    if told & FAR:
        rows &= {int(np.argmax(away))}
    if told & MIDDLE:
        rows &= {int(np.argsort(places[:, 1])[1])}
    return rows


@pytest.mark.parametrize("phrasing", list(Phrasing))
def test_every_sentence_that_is_drawn_means_one_thing_and_one_zone(phrasing):
    by_text = {sentence.text: sentence for verb in VERBS for sentence in sentences_of(verb, phrasing)}
    things, zones = [(t.colour, t.shape) for t in BENCH.things], [(z.colour, "disc") for z in BENCH.zones]
    said = set()
    for seed in SEEDS:
        asked = draw_episode(BENCH, VERBS, phrasing, np.random.default_rng(seed))
        sentence = by_text[asked.text]
        assert sentence.verb == asked.verb, (seed, asked.text)
        assert meant(sentence.thing.words, things, asked.scene.things_m) == {asked.thing}, (seed, asked.text)
        if asked.zone is None:
            assert asked.verb == PICK
        else:
            assert meant(sentence.zone.words.replace("disc", ""), zones, asked.scene.zones_m) == {asked.zone}, (
                seed,
                asked.text,
            )
        said.add((asked.verb, asked.thing, asked.zone))
    assert len(said) == 3 + 6 + 6  # Everything is asked for at some time.


def test_extremes_are_named_only_where_they_are_clear():
    """Two things at 0.30 and 0.31 m from the base: neither is called the nearest, and the left one is still clear."""
    scene = Scene(np.array([[0.30, 0.0], [0.30, 0.08], [0.32, -0.16]]), np.zeros(3), np.zeros((2, 2)))
    meanings = {sentence.thing.words: sentence.thing.meant(scene.things_m) for sentence in sentences_of(PICK)}
    assert meanings["the nearest thing"] == (0, 1)
    assert meanings["the farthest thing"] == (2,)
    assert meanings["the left thing"] == (1,)
    assert meanings["the middle thing"] == (0,)
    assert meanings["the cylinder"] == (2,)
    assert "the cube" not in meanings


def test_shapes_name_nothing_where_all_are_the_same():
    cubes = Workbench((Thing("red"), Thing("green"), Thing("blue")), zones=BENCH.zones)
    assert not [s.text for s in sentences_of(PICK, bench=cubes) if s.thing.words == "the cube"]
    assert [s.text for s in sentences_of(PICK, bench=cubes) if s.thing.words == "the blue cube"]


def test_trained_and_held_out_sentences_have_nothing_in_common_but_most_words():
    trained, held_out = ({text for verb in VERBS for text in instructions_of(verb, p)} for p in Phrasing)
    assert not trained & held_out
    assert not {" ".join(words_of(text)) for text in trained} & {" ".join(words_of(text)) for text in held_out}
    known = set(instruction_spec().vocabulary)
    assert {word for text in trained for word in words_of(text)} == known
    new = {word for text in held_out for word in words_of(text)} - known
    assert {"raise", "closest"} <= new
    readable = [text for text in held_out if set(words_of(text)) <= known]
    assert len(readable) > 200  # Another order of words that are known.
    for text in held_out:
        assert len(set(words_of(text)) & known) >= 2, text


def test_sentences_are_all_different_and_fit_the_observation():
    for phrasing in Phrasing:
        texts = [text for verb in VERBS for text in instructions_of(verb, phrasing)]
        assert len(set(texts)) == len(texts)
        assert max(len(words_of(text)) for text in texts) <= MAX_WORDS


def test_the_vocabulary_is_one_for_all_verbs():
    assert instruction_spec((PICK,)).vocabulary == instruction_spec((PUSH, PLACE)).vocabulary
    assert instruction_spec((PICK,)).examples != instruction_spec((PUSH,)).examples
    with pytest.raises(UnknownNameError, match="verb 'pik'"):
        instructions_of("pik")


def test_things_lie_apart_and_within_reach_with_room_for_fingers():
    for seed in SEEDS:
        scene = draw_scene(BENCH, np.random.default_rng(seed))
        assert np.abs(scene.things_m[:, 1]).max() <= 0.16, seed
        assert scene.things_m[:, 0].min() >= 0.25, seed
        assert scene.zones_m[:, 0].max() <= 0.43, seed
        across = np.diff(np.sort(scene.things_m[:, 1]))
        # Half an open hand, 63 mm, beside half a cube that is turned by 0.35 rad, 26 mm.
        assert across.min() > 0.063 + 0.02 * (np.cos(0.35) + np.sin(0.35)), seed
        assert np.diff(np.sort(scene.zones_m[:, 1])).min() >= 0.1 - 1e-9, seed
        between = np.linalg.norm(scene.things_m[:, None] - scene.zones_m[None], axis=-1)
        # A zone's radius and half the diagonal of a cube.
        assert between.min() > BENCH.zones[0].radius_m + 0.02 * np.sqrt(2.0), seed


def test_the_way_of_a_push_is_free_by_hand():
    lane = Scene(
        np.array([[0.28, 0.0], [0.28, 0.12], [0.28, -0.12]]), np.zeros(3), np.array([[0.40, 0.0], [0.40, 0.14]])
    )
    assert lane.can_be_pushed(0, 0)
    # From the right thing to the left zone the way passes the middle one at 0.12 * 0.12 / 0.286 = 5 cm.
    assert 0.12 * 0.12 / np.hypot(0.12, 0.26) < CORRIDOR_M
    assert not lane.can_be_pushed(2, 1)
    close = replace(lane, things_m=np.array([[0.25, 0.0], [0.28, 0.12], [0.28, -0.12]]))
    assert not close.can_be_pushed(0, 0)  # The fingers would come down at 0.19 m, nearer than they reach.


def test_a_seed_says_all():
    first, second, other = (
        draw_episode(BENCH, VERBS, Phrasing.TRAINED, np.random.default_rng(seed)) for seed in (3, 3, 4)
    )
    assert first.text == second.text
    np.testing.assert_array_equal(first.scene.things_m, second.scene.things_m)
    assert not np.array_equal(first.scene.things_m, other.scene.things_m)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verbs": ("pick", "throw")}, "verb 'throw'"),
        ({"verbs": ()}, "env.verbs is empty"),
        ({"phrasing": "heldout"}, "phrasing 'heldout'"),
    ],
)
def test_configurations_that_are_none(change, message):
    with pytest.raises(GantryError, match=message):
        ArmCfg("tell", **change)

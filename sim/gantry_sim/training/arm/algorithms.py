"""Ways to train a manipulation task, by name: environments and learner, sized for two CPU cores unless they say not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gantry_hardware.errors import UnknownNameError
from gantry_policies.imitation import config as imitation
from gantry_policies.imitation.config import BcCfg
from gantry_policies.off_policy import presets as offpolicy
from gantry_policies.off_policy.config import OffPolicyCfg
from gantry_sim.tasks.manipulation.registry import ArmTask

ENVS = 8
"""Environments side by side while learning by trying; more collect faster, and further behind what is learned."""


@dataclass(frozen=True)
class BcPreset:
    """A training from demonstrations alone."""

    env: Any
    """The task's own configuration, a frozen dataclass with a field ``num_envs``."""
    bc: BcCfg
    """Settings of behaviour cloning."""


@dataclass(frozen=True)
class RlPreset:
    """A training that tries things out."""

    env: Any
    """The task's own configuration, a frozen dataclass with a field ``num_envs``."""
    train: OffPolicyCfg
    """Settings of off-policy learning."""


ArmPreset = BcPreset | RlPreset


@dataclass(frozen=True)
class Method:
    """One way to train."""

    summary: str
    """One line for listings."""
    make: Callable[[Any], ArmPreset]
    """From the task's fresh configuration to a preset."""
    demos: bool = True
    """Whether it needs demonstrations."""
    base: str = ""
    """Use of a base policy: ``needs``, ``takes``, or nothing."""


def _bc(cfg: BcCfg, cameras: bool = False) -> Callable[[Any], ArmPreset]:
    return lambda env: BcPreset(replace(_seen(env, cameras), num_envs=ENVS), cfg)


def _rl(make: Callable[[], OffPolicyCfg], cameras: bool = False) -> Callable[[Any], ArmPreset]:
    return lambda env: RlPreset(replace(_seen(env, cameras), num_envs=ENVS), make())


def _seen(env: Any, cameras: bool) -> Any:
    # Environments of gymnasium show what they show.
    return replace(env, observer="camera") if cameras and hasattr(env, "observer") else env


def _state() -> BcCfg:
    """Some dozens of demonstrations are learned by then; more updates foretell other episodes worse."""
    return replace(imitation.state(), steps=1_500, batch_size=128)


METHODS: dict[str, Method] = {
    "bc": Method("chunks of actions cloned from demonstrations", _bc(_state())),
    "bc-images": Method("the same from 84 x 84 images", _bc(imitation.images(), cameras=True)),
    "act-paper": Method("ACT as published; wants a GPU", _bc(imitation.act_paper(), cameras=True)),
    "sac": Method("SAC from nothing", _rl(offpolicy.sac), demos=False),
    "rlpd": Method("SAC of which half of every batch is demonstrations", _rl(offpolicy.rlpd)),
    "wsrl": Method("learn from demonstrations, then forget them", _rl(offpolicy.wsrl), base="takes"),
    "resfit": Method("a correction on top of a cloned policy", _rl(offpolicy.resfit), base="needs"),
    "resfit-images": Method("the same from 84 x 84 images", _rl(offpolicy.resfit_images, cameras=True), base="needs"),
    "resfit-paper": Method("ResFiT as published; wants a GPU", _rl(offpolicy.resfit_paper, cameras=True), base="needs"),
}
"""Presets by name."""


def find_method(task: ArmTask, name: str) -> Method:
    """Look a preset up.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in METHODS:
        raise UnknownNameError(f"preset of {task.name}", name, METHODS)
    return METHODS[name]


def preset_of(task: ArmTask, name: str) -> ArmPreset:
    """A fresh preset.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    return find_method(task, name).make(task.make_cfg())

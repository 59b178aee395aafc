"""Gymnasium environment to make, its arguments, and what it then has to offer."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.text import plain_text
from gantry_sim.gym.border import GymEnvError, finite_time, require_one_environment
from gantry_sim.gym.layout import ActionLayout, ObservationLayout, action_layout, observation_layout

_STEP_TIMES = ("control_dt", "control_timestep", "dt")
"""Attributes in which environments keep the time of a step, in s: gym-hil; robosuite and ManiSkill; gymnasium."""


@dataclass(frozen=True)
class GymCfg:
    """Parallel environments of gymnasium."""

    env_id: str
    """Registered name, ``Pendulum-v1``; with ``module:NAME`` the module is imported first, and NAME may also be a
    function or class in it that makes an environment."""
    num_envs: int = 8
    """Environments side by side."""
    processes: int | None = None
    """Worker processes that share the environments; 0 to step all of them in this one. None for as many as there are
    cores, and for none with a single environment."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment."""
    wrappers: tuple[str, ...] = ()
    """Functions or classes that take an environment and give another, ``module:NAME``, innermost first."""
    max_episode_steps: int | None = None
    """Steps after which episodes are truncated; None for what the environment is registered with."""
    dt_s: float | None = None
    """Time of a step, in s; None for what the environment says."""
    image_px: int | None = None
    """Height and width that pictures are brought to; None to leave them as they are."""
    leave_out: tuple[str, ...] = ()
    """Parts of the observation that are not looked at, ``pixels/front``, or ``pixels`` for all below."""
    action_low: tuple[float, ...] | None = None
    """Values at -1, in the environment's units: a number for each of its action, or one for all. None for its own
    bound."""
    action_high: tuple[float, ...] | None = None
    """Values at 1, likewise."""
    success_reward: float | None = None
    """Reward from which a step counts as success. None to read ``is_success``, ``success`` or ``succeed`` in info."""
    end_on_success: bool = False
    """End an episode for good at its first success, where the environment itself goes on."""

    def __post_init__(self) -> None:
        for name, least in (("num_envs", 1), ("processes", 0), ("max_episode_steps", 1), ("image_px", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise GantryError(f"{name} is {value}, expected at least {least}.")
        if self.dt_s is not None and finite_time(self.dt_s) is None:
            raise GantryError(f"dt_s is {self.dt_s}, expected a time > 0 in s.")
        if self.success_reward is not None and not math.isfinite(self.success_reward):
            raise GantryError(f"success_reward is {self.success_reward}, expected a finite number.")
        for name in self.wrappers:
            if not all(name.partition(":")):
                raise GantryError(f"wrappers has '{name}', expected module:NAME.")


@dataclass(frozen=True)
class GymPlan:
    """Spaces and limits of one environment; found out once and handed to all workers."""

    observation: ObservationLayout
    """Layout of its observations."""
    action: ActionLayout
    """Scaling of its actions."""
    max_episode_steps: int
    """Steps after which episodes are truncated."""
    dt_s: float
    """Time of a step, in s."""


def find_gym(env_id: str) -> Callable[..., Any]:
    """Constructor of environments of a name, by keyword arguments.

    Where the name has a namespace, ``gym_hil/PandaPickCubeBase-v0``, and it is not registered, a package of that name
    is imported if there is one.

    Args:
        env_id: As :attr:`GymCfg.env_id`.

    Raises:
        UnknownNameError: If there is no such environment.
        GymEnvError: If a module cannot be imported.
    """
    module_name, _, name = env_id.rpartition(":")
    module = _imported(module_name, env_id) if module_name else None
    namespace = name.rpartition("/")[0]
    if module is None and namespace and name not in gymnasium.registry and _is_package(namespace):
        _imported(namespace, env_id)
    if name in gymnasium.registry:
        # The checker is for authors: it would warn about every environment anew.
        return partial(gymnasium.make, name, disable_env_checker=True)
    maker = getattr(module, name, None)
    if callable(maker):
        return maker
    others = [other for other in gymnasium.registry if other.rpartition("/")[0] == namespace]
    raise UnknownNameError("gymnasium environment", name, others or gymnasium.registry)


def make_gym(cfg: GymCfg) -> Any:
    """One environment, wrapped.

    Raises:
        UnknownNameError: If there is none of that name.
        GymEnvError: If it or a wrapper cannot be made.
    """
    maker = find_gym(cfg.env_id)
    kwargs = dict(cfg.env_kwargs)
    if cfg.env_id.rpartition(":")[2] in gymnasium.registry and cfg.max_episode_steps is not None:
        # Otherwise gymnasium would end episodes at the registered length.
        kwargs["max_episode_steps"] = cfg.max_episode_steps
    env = _called(maker, f"Cannot make '{cfg.env_id}' with {kwargs}", **kwargs)
    for text in cfg.wrappers:
        module_name, _, name = text.rpartition(":")
        module = _imported(module_name, cfg.env_id)
        if not hasattr(module, name):
            raise UnknownNameError(
                f"wrapper in '{module_name}'", name, [item for item in dir(module) if item[0] != "_"]
            )
        env = _called(getattr(module, name), f"Cannot wrap '{cfg.env_id}' in '{text}'", env)
    return env


def make_plan(cfg: GymCfg) -> GymPlan:
    """Make one environment, ask it for what it has to offer, and close it.

    Raises:
        GantryError: If there is no such environment, or it does not fit.
    """
    env = make_gym(cfg)
    try:
        require_one_environment(env)
        return GymPlan(
            observation_layout(env.observation_space, cfg.image_px, cfg.leave_out),
            action_layout(env.action_space, cfg.action_low, cfg.action_high),
            _max_episode_steps(env, cfg),
            _step_time(env, cfg),
        )
    except GymEnvError as error:
        raise GymEnvError(f"'{cfg.env_id}' does not fit. {error}") from error
    finally:
        env.close()


def _max_episode_steps(env: Any, cfg: GymCfg) -> int:
    steps = cfg.max_episode_steps or getattr(getattr(env, "spec", None), "max_episode_steps", None)
    if steps is None:
        raise GymEnvError("It does not say how long episodes last; give max_episode_steps.")
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or not 1 <= steps < 2**31:
        raise GymEnvError(f"Its episodes last {plain_text(steps)} steps, expected 1 or more; give max_episode_steps.")
    return int(steps)


def _step_time(env: Any, cfg: GymCfg) -> float:
    if cfg.dt_s is not None:
        return cfg.dt_s
    inner = env.unwrapped
    for name in _STEP_TIMES:
        value = finite_time(getattr(inner, name, None))
        if value is not None:
            return value
    rate = finite_time((getattr(env, "metadata", None) or {}).get("render_fps"))
    if rate is None:
        raise GymEnvError("It does not say how long a step takes, in s; give dt_s.")
    return 1.0 / rate


def _is_package(name: str) -> bool:
    return name.isidentifier() and importlib.util.find_spec(name) is not None


def _imported(name: str, env_id: str) -> ModuleType:
    # What other people's modules raise when they are imported is of any kind.
    return _called(partial(importlib.import_module, name), f"Cannot import '{name}' for '{env_id}'")


def _called(function: Callable[..., Any], what: str, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise GymEnvError(f"{what}: {type(error).__name__}: {error}") from error

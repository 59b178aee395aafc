"""Tasks by name: what can be trained, and how. Third parties add theirs as entry points ``gantry.tasks``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.mirrors import MirrorMap
from gantry_deploy.openpi.description import CameraNeed
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_hardware.plugins import entry_points, load_plugin
from gantry_hardware.robots import robot_spec
from gantry_policies.common.batched_env import STATE, BatchedEnv, Observation
from gantry_policies.common.evaluation import ActingPolicy
from gantry_policies.teachers.teacher import TeacherQuestion
from gantry_sim.tasks.names import GROUP, family_of
from gantry_sim.tasks.names import task_names as task_names

MakePolicy = Callable[[Any], ActingPolicy]
"""From environments of a task to the policy that acts in all of them."""
Policy = Callable[[Tensor], Tensor]
"""Flat observations (N, obs) to actions (N, n), deterministic and without memory."""


def acting(make_policy: MakePolicy, env: Any) -> Callable[[Any], Tensor]:
    """Bind a policy to environments: observations (N, ...) by key, or by rsl_rl's groups, to actions (N, n),
    dimensionless.
    """
    policy = make_policy(env)
    policy.reset()
    return lambda obs: policy.act({STATE: obs["actor"]} if "actor" in obs.keys() else obs)  # noqa: SIM118 - TensorDict


@dataclass(frozen=True)
class Preset:
    """One way to train a task."""

    env: Any
    """The task's own configuration, a frozen dataclass with a field ``num_envs``."""
    learner: Any
    """Settings of the algorithm, a frozen dataclass of its own kind."""
    algorithm: str = "ppo"
    """Name of the algorithm; see :mod:`gantry_sim.training.algorithms`."""


class Expert:
    """The scripted policy of environments that offer ``expert_action()``.

    Args:
        env: The environments.
        suboptimality: Of no effect: such a policy makes no mistakes on purpose.
        seed: Of no effect.
    """

    def __init__(self, env: Any, suboptimality: float = 0.0, seed: int = 0) -> None:
        del suboptimality, seed
        self._env = env

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Nothing to forget."""

    def act(self, obs: Observation) -> Tensor:
        """Actions (N, a), dimensionless."""
        del obs
        return self._env.expert_action()


@dataclass(frozen=True)
class ScriptedPolicy:
    """Policy of a task that acts by what the simulator knows, without having learned it."""

    make_policy: Callable[[Any, float, int], ActingPolicy] = Expert
    """(environments, suboptimality from 0 to 1, seed) -> the policy in them."""
    make_env: Callable[[Any, str, int], BatchedEnv] | None = None
    """Environments that it acts in, as of the task; None for the task's own."""
    preset: Callable[[Preset], Preset] = lambda preset: preset
    """A preset of the task -> the same for a student of this policy."""
    teaches: bool = True
    """Whether its environments offer ``expert_action()``, by which it guides a learner."""
    demonstrates: bool = False
    """Whether its episodes are worth recording as demonstrations."""


@dataclass(frozen=True)
class Suite:
    """An evaluation with several parts."""

    run: Callable[..., dict[str, Any]]
    """``(task, env configuration, policy, *, episodes, device, seed, on_progress)`` -> its scores."""
    lines: Callable[[dict[str, Any]], list[str]]
    """Its scores as a table."""


@dataclass(frozen=True)
class Task:
    """Everything that training, evaluation and export ask of a task."""

    name: str
    """Registry name."""
    summary: str
    """One line for listings."""
    robot: str
    """Robot name."""
    presets: Mapping[str, Callable[[], Preset]]
    """Preset name to a factory of a fresh preset. The first one is the task's usual configuration."""
    make_env: Callable[[Any, str, int], BatchedEnv]
    """(env configuration, device, seed) -> environments."""
    contract: Callable[[Any], PolicyContract]
    """Env configuration -> the contract of its policies."""
    evaluate: Callable[..., dict[str, Any]]
    """``(task, env configuration, MakePolicy, *, episodes, device, seed, full_model, on_progress)`` -> its scores;
    those with ``mean``, ``low`` and ``high`` are shown, with the unit at the end of their name. See
    :func:`flat_policy`."""
    record: Callable[..., dict[str, np.ndarray]]
    """``(task, env configuration, MakePolicy, *, seed)`` -> what the policy was fed in training and what came of it,
    under the names that ``gantry check`` compares."""
    evaluation: Callable[..., Any] = lambda env_cfg, **changes: env_cfg
    """``(env configuration, **changes)`` -> the configuration to evaluate on: held-out episodes, same randomisation."""
    models: tuple[str, ...] = ("training", "full")
    """Simulation models that a policy is evaluated on: the one of the training, and one with every collision shape."""
    mirror: Callable[[Any], dict[str, MirrorMap] | None] = lambda env_cfg: None
    """Env configuration -> symmetry maps of ``actor``, ``critic`` and ``action``."""
    scripted: ScriptedPolicy | None = None
    """Its scripted policy, if it has one."""
    has_contract: bool = True
    """Whether the task says what observations and actions mean on a robot, so that its policies can be exported."""
    teacher: Callable[[Any], PolicyContract | None] = lambda env_cfg: None
    """Env configuration -> the contract of a teacher whose observations the environment gives beside the actor's, as
    the group ``teacher``; None if it gives none."""
    follow: Callable[[Any, Any], Any] = lambda env_cfg, teacher: env_cfg
    """(env configuration, that of a teacher's run) -> the first with what both must have in common; what is set by
    hand afterwards still wins, and is refused where it must not differ."""
    around: Callable[[Any, RobotDynamics], Any] | None = None
    """(env configuration, dynamics of a machine) -> the configuration that draws machines around that one; None where
    training draws none."""
    show: Callable[[Any, PolicyContract], Callable[[], TeacherQuestion]] | None = None
    """(environments, contract of what is to be seen) -> a function that shows their present state to a teacher that
    plans; None where no such teacher is understood."""
    seen_by_teacher: Callable[[Any, tuple[CameraNeed, ...] | None], PolicyContract] | None = None
    """(env configuration, cameras that it needs or None for those of the task) -> the contract of what such a teacher
    sees, whatever the student does."""
    needs_teacher: bool = False
    """Whether the task is not learnt without one."""
    mapper: Callable[[Any], bytes | None] = lambda env_cfg: None
    """Env configuration -> the mapping network, ONNX, that makes the actor's map; it goes into run folder and bundle.
    None for none."""
    use_mapper: Callable[[Any, Path], Any] = lambda env_cfg, path: env_cfg
    """(env configuration, file) -> the configuration that maps with that copy of its network."""
    require: Callable[[Any], None] = lambda env_cfg: None
    """Raises a GantryError where something is missing that training with an env configuration needs, a file or a
    package; asked before anything is written."""
    labels: Callable[[Any], tuple[str, ...]] = lambda env_cfg: ()
    """Names of the k places in the robot's base frame that the environments' ``labels()`` tells, (N, 3 k) in m. They
    are recorded with demonstrations, for learners that predict them."""
    slow_start: Callable[[Any], str] = lambda env_cfg: ""
    """Slow part of an env configuration before the first step, a sentence for people; empty for none."""
    suites: Mapping[str, Suite] = field(default_factory=dict)
    """Larger evaluations by name, for ``gantry eval --suite``."""
    other_robots: bool = False
    """Whether ``env.robot`` may name another robot, one that has no task like this of its own."""

    def name_for(self, robot: str) -> str:
        """Name of this task for another robot."""
        return self.name.replace(self.robot, robot)

    def preset(self, name: str) -> Preset:
        """A fresh preset.

        Raises:
            UnknownNameError: If the task has none of that name.
        """
        if name not in self.presets:
            raise UnknownNameError(f"preset of {self.name}", name, self.presets)
        return self.presets[name]()

    def usual_env(self) -> Any:
        """Env configuration of the first preset."""
        return next(iter(self.presets.values()))().env

    def around_machine(self, env_cfg: Any, dynamics: RobotDynamics) -> Any:
        """Env configuration that draws its robots around an identified machine.

        Raises:
            GantryError: If the dynamics are another robot's, or the task draws no machines.
        """
        dynamics.check_robot(robot_spec(getattr(env_cfg, "robot", self.robot)))
        if self.around is None:
            raise GantryError(f"Task '{self.name}' trains on one model alone, and dynamics change nothing there.")
        return self.around(env_cfg, dynamics)

    def require_scripted(self) -> ScriptedPolicy:
        """Its scripted policy.

        Raises:
            GantryError: If it has none.
        """
        if self.scripted is None:
            raise GantryError(f"Task '{self.name}' has no scripted policy.")
        return self.scripted


class FlatPolicy:
    """A function of flat observations as a policy that acts in all environments.

    Args:
        function: Observations (N, obs) to actions (N, a), dimensionless.
    """

    def __init__(self, function: Policy) -> None:
        self.function = function

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Nothing to forget."""

    def act(self, obs: Observation) -> Tensor:
        """Actions (N, a), dimensionless."""
        with torch.no_grad():
            return self.function(obs[STATE])


def from_flat(policy: Policy) -> MakePolicy:
    """The function in any environments."""
    return lambda env: FlatPolicy(policy)


class KeyedPolicy:
    """A function of observations by key as a policy that acts in all environments.

    Args:
        function: Observations (N, ...) by key to actions (N, a), dimensionless.
    """

    def __init__(self, function: Callable[[Observation], Tensor]) -> None:
        self.function = function

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Nothing to forget."""

    def act(self, obs: Observation) -> Tensor:
        """Actions (N, a), dimensionless."""
        with torch.no_grad():
            return self.function(obs)


def from_keys(policy: Callable[[Observation], Tensor]) -> MakePolicy:
    """The function of observations by key in any environments."""
    return lambda env: KeyedPolicy(policy)


def find_task(name: str) -> Task:
    """Look a task up, an installed one by its name or one of a family, such as ``gym:ENV_ID`` of gymnasium.

    Raises:
        UnknownNameError: If there is none of that name.
        GantryError: If the entry point does not hold a task.
    """
    if (family := family_of(name)) is not None:
        return family.load()(name)
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            task = load_plugin(entry, "Task", GantryError)
            if not isinstance(task, Task):
                raise GantryError(f"Entry point '{entry.value}' is a {type(task).__name__}, expected a Task.")
            return task
    raise UnknownNameError("task", name, task_names())

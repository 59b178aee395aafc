"""Tasks of other packages as tasks of the commands, ``PREFIX:TASK_ID``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from gantry_hardware.errors import UnknownNameError
from gantry_policies.common.batched_env import BatchedEnv
from gantry_sim.managed_tasks.contract import Contracts
from gantry_sim.managed_tasks.episodes import MakeReader, evaluate, record
from gantry_sim.managed_tasks.learner import learner_of, unmapped
from gantry_sim.managed_tasks.names import NO_ROBOT
from gantry_sim.tasks.registry import Preset, Task

CPU_ENVS, GPU_ENVS = 64, 4096
"""Environments of the presets; the second is the packages' own usual number."""
MAX_ACTION = 100.0
"""Bound of actions of a task that sets none; a policy that reaches it is lost."""


@dataclass(frozen=True)
class Package:
    """Another package whose registered tasks are trained here."""

    name: str
    """Of the package, for people."""
    names: Callable[[], list[str]]
    """Names in its registry."""
    make_cfg: Callable[..., Any]
    """``(task, num_envs, action_clip=...)`` -> configuration of environments."""
    agent_cfg: Callable[[str], Any]
    """Name of a task -> settings of its rsl_rl runner."""
    contracts: Contracts
    """Contracts of its tasks."""
    make_env: Callable[[Any, str, int], BatchedEnv]
    """(env configuration, device, seed) -> environments."""
    make_reader: MakeReader
    """Reader of its environments."""
    remark: Callable[[str], str] = lambda task_id: ""
    """Name of a task -> what its summary adds."""

    def task(self, prefix: str, task_id: str) -> Task:
        """The task that stands for one of the package's, with its own environment, rewards and numbers of PPO.

        Args:
            prefix: Of the family, with its colon.
            task_id: Name in the package's registry.

        Raises:
            UnknownNameError: If the package knows no such task.
        """
        names = self.names()
        if task_id not in names:
            raise UnknownNameError(f"task of {self.name}", task_id, names)
        cfg = self.make_cfg(task_id)
        contract = self.contracts.or_none(cfg)
        left_out = unmapped(self.agent_cfg(task_id))
        without = f", without its agent's {', '.join(left_out)}" if left_out else ""
        return Task(
            name=prefix + task_id,
            summary=f"{task_id} of {self.name}{without}{self.remark(task_id)}",
            robot=NO_ROBOT if contract is None else contract.robot,
            presets={
                "cpu": partial(self._preset, task_id, CPU_ENVS),
                "gpu": partial(self._preset, task_id, GPU_ENVS),
            },
            make_env=self.make_env,
            contract=self.contracts.of,
            evaluate=partial(evaluate, self.make_reader),
            record=partial(self._no_record, cfg) if contract is None else partial(record, self.make_reader),
            models=("training",),
            has_contract=contract is not None,
        )

    def _preset(self, task_id: str, num_envs: int) -> Preset:
        agent = self.agent_cfg(task_id)
        bound = MAX_ACTION if agent.clip_actions is None else float(agent.clip_actions)
        return Preset(self.make_cfg(task_id, num_envs, action_clip=bound), learner_of(agent, num_envs))

    def _no_record(self, cfg: Any, *args: Any, **options: Any) -> NoReturn:
        del args, options
        self.contracts.of(cfg)
        raise AssertionError("A task without a contract says so.")

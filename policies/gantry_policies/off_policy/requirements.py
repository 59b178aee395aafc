"""Requirements of a configuration of off-policy learning beside its environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.common import processes
from gantry_policies.common.batched_env import BatchedEnv
from gantry_policies.common.checkpoint import UnusableCheckpointError
from gantry_policies.off_policy.bases import BasePolicy, is_same_base
from gantry_policies.off_policy.config import OffPolicyCfg
from gantry_policies.off_policy.replay.demos import Demo


def require_parts(
    cfg: OffPolicyCfg,
    env: BatchedEnv,
    base: BasePolicy | None,
    demos: Sequence[Demo],
    eval_env: BatchedEnv | None,
    eval_base: BasePolicy | None,
) -> None:
    """Refuse a training that lacks what its configuration asks for.

    Args:
        cfg: The configuration.
        env: What to train in.
        base: Its base, if any.
        demos: Demonstrations, if any.
        eval_env: What to evaluate in, if it is another one.
        eval_base: The base of these environments.

    Raises:
        GantryError: With what is missing or does not fit.
    """
    actor = cfg.agent.actor
    if base is None and actor.residual:
        raise GantryError("learner.agent.actor.residual is on, which needs a base policy, but there is none.")
    if base is None and cfg.warmup == "base_noise" and cfg.warmup_steps:
        raise GantryError("learner.warmup is 'base_noise', but there is no base; expected 'uniform' or 'policy'.")
    if cfg.pretrain_updates and not demos:
        raise GantryError(f"learner.pretrain_updates is {cfg.pretrain_updates}, but there are no demonstrations.")
    if actor.residual and eval_env is not None and eval_base is None:
        raise GantryError("Environments for evaluation need a base of their own (eval_base), with queues of its own.")
    for who, where in ((base, env), (eval_base, eval_env)):
        if who is not None and where is not None and who.num_envs != where.num_envs:
            raise GantryError(f"A base acts for {who.num_envs} environments, expected {where.num_envs}.")


def require_as_saved(path: Path, state: Mapping[str, Any], actors: int, base: Tensor | None) -> None:
    """Refuse to continue with other processes, other actors, or another base than a checkpoint was saved with.

    Args:
        path: The checkpoint.
        state: What it holds.
        actors: Actors of a fleet, 0 for none.
        base: Fingerprint of the base; None without one.

    Raises:
        GantryError: If there is another number of processes.
        UnusableCheckpointError: If actors or base are others.
    """
    processes.require_as_begun(state.get("processes", 1))
    if (begun := state.get("actors", 0)) != actors:
        raise UnusableCheckpointError(
            f"This run collects with {begun} actors; give --actors {begun}."
            if begun
            else "This run was begun without actors; leave out --actors."
        )
    if not is_same_base(state.get("base"), base):
        raise UnusableCheckpointError(
            f"The base is another one than the one that checkpoint {path} was trained with, and what is stored there "
            "was labelled by that one. Put it back, or begin a new run."
        )

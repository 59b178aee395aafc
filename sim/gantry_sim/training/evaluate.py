"""Held-out evaluation of a policy, in the way that its task scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.tasks.registry import MakePolicy, Task
from gantry_sim.training.run_files import EVALUATION_SEED


def evaluate_policy(
    task: Task,
    env_cfg: Any,
    make_policy: MakePolicy,
    *,
    episodes: int = 200,
    device: str = "cpu",
    seed: int = EVALUATION_SEED,
    full_model: bool = False,
    on_progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Run episodes of the task and score them.

    Args:
        task: The task.
        env_cfg: Its configuration in training; randomisation and sensor noise stay as they are.
        make_policy: From environments to the policy that acts in them, deterministic.
        episodes: Number of episodes; what is random differs between them.
        device: Where to simulate.
        seed: Of the episodes.
        full_model: Simulate every collision shape with the finer physics instead of the training model.
        on_progress: Called with the share that is done.

    Returns:
        The task's scores, ``seed``, and ``model``: ``full`` or ``training``.
    """
    with torch_threads(1):
        scores = task.evaluate(
            task,
            env_cfg,
            make_policy,
            episodes=episodes,
            device=device,
            seed=seed,
            full_model=full_model,
            on_progress=on_progress or (lambda share: None),
        )
    return scores | {"seed": seed, "model": "full" if full_model else "training"}

"""Suite ``words``: success for each verb, told in trained sentences and in paraphrases that no training read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gantry_sim.tasks.manipulation.evaluation import evaluate_success
from gantry_sim.tasks.manipulation.language.instructions import Phrasing
from gantry_sim.tasks.registry import MakePolicy, Task

_SCORES = ("success_rate", "wrong_thing_rate")


def words_suite(
    task: Task,
    env_cfg: Any,
    make_policy: MakePolicy,
    *,
    episodes: int,
    device: str,
    seed: int,
    on_progress: Callable[[float], None],
) -> dict[str, Any]:
    """Run whole episodes of every verb of the task in both sets of sentences.

    Args:
        task: A task that is told in words.
        env_cfg: Its configuration in training.
        make_policy: From environments to the policy that acts in them.
        episodes: Of each part.
        device: Where to simulate.
        seed: Of the episodes; in both sets the scenes of a verb are the same.
        on_progress: Called with the share that is done.

    Returns:
        Under ``parts``, by ``phrasing/verb``: ``success_rate`` and ``wrong_thing_rate`` with 95 % intervals.
    """
    parts = [(phrasing.value, verb) for phrasing in Phrasing for verb in env_cfg.verbs]
    found: dict[str, Any] = {}
    for place, (phrasing, verb) in enumerate(parts):
        scores = evaluate_success(
            task,
            replace(env_cfg, phrasing=phrasing, verbs=(verb,)),
            make_policy,
            episodes=episodes,
            device=device,
            seed=seed,
            full_model=False,
            on_progress=lambda share, place=place: on_progress((place + share) / len(parts)),
        )
        found[f"{phrasing}/{verb}"] = {name: scores[name] for name in _SCORES}
    return {"episodes": episodes, "parts": found}


def words_table(scores: dict[str, Any]) -> list[str]:
    """Lines of a table of the scores of :func:`words_suite`."""
    return [
        f"  {name:<16} "
        + "  ".join(
            f"{what} {part[key]['mean']:.3f} [{part[key]['low']:.3f}, {part[key]['high']:.3f}]"
            for what, key in zip(("success", "wrong thing"), _SCORES, strict=True)
        )
        for name, part in scores["parts"].items()
    ]

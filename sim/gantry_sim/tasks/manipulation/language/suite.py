"""Suite ``words``: success for each verb in trained sentences and paraphrases, with words or pictures shuffled, and
with the front camera moved.

A policy that is told what another environment is told, or shown what another one shows, must fail; one that does as
well as before does not read, or does not look. With the front camera at the place of ``side``, the suite tells what a
policy is worth where cameras stand elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from gantry_deploy.contract.parts import MAX_WORDS
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE, Observation
from gantry_policies.common.evaluation import ActingPolicy
from gantry_sim.tasks.manipulation.evaluation import evaluate_success
from gantry_sim.tasks.manipulation.language.instructions import Phrasing
from gantry_sim.tasks.manipulation.workbench import FRONT, SIDE
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
        Under ``parts``, by ``phrasing/verb``, and by ``shuffled/words`` and, of a policy that sees pictures,
        ``shuffled/pictures`` and ``moved/front``, with all verbs: ``success_rate`` and ``wrong_thing_rate`` with 95 %
        intervals.
    """
    trained = replace(env_cfg, phrasing=Phrasing.TRAINED.value)
    parts = {
        f"{phrasing.value}/{verb}": (replace(env_cfg, phrasing=phrasing.value, verbs=(verb,)), make_policy)
        for phrasing in Phrasing
        for verb in env_cfg.verbs
    }
    parts["shuffled/words"] = (trained, lambda env: Shuffled(make_policy(env), words=True))
    if env_cfg.seen_cameras:
        parts["shuffled/pictures"] = (trained, lambda env: Shuffled(make_policy(env), words=False))
    if FRONT in env_cfg.seen_cameras and SIDE not in env_cfg.seen_cameras:
        moved = tuple(SIDE if name == FRONT else name for name in env_cfg.seen_cameras)
        parts["moved/front"] = (replace(trained, cameras=moved), lambda env: CameraMoved(make_policy(env)))
    found: dict[str, Any] = {}
    for place, (name, (cfg, make)) in enumerate(parts.items()):
        scores = evaluate_success(
            task,
            cfg,
            make,
            episodes=episodes,
            device=device,
            seed=seed,
            full_model=False,
            on_progress=lambda share, place=place: on_progress((place + share) / len(parts)),
        )
        found[name] = {score: scores[score] for score in _SCORES}
    return {"episodes": episodes, "parts": found}


class Shuffled:
    """Policy that is told, or shown, what its neighbour among the environments is.

    Args:
        policy: Acts.
        words: Exchange the words; otherwise the pictures.
    """

    def __init__(self, policy: ActingPolicy, *, words: bool) -> None:
        self._policy, self._words = policy, words

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments (m,) or in all."""
        self._policy.reset(env_ids)

    def act(self, obs: Observation) -> Tensor:
        """Actions (N, a), dimensionless, for observations (N, ...) by key of which a part is the neighbour's."""
        if self._words:
            state = obs[STATE].clone()
            state[:, -MAX_WORDS:] = obs[STATE][:, -MAX_WORDS:].roll(1, dims=0)
            return self._policy.act({**obs, STATE: state})
        shown = {key: value.roll(1, dims=0) for key, value in obs.items() if key.startswith(IMAGE_PREFIX)}
        return self._policy.act({**obs, **shown})


class CameraMoved:
    """Policy that is shown the pictures of the camera ``side`` as those of ``front``.

    Args:
        policy: Acts.
    """

    def __init__(self, policy: ActingPolicy) -> None:
        self._policy = policy

    def reset(self, env_ids: Tensor | None = None) -> None:
        """Episodes begin, in the given environments (m,) or in all."""
        self._policy.reset(env_ids)

    def act(self, obs: Observation) -> Tensor:
        """Actions (N, a), dimensionless, for observations (N, ...) by key without a picture of ``front``."""
        return self._policy.act({**obs, f"{IMAGE_PREFIX}{FRONT}": obs[f"{IMAGE_PREFIX}{SIDE}"]})


def words_table(scores: dict[str, Any]) -> list[str]:
    """Lines of a table of the scores of :func:`words_suite`, and of what they say of reading and looking."""
    parts = scores["parts"]
    lines = [
        f"  {name:<16} "
        + "  ".join(
            f"{what} {part[key]['mean']:.3f} [{part[key]['low']:.3f}, {part[key]['high']:.3f}]"
            for what, key in zip(("success", "wrong thing"), _SCORES, strict=True)
        )
        for name, part in parts.items()
    ]
    best = max(part["success_rate"]["low"] for name, part in parts.items() if name.startswith(Phrasing.TRAINED.value))
    for name, text in (("shuffled/words", "words"), ("shuffled/pictures", "pictures")):
        if name in parts:
            falls = parts[name]["success_rate"]["high"] < best
            lines.append(f"  {'heeds' if falls else 'IGNORES, or its success cannot tell:'} its {text}")
    if (moved := parts.get("moved/front")) is not None:
        falls = moved["success_rate"]["high"] < best
        verb = "needs" if falls else "NEEDS NOT, or its success cannot tell:"
        lines.append(f"  {verb} the front camera where it was")
    return lines

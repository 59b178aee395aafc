"""Steps of small correction sessions, drawn from a seed, for tests of whatever stores, sends or learns from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gantry_deploy.session.records.dataset import SessionSizes
from gantry_deploy.session.steps import Actor, FloatArray, Observation, SessionStep

SIZES = SessionSizes(state=4, action=2, cameras={"wrist": (8, 12), "odd": (7, 9)}, has_base=True)
"""Sizes of the steps of :func:`attempt`."""


def attempt(
    episode: int, length: int = 5, *, person: Sequence[int] = (1, 2), success: bool = True, seed: int = 0
) -> list[SessionStep]:
    """Steps of an attempt at 20 Hz.

    Args:
        episode: Number of it.
        length: Steps.
        person: Numbers of the steps in which a person acts.
        success: Whether it succeeds at its end; otherwise it is cut off.
        seed: Draws other numbers.
    """
    rng = np.random.default_rng(100 * seed + episode)

    def obs() -> Observation:
        images = {
            f"image/{name}": rng.integers(0, 256, (3, *size), dtype=np.uint8) for name, size in SIZES.cameras.items()
        }
        return {"state": rng.normal(size=SIZES.state).astype(np.float32), **images}

    def action() -> FloatArray:
        return rng.normal(size=SIZES.action).astype(np.float32)

    steps = []
    for index in range(length):
        last = index == length - 1
        steps.append(
            SessionStep(
                episode,
                index,
                stamp_s=12.3 + 0.05 * index + episode,
                obs=obs(),
                action=action(),
                policy_action=action(),
                actor=Actor.PERSON if index in person else Actor.POLICY,
                reward=float(last and success),
                penalty=-0.02 if index == 1 else 0.0,
                terminated=last and success,
                truncated=last and not success,
                success=last and success,
                base_action=action(),
                last_obs=obs() if last else None,
                last_base_action=action() if last else None,
                parameters_version=7 + episode,
            )
        )
    return steps

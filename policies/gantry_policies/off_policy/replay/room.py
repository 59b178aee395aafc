"""Room in memory for a replay buffer, looked up before it is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gantry_policies.common.batched_env import IMAGE_PREFIX
from gantry_policies.common.memory import require_memory


def require_replay_memory(
    capacity: int, obs_shapes: Mapping[str, tuple[int, ...]], action_size: int, with_base: bool, device: str
) -> None:
    """Refuse a replay buffer that does not fit into memory.

    Args:
        capacity: Frames of all environments together.
        obs_shapes: Shape of one observation, by key.
        action_size: Numbers of an action.
        with_base: Whether the actions of a base policy are stored along.
        device: Where the memory is to be.

    Raises:
        OutOfMemoryError: With what is needed and what is available.
    """
    # Actions, rewards, penalties and rewards to the end are floats, five flags are bytes.
    frame = 4 * action_size * (2 if with_base else 1) + 12 + 5
    frame += sum(math.prod(shape) * (1 if key.startswith(IMAGE_PREFIX) else 4) for key, shape in obs_shapes.items())
    setting = f"a smaller learner.capacity helps, {frame} bytes a frame"
    require_memory(capacity * frame, f"A replay buffer of {capacity} frames", setting, device)

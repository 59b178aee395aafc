"""Demonstrations in a replay buffer, with what the base would have done in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import STATE, Observation
from gantry_policies.off_policy.bases import BasePolicy
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.replay.penalties import episode_penalties
from gantry_policies.off_policy.replay.windows import to_go
from gantry_policies.off_policy.scalers import ActionScaler


@dataclass(frozen=True)
class Demo:
    """One demonstrated episode of T steps."""

    obs: Observation
    """``(T + 1, ...)`` by key, the last observation included; T are enough for an episode that ended for good."""
    action: Tensor
    """``(T, n)`` in the environment's range [-1, 1]."""
    reward: Tensor
    """``(T,)``."""
    terminated: bool = True
    """Whether it ended for good, as success does; out of time otherwise."""

    def __post_init__(self) -> None:
        steps, frames = self.action.shape[0], {key: value.shape[0] for key, value in self.obs.items()}
        allowed = {steps, steps + 1} if self.terminated else {steps + 1}
        if (
            not steps
            or self.reward.shape != (steps,)
            or not set(frames.values()) <= allowed
            or len(set(frames.values())) > 1
        ):
            raise GantryError(
                f"A demonstration has {steps} actions, rewards of shape {tuple(self.reward.shape)} and observations "
                f"{frames}, expected {steps} rewards and one of {sorted(allowed)} observations of each key."
            )

    @property
    def frames(self) -> Observation:
        """``(T + 1, ...)`` by key. After an end for good nothing is looked at, so the last one may stand in."""
        steps = self.action.shape[0]
        if next(iter(self.obs.values())).shape[0] == steps + 1:
            return self.obs
        return {key: torch.cat((value, value[-1:])) for key, value in self.obs.items()}


def base_actions(demos: Sequence[Demo], base: BasePolicy) -> list[Tensor]:
    """Actions of the base along the demonstrations: ``(T + 1, n)`` of each, in the environment's range.

    Its queues are used as they are when it acts, chunk by chunk, and forgotten at every demonstration's beginning. The
    action at the last observation is looked up without being used.

    Args:
        demos: Any number; as many as the base has environments run side by side.
        base: Its queues are empty afterwards.
    """
    answers: list[Tensor] = []
    for begin in range(0, len(demos), base.num_envs):
        group = demos[begin : begin + base.num_envs]
        frames = [demo.frames for demo in group]
        lengths = [demo.action.shape[0] for demo in group]
        rows: list[list[Tensor]] = [[] for _ in group]
        base.reset()
        for time in range(max(lengths) + 1):
            # Shorter demonstrations wait at their last frame, and environments without one repeat the first.
            at = [min(time, length) for length in lengths]
            seen = {key: torch.stack([value[key][i] for value, i in zip(frames, at, strict=True)]) for key in frames[0]}
            last = torch.tensor([i for i, length in enumerate(lengths) if time == length])
            if last.numel():
                peeked = base.peek({key: value[last] for key, value in seen.items()}, last)
                for index, action in zip(last.tolist(), peeked, strict=True):
                    rows[index].append(action)
            if time < max(lengths):
                spare = base.num_envs - len(group)
                filled = {key: torch.cat((v, v[:1].expand(spare, *v.shape[1:]))) for key, v in seen.items()}
                acted = base.act(filled)
                for index, length in enumerate(lengths):
                    if time < length:
                        rows[index].append(acted[index])
        answers += [torch.stack(actions) for actions in rows]
    base.reset()
    return answers


def demo_buffer(
    demos: Sequence[Demo],
    scaler: ActionScaler,
    base: BasePolicy | None = None,
    device: str = "cpu",
    gripper_penalty: float = 0.0,
    gamma: float | None = None,
) -> ReplayBuffer:
    """A replay buffer that is just large enough for all demonstrations; arguments as of :func:`add_demos`.

    Raises:
        GantryError: If there is no demonstration.
    """
    if not demos:
        raise GantryError("There are no demonstrations, expected at least one episode.")
    shapes = {key: tuple(value.shape[1:]) for key, value in demos[0].obs.items()}
    frames = demo_frames(demos)
    buffer = ReplayBuffer(max(frames, 3), 1, shapes, demos[0].action.shape[1], base is not None, device)
    add_demos(buffer, demos, scaler, base, gripper_penalty, gamma)
    return buffer


def add_demos(
    buffer: ReplayBuffer,
    demos: Sequence[Demo],
    scaler: ActionScaler,
    base: BasePolicy | None = None,
    gripper_penalty: float = 0.0,
    gamma: float | None = None,
) -> None:
    """Store demonstrations, spread over the buffer's environments.

    Args:
        buffer: Large enough.
        demos: Any number.
        scaler: To the learner's actions.
        base: Relabels them, for a residual actor; None for none.
        gripper_penalty: Penalty of a command that opens or closes the gripper, at most 0.
        gamma: Discount of the rewards to each episode's end, which learning from chunks needs; None to leave them out.
    """
    wanted = None if base is None else base_actions(demos, base)
    device = buffer.device
    for index, demo in enumerate(demos):
        buffer.add_episode(
            demo.frames,
            scaler.scale(demo.action.to(device)),
            demo.reward,
            demo.terminated,
            base_action=None if wanted is None else scaler.scale(wanted[index].to(device)),
            penalty=episode_penalties(demo.action, gripper_penalty),
            to_go=None if gamma is None else to_go(demo.reward, gamma),
            env_id=index % buffer.num_envs,
        )


def demo_frames(demos: Sequence[Demo]) -> int:
    """Frames that demonstrations take in a buffer."""
    return sum(demo.action.shape[0] + 1 for demo in demos)


def demo_states(demos: Sequence[Demo]) -> Tensor:
    """``(M, s)``: every state of all demonstrations."""
    return torch.cat([demo.obs[STATE] for demo in demos])


def demo_action_rows(demos: Sequence[Demo]) -> Tensor:
    """``(M, n)``: every action of all demonstrations, in the environment's range."""
    return torch.cat([demo.action for demo in demos])

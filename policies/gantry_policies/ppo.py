"""rsl_rl's PPO with what few cores and few samples ask for."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from rsl_rl.algorithms import PPO

from gantry_policies.symmetry import MirrorMap, RandomMirror


class FewSamplePPO(PPO):
    """PPO with a fused optimiser, a quiet start, and optional mirroring of samples.

    Args:
        actor: Actor model.
        critic: Critic model.
        storage: Rollout storage.
        last_layer_scale: Factor on the initial weights of the actor's last layer, so that the first actions are small.
        mirror: Maps by observation group and one under ``action``; None for no mirroring.
        device: Device.
        learning_rate: Of Adam.
        **kwargs: As for rsl_rl's PPO.
    """

    def __init__(
        self,
        actor: Any,
        critic: Any,
        storage: Any,
        *,
        last_layer_scale: float = 1.0,
        mirror: dict[str, MirrorMap] | None = None,
        device: str = "cpu",
        learning_rate: float = 1e-3,
        **kwargs: Any,
    ) -> None:
        super().__init__(actor, critic, storage, device=device, learning_rate=learning_rate, **kwargs)
        with torch.no_grad():
            last = [layer for layer in self.actor.mlp if isinstance(layer, torch.nn.Linear)][-1]
            last.weight.mul_(last_layer_scale)
            last.bias.mul_(last_layer_scale)
        parameters = list(chain(self.actor.parameters(), self.critic.parameters()))
        self.optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)
        if mirror is not None:
            maps = dict(mirror)
            action = maps.pop("action")
            self.symmetry = RandomMirror(maps, action, device)  # type: ignore[assignment]

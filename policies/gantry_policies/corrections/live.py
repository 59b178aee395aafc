"""The acting network of a learner as one ONNX graph and, apart from it, its weights, which change while it acts.

The graph is made once. Its weights are initializers named as in the learner; the robot side puts newer ones in their
place (:class:`gantry_deploy.policy.live_policy.LivePolicy`).
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.live_policy import ACTION, DISAGREEMENT, NOISE
from gantry_deploy.policy.onnx_policy import BASE_ACTION, OBSERVATION
from gantry_mapping.learn.export import to_onnx
from gantry_policies.common.batched_env import STATE
from gantry_policies.off_policy.actors import Actor
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.policy import acting_parts


class LiveModule(nn.Module):
    """Actor with its exploration noise as an input, scalers, and the critic's disagreement about the action.

    Args:
        learner: Its networks are copied.
    """

    correction_scale: Tensor

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        assert isinstance(learner.actor, Actor)  # Plans of several actions are no part of sessions.
        self.encoder, self.actor = copy.deepcopy(learner.encoder), copy.deepcopy(learner.actor)
        self.critic, self.gripper = copy.deepcopy(learner.critic), copy.deepcopy(learner.gripper)
        self.state_scaler = copy.deepcopy(learner.state_scaler)
        self.action_scaler = copy.deepcopy(learner.action_scaler)
        if learner.cfg.actor.residual:
            self.register_buffer("correction_scale", torch.tensor([learner.correction_scale]))
        self.cameras = tuple(learner.encoder.keys)
        self.residual, self.gaussian = learner.cfg.actor.residual, learner.cfg.actor.kind == "sac"
        self.explore_std = learner.cfg.actor.explore_std
        self.requires_grad_(False)

    def forward(self, observation: Tensor, noise: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
        """Action ``(1, n)`` in the environment's range and the heads' standard deviation ``(1,)``, in units of the
        reward.

        Args:
            observation: ``(1, s)``.
            noise: ``(1, n)`` of a standard normal distribution, scaled; zeros for the deterministic action. That of a
                gripper which a critic moves is of no effect.
            more: Image of each camera, ``(1, 3, h, w)`` uint8, then the base's action ``(1, n)`` of a residual.
        """
        images = dict(zip(self.cameras, more, strict=False))
        features = self.encoder.features({**images, STATE: self.state_scaler(observation)})
        base = self.action_scaler.scale(more[-1]) if self.residual else None
        if self.gripper is None:
            action = self._chosen(self.actor.outputs(features, base), base, noise)
        else:
            action = self._chosen(self.actor.outputs(features, base), base, noise[:, :-1])
            action = self.gripper.completed(features, action)
        spread = self.critic(features, action).std(0)
        return self.action_scaler.unscale(action), spread

    def _chosen(self, outputs: Tensor, base: Tensor | None, noise: Tensor) -> Tensor:
        """Scaled action ``(1, n)`` of the actor's last layer."""
        if self.gaussian:
            mean, log_std = outputs.chunk(2, dim=-1)
            own = torch.tanh(mean + log_std.clamp(-10.0, 2.0).exp() * noise)
            drawn = torch.zeros_like(own)
        else:
            own, drawn = torch.tanh(outputs), self.explore_std * noise
        own = own if base is None else self.correction_scale * own
        return ((own if base is None else base + own) + drawn).clamp(-1.0, 1.0)


def live_graph(learner: Learner) -> bytes:
    """The graph, ONNX, with random numbers in place of the weights: none of them is merged with another.

    Raises:
        PolicyError: If torch cannot express it, or a weight has no initializer of its own.
    """
    module = LiveModule(learner).cpu().eval()
    random = torch.Generator().manual_seed(0)
    for value in module.state_dict().values():
        value.copy_(0.1 + torch.rand(value.shape, generator=random))
    inputs: dict[str, Tensor] = {
        OBSERVATION: torch.zeros(1, learner.state_scaler.mean.numel()),
        NOISE: torch.zeros(1, learner.action_size),
    }
    shapes = learner.obs_shapes
    inputs |= {key: torch.zeros(1, *shapes[key], dtype=torch.uint8) for key in module.cameras}
    if module.residual:
        inputs[BASE_ACTION] = torch.zeros(1, learner.action_size)
    model = to_onnx(module, tuple(inputs.values()), list(inputs), [ACTION, DISAGREEMENT], keep_weights=True)
    missing = set(module.state_dict()) - {item.name for item in model.graph.initializer}
    if missing:
        raise PolicyError(f"The exported network has no initializer for {', '.join(sorted(missing))}.")
    return model.SerializeToString()


@torch.no_grad()
def live_weights(learner: Learner) -> dict[str, NDArray[Any]]:
    """Weights by the names of the graph's initializers, float32, any shape, dimensionless."""
    parts = {**acting_parts(learner), "critic": learner.critic}
    found = {
        f"{name}.{key}": value.detach().cpu().numpy().copy()
        for name, part in parts.items()
        for key, value in part.state_dict().items()
    }
    if learner.cfg.actor.residual:
        found["correction_scale"] = np.array([learner.correction_scale], dtype=np.float32)
    return found

"""Policies that plan several actions at once: stateless graphs, and the queue between them and a loop.

A residual policy corrects the plan of a frozen base in every step (ResFiT, arXiv 2509.19301). It needs to know what the
base does in this very step, so the queue of the base's plan lives here and not in a graph.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.action_queue import ActionQueue
from gantry_deploy.policy.onnx_policy import Images, OnnxBase, OnnxPolicy

FloatArray = NDArray[np.float32]


class ChunkedPolicy:
    """Gives one action per step.

    Args:
        bundle: Its contract has a chunk.

    Raises:
        PolicyError: If a network and the contract do not fit, or the contract has no chunk.
    """

    def __init__(self, bundle: Bundle) -> None:
        chunk = bundle.contract.chunk
        if chunk is None:
            raise PolicyError("The contract plans no chunks of actions: its 'chunk' is empty.")
        self.policy = OnnxPolicy(bundle.model_bytes, bundle.contract)
        """What ``policy.onnx`` computes."""
        self.base: OnnxBase | None = None
        """What ``base.onnx`` plans; None without a residual."""
        if chunk.residual:
            if bundle.base_bytes is None:
                raise PolicyError("A residual policy needs base.onnx; the bundle has none.")
            self.base = OnnxBase(bundle.base_bytes, bundle.contract)
        self._queue = ActionQueue(chunk.execute, chunk.ensemble_decay)

    def reset(self) -> None:
        """Forget what was planned: an episode begins, or something else was in control meanwhile."""
        self._queue.reset()

    def __call__(self, observation: FloatArray, images: Images | None = None) -> tuple[FloatArray, FloatArray | None]:
        """The action of this step, which is thereby used up.

        Args:
            observation: Shape (1, contract.observation_size).
            images: Picture (3, height, width) of each of the contract's cameras.

        Returns:
            Action of shape (1, contract.action_size), before the clip, and of a residual policy the base's action that
            it corrected, the same shape.

        Raises:
            PolicyError: If an input has another shape, or an action is not finite.
        """
        if self._queue.wants_chunk:
            planner = self.policy if self.base is None else self.base
            self._queue.push(planner(observation, images)[0])
        planned = self._queue.pop()[None]
        if self.base is None:
            return planned, None
        return self.policy(observation, images, planned), planned

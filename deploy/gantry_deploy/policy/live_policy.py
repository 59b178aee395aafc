"""A network whose weights change while it acts: one ONNX graph, and weights that a learner sends."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from gantry_deploy.errors import PolicyError
from gantry_deploy.policy.onnx_policy import BASE_ACTION, IMAGE_PREFIX, OBSERVATION, Images
from gantry_hardware.errors import unknown_name_text
from gantry_mapping.onnx.graph import constant_shapes
from gantry_mapping.onnx.network import Network

FloatArray = NDArray[np.float32]

NOISE, ACTION, DISAGREEMENT = "noise", "action", "disagreement"
"""Input of the exploration noise, and the two outputs."""

WEIGHTS_SHA256 = "weights_sha256"
"""Key in a bundle's card of the :func:`weights_sha256` of the weights that it was exported from."""


def weights_sha256(weights: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256, 64 hexadecimal digits, of arrays of any shape and unit, by name: names, shapes and raw bytes."""
    found = hashlib.sha256()
    for name in sorted(weights):
        value = np.ascontiguousarray(weights[name])
        found.update(f"{name}:{value.dtype.str}:{value.shape}\n".encode())
        found.update(value.tobytes())
    return found.hexdigest()


class LivePolicy:
    """The acting network of a learner.

    Args:
        graph: The ONNX file; its weights are those of no training.

    Raises:
        PolicyError: If the file is no network, or one whose work is not bounded.
    """

    FILE = "live.onnx"
    """Name of the file, for messages."""

    def __init__(self, graph: bytes) -> None:
        network = Network(graph, self.FILE, PolicyError)
        wanted, taken = {NOISE, OBSERVATION}, tuple(item.name for item in network.inputs)
        if not wanted <= set(taken):
            raise PolicyError(f"{self.FILE} takes {sorted(taken)}, expected {sorted(wanted)} among them.")
        self._graph, self._inputs = graph, taken
        self._shapes = constant_shapes(graph, self.FILE, PolicyError)
        self._session: ort.InferenceSession | None = None
        self._kept: list[ort.OrtValue] = []
        self.sha256 = ""
        """SHA-256 of the weights that act, see :func:`weights_sha256`; empty before the first."""

    def load(self, weights: Mapping[str, NDArray[Any]]) -> str:
        """Let weights act from the next step on; takes some milliseconds.

        Args:
            weights: Arrays by the names of the graph's initializers, of their shapes, float32.

        Returns:
            Their SHA-256.

        Raises:
            PolicyError: If a weight does not fit the graph, or is not finite; those before go on acting.
        """
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # The level above packs a convolution's weights from the file, whatever stands in their place.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        alone = ["ConstantFolding"]  # It would compute with the weights of the file as well.
        kept = []
        if unknown := sorted(set(weights) - set(self._shapes)):
            raise PolicyError(unknown_name_text(f"weight of {self.FILE}", unknown[0], self._shapes))
        for name, value in weights.items():
            if value.dtype != np.float32 or value.shape != self._shapes[name]:
                expected = f"float32 of shape {self._shapes[name]}"
                raise PolicyError(f"Weight '{name}' is {value.dtype} of shape {value.shape}, expected {expected}.")
            if not np.isfinite(value).all():
                raise PolicyError(f"Weight '{name}' is not finite.")
            kept.append(ort.OrtValue.ortvalue_from_numpy(np.array(value, order="C")))
            options.add_initializer(name, kept[-1])
        try:
            session = ort.InferenceSession(
                self._graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=alone
            )
        except Exception as error:  # onnxruntime raises several types without a common base
            reason = " ".join(str(error).split())[:300]
            raise PolicyError(f"The weights do not fit {self.FILE}: {reason}") from error
        # The values must live as long as the session that reads them.
        self._session, self._kept = session, kept
        self.sha256 = weights_sha256(weights)
        return self.sha256

    def act(
        self,
        observation: FloatArray,
        images: Images | None = None,
        base_action: FloatArray | None = None,
        noise: FloatArray | None = None,
    ) -> tuple[FloatArray, float]:
        """Action (1, n), dimensionless, and the disagreement of the critic's heads about it, in units of the reward.

        Args:
            observation: Shape (1, obs), dimensionless.
            images: Picture (3, height, width) uint8 of each camera of the graph.
            base_action: Shape (1, n), dimensionless, the base's action for a residual.
            noise: Shape (1, n), dimensionless, of a standard normal distribution; None for the deterministic action.

        Raises:
            PolicyError: If no weights have come yet, an input is missing, or the action is not finite.
        """
        if self._session is None:
            raise PolicyError(f"{self.FILE} has no weights yet.")
        feeds: dict[str, Any] = {OBSERVATION: observation}
        size = self._action_size
        feeds[NOISE] = np.zeros((1, size), np.float32) if noise is None else noise
        for name in self._inputs:
            if name.startswith(IMAGE_PREFIX):
                camera = name.removeprefix(IMAGE_PREFIX)
                if images is None or camera not in images:
                    raise PolicyError(f"{self.FILE} needs the camera '{camera}', and there is no picture of it.")
                feeds[name] = images[camera][None]
        if BASE_ACTION in self._inputs:
            if base_action is None:
                raise PolicyError(f"{self.FILE} needs '{BASE_ACTION}', the action of its base in this step.")
            feeds[BASE_ACTION] = base_action
        try:
            action, spread = (np.asarray(part) for part in self._session.run([ACTION, DISAGREEMENT], feeds))
        except Exception as error:  # likewise
            raise PolicyError(f"{self.FILE} does not compute: {' '.join(str(error).split())[:300]}") from error
        if not np.isfinite(action).all():
            raise PolicyError(f"The action of {self.FILE} is not finite: {action.tolist()}.")
        return action, float(spread.reshape(-1)[0])

    @property
    def _action_size(self) -> int:
        assert self._session is not None
        return next(item.shape[1] for item in self._session.get_inputs() if item.name == NOISE)

"""Cells from which the global feature of an exported AME-2 network was taken, read from the network itself.

Only pictures need this, so exported networks have no output for it: it is added to a copy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import MapWindow

Overview = Callable[[NDArray[np.float32]], NDArray[np.float64]]
"""Observation (1, size) to the share of the global feature's channels that each cell has won, (rows, cols)."""


def overview_of(model_bytes: bytes, window: MapWindow) -> Overview | None:
    """Find the largest value over all cells, step d of the encoder (AME-2, Sec. IV), in an exported network.

    Args:
        model_bytes: The ONNX file.
        window: What the policy sees.

    Returns:
        What tells the shares; None for a network that does not take the largest value over the cells exactly once.
    """
    model = onnx.load_from_string(model_bytes)
    reductions = [node for node in model.graph.node if node.op_type == "ReduceMax"]
    if len(reductions) != 1:
        return None
    before = reductions[0].input[0]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(before))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    name, cells = session.get_inputs()[0].name, window.rows * window.cols

    def shares(observation: NDArray[np.float32]) -> NDArray[np.float64]:
        channels = np.asarray(session.run([before], {name: observation})[0])
        won = np.bincount(channels[0].argmax(axis=0), minlength=cells)
        return (won / channels.shape[2]).reshape(window.rows, window.cols)

    size = session.get_inputs()[0].shape[1]
    found = np.asarray(session.run([before], {name: np.zeros((1, size), np.float32)})[0]).shape
    return shares if len(found) == 3 and found[:2] == (1, cells) else None

"""Changes of an ONNX graph: ones that a runtime must refuse, and ones after which its commands are checked.

Each takes the model, its graph and a random generator, changes the model, and returns whether it must be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from gantry_deploy.contract.policy_contract import METADATA_KEY

MAX_TENSOR_BYTES = 2**30
"""Memory limit of a network's work in the runtime, bytes."""


def pick(rng: np.random.Generator, items: Any) -> Any:
    """One of several, any type."""
    return items[int(rng.integers(len(items)))]


def _before_output(graph: Any, make: Callable[[str, str], list[Any]]) -> None:
    """Put nodes between the last node and the graph's first output."""
    output = graph.output[0].name
    for node in graph.node:
        for i, name in enumerate(node.output):
            if name == output:
                node.output[i] = "attacked"
    graph.node.extend(make("attacked", output))


def _constant(name: str, value: Any) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value), name))


def loop(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """A loop of many trips."""
    trips = int(pick(rng, (3_000_000, 2**40, 2**62)))
    body = helper.make_graph(
        [helper.make_node("Identity", ["cond"], ["cond_out"]), helper.make_node("Identity", ["x"], ["x_out"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("cond_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x_out", TensorProto.FLOAT, None),
        ],
    )
    _before_output(
        graph,
        lambda a, b: [
            _constant("trips", np.int64(trips)),
            _constant("go", np.bool_(True)),
            helper.make_node("Loop", ["trips", "go", a], [b], body=body),
        ],
    )
    return True


def branch(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """A branch on the answer's sign, which hides two graphs."""
    one = helper.make_graph(
        [helper.make_node("Identity", ["attacked"], ["one"])],
        "one",
        [],
        [helper.make_tensor_value_info("one", TensorProto.FLOAT, None)],
    )
    two = helper.make_graph(
        [helper.make_node("Identity", ["attacked"], ["two"])],
        "two",
        [],
        [helper.make_tensor_value_info("two", TensorProto.FLOAT, None)],
    )
    _before_output(
        graph,
        lambda a, b: [
            helper.make_node("ReduceSum", [a], ["total"], keepdims=0),
            _constant("zero", np.float32(0)),
            helper.make_node("Greater", ["total", "zero"], ["positive"]),
            helper.make_node("If", ["positive"], [b], then_branch=one, else_branch=two),
        ],
    )
    return True


def huge(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """A constant of gigabytes in every step."""
    size = int(pick(rng, (2**30, 2**33, 2**40)))
    _before_output(
        graph,
        lambda a, b: [
            _constant("shape", np.array([size], np.int64)),
            helper.make_node("ConstantOfShape", ["shape"], ["big"]),
            helper.make_node("ReduceMax", ["big"], ["most"], keepdims=0),
            helper.make_node("Add", [a, "most"], [b]),
        ],
    )
    return True


def tiled(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """A tensor that grows by tiling."""
    count = int(pick(rng, (2**28, 2**32)))
    _before_output(
        graph,
        lambda a, b: [
            _constant("repeats", np.array([1, count // 8], np.int64)),
            helper.make_node("Tile", [a, "repeats"], ["big"]),
            helper.make_node("ReduceMax", ["big"], ["most"], keepdims=0),
            helper.make_node("Add", [a, "most"], [b]),
        ],
    )
    # A smaller one is slow and within the limits of memory and time; what it commands is judged.
    numbers = graph.output[0].type.tensor_type.shape.dim[-1].dim_value * (count // 8)
    return numbers * 4 > MAX_TENSOR_BYTES


def weights(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """Weights that are not finite, or absurd."""
    floats = [item for item in graph.initializer if item.data_type == TensorProto.FLOAT]
    item = pick(rng, floats)
    values = numpy_helper.to_array(item).copy()
    values[...] = pick(rng, (np.nan, np.inf, 1e30, -1e30))
    item.CopyFrom(numpy_helper.from_array(values, item.name))
    return False  # judged by what it commands


def half(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """An input of half precision."""
    graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    graph.node.insert(0, helper.make_node("Cast", [graph.input[0].name], ["single"], to=TensorProto.FLOAT))
    for node in list(graph.node)[1:]:
        for i, name in enumerate(node.input):
            if name == graph.input[0].name:
                node.input[i] = "single"
    return True


def outside(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """Weights that lie in a file outside."""
    item = pick(rng, list(graph.initializer))
    item.ClearField("raw_data")
    item.ClearField("float_data")
    item.data_location = TensorProto.EXTERNAL
    entry = item.external_data.add()
    entry.key, entry.value = (
        "location",
        pick(rng, ("../../etc/passwd", "/etc/passwd", "*/_ORT_MEM_ADDR_/*", "golden.npz")),
    )
    return True


def foreign(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """An operator that needs code from elsewhere."""
    model.opset_import.append(helper.make_opsetid("evil", 1))
    _before_output(graph, lambda a, b: [helper.make_node("Exec", [a], [b], domain="evil")])
    return True


def inputs(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """One more input."""
    graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [1, 3]))
    return True


def random_answer(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """An answer that is drawn anew in every step."""
    _before_output(
        graph,
        lambda a, b: [
            helper.make_node("RandomNormalLike", [a], ["noise"], scale=float(pick(rng, (0.1, 1e6)))),
            helper.make_node("Add", [a, "noise"], [b]),
        ],
    )
    return False


def renamed(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """An output of another width."""
    _before_output(graph, lambda a, b: [helper.make_node("Concat", [a, a], [b], axis=1)])
    for dim in graph.output[0].type.tensor_type.shape.dim[1:]:
        dim.dim_value = 2 * dim.dim_value
    return True


def twin_metadata(model: Any, graph: Any, rng: np.random.Generator) -> bool:
    """Metadata that holds the contract twice, the second time another one."""
    entry = next(item for item in model.metadata_props if item.key == METADATA_KEY)
    more = model.metadata_props.add()
    more.key, more.value = METADATA_KEY, entry.value.replace('"rate_hz"', '"rate_hz_"')
    return True

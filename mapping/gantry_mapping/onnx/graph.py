"""A check of an ONNX file before it is loaded: a fixed amount of work, the same whatever the network sees.

The ``onnx`` package is not on a robot, so this reads the file's protobuf records itself, and only as far as needed: the
nodes of the graph and of the model's own functions, and how large each constant says it is.

A graph passes if

* it holds no loop, branch or other graph inside a node, and no operator that draws random numbers or whose output's
  size is known only once the numbers are,
* every operator is a standard one, or a function of the model that is made of such,
* no tensor's shape follows from what the network is given, so that every step does the same work as the first one,
* every constant holds as many numbers as it says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gantry_hardware.errors import GantryError
from gantry_hardware.files.bounds import value_text
from gantry_mapping.onnx.protobuf import Record, RecordReader

MAX_NODES = 20_000
"""Most nodes of a graph, with those of its functions as often as they are called."""
MAX_DEPTH = 32
"""Functions may call each other so deep."""
STANDARD = ("", "ai.onnx")
"""Domains of the standard operators."""

_CONTROL = {"Loop", "Scan", "If", "SequenceMap"}
_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
_UNSIZED = {"NonZero", "Unique", "Compress", "NonMaxSuppression", "StringSplit", "ImageDecoder"}
_SHAPES_ALONE = {"Shape", "Size"}
_SHAPE_INPUTS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Operator to the inputs whose numbers decide its output's shape; those of every ``Reduce...`` are its second one."""
_MOST_NUMBERS_PER_BYTE = 8
"""No type packs more numbers into a byte."""

# Numbers of protobuf fields in onnx.proto.
_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_SPARSE = 1, 5, 11, 15
_NODE_INPUT, _NODE_OUTPUT, _NODE_OP, _NODE_ATTRIBUTE, _NODE_DOMAIN, _NODE_OVERLOAD = 1, 2, 4, 5, 7, 8
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_ATTRIBUTE_SPARSE, _ATTRIBUTE_SPARSES = 22, 23
_FUNCTION_NAME, _FUNCTION_INPUT, _FUNCTION_OUTPUT, _FUNCTION_NODE, _FUNCTION_DOMAIN, _FUNCTION_OVERLOAD = (
    1, 4, 5, 7, 10, 13,
)  # fmt: skip
_TENSOR_DIMS, _TENSOR_NAME = 1, 8
_VALUE_NAME = 1


@dataclass(frozen=True)
class _Node:
    """One operator or call of a function."""

    op: tuple[str, str, str]
    """Domain, name and overload."""
    inputs: tuple[str, ...]
    """Names of values; empty for one that is left out."""
    outputs: tuple[str, ...]
    """Names of values."""


@dataclass(frozen=True)
class _Function:
    """A function of the model."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[_Node, ...]


@dataclass(frozen=True)
class _FlatNode:
    """One operator, or a call whose nodes stand beside it."""

    op: tuple[str, str, str]
    """Domain, name and overload."""
    inputs: tuple[int, ...]
    """Indices of values; -1 for one that is left out."""
    outputs: tuple[int, ...]
    """Indices of values."""


class _Flat:
    """The graph with what its functions do in place of their calls.

    Args:
        functions: Of the model.
        file: Its name, for messages.
        error: Class of the errors to raise.
    """

    def __init__(self, functions: dict[tuple[str, str, str], _Function], file: str, error: type[GantryError]) -> None:
        self.nodes: list[_FlatNode] = []
        """In the order of the file, calls included."""
        self.names: list[str] = []
        """Of each value, as the file has it."""
        self._functions = functions
        self._file, self._error = file, error

    def is_call(self, node: _FlatNode) -> bool:
        """Whether a node is a call, whose nodes stand beside it."""
        return node.op in self._functions

    def add(self, nodes: Iterable[_Node], values: dict[str, int], depth: int = 0) -> None:
        """Append nodes; ``values`` are those that already have an index, and get those that do not."""
        for node in nodes:
            inputs, outputs = ([self._index(name, values) for name in names] for names in (node.inputs, node.outputs))
            if len(self.nodes) >= MAX_NODES:
                raise self._error(f"{self._file} has more than {MAX_NODES} nodes, functions included.")
            # A call counts as a node, too: functions without any could call each other for ever.
            self.nodes.append(_FlatNode(node.op, tuple(inputs), tuple(outputs)))
            function = self._functions.get(node.op)
            if function is None:
                continue
            if depth >= MAX_DEPTH:
                around = f"around {value_text(node.op[1])}"
                raise self._error(
                    f"{self._file} has functions {around} that call each other more than {MAX_DEPTH} deep."
                )
            pairs = (*zip(function.inputs, inputs, strict=False), *zip(function.outputs, outputs, strict=False))
            self.add(function.nodes, {name: index for name, index in pairs if index >= 0}, depth + 1)

    def _index(self, name: str, values: dict[str, int]) -> int:
        if not name:
            return -1
        if name not in values:
            values[name] = len(self.names)
            self.names.append(name)
        return values[name]


def check_graph(model: bytes, file: str, error: type[GantryError]) -> None:
    """Refuse an ONNX file whose work is not bounded, see the module.

    Args:
        model: The file.
        file: Its name, for messages.
        error: Class of the errors to raise.

    Raises:
        GantryError: Of class ``error``, with the node or constant that is refused and why.
    """
    read = _Reader(file, error)
    root = read.record(memoryview(model))
    graph = read.merged(root, _MODEL_GRAPH)
    functions = {}
    for item in root.get(_MODEL_FUNCTIONS, ()):
        key, function = read.function(item)
        if key[0] in STANDARD:
            raise error(f"{file} redefines the standard operator {value_text(key[1])} by a function of its own.")
        functions[key] = function
    if _GRAPH_SPARSE in graph:
        raise error(f"{file} holds sparse constants, expected dense ones: they unpack to any size.")
    constants = {read.tensor(item) for item in graph.get(_GRAPH_INITIALIZER, ())}
    flat, values = _Flat(functions, file, error), {}
    flat.add(tuple(read.nodes(graph, _GRAPH_NODE)), values)
    for node in flat.nodes:
        if not flat.is_call(node):
            _check_operator(node.op, file, error)
    inputs = {read.text(read.record(item), _VALUE_NAME) for item in graph.get(_GRAPH_INPUT, ())} - constants
    _check_shapes(flat, {values[name] for name in inputs if name in values}, file, error)


def constant_shapes(model: bytes, file: str, error: type[GantryError]) -> dict[str, tuple[int, ...]]:
    """Shapes of an ONNX file's constants by name, weights among them; arguments as of :func:`check_graph`."""
    read = _Reader(file, error)
    graph = read.merged(read.record(memoryview(model)), _MODEL_GRAPH)
    shapes = {}
    for item in graph.get(_GRAPH_INITIALIZER, ()):
        lengths = (length for part in read.record(item).get(_TENSOR_DIMS, ()) for length in _lengths(part))
        shapes[read.tensor(item)] = tuple(lengths)
    return shapes


def _check_operator(op: tuple[str, str, str], file: str, error: type[GantryError]) -> None:
    domain, name, _ = op
    if domain not in STANDARD:
        raise error(
            f"{file} has the operator {value_text(name)} of the domain {value_text(domain)}, expected standard ONNX "
            "operators and functions made of them."
        )
    if name in _CONTROL:
        raise error(f"{file} has a node {name}, expected none that repeats or leaves out work: it may never end.")
    if name in _RANDOM:
        raise error(f"{file} has a node {name}, expected the same output for the same input.")
    if name in _UNSIZED:
        raise error(f"{file} has a node {name}, expected operators whose output's size does not depend on its numbers.")


def _check_shapes(flat: _Flat, given: set[int], file: str, error: type[GantryError]) -> None:
    """Refuse a shape that follows from what the network is given, the values ``given`` and all that is made of them."""
    operators = [node for node in flat.nodes if not flat.is_call(node)]
    consumers: dict[int, list[_FlatNode]] = defaultdict(list)
    for node in operators:
        if node.op[1] not in _SHAPES_ALONE:
            for value in node.inputs:
                consumers[value].append(node)
    follows, left = set(given), list(given)
    while left:
        for node in consumers[left.pop()]:
            new = [value for value in node.outputs if value not in follows]
            follows.update(new)
            left.extend(new)
    follows.discard(-1)
    for node in operators:
        name = node.op[1]
        for place in (1,) if name.startswith("Reduce") else _SHAPE_INPUTS.get(name, ()):
            if place < len(node.inputs) and node.inputs[place] in follows:
                value = value_text(flat.names[node.inputs[place]])
                raise error(
                    f"{file} has a node {name} whose output's shape follows from what the network is given ({value}), "
                    "expected fixed shapes."
                )


class _Reader:
    """Reads the records of onnx.proto that count."""

    def __init__(self, file: str, error: type[GantryError]) -> None:
        self.file, self.error = file, error
        self._records = RecordReader(file, error)

    def record(self, data: object) -> Record:
        """A record inside another one."""
        if not isinstance(data, memoryview):
            raise self.error(f"{self.file} is no ONNX model: a number stands where a record is expected.")
        return self._records.read(data)

    def merged(self, outer: Record, number: int) -> Record:
        """A record that may stand there once: protobuf merges several."""
        merged: Record = {}
        for item in outer.get(number, ()):
            for key, values in self.record(item).items():
                merged.setdefault(key, []).extend(values)
        return merged

    def text(self, record: Record, number: int) -> str:
        """A text; the last one counts, and none is empty."""
        texts = self.texts(record, number)
        return texts[-1] if texts else ""

    def texts(self, record: Record, number: int) -> tuple[str, ...]:
        """All texts of a field."""
        return tuple(
            bytes(item).decode("utf-8", "backslashreplace")
            for item in record.get(number, ())
            if isinstance(item, memoryview)
        )

    def nodes(self, record: Record, number: int) -> Iterator[_Node]:
        """The nodes of a graph or function, none of which holds a graph or an oversize constant."""
        for item in record.get(number, ()):
            node = self.record(item)
            op = self.text(node, _NODE_DOMAIN), self.text(node, _NODE_OP), self.text(node, _NODE_OVERLOAD)
            for each in node.get(_NODE_ATTRIBUTE, ()):
                self._check_attribute(op[1], self.record(each))
            yield _Node(op, self.texts(node, _NODE_INPUT), self.texts(node, _NODE_OUTPUT))

    def function(self, data: object) -> tuple[tuple[str, str, str], _Function]:
        """A function and what it is called by."""
        record = self.record(data)
        key = tuple(self.text(record, number) for number in (_FUNCTION_DOMAIN, _FUNCTION_NAME, _FUNCTION_OVERLOAD))
        inputs, outputs = self.texts(record, _FUNCTION_INPUT), self.texts(record, _FUNCTION_OUTPUT)
        return (key[0], key[1], key[2]), _Function(inputs, outputs, tuple(self.nodes(record, _FUNCTION_NODE)))

    def tensor(self, data: object) -> str:
        """The name of a constant, which holds what it says."""
        record, count = self.record(data), 1
        size = len(data) if isinstance(data, memoryview) else 0
        name = self.text(record, _TENSOR_NAME)
        lengths = [length for item in record.get(_TENSOR_DIMS, ()) for length in _lengths(item)]
        for length in lengths:
            count *= length
            if count > _MOST_NUMBERS_PER_BYTE * size:
                text = f"says that its constant {value_text(name)} has the shape {value_text(tuple(lengths))}"
                raise self.error(f"{self.file} {text}, in {size} bytes.")
        return name

    def _check_attribute(self, op: str, attribute: Record) -> None:
        if _ATTRIBUTE_GRAPH in attribute or _ATTRIBUTE_GRAPHS in attribute:
            raise self.error(
                f"{self.file} has a node {value_text(op)} with a graph inside, expected none that repeats or leaves "
                "out work: it may never end."
            )
        if _ATTRIBUTE_SPARSE in attribute or _ATTRIBUTE_SPARSES in attribute:
            raise self.error(f"{self.file} holds sparse constants, expected dense ones: they unpack to any size.")
        for number in (_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS):
            for item in attribute.get(number, ()):
                self.tensor(item)


def _lengths(item: object) -> Iterator[int]:
    """Lengths along a constant's axes: one number, or several packed."""
    if isinstance(item, int):
        yield item
    elif isinstance(item, memoryview):
        value = shift = 0
        for byte in item:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                yield value
                value = shift = 0

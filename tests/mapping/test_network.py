"""Graphs from strangers: what is refused before it is loaded, and what is stopped while it runs."""

import threading
import time
import tracemalloc

import numpy as np
import pytest

from gantry_mapping.errors import MappingError
from gantry_mapping.onnx import graph as onnx_graph
from gantry_mapping.onnx import network, protobuf
from gantry_mapping.onnx.graph import check_graph
from gantry_mapping.onnx.network import Network

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

node = helper.make_node
IN = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
OUT = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])


def numbers(name, values, kind=np.int64):
    return numpy_helper.from_array(np.array(values, kind), name)


def model(nodes, constants=(), functions=(), opset=17, **more):
    graph = helper.make_graph(nodes, "g", [IN], [OUT], list(constants), **more)
    domains = [helper.make_opsetid("", opset), *(helper.make_opsetid(item, 1) for item in ("own", "com.microsoft"))]
    return helper.make_model(graph, opset_imports=domains, functions=functions, ir_version=8).SerializeToString()


def function(name, nodes, inputs=("a",), outputs=("b",), domain="own"):
    return helper.make_function(
        domain, name, inputs, outputs, nodes, [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    )


def refused(data, match):
    with pytest.raises(MappingError, match=match) as caught:
        check_graph(data, "net.onnx", MappingError)
    assert str(caught.value).startswith("net.onnx ")
    assert len(str(caught.value)) < 300
    with pytest.raises(MappingError, match=match):
        Network(data, "net.onnx", MappingError)


def body(kind=TensorProto.FLOAT):
    info = helper.make_tensor_value_info
    return helper.make_graph(
        [node("Identity", ["c"], ["c2"]), node("Identity", ["v"], ["v2"])],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", kind, None)],
        [info("c2", TensorProto.BOOL, []), info("v2", kind, None)],
    )


def branch(name):
    return helper.make_graph(
        [node("Identity", ["x"], [name])], "b", [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
    )


LOOP = node("Loop", ["trips", "go", "x"], ["y"], body=body())
LOOP_CONSTANTS = (numbers("trips", 2**62), numbers("go", True, bool))
IF = node("If", ["go"], ["y"], then_branch=branch("t"), else_branch=branch("e"))
SCAN = node("Scan", ["x"], ["y"], body=branch("s"), num_scan_inputs=1)


@pytest.mark.parametrize(
    ("nodes", "constants", "what"),
    [
        ([LOOP], LOOP_CONSTANTS, "'Loop' with a graph inside"),
        ([IF], LOOP_CONSTANTS[1:], "'If' with a graph inside"),
        ([SCAN], (), "'Scan' with a graph inside"),
        ([node("Mystery", ["x"], ["y"], anything=body())], (), "'Mystery' with a graph inside"),
        ([node("Mystery", ["x"], ["y"], anything=[body(), body()])], (), "'Mystery' with a graph inside"),
        ([node("Loop", ["trips", "go", "x"], ["y"])], LOOP_CONSTANTS, "node Loop, expected none that repeats"),
        ([node("RandomNormalLike", ["x"], ["y"])], (), "RandomNormalLike, expected the same output"),
        ([node("NonZero", ["x"], ["y"])], (), "NonZero, expected operators whose output's size"),
        ([node("Range2", ["x"], ["y"], domain="com.microsoft")], (), "'Range2' of the domain 'com.microsoft'"),
    ],
)
def test_work_without_bound_is_refused_in_graph_and_functions(nodes, constants, what):
    refused(model(nodes, constants), what)
    inner = [node("Constant", [], [item.name], value=item) for item in constants]
    renamed = [onnx.NodeProto.FromString(item.SerializeToString()) for item in nodes]
    own = function("Own", [*inner, *renamed], ["x"], ["y"])
    refused(model([node("Own", ["x"], ["y"], domain="own")], functions=[own]), what)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("ConstantOfShape", ["shape"]),
        ("Expand", ["one", "shape"]),
        ("Tile", ["one", "shape"]),
        ("Reshape", ["x", "shape"]),
        ("Range", ["zero", "shape", "one"]),
        ("Pad", ["x", "shape"]),
        ("Resize", ["x", "", "", "shape"]),
        ("Slice", ["x", "zero", "shape"]),
        ("TopK", ["x", "shape"]),
        ("OneHot", ["zero", "shape", "x"]),
        ("ReduceSum", ["x", "shape"]),
    ],
)
def test_shapes_that_follow_from_what_is_seen_are_refused(name, inputs):
    """The number of an observation, times a million, as a size: the first step would be quick and a later one not."""
    constants = [numbers("zero", [0]), numbers("one", [1.0], np.float32), numbers("factor", [1e6], np.float32)]
    chain = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Mul", ["most", "factor"], ["large"]),
        node("Cast", ["large"], ["shape"], to=TensorProto.INT64),
        node(name, inputs, ["grown"]),
        node("ReduceSum", ["grown"], ["sum"], keepdims=0),
        node("Add", ["x", "sum"], ["y"]),
    ]
    refused(model(chain, constants), f"node {name} whose output's shape follows from what the network is given")
    # Nodes may stand in any order, and calls hide nothing.
    refused(model(chain[::-1], constants), f"node {name} whose")
    size = function("SizeOf", [node("Identity", ["a"], ["inner"]), node("Identity", ["inner"], ["b"])])
    hidden = [node("SizeOf", ["most"], ["hidden"], domain="own"), *chain]
    hidden[2] = node("Mul", ["hidden", "factor"], ["large"])
    refused(model(hidden, constants, [size]), f"node {name} whose")


def test_shapes_that_follow_from_shapes_are_taken():
    chain = [
        node("Shape", ["x"], ["shape"]),
        node("ConstantOfShape", ["shape"], ["zeros"]),
        node("Own", ["x", "zeros"], ["sum"], domain="own"),
        node("Reshape", ["sum", "shape"], ["y"]),
    ]
    own = function("Own", [node("Add", ["a", "c"], ["b"])], ["a", "c"])
    net = Network(model(chain, functions=[own]), "net.onnx", MappingError)
    row = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)
    assert np.array_equal(net.run(["y"], {"x": row})[0], row)


def test_functions_that_multiply_are_refused():
    """Twenty functions, each of two calls of the one before: a million nodes from two kilobytes."""
    first = function("F0", [node("Neg", ["a"], ["b"])])
    more = [
        function(
            f"F{i}", [node(f"F{i - 1}", ["a"], ["m"], domain="own"), node(f"F{i - 1}", ["m"], ["b"], domain="own")]
        )
        for i in range(1, 21)
    ]
    refused(model([node("F20", ["x"], ["y"], domain="own")], functions=[first, *more]), "more than 20000 nodes")
    endless = function("F", [node("F", ["a"], ["b"], domain="own")])
    refused(model([node("F", ["x"], ["y"], domain="own")], functions=[endless]), "more than 32 deep")
    standard = function("Add", [node("Neg", ["a"], ["b"])], domain="")
    refused(model([node("Neg", ["x"], ["y"])], functions=[standard]), "redefines the standard operator 'Add'")


def test_constants_hold_what_they_say():
    honest = numbers("c", np.ones((100, 4)), np.float32)
    check_graph(model([node("Add", ["x", "c"], ["y"])], [honest]), "net.onnx", MappingError)
    for lengths in ([2**40], [2**20, 2**20], [2**62, 4], [-1]):
        liar = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=lengths, raw_data=b"\0" * 16)
        refused(model([node("Add", ["x", "c"], ["y"])], [liar]), "constant 'c' has the shape")
        inside = [node("Constant", [], ["c"], value=liar), node("Add", ["x", "c"], ["y"])]
        refused(model(inside), "constant 'c' has the shape")
    sparse = onnx.SparseTensorProto(values=numbers("c", [1.0], np.float32), indices=numbers("", [3]), dims=[2**40])
    refused(model([node("Add", ["x", "c"], ["y"])], sparse_initializer=[sparse]), "holds sparse constants")
    refused(model([node("Constant", [], ["y"], sparse_value=sparse)]), "holds sparse constants")


def test_a_graph_in_two_pieces_is_read_as_one():
    """Protobuf merges records that stand twice; a loop in the second piece is no secret."""
    plain, looped = model([node("Neg", ["x"], ["z"])]), model([LOOP], LOOP_CONSTANTS)
    refused(plain + looped, "'Loop' with a graph inside")


def told(data):
    """What is said of a file that is refused; empty for one that loads."""
    try:
        Network(data, "net.onnx", MappingError)
    except MappingError as problem:
        return str(problem)
    return ""


def test_damaged_files_are_one_message():
    seed = int.from_bytes(np.random.default_rng().bytes(4), "big")
    print("seed", seed)
    rng = np.random.default_rng(seed)
    good = model([node("Add", ["x", "c"], ["y"])], [numbers("c", np.ones(4), np.float32)])
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        text = told(bytes(data[: rng.integers(1, len(data) + 1)]))
        assert text == "" or ("net.onnx" in text and text.isprintable())
    assert "net.onnx cannot be loaded" in told(b"")
    assert "net.onnx" in told(b"PK\x03\x04" * 100)


def test_endless_fields_are_refused(monkeypatch):
    monkeypatch.setattr(protobuf, "MAX_FIELDS", 1000)
    refused(bytes([0x08, 0x00]) * 1001, "more than 1000 fields")


def test_names_from_the_file_are_shown_without_control_characters():
    refused(model([node("\x1b[2Jboo", ["x"], ["y"], domain="\x07" * 500)]), r"'\\x1b\[2Jboo'")


def test_long_names_are_not_copied_for_every_call():
    own = function("F", [node("Neg", ["a"], ["m" * 10**6]), node("Neg", ["m" * 10**6], ["b"])])
    chain = [node("F", [f"v{i}"], [f"v{i + 1}"], domain="own") for i in range(5000)]
    tracemalloc.start()
    check_graph(model([node("Neg", ["x"], ["v0"]), *chain], functions=[own]), "net.onnx", MappingError)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6  # copies would be 5 GB


def slow_model(count=4000, size=384):
    weights = np.eye(size, dtype=np.float32)
    names = [f"m{i}" for i in range(count + 1)]
    chain = [node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(count)]
    ends = [node("ReduceSum", [names[-1]], ["sum"], keepdims=0), node("Add", ["x", "sum"], ["y"])]
    first = node("Add", ["w", "sum0"], ["m0"])
    start = node("ReduceSum", ["x"], ["sum0"], keepdims=0)
    return model([start, first, *chain, *ends], [numbers("w", weights, np.float32)])


def test_a_step_that_computes_for_too_long_is_stopped():
    net = Network(slow_model(), "net.onnx", MappingError, limit_s=0.05)
    with pytest.raises(MappingError, match=r"net.onnx was stopped in a step that had computed for more than 0\.05 s"):
        net.run(["y"], {"x": np.zeros((1, 4), np.float32)})
    with pytest.raises(MappingError, match="was stopped"):  # and the next one, too
        net.run(["y"], {"x": np.zeros((1, 4), np.float32)})


def test_waiting_counts_for_nothing():
    """What a busy machine takes away from a step is not its own work."""
    if not hasattr(time, "pthread_getcpuclockid"):
        pytest.skip("the processor time of another thread cannot be read here")
    step = network._Step(0.05)
    time.sleep(0.3)
    step.judge()
    assert not step.options.terminate
    while time.clock_gettime(step._clock) <= step._end_s:
        pass
    step.judge()
    assert step.options.terminate


def test_memory_is_bounded(monkeypatch):
    """Four gigabytes from a hundred bytes are refused by the arena, and networks go on afterwards."""
    large = [
        node("ConstantOfShape", ["shape"], ["zeros"]),
        node("ReduceSum", ["zeros"], ["sum"], keepdims=0),
        node("Add", ["x", "sum"], ["y"]),
    ]
    row = np.ones((1, 4), np.float32)
    for size in ([2**30], [2**15, 2**15], [2**40]):
        net = Network(model(large, [numbers("shape", size)]), "net.onnx", MappingError)
        with pytest.raises(MappingError, match=r"net.onnx failed on 'x' float32 \(1, 4\)"):
            net.run(["y"], {"x": row})
    small = Network(model(large, [numbers("shape", [2**20])]), "net.onnx", MappingError)
    assert np.array_equal(small.run(["y"], {"x": row})[0], row)


def test_the_watching_thread_sleeps_and_wakes(monkeypatch):
    monkeypatch.setattr(network, "IDLE_LOOKS", 0)
    monkeypatch.setattr(network, "WATCH_EVERY_S", 0.001)
    watch = network._Watch()
    for _ in range(5):
        step = watch.begin(0.0)
        burnt = time.thread_time() + 0.01
        while time.thread_time() < burnt:
            pass
        waiting = threading.Event()
        while not step.options.terminate:  # the test's own time limit is what fails here
            waiting.wait(0.002)
        watch.end(step)
        while watch._wake.is_set():
            waiting.wait(0.002)


def test_the_largest_graphs_of_the_house_are_far_from_the_limits():
    from pathlib import Path

    import gantry_sim

    files = sorted(Path(gantry_sim.__file__).parent.glob("pretrained/*/*.onnx"))
    assert len(files) >= 5
    for path in files:
        check_graph(path.read_bytes(), path.name, MappingError)
        assert len(onnx.load(path).graph.node) < onnx_graph.MAX_NODES / 10

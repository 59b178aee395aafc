"""Mappers: a network in onnxruntime, and none."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gantry_mapping.config import SensorModelCfg
from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.elevation.rasterize import EMPTY_Z_M
from gantry_mapping.errors import MappingError
from gantry_mapping.mapper import (
    MAX_BATCH,
    METADATA_KEY,
    VOID_LOG_VARIANCE,
    MapperInfo,
    OnnxMapper,
    PassThrough,
    trial_grid,
    turned_by,
)

GRID = GridSpec(3, 2, 0.5, 1.0, 0.0)
INFO = MapperInfo(GRID, provenance={"steps": 5})


def model(metadata=INFO, outputs=("mean", "log_variance")):
    """A network that doubles its input for the mean and negates it for the log variance."""
    shape = ["batch", 1, 3, 2]
    nodes = [helper.make_node("Add", ["z", "z"], ["mean"]), helper.make_node("Neg", ["z"], ["log_variance"])]
    graph = helper.make_graph(
        nodes[: len(outputs)],
        "mapper",
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in outputs],
    )
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if metadata is not None:
        helper.set_model_props(built, {METADATA_KEY: metadata if isinstance(metadata, str) else metadata.to_json()})
    return built.SerializeToString()


def test_a_network_runs_on_both_backends(array, tmp_path):
    path = tmp_path / "mapper.onnx"
    path.write_bytes(model())
    mapper = OnnxMapper(path)
    assert mapper.info == INFO
    z = array(np.arange(12).reshape(2, 1, 3, 2))
    mean, log_variance = mapper(z)
    assert type(mean) is type(z)
    np.testing.assert_allclose(np.asarray(mean), 2 * np.asarray(z))
    np.testing.assert_allclose(np.asarray(log_variance), -np.asarray(z))


def test_refusals():
    with pytest.raises(MappingError, match=r"\(1, 1, 2, 2\), expected \(N, 1, 3, 2\)"):
        OnnxMapper(model())(np.zeros((1, 1, 2, 2), np.float32))
    with pytest.raises(MappingError, match="no metadata 'gantry_mapper'"):
        OnnxMapper(model(metadata=None))
    with pytest.raises(MappingError, match="1 inputs and 1 outputs"):
        OnnxMapper(model(outputs=("mean",)))
    with pytest.raises(MappingError, match="version 99"):
        OnnxMapper(model(INFO.to_json().replace('"version": 1', '"version": 99')))
    with pytest.raises(MappingError, match=r"-3\.0 m for empty"):
        OnnxMapper(model(MapperInfo(GRID, empty_z_m=-3.0)))
    with pytest.raises(MappingError, match="Did you mean 'local_grid'"):
        OnnxMapper(model('{"local_gird": 1}'))
    with pytest.raises(MappingError, match="Cannot load the mapper"):
        OnnxMapper(b"no network")
    with pytest.raises(MappingError, match=r"Cannot load the mapper 'absent\.onnx'"):
        OnnxMapper("absent.onnx")


SQUARE, OBLONG = GridSpec(12, 12, 0.08), GridSpec(12, 9, 0.08)


def network(kind, grid):
    """A mapper whose answer is its input, but for what the kind says."""
    number = TensorProto.FLOAT16 if kind == "half precision" else TensorProto.FLOAT
    shape = {"five cells": ["N", 1, 5, 5], "batch of two": [2, 1, *grid.shape], "flat": ["N", *grid.shape]}
    told = shape.get(kind, ["N", 1, *grid.shape])
    z = helper.make_tensor_value_info("z", number, told)
    mean, log_variance = (helper.make_tensor_value_info(name, number, None) for name in ("mean", "log"))
    make = helper.make_node
    level = [make("Sub", ["z", "z"], ["zero"]), make("Identity", ["zero"], ["log"])]
    rows_back = {"starts": [-1], "ends": [-1000], "axes": [2], "steps": [-1]}
    values = [helper.make_tensor(name, TensorProto.INT64, [1], data) for name, data in rows_back.items()]
    nodes = {
        "not a number": [*level, make("Div", ["zero", "zero"], ["mean"])],
        "not a number where empty": [*level, make("Add", ["z", "two"], ["over"]),
                                     make("Div", ["over", "over"], ["one"]),
                                     make("Add", ["z", "one"], ["more"]), make("Sub", ["more", "one"], ["mean"])],
        "infinite variance": [make("Identity", ["z"], ["mean"]), make("Mul", ["z", "large"], ["log"])],
        "exchanged": [*level[:1], make("Transpose", ["z"], ["mean"], perm=[0, 1, 3, 2]),
                      make("Transpose", ["zero"], ["log"], perm=[0, 1, 3, 2])],
        "backward": [*level, make("Slice", ["z", *rows_back], ["mean"])],
    }.get(kind, [*level, make("Identity", ["z"], ["mean"])])  # fmt: skip
    values += [helper.make_tensor(name, number, [], [value]) for name, value in (("two", 2.0), ("large", -1e3))]
    graph = helper.make_graph(nodes, "mapper", [z], [mean, log_variance], values)
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(built, {METADATA_KEY: MapperInfo(grid).to_json()})
    return built.SerializeToString()


@pytest.mark.parametrize("grid", [SQUARE, OBLONG], ids=["square", "oblong"])
def test_a_network_that_gives_back_what_it_got_is_taken(grid):
    OnnxMapper(network("as it is", grid))


@pytest.mark.parametrize(
    ("kind", "grid", "reason"),
    [
        ("half precision", SQUARE, r"tensor\(float16\) .* expected tensor\(float\)"),
        ("not a number", SQUARE, "144 of 144 numbers of the mean are not finite"),
        ("not a number where empty", SQUARE, "of the mean are not finite"),
        ("infinite variance", SQUARE, "of the log variance are not finite"),
        ("exchanged", SQUARE, "rows and columns exchanged"),
        ("exchanged", OBLONG, r"shape \(1, 1, 9, 12\), expected \(1, 12, 9\)|shape \('N', 1, 9, 12\), expected"),
        ("backward", SQUARE, "rows reversed"),
        ("backward", OBLONG, "rows reversed"),
        ("five cells", SQUARE, r"\('N', 1, 5, 5\), expected tensor\(float\) of shape \(N, 1, 12, 12\)"),
        ("batch of two", SQUARE, r"\(2, 1, 12, 12\), expected"),
        ("flat", SQUARE, r"\('N', 12, 12\), expected"),
    ],
)
def test_a_network_that_does_not_answer_as_a_mapper_is_refused_when_it_is_loaded(kind, grid, reason):
    with pytest.raises(MappingError, match=reason):
        OnnxMapper(network(kind, grid))


@pytest.mark.parametrize("grid", [SQUARE, OBLONG], ids=["square", "oblong"])
def test_every_turn_of_the_trial_grid_is_told_from_the_grid_itself(grid):
    straight = trial_grid(*grid.shape)
    noise = np.random.default_rng(0).normal(0.0, 0.02, straight.shape)
    assert turned_by(straight, straight + noise) == ""
    assert turned_by(straight, np.zeros_like(straight)) == ""
    for k in range(8):
        turned = np.rot90(straight, k % 4)[:: 1 if k < 4 else -1]
        if k and turned.shape == straight.shape:
            assert turned_by(straight, turned + noise), k


def test_the_checker_accepts_the_tests_own_network():
    onnx.checker.check_model(onnx.load_from_string(model()))


def test_without_a_network(array):
    z = array(np.full((1, 1, 3, 2), -0.5))
    z[0, 0, 0, 0] = EMPTY_Z_M
    mean, log_variance = PassThrough(SensorModelCfg(0.01, 0.005), GRID, (0.5, 0.0, 0.5))(z)
    mean, log_variance = np.asarray(mean), np.asarray(log_variance)
    np.testing.assert_array_equal(mean, np.asarray(z)[:, 0])
    assert log_variance[0, 0, 0] == pytest.approx(VOID_LOG_VARIANCE)
    # The cell at (1.5, 0.25) is 1 m ahead, 0.25 m aside and 1 m below the sensor.
    std = 0.01 + 0.005 * (1.0 + 0.0625 + 1.0)
    assert log_variance[0, 2, 1] == pytest.approx(2 * math.log(std), rel=1e-5)


def test_a_mappers_graph_is_checked_and_stopped_like_a_policys(monkeypatch):
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Identity", ["before"], ["after"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, None),
        ],
    )
    looping = onnx.load_model_from_string(network("as it is", SQUARE))
    looping.graph.node[-1].input[0] = "looped"
    looping.graph.initializer.append(helper.make_tensor("trips", TensorProto.INT64, [], [2**60]))
    looping.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    looping.graph.node.insert(2, helper.make_node("Loop", ["trips", "yes", "z"], ["looped"], body=body))
    with pytest.raises(MappingError, match=r"Cannot load the mapper 'mapper\.onnx': .*Loop"):
        OnnxMapper(looping.SerializeToString())
    garbled = onnx.load_model_from_string(network("as it is", SQUARE))
    garbled.metadata_props[0].value = "twenty letters é here"
    content = garbled.SerializeToString().replace("é".encode(), b"\xe9\xe9")
    with pytest.raises(MappingError, match=r"Cannot load the mapper 'mapper\.onnx': .*no UTF-8"):
        OnnxMapper(content)


def test_a_large_batch_is_completed_in_parts_with_the_same_answers():
    mapper = OnnxMapper(model())
    grids = np.random.default_rng(3).normal(size=(2 * MAX_BATCH + 5, 1, 3, 2)).astype(np.float32)
    mean, log_variance = mapper(grids)
    assert np.array_equal(mean, 2 * grids)
    assert np.array_equal(log_variance, -grids)

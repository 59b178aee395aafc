"""Mappers: a network in onnxruntime, and none."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gantry_mapping.config import SensorModelCfg
from gantry_mapping.errors import MappingError
from gantry_mapping.grid import GridSpec
from gantry_mapping.mapper import METADATA_KEY, VOID_LOG_VARIANCE, MapperInfo, OnnxMapper, PassThrough
from gantry_mapping.rasterize import EMPTY_Z_M

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

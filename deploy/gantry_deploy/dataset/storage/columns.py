"""Frames as Arrow columns and back, in the types that LeRobot's own loader expects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantry_deploy.dataset.features import DEFAULT_FEATURES, Feature
from gantry_deploy.errors import DatasetError

IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""A picture in a data file."""


def data_table(features: Mapping[str, Feature], columns: Mapping[str, Any]) -> pa.Table:
    """The frames of an episode as rows.

    Args:
        features: All of the dataset; those stored as video have no column.
        columns: By feature, numbers of shape (frames, \\*shape), a list of texts, or a list of PNG files as bytes.
    """
    arrays, fields, described = [], [], {}
    for name, feature in features.items():
        if feature.dtype == "video":
            continue
        array = _array(feature, columns[name])
        metadata = None
        if len(feature.shape) > 1 and feature.is_number:
            kind = f"Array{len(feature.shape)}D"
            metadata = {
                "ARROW:extension:name": f"datasets.features.features.{kind}ExtensionType",
                "ARROW:extension:metadata": json.dumps([list(feature.shape), feature.dtype]),
            }
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata=metadata))
        described[name] = _described(feature)
    text = json.dumps({"info": {"features": described}})
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata={"huggingface": text}))


def column_values(name: str, feature: Feature, column: pa.ChunkedArray) -> Any:
    """A column as an array of shape (frames, \\*shape), without the last dimension for a dataset's own columns.

    Texts and pictures (as encoded bytes) come as lists.

    Raises:
        DatasetError: If the column holds something else than the feature says.
    """
    if feature.dtype == "string":
        return column.to_pylist()
    if feature.dtype == "image":
        return [None if item is None else item.get("bytes") for item in column.to_pylist()]
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # Older Arrow returns a column of several chunks as it is.
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    rows = len(array)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    while isinstance(array, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        if array.null_count:
            raise DatasetError(f"Column '{name}' has {array.null_count} empty rows, expected none.")
        array = array.flatten()
    if array.null_count:
        raise DatasetError(f"Column '{name}' has {array.null_count} missing numbers, expected none.")
    values = array.to_numpy(zero_copy_only=False)
    expected = (rows, *feature.shape)
    if values.size != np.prod(expected) or values.dtype.kind not in "biuf":
        raise DatasetError(
            f"Column '{name}' holds {values.size} values of type {values.dtype} in {rows} rows, "
            f"expected {feature.dtype} of shape {feature.shape} in each."
        )
    values = values.astype(feature.dtype, copy=False)
    return values.reshape(rows) if name in DEFAULT_FEATURES else values.reshape(expected)


def _array(feature: Feature, values: Any) -> pa.Array:
    if feature.dtype == "string":
        return pa.array(values, pa.string())
    if feature.dtype == "image":
        return pa.array([{"bytes": data, "path": f"frame-{i:06d}.png"} for i, data in enumerate(values)], IMAGE_TYPE)
    flat: NDArray[Any] = np.ascontiguousarray(values, dtype=feature.dtype)
    array = pa.array(flat.reshape(-1), type=pa.from_numpy_dtype(flat.dtype))
    if feature.shape == (1,):
        return array
    if len(feature.shape) == 1:
        return pa.FixedSizeListArray.from_arrays(array, feature.shape[0])
    for size in reversed(feature.shape):
        offsets = np.arange(0, len(array) + 1, size, dtype=np.int32)
        array = pa.ListArray.from_arrays(pa.array(offsets), array)
    return array


def _described(feature: Feature) -> dict[str, Any]:
    """Description of a column for the ``datasets`` package, so that viewers show it as what it is."""
    if feature.dtype == "image":
        return {"_type": "Image"}
    if feature.shape == (1,):
        return {"dtype": feature.dtype, "_type": "Value"}
    if len(feature.shape) == 1:
        element = {"dtype": feature.dtype, "_type": "Value"}
        return {"feature": element, "length": feature.shape[0], "_type": "List"}
    return {"shape": list(feature.shape), "dtype": feature.dtype, "_type": f"Array{len(feature.shape)}D"}

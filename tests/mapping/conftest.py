import numpy as np
import pytest
import torch


@pytest.fixture(params=["numpy", "torch"])
def array(request):
    """Makes a float32 array of either backend."""
    if request.param == "numpy":
        return lambda values: np.asarray(values, dtype=np.float32)
    return lambda values: torch.as_tensor(np.asarray(values, dtype=np.float32))


@pytest.fixture(params=["numpy", "torch"])
def wide(request):
    """Makes a float64 array of either backend."""
    if request.param == "numpy":
        return lambda values: np.asarray(values, dtype=np.float64)
    return lambda values: torch.as_tensor(np.asarray(values, dtype=np.float64))

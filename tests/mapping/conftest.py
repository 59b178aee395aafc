import numpy as np
import pytest

from gantry_fixtures.training import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors are slower on many threads."""
    if not torch:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["numpy", "torch"])
def array(request):
    """Makes a float32 array of either backend."""
    if request.param == "numpy":
        return lambda values: np.asarray(values, dtype=np.float32)
    return lambda values: torch.tensor(np.asarray(values, dtype=np.float32))


@pytest.fixture(params=["numpy", "torch"])
def wide(request):
    """Makes a float64 array of either backend."""
    if request.param == "numpy":
        return lambda values: np.asarray(values, dtype=np.float64)
    return lambda values: torch.tensor(np.asarray(values, dtype=np.float64))

"""What tests of the simulation share."""

import pytest
import torch


@pytest.fixture
def one_thread(tmp_path, monkeypatch):
    """Small tensors are slower on many threads; and MuJoCo writes its log into the working directory."""
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

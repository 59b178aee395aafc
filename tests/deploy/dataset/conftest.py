"""One small dataset for all tests of datasets."""

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("av")

from gantry_deploy.dataset import LOSSLESS, DatasetWriter
from gantry_deploy.dataset.testing import FEATURES, write_episodes


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """A dataset with every kind of feature, its video without loss; not to be changed."""
    folder = tmp_path_factory.mktemp("dataset") / "stored"
    with DatasetWriter(folder, 20, FEATURES, "tiny", codec=LOSSLESS) as writer:
        write_episodes(writer)
    return folder

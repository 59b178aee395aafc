"""Setup of every test: packages of ``examples``, ``tests/outside`` and ``tests/support`` as if installed."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it.

ROOT = Path(__file__).resolve().parent
_METADATA = tempfile.TemporaryDirectory(prefix="gantry-examples-")


def _add_metadata(config, folder):
    """Write into a folder what an installed package has there: its name, its version and its entry points.

    Args:
        config: The package's ``pyproject.toml``.
        folder: One of the path.
    """
    project = tomllib.loads(config.read_text(encoding="utf-8"))["project"]
    info = Path(folder) / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, entries in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))


def _path_before(*folders):
    """Value of ``PYTHONPATH`` with folders before those that it has."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def _add_packages():
    """Put every such package on the path of this process and of those that it starts, its entry points beside it."""
    added = []
    for config in sorted([*ROOT.glob("examples/*/pyproject.toml"), *ROOT.glob("tests/outside/*/pyproject.toml")]):
        _add_metadata(config, _METADATA.name)
        added.append(str(config.parent))
    added += [str(ROOT / "tests" / "support"), _METADATA.name]
    sys.path[:0] = added
    os.environ["PYTHONPATH"] = _path_before(*added)


_add_packages()


@pytest.fixture
def one_thread(tmp_path, monkeypatch):
    """Small tensors are slower on many threads; and MuJoCo writes its log into the working directory."""
    import torch

    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def with_terrier(tmp_path):
    """Environment variables of a process that has the package ``gantry_terrier`` as if installed.

    No other test has it: with entry points in mjlab's group, every list of tasks imports mjlab.
    """
    package = ROOT / "tests/outside/on_request/gantry_terrier"
    metadata = tmp_path / "metadata"
    metadata.mkdir()
    _add_metadata(package / "pyproject.toml", metadata)
    return {**os.environ, "PYTHONPATH": _path_before(package, metadata)}

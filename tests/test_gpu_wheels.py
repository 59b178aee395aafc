"""Wheels in loads: what is cut is joined again, and what is missing or changed is refused. Nothing is downloaded."""

import importlib.util
import random
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "gpu" / "wheels.py"
LARGE, SMALL = "large-1.0-py3-none-any.whl", "small-1.0-py3-none-any.whl"


@pytest.fixture
def wheels():
    spec = importlib.util.spec_from_file_location("gpu_wheels", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def whole(tmp_path):
    """Folder of two wheels: one of 2.5 MiB, which does not fit into a load, and a small one."""
    folder = tmp_path / "whole"
    folder.mkdir()
    for name, size in ((LARGE, 5 * 2**19), (SMALL, 1000)):
        with zipfile.ZipFile(folder / name, "w") as wheel:
            wheel.writestr("package/data.bin", random.Random(3).randbytes(size))
    return folder


def test_wheels_are_cut_into_loads_and_joined_again(wheels, whole, tmp_path):
    loads = wheels.cut(whole, tmp_path / "loads", 2.0)
    assert [path.name for path in loads] == ["load-0", "load-1", "load-2"]
    assert max(sum(path.stat().st_size for path in load.iterdir()) for load in loads) <= 2 * 2**20
    places = {path.name: load.name for load in loads for path in load.iterdir() if path.name != wheels.LIST}
    assert places == {
        f"{LARGE}.000": "load-0",
        f"{LARGE}.001": "load-1",
        f"{LARGE}.002": "load-2",
        SMALL: "load-2",
    }
    found = wheels.joined(tmp_path / "loads")
    assert [path.name for path in found] == [LARGE, SMALL]
    assert all(path.read_bytes() == (whole / path.name).read_bytes() for path in found)


def test_a_load_that_is_missing_or_changed_is_refused(wheels, whole, tmp_path):
    folder = tmp_path / "loads"
    with pytest.raises(ValueError, match="There is no load in"):
        wheels.joined(folder)
    wheels.cut(whole, folder, 2.0)
    piece = folder / "load-1" / f"{LARGE}.001"
    content = bytearray(piece.read_bytes())
    content[10] ^= 1
    piece.write_bytes(content)
    with pytest.raises(ValueError, match="is not what was cut"):
        wheels.joined(folder)
    piece.unlink()
    with pytest.raises(ValueError, match=r"There is no large.*\.001 in the loads"):
        wheels.joined(folder)


def test_a_list_of_packages_that_is_not_there_is_named(wheels, tmp_path, monkeypatch, capsys):
    missing = tmp_path / "have.txt"
    monkeypatch.setattr("sys.argv", ["wheels.py", "get", "--have", str(missing), "--output", str(tmp_path / "out")])
    assert wheels.main() == 2
    assert f"Cannot read '{missing}' (--have): No such file or directory." in capsys.readouterr().err

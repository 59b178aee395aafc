"""Files with their SHA-256: any change is noticed, and a kill between any two steps leaves what was there."""

import io
import random
import zipfile

import numpy as np
import pytest

from gantry_hardware.errors import GantryError
from gantry_hardware.files.checked_files import DamagedFileError, read_checked, verify, write_checked
from gantry_hardware.training.launcher import require_one_process
from gantry_hardware.training.rescue import saving_on_error


def archive(path):
    return write_checked(path, lambda file: np.savez(file, a=np.arange(300.0), b=np.zeros(3)))


def test_every_flipped_bit_and_every_cut_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    assert archive(path) == verify(path)
    with np.load(path) as file:  # readers of archives pass over the sum
        assert file["a"].sum() == 299 * 150
    data = path.read_bytes()
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    bits = [(place, bit) for place in range(len(data) - 120, len(data)) for bit in range(8)]
    bits += [(dice.randrange(len(data)), dice.randrange(8)) for _ in range(300)]
    for place, bit in bits:
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        for read in (verify, read_checked):
            with pytest.raises(DamagedFileError):
                read(path)
    for cut in (1, 40, 79, 81, 200, len(data)):
        path.write_bytes(data[: len(data) - cut])
        with pytest.raises(DamagedFileError):
            verify(path)


def test_an_archive_of_an_older_version_is_held_against_its_own_sums(tmp_path):
    path, buffer = tmp_path / "old.npz", io.BytesIO()
    np.savez(buffer, a=np.arange(300.0))
    path.write_bytes(buffer.getvalue())
    assert verify(path) == ""
    assert read_checked(path) == buffer.getvalue()
    changed = bytearray(buffer.getvalue())
    changed[1000] ^= 1
    path.write_bytes(changed)
    with pytest.raises(DamagedFileError, match=r"'a\.npy'|CRC"):
        verify(path)
    with zipfile.ZipFile(path, "w") as file:
        file.comment = b"longer"
    with pytest.raises(DamagedFileError):
        verify(path)


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_what_is_there_stays_when_any_step_of_writing_ends_the_process(tmp_path, monkeypatch, step):
    path = tmp_path / "x.npz"
    digest = archive(path)

    def die(*args):
        raise KeyboardInterrupt

    if step != "write":
        monkeypatch.setattr(f"os.{step}", die)
    with pytest.raises(KeyboardInterrupt):
        write_checked(path, die if step == "write" else lambda file: file.write(b"new"))
    assert verify(path) == digest
    assert [item.name for item in tmp_path.iterdir()] == ["x.npz"]


def test_what_was_learned_is_saved_and_the_error_goes_on(tmp_path, capsys):
    saved = []

    def save():
        saved.append(1)
        return tmp_path / "model_7.pt"

    for error in (ValueError("fell over"), MemoryError(), KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)) as raised, saving_on_error(save):
            raise error
        assert raised.value is error
    assert len(saved) == 4
    assert "What was learned until then is saved" in capsys.readouterr().err
    with pytest.raises(KeyError), saving_on_error(save, KeyError):
        raise KeyError
    assert len(saved) == 4

    def full():
        raise GantryError("the disk is full")

    with pytest.raises(ValueError, match="first"), saving_on_error(full):
        raise ValueError("first")
    assert "could not be saved: the disk is full" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
@pytest.mark.parametrize("value", ["2", "16", "abc", "0"])
def test_a_launcher_of_several_processes_is_refused(name, value):
    with pytest.raises(GantryError, match=f"{name} is '{value}'"):
        require_one_process({name: value})
    for one in ({}, {name: "1"}, {name: ""}):
        require_one_process(one)

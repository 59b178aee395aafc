"""Failures of libraries, memory and disks in one message with what helps; faults of the program keep a traceback."""

import errno

import numpy as np
import pytest

from gantry_deploy.cli import failures
from gantry_deploy.cli.failures import explained, unmet_requirements


def raised(function):
    try:
        function()
    except BaseException as error:
        return error
    pytest.fail("nothing was raised")


def test_short_memory_is_one_message_with_what_was_asked_for():
    assert "--set env.num_envs=N" in explained(raised(lambda: np.zeros(2**60)))
    assert "--set env.num_envs=N" in explained(raised(lambda: np.zeros(2**46, np.uint8)))
    torch_says = (
        "[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 288000000000 bytes."
    )
    assert "(288000000000 bytes were asked for)" in explained(RuntimeError(torch_says))
    cuda = type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate 20.00 GiB.")
    assert "(20.00 GiB were asked for)" in explained(cuda)
    assert "not enough memory" in explained(OSError(errno.ENOMEM, "Cannot allocate memory"))


@pytest.mark.parametrize(("number", "word"), [(errno.ENOSPC, "Free some space"), (errno.EROFS, "WARP_CACHE_PATH=/ro")])
def test_a_disk_that_takes_nothing_is_named(monkeypatch, number, word):
    monkeypatch.setenv("WARP_CACHE_PATH", "/ro")
    text = explained(OSError(number, "cannot", "/ro/kernels"))
    assert "'/ro/kernels'" in text
    assert word in text


def test_a_cause_is_looked_for():
    def fail():
        try:
            raise MemoryError
        except MemoryError as error:
            raise ImportError("initialization failed") from error

    assert "not enough memory" in explained(raised(fail))


@pytest.mark.parametrize(
    "error", [ValueError("x"), TypeError("x"), AttributeError("x"), KeyError("x"), RuntimeError("x")]
)
def test_a_fault_of_the_program_is_none_of_these(error):
    assert explained(error) == ""


def test_an_old_library_is_named_with_the_version_that_is_wanted(monkeypatch):
    monkeypatch.setattr(failures, "requires", lambda name: ["numpy>=99; extra == 'train'", "pyyaml>=1"])
    text = explained(AttributeError("module 'numpy' has no attribute 'future'"))
    assert f"numpy {np.__version__} (Gantry needs numpy>=99)" in text
    assert "pip install 'numpy>=99'" in text
    assert "yaml" not in text


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ("14.2.1", True),
        (">=14", True),
        (">=14.2.1,<15", True),
        (">=14.3", False),
        ("==14.2.1", True),
        ("==14.*", True),
        ("==13.*", False),
        ("~=14.1", True),
        ("~=14.2.0", True),
        ("~=13.9", False),
        ("!=14.2.1", False),
        ("<14.2.1", False),
        ("<=14.2.1.0", True),
        (">14.2", True),
    ],
)
def test_versions_are_compared_as_numbers(monkeypatch, wanted, fits):
    monkeypatch.setattr(failures, "version", lambda name: "14.2.1")
    declared = [f"av{wanted}; extra == 'data'"] if wanted[0] in "=<>!~" else ["av"]
    assert list(unmet_requirements(declared)) == ([] if fits else [("av", "14.2.1", wanted)])


def test_a_requirement_of_another_python_is_not_missed():
    declared = [
        "numpy<1; python_version < '3.0'",
        "numpy>=1; python_version >= '3.0'",
        "numpy<1; python_version >= '3'",
    ]
    assert [wanted for _, _, wanted in unmet_requirements(declared)] == ["<1"]

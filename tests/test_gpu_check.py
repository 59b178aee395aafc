"""The GPU check's runner: parts that end too early keep what they have measured. No GPU is needed."""

import argparse
import importlib.util
import signal
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "scripts" / "gpu"


@pytest.fixture
def check(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu_check", FOLDER / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HERE", tmp_path)
    return module


def options(folder):
    return argparse.Namespace(output=folder, device="cpu", small=True)


def write_part(folder, text):
    head = "import pathlib, sys, time\nrows = pathlib.Path(sys.argv[3]).open('a')\n"
    (folder / "parts.py").write_text(head + text)


def test_a_part_that_never_ends_is_ended_and_keeps_its_whole_rows(check, tmp_path):
    write_part(
        tmp_path, """rows.write('{"a": 1.5}\\n{"a": 2'); rows.flush(); print('busy', flush=True); time.sleep(600)"""
    )
    found = check.run_part("go2", options(tmp_path), 15.0)
    assert found["exit"] == -signal.SIGTERM
    assert found["rows"] == [{"a": 1.5}]
    assert found["tail"] == ["busy"]


def test_tables_tell_exit_rows_and_nested_numbers(check, tmp_path):
    write_part(tmp_path, """rows.write('{"task": "x", "rate": 12345.6, "error": {"qpos": 2.5e-06}}\\n')""")
    found = check.run_part("go2", options(tmp_path), 300.0)
    assert found["exit"] == 0
    assert "  task x  rate 12,346  error {qpos 2.5e-06}" in check.tables({"go2": found}).splitlines()


def test_every_part_has_a_share_and_a_function(check):
    source = (FOLDER / "parts.py").read_text()
    assert all(f'    "{name}": measure_' in source for name in check.WEIGHTS)

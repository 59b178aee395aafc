"""The GPU check's runner: parts that end too early keep what they have measured. No GPU is needed."""

import argparse
import importlib.util
import json
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
    assert found["timed_out"]
    assert found["rows"] == [{"a": 1.5}]
    assert found["tail"] == ["busy"]


def test_tables_tell_exit_rows_and_nested_numbers(check, tmp_path):
    write_part(tmp_path, """rows.write('{"task": "x", "rate": 12345.6, "error": {"qpos": 2.5e-06}}\\n')""")
    found = check.run_part("go2", options(tmp_path), 300.0)
    assert found["exit"] == 0
    assert "  task x  rate 12,346  error {qpos 2.5e-06}" in check.tables({"go2": found}).splitlines()


@pytest.mark.soak
def test_a_second_command_goes_on_from_gpu_json_alone(check, tmp_path, monkeypatch, capsys):
    # Writes what it was given, then fails once for each part but go2.
    write_part(
        tmp_path,
        """
name, before = sys.argv[1], pathlib.Path(sys.argv[3]).read_text().count('\\n')
rows.write('{"name": "%s", "before": %d}\\n{"error": "x"}\\n' % (name, before)); rows.flush()
sys.exit(name != 'go2' and not before)
""",
    )
    command = ["check.py", "--device", "cpu", "--only", "drive,go2", "--output"]
    monkeypatch.setattr("sys.argv", [*command, str(tmp_path / "one")])
    assert check.main() == 1
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "gpu.json").rename(tmp_path / "two" / "gpu.json")
    monkeypatch.setattr("sys.argv", [*command, str(tmp_path / "two")])
    capsys.readouterr()
    assert check.main() == 0
    assert "go2, at most" not in capsys.readouterr().out
    found = json.loads((tmp_path / "two" / "gpu.json").read_text())
    assert found["go2"]["rows"] == [{"name": "go2", "before": 0}, {"error": "x"}]
    assert found["drive"]["rows"] == [{"name": "drive", "before": 0}, {"name": "drive", "before": 1}, {"error": "x"}]


def test_where_time_is_over_the_rest_is_left_for_the_next_command(check, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check.py", "--minutes", "0.1", "--only", "go2", "--output", str(tmp_path / "a")])
    assert check.main() == check.MORE_TO_DO
    assert "There is more to do (go2)" in capsys.readouterr().out
    ended, failed = {"exit": 143, "timed_out": True}, {"exit": 1, "timed_out": False}
    assert check.to_do(["a", "b", "c", "d"], {"a": ended, "b": failed, "c": {"exit": 0}}) == ["d", "a", "b"]


def test_every_part_has_a_share_and_a_function(check):
    source = (FOLDER / "parts.py").read_text()
    assert all(f'    "{name}": measure_' in source for name in check.LIMITS_S)

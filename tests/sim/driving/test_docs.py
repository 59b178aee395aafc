"""The documents' own example runs as it is printed, at a smaller size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gantry_deploy.bundle.bundle import load_bundle

PAGE = Path(__file__).parents[3] / "docs" / "driving.md"


@pytest.mark.slow
def test_the_example_in_python_trains_scores_and_exports(tmp_path, monkeypatch, capsys, one_thread):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    small = code.replace("total_steps=1_000_000", "total_steps=10_000").replace("episodes=50", "episodes=2")
    assert len(small) < len(code)
    monkeypatch.chdir(tmp_path)
    exec(compile(small, str(PAGE), "exec"), {})
    assert "factor_steering" in capsys.readouterr().out
    contract = load_bundle(tmp_path / "runs" / "lane-smooth" / "bundle").contract
    assert (contract.provenance.task, contract.provenance.seed) == ("drive-lane", 1)

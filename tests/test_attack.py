"""A few cases of every attack that needs no ROS 2; `python scripts/attack all` runs them in full."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ATTACK = Path(__file__).parents[1] / "scripts" / "attack"

pytestmark = pytest.mark.slow


SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("bundles", 3),
        ("recordings", 3),
        *(
            pytest.param(*case, marks=SOAK)
            for case in (("bundles", 12), ("recordings", 10), ("datasets", 6), ("kills", 2))
        ),
    ],
)
def test_no_case_is_ugly_or_wrong(tmp_path, kind, count):
    seed, result = 30, tmp_path / "result.json"
    command = [sys.executable, ATTACK, kind, "--seed", seed, "--count", count, "--json", result]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    (report,) = json.loads(result.read_text())
    counts = report["counts"]
    assert counts.get("refused", 0) + counts.get("right", 0) == count
    assert not report["bad"]

"""One page of numbers: rows from results written by hand, the page, and a short part by the real commands."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from gantry_deploy.cli.main import main
from gantry_hardware.errors import GantryError
from gantry_sim.benchmarks.summary import (
    PARTS,
    Row,
    corrections_rows,
    learning_rows,
    mapping_rows,
    markdown_of,
    page_of,
    peer_rows,
    runtime_rows,
    simulation_rows,
)
from gantry_sim.benchmarks.summary_command import NAMES

SIMULATION = {
    "machine": {"mjlab": "1.6.0"},
    "results": [
        {
            "num_envs": 256,
            "env_steps_per_s": {
                "gantry": {"min": 4000.0, "median": 5000.0, "max": 6000.0},
                "mjlab": {"min": 190.0, "median": 200.0, "max": 210.0},
            },
            "ratio": {"min": 20.0, "median": 25.5, "max": 30.0},
        }
    ],
    "preset": {
        "task": "velocity-flat-go2",
        "training": {
            "collect_steps_per_s": {"min": 1.0, "median": 2.0, "max": 3.0},
            "train_steps_per_s": {"min": 0.5, "median": 1.0, "max": 1.5},
        },
    },
    "aims": {
        "ratio at 256 environments": {"value": 25.5, "aim": 25.0},
        "steps/s without learning": {"value": 2.0, "aim": 30000.0},
    },
}


def test_a_ratio_stands_beside_its_peer_with_its_spread():
    first, alone, learning = simulation_rows(SIMULATION)
    assert first.ratio == (20.0, 25.5, 30.0)
    assert (first.peer, first.peer_value, first.aim) == ("mjlab 1.6.0 as it ships", 200.0, 5000.0)
    assert (alone.value, alone.aim) == (2.0, 30000.0)
    assert (learning.value, learning.aim) == (1.0, None)
    line = markdown_of([first]).splitlines()[2]
    assert line == (
        "| mjlab's Velocity-Flat-Go1, 256 environments | 5,000 [4,000, 6,000] steps/s | mjlab 1.6.0 as it ships: 200 "
        "| 25.5 [20, 30] | 5,000 |"
    )


def test_learned_is_the_first_row_below_the_error(tmp_path):
    rows = [(0.5, 10.0, 1000), (0.19, 20.0, 2000), (0.25, 30.0, 3000), (0.1, 40.0, 4000)]
    text = "\n".join(
        json.dumps({"kind": "train", "lin_vel_error_m_s": error, "wall_s": wall_s, "env_steps": steps})
        for error, wall_s, steps in rows
    )
    (tmp_path / "metrics.jsonl").write_text(text + "\n")
    reached, whole = learning_rows({"run": str(tmp_path), "env_steps": 4000, "train_wall_s": 41.0})
    assert (reached.value, whole.value) == (20.0, 41.0)
    assert "2,000 steps" in reached.what
    (tmp_path / "metrics.jsonl").write_text(text.splitlines()[0] + "\n")
    assert len(learning_rows({"run": str(tmp_path), "env_steps": 1000, "train_wall_s": 10.0})) == 1


def test_loops_stand_beside_the_bare_timer_of_their_rate():
    def timing(p99_s):
        return {"jitter": {"p99_s": p99_s}}

    rows = runtime_rows(
        {
            "compute": {"step": {"p50_s": 1e-4, "p99_s": 3e-4}},
            "aims": {"policy step p99": {"value": 0.3, "aim": 0.5}},
            "timers": [{"rate_hz": 50.0, "timing": timing(1e-4)}],
            "loops": [
                {"backend": "mock", "rate_hz": 50.0, "timing": timing(2e-4)},
                {"backend": "mujoco", "rate_hz": 50.0, "skipped": "no model"},
            ],
            "ros": [{"rate_hz": 200.0, "timing": timing(1e-3)}],
        }
    )
    assert [row.value for row in rows] == pytest.approx([0.1, 0.3, 0.2, 1.0])
    assert rows[1].aim == 0.5
    assert rows[2].ratio == pytest.approx((2.0, 2.0, 2.0))
    assert rows[3].ratio is None, "no timer was measured at that rate"


def test_frames_and_hand_overs_are_told_in_milliseconds():
    frame = {"frame": {"frame": {"p50_s": 2e-3, "p99_s": 3e-3}}, "frame_aim_s": 5e-3}
    assert [(row.value, row.aim) for row in mapping_rows(frame)] == [(2.0, None), (3.0, 5.0)]
    row = {"rate_hz": 10.0, "take_p50_s": 0.05, "take_p99_s": 0.1}
    assert [found.value for found in corrections_rows({"hand_over": {"a": row}})] == [50.0, 100.0]


def test_the_page_names_hardware_and_what_is_not_measured(tmp_path):
    page = page_of([Row("simulation", "steps", "steps/s", 1.0)], {"processor": "a Xeon"}, list(NAMES), False)
    text = page.write(tmp_path / "page.html").read_text()
    assert "a Xeon" in text
    assert "UniLab" in text
    assert tuple(PARTS) == NAMES


def test_peers_are_read_from_the_folder(tmp_path):
    assert peer_rows(tmp_path) == []
    row = Row("peers", "Go2, with learning", "steps/s", 900.0, 800.0, 1000.0, "another", 300.0, (2.0, 3.0, 4.0))
    (tmp_path / "peers.json").write_text(json.dumps({"another": [asdict(row)]}))
    assert peer_rows(tmp_path) == [row]
    page = page_of([row], {"processor": "a Xeon"}, [], False).write(tmp_path / "page.html").read_text()
    assert "another: 300" in page
    assert "3 [2, 4]" in page
    (tmp_path / "peers.json").write_text('{"another": [{"speed": 1}]}')
    with pytest.raises(GantryError, match=r"peers\.json' holds no rows of"):
        peer_rows(tmp_path)


@pytest.mark.slow
def test_a_short_part_by_the_real_commands(tmp_path, capsys):
    output = tmp_path / "bench"
    words = ["bench", "page", "--output", str(output), "--quick", "--parts", "runtime", "--json", str(tmp_path / "j")]
    assert main(words) == 0
    told = json.loads((tmp_path / "j").read_text())
    assert told["quick"] is True
    assert {"processor", "torch", "mujoco"} <= told["machine"].keys()
    assert all(row["value"] > 0.0 for row in told["rows"])
    assert "policy step, median" in (output / "table.md").read_text()
    before = (output / "runtime.json").stat().st_mtime
    assert main(words) == 0
    assert (output / "runtime.json").stat().st_mtime == before, "what is measured is kept"
    assert main(["bench", "page", "--output", str(output)]) == 2
    assert "holds quick measurements, not full ones" in capsys.readouterr().err
    assert main(["bench", "page", "--output", str(tmp_path), "--parts", "simulatoin"]) == 2
    assert "Did you mean 'simulation'?" in capsys.readouterr().err
